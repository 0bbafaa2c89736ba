"""Trees, continuations, block diffusion and neighborhoods against independent definitions, cell by cell."""

import random

import torch
from torch.nn.attention.flex_attention import create_mask

from core.attention import Attention, AttentionConfig, Choice
from core.attention.masks import build_mask
from tests.cases import each

T, S = 17, 19


def cells(choice, sees, queries=T, keys=S):
    """The mask, and the same cells one at a time from a rule of i and j."""
    want = torch.tensor([[bool(sees(i, j)) for j in range(keys)] for i in range(queries)])
    return build_mask(choice, queries, keys), want


@each("seed", range(7))
def test_a_tree_is_the_path_to_its_root(seed):
    """Walked upward from each node; the prefix is above all, and the tokens after the tree below its last node."""
    rng = random.Random(seed)
    parents, prefix = [-1] + [rng.randint(-1, node - 1) for node in range(1, 11)], 3
    text = ", ".join("-" if parent < 0 else str(parent) for parent in parents)

    def path(token):
        while token >= 0:
            yield token
            node = token - prefix
            if 0 <= node < len(parents):
                token = prefix + parents[node] if parents[node] >= 0 else prefix - 1
            else:
                token -= 1

    mask, want = cells(
        Choice.of("tree", prefix=prefix, parents=text), lambda i, j: j in set(path(i))
    )
    assert torch.equal(mask, want)


def test_each_path_of_a_tree_is_the_causal_call_on_that_path_alone():
    """What speculative decoding rests on: one call on the tree scores every path as if it were the text."""
    parents, prefix = [-1, 0, 0, 1, 1, 2], 3
    config = AttentionConfig(
        10, 2, mask=Choice.of("tree", prefix=prefix, parents="-, 0, 0, 1, 1, 2")
    )
    layer, causal = Attention(config), Attention(config.with_(mask="causal"))
    causal.load_state_dict(layer.state_dict())
    x = torch.randn(2, prefix + len(parents), 10)
    whole = layer(x).merged
    for leaf in range(len(parents)):
        path = [leaf]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        tokens = [*range(prefix), *(prefix + node for node in path)]
        torch.testing.assert_close(causal(x[:, tokens]).merged, whole[:, tokens])


def test_a_chain_is_causal_and_roots_alone_are_continuations():
    chain = Choice.of("tree", prefix=0, parents="-, 0, 1, 2, 3")
    assert torch.equal(build_mask(chain, T, S), build_mask(Choice("causal"), T, S))
    twos = Choice.of("tree", prefix=3, parents="-, 0, -, 2, -, 4")
    shared = Choice.of("shared_prefix", prefix=3, lengths="2, 2, 13")
    assert torch.equal(build_mask(twos, T, S), build_mask(shared, T, S))


def test_shared_prefix_is_each_continuation_with_the_prefix():
    config = AttentionConfig(10, 2, mask=Choice.of("shared_prefix", prefix=4, lengths="3, 5"))
    layer, causal = Attention(config), Attention(config.with_(mask="causal"))
    causal.load_state_dict(layer.state_dict())
    x = torch.randn(2, 14, 10)
    whole = layer(x).merged
    for start, stop in ((4, 7), (7, 12), (12, 14)):
        tokens = [*range(4), *range(start, stop)]
        torch.testing.assert_close(causal(x[:, tokens]).merged, whole[:, tokens])


@each(("length", "size"), [(8, 1), (8, 3), (9, 4), (7, 7), (6, 9)])
def test_block_diffusion_is_the_papers_three_masks(length, size):
    """M = block-diagonal ∨ offset block-causal ∨ block-causal over [noised; clean]. Arriola 2025, section 3.1."""

    def sees(i, j):
        clean_i, clean_j = i >= length, j >= length
        block_i, block_j = (i - length * clean_i) // size, (j - length * clean_j) // size
        diagonal = block_i == block_j and clean_i == clean_j
        offset_causal = block_i > block_j and clean_j and not clean_i
        return diagonal or offset_causal or (block_i >= block_j and clean_i and clean_j)

    mask, want = cells(Choice.of("block_diffusion", noised=length, size=size), sees)
    assert torch.equal(mask, want)


def test_blocks_of_one_clean_token_are_causal():
    mask = build_mask(Choice.of("block_diffusion", noised=6, size=1), 12, 12)
    assert torch.equal(mask[6:, 6:], build_mask(Choice("causal"), 6, 6)) and not mask[6:, :6].any()


@each(("rows", "columns", "window"), [(5, 7, 3), (4, 5, 1), (6, 3, 3), (5, 5, 5), (3, 4, 5)])
def test_neighborhood_moves_its_window_inside_the_picture(rows, columns, window):
    """NATTEN's rule by its clamped centre, as flex_attention's examples write it, for odd windows that fit."""
    half = window // 2
    choice = Choice.of("neighborhood", rows=rows, columns=columns, window=window)
    cells_ = rows * columns

    def centre(place, size):
        return (
            place.clamp(min(half, size - 1), max(size - 1 - half, 0)) if window <= size else place
        )

    def sees(b, h, i, j):
        inside = torch.ones((), dtype=torch.bool)
        for place_i, place_j, size in (
            (i // columns, j // columns, rows),
            (i % columns, j % columns, columns),
        ):
            inside = inside & (((centre(place_i, size) - place_j).abs() <= half) | (window > size))
        return inside

    want = create_mask(sees, 1, 1, cells_, cells_, device="cpu")[0, 0]
    assert torch.equal(build_mask(choice, cells_, cells_), want)
    assert (want.sum(1) == min(window, rows) * min(window, columns)).all(), (
        "the window never shrinks"
    )
    two = build_mask(choice, 2 * cells_, 2 * cells_)
    assert torch.equal(two[cells_:, cells_:], want) and not two[cells_:, :cells_].any()
