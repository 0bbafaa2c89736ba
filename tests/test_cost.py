"""The closed forms against the layer that is built, PyTorch's own counter, and the allocations that are made."""

import random

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
def test_flops_and_bytes_are_those_that_pytorch_counts_and_allocates(kernel, mask):
    """And neither the closed form nor what is held to it reads the process."""
    config, close = case(kernel, mask), 0.001 if kernel == "exact" else 0.2
    for length in (1024, 512):
        torch.set_num_threads(1)
        work, cost = workload(config, length), attention_cost(config, length, length)
        assert cost.bytes == pytest.approx(peak_bytes(work), rel=close)
        with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
            work()  # what it keeps is there from now on
        assert cost.flops == counter.get_total_flops()
        held = peak_bytes(work)
        torch.set_num_threads(3)
        assert attention_cost(config, length, length) == cost and peak_bytes(work) == held
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


DRAWN = 100


def measured():
    """DRAWN configurations that fit together, each with its closed form and what PyTorch counts and allocates."""
    torch.manual_seed(0)
    rng, rows = random.Random(11), list[tuple]()
    while len(rows) < DRAWN:
        one = drawn(rng)
        rows.append((one, attention_cost(one.config, one.queries, one.keys, one.real), *taken(one)))
    return rows


def test_any_configuration_costs_what_pytorch_counts_and_about_what_it_allocates():
    """All to the last product; a bound where a plan reads a learned mask, or decays strong enough are cut in halves.

    Bytes within a quarter, but for five of a hundred, and none is off by half.
    """
    ratios: dict[str, float] = {}
    for one, cost, flops, held in measured():
        at_most = closed_form_cost(one.config, 1).at_most
        bound = at_most or one.config.kernel.key == "kda"
        assert cost.flops >= flops if bound else cost.flops == flops, str(one)
        ratios |= {} if at_most else {str(one): cost.bytes / held}
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


def test_costs_in_numbers():
    """T = S = 8, four heads of 64: 2 · 8² · 256 to meet, and as many to mix. Twice the length, twice the operations of
    local attention; exact: four times."""
    assert attention_cost(case("exact", "none"), 8, 8).flops == 2 * (2 * 8 * 8 * 256)
    dot, additive = (
        attention_cost(AttentionConfig(64, 4, score=score), 100, 100).flops
        for score in ("dot", "additive")
    )
    assert additive > dot
    for kernel, times in (("local", 2), ("exact", 4)):
        long, short = (attention_cost(case(kernel, LOCAL), n, n).flops for n in (4096, 2048))
        assert long / short == pytest.approx(times, rel=0.02)
