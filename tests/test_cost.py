"""The closed forms against the layer that is built, PyTorch's own counter, and the allocations that are made."""

import math
import random
import zlib
from collections.abc import Iterable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from core.attention import AXES, PRESETS, Attention, AttentionConfig, Choice
from core.attention.cost import (
    attention_cost,
    closed_form_cost,
    parameters,
    peak_bytes,
    recorded_cost,
    workload,
)
from core.attention.masks import COMPOSITIONS
from core.attention.register import count_cost
from core.entries import Area, ConfigError, Entry, Param
from tests.attention.drawing import config_of
from tests.cases import each

H, D = 4, 64
# Configurations drawn from the entries over all six axes, with lengths and padding, and what each really takes.

LONGEST = 256
MIN_BLOCK = 16  # blocks of one are ten thousands, and as many calls to wait for
LEAVES = [entry for entry in AXES["mask"] if entry.key not in COMPOSITIONS]


# from projected heads on, which is what costs begin with, it is multi_head
SAME_COST = "short_conv"


def pick(rng: random.Random, entries: Iterable[Entry]) -> Entry:
    """One of the entries; with another one beside them it is the same, or that one."""
    draw = rng.random()
    return min(entries, key=lambda entry: zlib.crc32(f"{draw} {entry.key}".encode()))


