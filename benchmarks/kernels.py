"""Each kernel beside its best peer at T = 128 … 8192, forward and forward with backward, with peak memory.

The rows follow from the KERNELS entries: a new kernel is measured by itself, beside F.scaled_dot_product_attention.
Short sequences come in batches of TOKENS tokens, as they do in training, so that a call is work and not overhead;
memory is that of one sequence. Time is that of the processor, on one thread, or that on a graphics card. What would
take more than MAX_SECONDS a call or MAX_BYTES at once is skipped, and the row says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from linformer import LinformerSelfAttention
from local_attention import LocalAttention
from performer_pytorch.performer_pytorch import linear_attention, softmax_kernel
from torch import Tensor

from benchmarks.timing import Row, clock_of, median_ratio, rounds, seconds
from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.cost import CPU, attention_cost, exponent, peak_bytes
from core.attention.kernels import KERNELS
from core.attention.kernels.implied import elu_features

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
TOKENS, HEADS, SIZE, WINDOW = 2048, 4, 64, 32
MAX_SECONDS, MAX_BYTES = 3.0, 2 * 2**30
MEGABYTE = 2**20
Heads = tuple[Tensor, Tensor, Tensor]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """One kernel, the mask it is measured with, a peer that does the same, and the ratio it must keep where it must."""

    peer: str
    theirs: Callable[[AttentionConfig, int], Attend]
    mask: Choice = Choice("none")
    budget: str = "–"
    kernel: Choice | None = None


def sdpa(config: AttentionConfig, length: int) -> Attend:
    return F.scaled_dot_product_attention


def handwritten(config: AttentionConfig, length: int) -> Attend:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / SIZE**0.5
        weights = scores.softmax(-1)
        return weights @ v

    return run


def local_attention(config: AttentionConfig, length: int) -> Attend:
    return LocalAttention(WINDOW, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False)


def performer(config: AttentionConfig, length: int) -> Attend:
    device = torch.get_default_device()
    with torch.device(CPU):  # directions are drawn there, and so the same on every device
        directions = Attention(config).kernel.directions.to(device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        fq, fk = (
            softmax_kernel(x, projection_matrix=directions, is_query=own)
            for x, own in ((q, True), (k, False))
        )
        return linear_attention(fq, fk, v)

    return run


def linformer(config: AttentionConfig, length: int) -> Attend:
    """Its module's own three steps, without the maps around them."""
    maps = LinformerSelfAttention(HEADS * SIZE, length, k=config.kernel["rank"], heads=HEADS)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (
            torch.einsum("bhnd,nk->bhkd", x, mix) for x, mix in ((k, maps.proj_k), (v, maps.proj_v))
        )
        return (torch.einsum("bhnd,bhkd->bhnk", q, k) * SIZE**-0.5).softmax(-1) @ v

    return run


def linear(config: AttentionConfig, length: int) -> Attend:
    """The kernel `linear` under the same mask."""
    return ours(config.with_(kernel=Choice("linear")), str(torch.get_default_device()))


def exact(config: AttentionConfig, length: int) -> Attend:
    """A layer of the exact kernel under the same mask, fused as it runs when nobody looks."""
    layer = Attention(config.with_(kernel="exact")).eval().to(torch.get_default_device())

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        x = q.detach().transpose(1, 2).flatten(2)
        return layer.fast_kernel(layer.kernel_inputs(q, k, v, x, x)).out

    return run


BAND, CAUSAL = Choice.of("local", window=WINDOW), Choice("causal")
STATE = "≤ 1.50 at T = 2048, forward"
AHEAD = "< 1.00 from T ≤ 512, forward"
CASES: dict[str, Case] = {
    "exact": Case("handwritten softmax", handwritten, budget="≤ 1.00"),
    "fused": Case("bare SDPA", sdpa, budget="≤ 1.05"),
    "local": Case("bare SDPA", sdpa, BAND, AHEAD),
    "block_sparse": Case("bare SDPA", sdpa, BAND),
    "linear": Case("bare SDPA", sdpa, budget=AHEAD),
    "gla": Case("linear", linear, CAUSAL, STATE),
    "ssd": Case("linear", linear, CAUSAL, STATE),
    "kda": Case("linear", linear, CAUSAL, STATE),
    "linformer": Case("bare SDPA", sdpa, kernel=Choice.of("linformer", max_len=LENGTHS[-1])),
}
SPARSE, CHOSEN = Choice("block_sparse"), "< 1.00 from T = 1024, forward"
CONTENT = {  # masks that random content chooses, which leaves few blocks out
    "block_sparse, MoBA": Case(
        "exact", exact, Choice.of("moba", size=64, blocks=3), CHOSEN, SPARSE
    ),
    "block_sparse, indexer": Case(
        "exact", exact, Choice.of("lightning", keys=128, size=16), CHOSEN, SPARSE
    ),
}
PACKAGES = {  # the same once more, beside a package that does the same
    "local": Case("local_attention", local_attention, BAND),
    "linear": Case(
        "performer_pytorch",
        lambda config, length: (
            lambda q, k, v: linear_attention(elu_features(q), elu_features(k), v)
        ),
    ),
    "performer": Case("performer_pytorch", performer),
    "linformer": Case("linformer", linformer, kernel=Choice.of("linformer", max_len=LENGTHS[-1])),
}


