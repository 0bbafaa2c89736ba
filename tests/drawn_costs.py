"""Configurations drawn from the entries over all six axes, with lengths and padding, and what each really takes."""

import math
import random
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from core.attention import AXES, AttentionConfig, Choice
from core.attention.cost import peak_bytes, workload
from core.attention.masks import COMPOSITIONS
from core.entries import ConfigError, Entry, Param

LONGEST = 256
MIN_BLOCK = 16  # blocks of one are ten thousands, and as many calls to wait for
LEAVES = [entry for entry in AXES["mask"] if entry.key not in COMPOSITIONS]


@dataclass(frozen=True)
class Case:
    config: AttentionConfig
    queries: int
    keys: int
    real: int | None

    def __str__(self) -> str:
        plain = AttentionConfig(self.config.d_model, self.config.num_heads)
        chosen = [
            f"{axis} {getattr(self.config, axis)}"
            for axis in AXES
            if getattr(self.config, axis) != getattr(plain, axis)
        ]
        return (
            f"d_model {plain.d_model}, {plain.num_heads} heads, {'; '.join(chosen)}; T {self.queries}, "
            f"S {self.keys}, real {self.real}"
        )


SAME_COST = (
    "short_conv"  # from projected heads on, which is what costs begin with, it is multi_head
)


def drawn(rng: random.Random) -> Case:
    """Any kernel, and on each other axis the usual choice or any that fits."""
    queries = rng.randint(64, LONGEST)
    keys, kernel = (
        queries if rng.random() < 0.6 else rng.randint(64, LONGEST),
        rng.choice(AXES["kernel"]),
    )
    while True:
        heads, size = rng.choice((1, 2, 3, 4, 8)), rng.choice((8, 16, 32, 64))
        axes = {
            axis: choice(rng, rng.choice([item for item in entries if item.key != SAME_COST]))
            for axis, entries in AXES.items()
            if rng.random() < 0.6
        }
        try:
            config = AttentionConfig(heads * size, heads).with_(
                **axes | {"kernel": choice(rng, kernel)}
            )
        except ConfigError:
            continue
        padded = rng.random() < 0.35 or any(part.key == "padding" for part in config.mask.walk())
        return Case(config, queries, keys, rng.randint(keys // 4, keys) if padded else None)


def choice(rng: random.Random, entry: Entry) -> Choice:
    count = 1 if entry.key == "not" else 2
    parts = (
        [choice(rng, rng.choice(LEAVES)) for _ in range(count)] if entry.key in COMPOSITIONS else []
    )
    return Choice.of(entry.key, *parts, **{param.key: value(rng, param) for param in entry.params})


def value(rng: random.Random, param: Param):
    if param.choices:
        return rng.choice(param.choices)
    if isinstance(param.default, bool):
        return rng.random() < 0.5
    if not isinstance(param.default, int):
        return param.default
    if param.key == "max_len":  # a table must reach the last key
        return 512
    low = MIN_BLOCK if param.key in ("block", "chunk") else int(param.low or 0)
    return rng.choice(
        [
            param.default,
            *(rng.randint(low, max(low, min(int(param.high), most))) for most in (40, 300)),
        ]
    )


def flash(q, k, v, *rest, **how):
    return sdpa_flop_count(q, k, v)


def triangular(matrix, right, *rest, **how):
    """Solved row by row: half of the matrix meets each column."""
    return math.prod(right) * matrix[-1]


UNCOUNTED = {
    torch.ops.aten.linalg_solve_triangular: triangular,  # what PyTorch's counter leaves out
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flash,
}


def taken(case: Case) -> tuple[int, int]:
    """The FLOPs that PyTorch counts, and the bytes that it allocates."""
    work = workload(case.config, case.queries, keys=case.keys, real=case.real)
    work()  # what is kept from call to call is made now
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        work()
    return counter.get_total_flops(), peak_bytes(work)
