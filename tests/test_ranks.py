"""Rank agreement against counting every pair, and where there is no order to speak of."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from core.pretrained import read
from core.pretrained.base import readable
from core.ranks import kendall, spearman
from core.tokens import Cut, labels, token_text, tokenize
from tests.cases import each
from tests.tiny_models import given as inputs_of, tiny


def by_counting(first: np.ndarray, second: np.ndarray) -> float:
    """τ-b by its definition: pairs in agreement less pairs in disagreement, over the pairs that are no ties."""
    agree = one = two = 0
    for i, j in combinations(range(len(first)), 2):
        a, b = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
        agree, one, two = agree + a * b, one + a * a, two + b * b
    return agree / np.sqrt(one * two)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=9), st.integers(0, 2**31))
def test_kendall_counts_pairs(first, seed):
    first = np.array(first, float)
    second = np.random.default_rng(seed).integers(0, 4, len(first)).astype(float)
    assume(np.ptp(first) and np.ptp(second))
    assert kendall(first, second) == pytest.approx(by_counting(first, second), abs=1e-9)


def test_spearman_sees_ranks_alone():
    first = np.array([1.0, 2.0, 3.0, 10.0])
    assert spearman(first, np.exp(first)) == pytest.approx(1.0)
    assert spearman(first, -first) == pytest.approx(-1.0)
    assert spearman(first, np.array([1.0, 2.0, 4.0, 3.0])) == pytest.approx(1 - 6 * 2 / (4 * 15))


@each("measure", [kendall, spearman])
def test_without_an_order_there_is_no_agreement(measure):
    assert measure(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert measure(np.arange(3.0), np.arange(3.0)) == pytest.approx(1)
    assert measure(np.ones(4), np.arange(4.0)) is None


# How tokens are written: white space is seen, and what a vocabulary lacks is told from marks.


@each(
    ("token", "text"),
    [
        ("cat", "cat"),
        ("  ", "␣␣"),
        (" ", "␣"),
        ("\n", "↵"),
        ("\n\n", "↵↵"),
        ("\t", "⇥"),
        (" cat", "␣cat"),
        ("a\nb", "a↵b"),
        ("  a b\u2003c  ", "␣␣a b\u2003c␣␣"),
        (".\n", ".↵"),
        ("not there", "not there"),
        ("", "∅"),
        ("\u200b", "U+200B"),
        ("\x00", "U+0000"),
        ("\u00a0", "␣"),
        ("🙂", "🙂"),
        ("é", "é"),
    ],
)
def test_every_token_can_be_seen(token, text):
    assert token_text(token) == text and token_text(text) == text


def test_long_names_are_cut_and_repeated_ones_numbered():
    names = labels(("x" * 24, "y" * 25, "a", "a", "a"))
    assert names == ("x" * 24, f"{'y' * 23}…", "a", "a (2)", "a (3)")
    assert tokenize("«a b's» (c!)", 8) == Cut(("«", "a", "b's", "»", "(", "c", "!", ")"))
    notes = (
        "The text has 8 tokens; the first 7 are used.",
        "The text has 20,001 characters; the first 20,000 are used.",
    )
    assert tokenize("«a b's» (c!)", 7) == Cut(("«", "a", "b's", "»", "(", "c", "!"), notes[:1])
    assert tokenize("a" * 20_000) == Cut(("a" * 20_000,))
    assert tokenize("a" * 20_001) == Cut(("a" * 20_000,), notes[1:])


def test_a_piece_of_white_space_alone_is_not_an_empty_box():
    tokenizer = tiny("gpt2").tokenizer
    for piece, text in (
        ("ĠĠ", "␣␣"),
        ("Ċ", "↵"),
        ("ĊĊ", "↵↵"),
        ("Ġ", "␣"),
        ("Ġthe", "the"),
        ("ĠĠthe", "␣the"),
        (".Ċ", ".↵"),
    ):
        assert readable(tokenizer, piece, True) == text


def test_unknown_words_are_told_apart_from_special_tokens():
    line = read(tiny("bert"), inputs_of("bert", "The 山 saw the 川 [MASK] street 🙂.")).source
    assert line.tokens.count("[UNK]") == sum(line.unknown) == 3
    assert line.count == f"{len(line)} tokens (3 special, 3 unknown)"
    assert read(tiny("gpt2"), inputs_of("gpt2", "The dog")).source.count.endswith("tokens")


def test_a_mark_with_another_use_is_not_an_unknown_word():
    # GPT-2's unknown token is its end mark too.
    tokenizer = tiny("gpt2").tokenizer
    line = read(tiny("gpt2"), inputs_of("gpt2", f"The dog{tokenizer.eos_token}")).source
    assert line.special[-1] and not any(line.unknown) and line.count.endswith("(1 special)")
