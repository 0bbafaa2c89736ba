"""Masks against transformers.masking_utils and flex_attention's mask_mod, cell by cell and through the attention."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention
from transformers import masking_utils as theirs

from core.attention import Choice, ConfigError, attend
from core.attention.masks import build_mask
from tests.cases import each

T, S, B = 7, 11, 2
CAUSAL = Choice("causal")
LOCAL = Choice.of("local", window=2)
KEYS = torch.tensor([[True] * 8 + [False] * 3, [True] * 5 + [False] * 6])


def cells(function, queries=T, keys=S, offset=0):
    """A mask function of (b, h, i, j), evaluated at every cell."""
    return torch.stack(
        [
            torch.stack(
                [
                    torch.as_tensor(function(0, 0, torch.tensor(i + offset), torch.tensor(j)))
                    for j in range(keys)
                ]
            )
            for i in range(queries)
        ]
    )


@each("offset", [0, 4])
def test_causal(offset):
    ours = build_mask(CAUSAL, T, S, offset=offset)
    assert torch.equal(ours, cells(theirs.causal_mask_function, offset=offset))


@each("window", [0, 1, 2, 5])
def test_local_counts_keys_strictly_before_the_query(window):
    """A window of w sees w keys on either side besides the query's own place."""
    ours = build_mask(Choice.of("local", window=window), T, S)
    assert torch.equal(ours, cells(theirs.sliding_window_bidirectional_mask_function(window)))
    assert ours[3].sum() == min(3, window) + 1 + window


@each("lookback", [1, 3])
def test_causal_and_local_is_the_sliding_window_that_includes_the_query(lookback):
    ours = build_mask(Choice.of("and", CAUSAL, Choice.of("local", window=lookback)), T, S)
    assert torch.equal(ours, cells(theirs.sliding_window_causal_mask_function(lookback + 1)))


def test_or_and_not_compose():
    either = build_mask(Choice.of("or", CAUSAL, LOCAL), T, S)
    assert torch.equal(
        either,
        cells(
            theirs.or_masks(
                theirs.causal_mask_function, theirs.sliding_window_bidirectional_overlay(2)
            )
        ),
    )
    assert torch.equal(
        build_mask(Choice.of("not", CAUSAL), T, S), ~cells(theirs.causal_mask_function)
    )
    neither = Choice.of("not", Choice.of("or", CAUSAL, LOCAL))
    assert torch.equal(build_mask(neither, T, S), ~either)


def test_padding():
    ours = build_mask(Choice("padding"), T, S, key_mask=KEYS)
    padded = theirs.padding_mask_function(KEYS)
    for b in range(B):
        want = torch.stack([padded(b, 0, 0, j) for j in range(S)]).expand(T, S)
        assert torch.equal(ours.expand(B, 1, T, S)[b, 0], want)


def test_padding_without_keys_is_refused():
    with pytest.raises(ConfigError, match="key_mask"):
        build_mask(Choice("padding"), T, S)


@each(
    "choice",
    [
        Choice("and"),
        Choice("or"),
        Choice("not"),
        Choice.of("not", CAUSAL, LOCAL),
        Choice.of("causal", LOCAL),
    ],
)
def test_a_composition_with_the_wrong_number_of_parts_is_refused(choice):
    with pytest.raises(ConfigError):
        build_mask(choice, T, S)


MODS = {
    "causal": (CAUSAL, lambda b, h, i, j: i >= j),
    "local": (LOCAL, lambda b, h, i, j: (i - j).abs() <= 2),
    "causal local": (Choice.of("and", CAUSAL, LOCAL), lambda b, h, i, j: (i >= j) & (i - j <= 2)),
    "causal or local": (Choice.of("or", CAUSAL, LOCAL), lambda b, h, i, j: (i >= j) | (j - i <= 2)),
    "not causal": (Choice.of("not", CAUSAL), lambda b, h, i, j: i < j),
}


@each("name", MODS)
def test_through_flex_attention(name):
    choice, mod = MODS[name]
    q, k, v = torch.randn(B, 3, T, 16), torch.randn(B, 3, S, 16), torch.randn(B, 3, S, 16)
    ours = build_mask(choice, T, S)
    assert torch.equal(ours, create_mask(mod, None, None, T, S, device="cpu")[0, 0])
    block = create_block_mask(mod, None, None, T, S, device="cpu")
    torch.testing.assert_close(
        attend(q, k, v, ours).out, flex_attention(q, k, v, block_mask=block), rtol=1e-5, atol=1e-5
    )