def batch(length: int) -> int:
    return max(1, TOKENS // length)


def heads(length: int, grad: bool, device: str) -> Heads:
    generator = torch.Generator().manual_seed(0)
    made = (
        torch.randn(batch(length), HEADS, length, SIZE, generator=generator).to(device)
        for _ in range(3)
    )
    return tuple(x.requires_grad_(grad) for x in made)  # type: ignore[return-value]


def moved(case: Case, config: AttentionConfig, length: int, device: str) -> Attend:
    """The peer, built on that device."""
    with torch.device(device):
        return case.theirs(config, length)


def ours(config: AttentionConfig, device: str) -> Attend:
    """The kernel of a layer as it runs when nobody looks at the steps between; the bare function for fused."""
    if config.kernel.key == "fused":
        return lambda q, k, v: attend(q, k, v, kernel="fused").out
    layer = Attention(config).eval().to(device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        x = q.detach().transpose(1, 2).flatten(2)  # what learned gates read
        return layer.kernel(layer.kernel_inputs(q, k, v, x, x)).out

    return run


def work(run: Attend, qkv: Heads, backward: bool) -> Callable[[], object]:
    def forward() -> Tensor:
        with torch.no_grad():
            return run(*qkv)

    return (lambda: torch.autograd.grad(run(*qkv).sum(), qkv)) if backward else forward


def shown(value: float, held: int) -> str:
    return f"{1e3 * value:.2f} ms, {held / MEGABYTE:.1f} MB"


def too_much(config: AttentionConfig, length: int, times: list[float]) -> str:
    """Why this length is skipped, or nothing; times are the seconds a sequence of the lengths before."""
    cost = attention_cost(config, length, length)
    if cost.bytes > MAX_BYTES:
        return f"skipped: would hold {cost.bytes / MEGABYTE:,.0f} MB"
    if times:
        before = LENGTHS[len(times) - 1]
        expected = (
            times[-1] * batch(length) * cost.flops / attention_cost(config, before, before).flops
        )
        if expected > MAX_SECONDS:
            return f"skipped: would take {expected:.0f} s"
    return ""


def measured(key: str, case: Case, backward: bool, count: int, device: str) -> Iterator[Row]:
    """A row a length, and one for the slope of what was measured."""
    config = AttentionConfig(HEADS * SIZE, HEADS, mask=case.mask, kernel=case.kernel or key)
    way = "forward and backward" if backward else "forward"
    times: list[float] = []
    bytes_: list[int] = []
    for length in LENGTHS:
        what = f"{key}, T {length}, {way}"
        if reason := too_much(config, length, times):
            yield Row(what, case.peer, reason, "–", float("nan"), case.budget)
            continue
        qkv = heads(length, backward, device)
        runs = {"ours": ours(config, device), "theirs": moved(case, config, length, device)}
        contenders = {name: work(run, qkv, backward) for name, run in runs.items()}
        held = {
            name: peak_bytes(call, device) // batch(length) for name, call in contenders.items()
        }
        once = max(
            seconds(call, clock=clock_of(device), device=device) for call in contenders.values()
        )
        number = max(3, min(count, int(MAX_SECONDS / once)))
        taken = rounds(contenders, number, clock=clock_of(device), device=device)
        middle = {name: statistics.median(each) for name, each in taken.items()}
        yield Row(
            what,
            case.peer,
            shown(middle["ours"], held["ours"]),
            shown(middle["theirs"], held["theirs"]),
            median_ratio(taken["ours"], taken["theirs"]),
            case.budget,
        )
        times.append(middle["ours"] / batch(length))
        bytes_.append(held["ours"])
    done = LENGTHS[: len(times)]
    if len(done) > 2:
        slopes = f"time T^{exponent(done[-3:], times[-3:]):.2f}, memory T^{exponent(done[-3:], bytes_[-3:]):.2f}"
        yield Row(f"{key}, {way}, slope of the last three", "–", slopes, "–", float("nan"), "–")


def rows(count: int = 15, device: str = CPU) -> Iterator[Row]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cases = [(entry.key, CASES.get(entry.key, Case("bare SDPA", sdpa))) for entry in KERNELS]
    for backward in (False, True):
        for key, case in (*cases, *CONTENT.items(), *PACKAGES.items()):
            yield from measured(key, case, backward, count, device)
