"""How many layers a mask needs until everything has met: against paths counted one step at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.attention import Choice
from core.attention.masks import build_mask
from core.attention.masks.patterns import layers_needed
from tests.cases import each


def paths(allowed):
    """Breadth first from each query, in plain Python."""
    size = len(allowed)
    needed = [[0] * size for _ in range(size)]
    for start in range(size):
        seen, edge, depth = {start}, {start}, 0
        needed[start][start] = 1
        while edge:
            depth += 1
            edge = {j for i in edge for j in range(size) if allowed[i][j]} - seen
            seen |= edge
            for j in edge:
                needed[start][j] = depth
    return needed


@given(
    st.integers(1, 9).flatmap(
        lambda size: st.lists(
            st.lists(st.booleans(), min_size=size, max_size=size), min_size=size, max_size=size
        )
    )
)
def test_as_many_layers_as_steps_of_the_shortest_path(allowed):
    assert layers_needed(torch.tensor(allowed)).tolist() == paths(allowed)


@each(
    ("choice", "most", "never"),
    [
        (Choice("none"), 1, 0),
        (Choice("causal"), 1, 13 * 12 // 2),
        (Choice.of("local", window=3), 4, 0),
        (Choice.of("causal_local", lookback=4), 3, 13 * 12 // 2),
        (Choice.of("global_window", window=0, globals=1), 2, 0),
        (Choice.of("block", size=13), 1, 0),
        (Choice.of("block", size=7), 1, 2 * 7 * 6),
        (Choice.of("dilated", window=1, dilation=2), 6, 2 * 7 * 6),
    ],
)
def test_worked_cases_of_thirteen_tokens(choice, most, never):
    """±3 crosses 12 places in 4 layers; 4 back in 3; through a global token 2; blocks never meet."""
    needed = layers_needed(
        build_mask(choice, 13, 13) if choice.key != "none" else torch.ones(13, 13).bool()
    )
    assert needed.max() == most and (needed == 0).sum() == never


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="on itself"):
        layers_needed(torch.ones(3, 4).bool())
