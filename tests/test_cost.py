"""The closed forms against the layer that is built, PyTorch's own counter, and the allocations that are made."""

import random
from functools import lru_cache

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from core.attention import PRESETS, Attention, AttentionConfig, Choice
from core.attention.cost import attention_cost, closed_form_cost, parameters, peak_bytes, workload
from tests.cases import each
from tests.drawn_costs import UNCOUNTED, drawn, taken

H, D = 4, 64
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


def name(value):
    return value if isinstance(value, str) else value.key


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
    """Keys of 64 + 8 dimensions, values of 64, which PyTorch's CPU kernel would compute with the whole matrix."""
    config, length = case("fused", mask).with_(projection="latent"), 512
    work, cost = workload(config, length), attention_cost(config, length, length)
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        work()
    assert cost.flops == counter.get_total_flops() == 2 * length**2 * H * 2 * (D + 8)
    assert cost.bytes == pytest.approx(peak_bytes(work), rel=0.05)


@each(("kernel", "mask"), CASES)
@each("length", [512, 1024])
def test_bytes_are_those_that_are_allocated(kernel, mask, length):
    config = case(kernel, mask)
    close = 0.001 if kernel == "exact" else 0.2
    held = peak_bytes(workload(config, length))
    assert attention_cost(config, length, length).bytes == pytest.approx(held, rel=close)


@each(("kernel", "mask"), CASES)
def test_no_closed_form_reads_the_process(kernel, mask):
    work, one = workload(case(kernel, mask), 512), attention_cost(case(kernel, mask), 512, 512)
    work()  # what it keeps is there from now on
    held = peak_bytes(work)
    torch.set_num_threads(3)
    assert attention_cost(case(kernel, mask), 512, 512) == one
    assert peak_bytes(work) == held, "and neither does what is held to it"
    assert torch.get_num_threads() == 3


MASKS = (Choice.of("local", window=16), Choice.of("local", window=128), STRIDED, Choice("causal"))
SIZED = [
    (Choice.of(kernel, block=block), mask)
    for kernel in ("local", "block_sparse")
    for block in (8, 64, 300)
    for mask in MASKS
]
SIZED += [(Choice.of("chunked", block=block), Choice("causal")) for block in (20, 64, 1024)]
SIZED += [
    (Choice.of(kernel, chunk=chunk), Choice("causal"))
    for kernel in ("linear", "retention", "gated_delta")
    for chunk in (8, 256)
]


def test_bytes_follow_blocks_and_windows():
    """What the page Cost and speed lets one set, from small to more than there is."""
    ratios, length = {}, 256
    for kernel, mask in SIZED:
        config = case(kernel, mask)
        held = peak_bytes(workload(config, length))
        ratios[f"{kernel} {mask}"] = attention_cost(config, length, length).bytes / held
    assert not {which: ratio for which, ratio in ratios.items() if not 0.75 <= ratio <= 1.25}


@each(("kernel", "mask"), CASES)
def test_flops_are_those_that_pytorch_counts(kernel, mask):
    config, length = case(kernel, mask), 512
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        workload(config, length)()
    assert attention_cost(config, length, length).flops == counter.get_total_flops()


DRAWN = 100


@lru_cache(maxsize=1)
def measured():
    """DRAWN configurations that fit together, each with its closed form and what PyTorch counts and allocates."""
    torch.manual_seed(0)
    rng, rows = random.Random(11), list[tuple]()
    while len(rows) < DRAWN:
        one = drawn(rng)
        rows.append((one, attention_cost(one.config, one.queries, one.keys, one.real), *taken(one)))
    return rows


def test_flops_of_any_configuration_are_those_that_pytorch_counts():
    """All to the last product; a bound where a plan reads a learned mask, or decays strong enough are cut in halves."""
    for one, cost, flops, _ in measured():
        bound = closed_form_cost(one.config, 1).at_most or one.config.kernel.key == "kda"
        assert cost.flops >= flops if bound else cost.flops == flops, str(one)


def test_bytes_of_any_configuration_are_about_those_that_are_allocated():
    """Within a quarter, but for five of a hundred, and none is off by half."""
    ratios = {
        str(one): cost.bytes / held
        for one, cost, _, held in measured()
        if not closed_form_cost(one.config, 1).at_most
    }
    far = {which: ratio for which, ratio in ratios.items() if not 0.75 <= ratio <= 1.25}
    assert len(far) <= 5 and all(0.5 <= ratio <= 1.5 for ratio in far.values()), far


@each(("block", "length"), [(256, 1024), (16, 256)])
def test_a_table_is_paid_for_once_a_call(block, length):
    """Deberta projects 2 · 2k vectors of C numbers once: 4 · 2 · 128 · C · C, and not in each block."""
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


def test_exact_in_numbers():
    """T = S = 8, four heads of 64: 2 · 8² · 256 to meet, and as many to mix."""
    assert attention_cost(case("exact", "none"), 8, 8).flops == 2 * (2 * 8 * 8 * 256)


def test_additive_scores_cost_more_than_dot_products():
    dot, additive = (
        attention_cost(AttentionConfig(64, 4, score=score), 100, 100).flops
        for score in ("dot", "additive")
    )
    assert additive > dot


def test_local_costs_what_it_meets():
    """Twice the length, twice the operations; exact: four times."""
    local, exact = (
        attention_cost(case(kernel, LOCAL), 4096, 4096).flops
        / attention_cost(case(kernel, LOCAL), 2048, 2048).flops
        for kernel in ("local", "exact")
    )
    assert local == pytest.approx(2, rel=0.02) and exact == pytest.approx(4)