def drawn(rng: random.Random) -> tuple[AttentionConfig, int, int, int | None]:
    """A config, T, S and the number of real keys, if not all: any kernel; on each other axis the usual or what fits."""
    queries = rng.randint(64, LONGEST)
    keys, kernel = (
        queries if rng.random() < 0.6 else rng.randint(64, LONGEST),
        pick(rng, AXES["kernel"]),
    )
    while True:
        heads, size = rng.choice((1, 2, 3, 4, 8)), rng.choice((8, 16, 32, 64))
        axes = {
            axis: choice(rng, pick(rng, [item for item in entries if item.key != SAME_COST]))
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
        return config, queries, keys, rng.randint(keys // 4, keys) if padded else None


def choice(rng: random.Random, entry: Entry) -> Choice:
    count = 1 if entry.key == "not" else 2
    parts = (
        [choice(rng, pick(rng, LEAVES)) for _ in range(count)] if entry.key in COMPOSITIONS else []
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


UNCOUNTED = {
    # What PyTorch's counter leaves out. Solved row by row: half of the matrix meets each column.
    torch.ops.aten.linalg_solve_triangular: lambda matrix, right, *_, **how: (
        math.prod(right) * matrix[-1]
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **how: (
        sdpa_flop_count(q, k, v)
    ),
}


def taken(config, queries, keys=None, real=None) -> tuple[int, int]:
    work = workload(config, queries, keys=keys, real=real)
    work()  # what is kept from call to call is made now
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        work()
    return counter.get_total_flops(), peak_bytes(work)


# What PyTorch counts and allocates, at chosen sizes and at drawn ones.

LOCAL, STRIDED = Choice.of("local", window=32), Choice.of("strided", lookback=32, stride=128)
CASES = [
    ("exact", "none"),
    ("exact", "causal"),
    ("chunked", "none"),
    ("chunked", "causal"),
    ("local", LOCAL),
    ("block_sparse", LOCAL),
    ("block_sparse", STRIDED),
    ("linear", "none"),
    ("linear", "causal"),
    ("performer", "none"),
    ("performer", "causal"),
    (Choice.of("linformer", max_len=1024), "none"),
    ("nystrom", "none"),
    ("retention", "none"),
    ("gated_delta", "none"),
    ("fused", "none"),
    ("fused", "causal"),
]


def case(kernel, mask):
    return AttentionConfig(H * D, H, mask=mask, kernel=kernel)


@each("preset", PRESETS)
def test_parameters_are_those_of_the_built_layer(preset):
    config = preset.config(64, 4)
    assert sum(parameters(config).values()) == sum(
        weight.numel() for weight in Attention(config).parameters()
    )


def test_parameters_in_closed_form():
    c, rank, longest = 64, 8, 100
    plain = AttentionConfig(
        c, 4, kernel=Choice.of("linformer", rank=rank, max_len=longest), position="learned"
    )
    counts = parameters(plain)
    assert (
        counts["projection"] == 4 * (c * c + c)
        and counts["score"] == counts["normalizer"] == counts["mask"] == 0
    )
    assert counts["kernel"] == 2 * longest * rank
    assert counts["position"] == plain.position["max_len"] * c
    assert parameters(AttentionConfig(c, 4, score="general"))["score"] == c * c // 4


@each("mask", ["none", "causal"])
def test_latent_values_are_padded_to_the_size_of_keys(mask):
    # Keys of 64 + 8 dimensions, values of 64, which PyTorch's CPU kernel would compute with the whole matrix.
    config, length = case("fused", mask).with_(projection="latent"), 512
    (flops, held), cost = taken(config, length), attention_cost(config, length, length)
    assert cost.flops == flops == 2 * length**2 * H * 2 * (D + 8)
    assert cost.bytes == pytest.approx(held, rel=0.05)


HALVED = ("gla", "kda", "gdn2", "hgrn2", "rwkv6")  # whose decays choose the products
STATES = ("delta_product", "gdn2", "trapezoid", "rwkv7", "comba", "hgrn2", "rwkv6")
MASKS = (Choice.of("local", window=16), Choice.of("local", window=128), STRIDED, Choice("causal"))
# What the page Cost and speed lets one set, from small to more than there is.
SIZED = [
    *(
        (Choice.of(kernel, block=block), mask)
        for kernel in ("local", "block_sparse")
        for block in (8, 64, 300)
        for mask in MASKS
    ),
    *((Choice.of("chunked", block=block), Choice("causal")) for block in (20, 64, 1024)),
    *(
        (Choice.of(kernel, chunk=chunk), Choice("causal"))
        for kernel in ("linear", "retention", "gated_delta")
        for chunk in (8, 256)
    ),
]


@each(
    ("config", "queries", "keys", "real", "close"),
    [
        *(
            (case(*row), n, n, None, 0.001 if row[0] == "exact" else 0.2)
            for row in CASES
            for n in ((1024, 512) if row[0] in ("exact", "fused") else (512,))
        ),
        *((case(*row), 256, 256, None, 0.25) for row in SIZED),
        *(
            (
                case("exact", mask).with_(normalizer=Choice.of("softmax", temperature=0.5)),
                *(512, 512, None, 0.001),
            )
            for mask in ("none", "causal")
        ),
        *(
            (AttentionConfig(96, 4, kernel=Choice.of(key, chunk=chunk)), *sizes, 0.2)
            for key, chunk, *sizes in [
                *(
                    (key, n, *sizes)
                    for key in ("gla", "kda", "ssd", "delta", *STATES)
                    for n in (5, 32)
                    for sizes in ((90, 90, None), (70, 110, 60))
                ),
                *((key, 32, 1200, 1200, None) for key in ("kda", *STATES)),
                ("log_linear", 5, 90, 90, None),
                ("log_linear", 32, 70, 110, 60),
                ("log_linear", 64, 300, 300, None),
            ]
        ),
    ],
)
def test_the_cost_is_what_pytorch_counts_and_allocates(config, queries, keys, real, close):
    flops, held = taken(config, queries, keys, real)
    cost = attention_cost(config, queries, keys, real)
    assert cost.flops == flops and cost.bytes == pytest.approx(held, rel=close)


@each("position", [item.key for item in AXES["position"]])
@each("mask", [item.key for item in AXES["mask"] if "reads content" in item.traits])
def test_content_masks_cost_what_pytorch_counts(mask, position):
    # PoPE gives a query twice as many numbers, which MoBA multiplies with the means of its blocks.
    try:
        own = config_of("mask", mask, 4)
        config = own.with_(position=config_of("position", position, 4).position)
        work = workload(config, 24, keys=31)
        work()
    except ConfigError:
        return  # the two cannot be combined, or not with other keys
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        work()
    assert attention_cost(config, 24, 31).flops == counter.get_total_flops()


def test_neither_closed_form_nor_peak_reads_process():
    config = case("exact", "causal")
    peak_bytes(workload(config, 512))  # makes what is cached
    cost, held = attention_cost(config, 512, 512), peak_bytes(workload(config, 512))
    torch.set_num_threads(3)
    assert attention_cost(config, 512, 512) == cost and peak_bytes(workload(config, 512)) == held
    assert torch.get_num_threads() == 3


@each("score", AXES["score"])
def test_a_score_without_a_cost_multiplies_no_matrices(score):
    # Counted as a plug-in's is: without a cost it would count 0 in silence.
    if score.cost is Entry.__dataclass_fields__["cost"].default:
        config = AttentionConfig(H * D, H, score=score.key)
        flops = count_cost(score, config, Area.whole(7, 11)).flops
        assert flops == 0, f"{score.key} takes {flops:,.0f} FLOPs: give its Entry a cost"


def test_any_configuration_costs_what_pytorch_counts():
    # All to the last product; a bound where a plan reads a learned mask, or decays strong enough are cut in halves.
    # Bytes within a quarter, but for five of a hundred, and none is off by half.
    ratios = dict[str, float]()
    for one in (drawn(random.Random(seed)) for seed in range(100)):
        cost, (flops, held) = attention_cost(*one), taken(*one)
        at_most = closed_form_cost(one[0], 1).at_most
        assert (
            cost.flops >= flops if (at_most or one[0].kernel.key in HALVED) else cost.flops == flops
        ), str(one)
        # a convolution's buffers are the processor's choice: blocks of 8 or 16 channels, or a copy a tap
        free = at_most or "multi_token" in str(one[0])
        ratios |= {} if free else {str(one): cost.bytes / held}
    far = {which: ratio for which, ratio in ratios.items() if not 0.75 <= ratio <= 1.25}
    assert len(far) <= 5 and all(0.5 <= ratio <= 1.5 for ratio in far.values()), far


@each(("block", "length"), [(256, 1024), (16, 256)])
def test_a_table_is_paid_for_once_a_call(block, length):
    # Deberta projects 2 · 2k vectors of C numbers once: 4 · 2 · 128 · C · C, and not in each block.
    plain = AttentionConfig(H * D, H, kernel=Choice.of("chunked", block=block))
    placed = plain.with_(position=Choice("deberta"))
    more = (
        attention_cost(placed, length, length).flops - attention_cost(plain, length, length).flops
    )
    table = 4 * 256 * (H * D) ** 2
    met = sum(
        2 * 2 * block * vectors(block, away) * H * D * (length // block - abs(away))
        for away in range(1 - length // block, length // block)
    )
    assert more == table + met


def vectors(block, away):
    """How many of DeBERTa's 256 vectors the distances of a block reach, `away` blocks below the diagonal."""
    return len(
        {
            min(max(distance + 128, 0), 255)
            for distance in range((away - 1) * block + 1, (away + 1) * block)
        }
    )


def test_costs_in_numbers():
    # T = S = 8, four heads of 64: 2 · 8² · 256 to meet, and as many to mix. Twice the length, twice the operations of
    # local attention; exact: four times.
    assert attention_cost(case("exact", "none"), 8, 8).flops == 2 * (2 * 8 * 8 * 256)
    dot, additive = (
        attention_cost(AttentionConfig(64, 4, score=score), 100, 100).flops
        for score in ("dot", "additive")
    )
    assert additive > dot
    for kernel, times in (("local", 2), ("exact", 4)):
        long, short = (attention_cost(case(kernel, LOCAL), n, n).flops for n in (4096, 2048))
        assert long / short == pytest.approx(times, rel=0.02)


@pytest.mark.parametrize("seed", range(40))
def test_the_price_of_a_recorded_layer_covers_what_it_takes(seed):
    """The price is told before the work: never less than PyTorch's peak, and not many times as much."""
    rng = random.Random(seed)
    config, length, _, _ = drawn(rng)
    while any(part.key == "padding" for part in config.mask.walk()):
        config, length, _, _ = drawn(rng)
    config = config.with_(kernel=Choice("exact"))
    x = torch.randn(1, length, config.d_model)

    @torch.inference_mode()
    def work() -> object:
        return Attention(config, add_positions=True).eval()(x)

    try:
        taken = peak_bytes(work)
    except ConfigError as error:
        pytest.skip(str(error))
    assert taken <= 1.05 * (told := recorded_cost(config, length, length).bytes) <= 6 * taken, (
        taken,
        told,
    )
