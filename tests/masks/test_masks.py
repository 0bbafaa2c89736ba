"""Masks, formulas and positions: cases worked by hand, parts that agree with the whole, and refusals in words."""

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, strategies as st

from core.attention import (
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    heads_that_divide,
    properties,
)
from core.attention.base import Position, ScoreBlock
from core.attention.formula import MAX_NODES, MAX_TEXT, FormulaError, parse
from core.attention.kernels.exact import slice_inputs
from core.attention.masks import COMPOSITIONS, MASKS, build_mask, make_mask
from core.attention.masks.patterns import drawing_of, layers_needed, parse_drawing
from core.attention.positions import POSITIONS, enters
from core.attention.positions.relative import Learned, Sinusoidal, sinusoids
from core.attention.positions.rotary import Rotary, yarn
from core.entries import Area
from tests.attention.drawing import positioned
from tests.cases import each

CAUSAL = Choice("causal")
# What each lets 6 queries see of 8 keys, by hand.
WORKED = {
    "none": (Choice("none"), "######## " * 6),
    "causal": (CAUSAL, "#....... ##...... ###..... ####.... #####... ######.."),
    "local": (
        Choice.of("local", window=1),
        "##...... ###..... .###.... ..###... ...###.. ....###.",
    ),
    "causal_local": (
        Choice.of("causal_local", lookback=2),
        "#....... ##...... ###..... .###.... ..###... ...###..",
    ),
    "dilated": (
        Choice.of("dilated", window=1, dilation=3),
        "#..#.... .#..#... ..#..#.. #..#..#. .#..#..# ..#..#..",
    ),
    "strided": (
        Choice.of("strided", lookback=1, stride=4),
        "#....... ##...... .##..... ..##.... #..##... .#..##..",
    ),
    "block": (Choice.of("block", size=4), "####.... ####.... ####.... ####.... ....#### ....####"),
    "chunked": (
        Choice.of("chunked", size=4),
        "#....... ##...... ###..... ####.... ....#... ....##..",
    ),
    "prefix": (
        Choice.of("prefix", prefix=3),
        "###..... ###..... ###..... ####.... #####... ######..",
    ),
    "document": (
        Choice.of("document", lengths="2, 1, 2, 100000"),
        "##...... ##...... ..#..... ...##... ...##... .....###",
    ),
    "tree": (
        Choice.of("tree", prefix=2, parents="-, 0, 0, 2"),
        "#....... ##...... ###..... ####.... ###.#... ###.##..",
    ),
    "shared_prefix": (
        Choice.of("shared_prefix", prefix=1, lengths="2"),
        "#....... ##...... ###..... #..#.... #..##... #..###..",
    ),
    "block_diffusion": (
        Choice.of("block_diffusion", noised=3, size=2),
        "##...... ##...... ..###... ...##... ...##... ...####.",
    ),
    "neighborhood": (
        Choice.of("neighborhood", rows=2, columns=3, window=1),
        "#....... .#...... ..#..... ...#.... ....#... .....#..",
    ),
    "global_window": (
        Choice.of("global_window", window=1, globals=1),
        "######## ###..... ####.... #.###... #..###.. #...###.",
    ),
    "bigbird": (
        Choice.of("bigbird", window=0, globals=1, random=2, seed=3),
        "######## ##.#.#.# ####...# ##.##..# #.#.##.# ########",
    ),
    "local_m": (
        Choice.of("local_m", window=1),
        "##...... ###..... .###.... ..###... ...###.. ....###.",
    ),
    "formula": (
        Choice.of("formula", text="j <= i and (i - j) % 2 == 0 or j == T"),
        "#.....#. .#....#. #.#...#. .#.#..#. #.#.#.#. .#.#.##.",
    ),
    "drawn": (
        Choice.of("drawn", drawing="2x3:6.1", beyond="repeat"),
        "##.##.## ..#..#.. ##.##.## ..#..#.. ##.##.## ..#..#..",
    ),
    "and": (
        Choice.of("and", CAUSAL, Choice.of("block", size=4)),
        "#....... ##...... ###..... ####.... ....#... ....##..",
    ),
    "or": (
        Choice.of("or", CAUSAL, Choice.of("local", window=1)),
        "##...... ###..... ####.... #####... ######.. #######.",
    ),
    "not": (Choice.of("not", CAUSAL), ".####### ..###### ...##### ....#### .....### ......##"),
}
CONTENT = ["local_p", "moba", "lightning", "block_max", "block_mean", "block_gated"]
PLAIN = [choice for choice, _ in WORKED.values()] + [
    Choice.of("bigbird", block=2, random=2),
    Choice.of("formula", text="where(h == 0, j <= i, j > i + h)"),
    Choice.of("drawn", drawing="3x3:4.6.7", beyond="seen"),
]


@each("key", WORKED)
def test_a_worked_case(key):
    choice, want = WORKED[key]
    rows = make_mask(choice_with_all(choice))(ScoreBlock.whole(6, 8)).int().tolist()
    assert " ".join("".join(".#"[cell] for cell in row) for row in rows) == want.strip()


def test_every_entry_has_one():
    # padding and the masks that read content read more than positions; theirs are below and in tests/oracles.
    assert {item.key for item in MASKS} == {*WORKED, "padding", *CONTENT}


@each("choice", PLAIN)
def test_any_rectangle_agrees_with_the_whole(choice):
    mask = make_mask(choice_with_all(choice))
    whole = mask(ScoreBlock.whole(13, 17, num_heads=2)).expand(2, 13, 17)
    part = mask(ScoreBlock.whole(13, 17, num_heads=2).part(slice(3, 8), slice(6, 17)))
    assert torch.equal(part.expand(2, 5, 11), whole[:, 3:8, 6:])
    assert torch.equal(
        mask(ScoreBlock.whole(4, 17, num_heads=2, offset=9)).expand(2, 4, 17), whole[:, 9:]
    )


def choice_with_all(choice):
    """With every parameter filled in, as a config holds it."""
    return AttentionConfig(mask=choice).mask


def test_bigbird_draws_the_same_blocks_each_time():

    def seen(seed, random):
        return build_mask(
            Choice.of("bigbird", window=0, globals=1, random=random, seed=seed), 41, 41
        )

    assert torch.equal(seen(3, 4), seen(3, 4)) and not torch.equal(seen(3, 4), seen(4, 4))
    assert (seen(3, 4)[1:-1].sum(1) == 3 + 4).all() and seen(3, 4)[[0, -1]].all()
    assert (seen(3, 4) & seen(3, 0)).equal(seen(3, 0))
    columns = seen(3, 4)[1:-1, 1:-1].float().mean(0)
    assert columns.min() > 0.02 and columns.max() < 0.35, "no key is preferred"
    assert build_mask(Choice.of("bigbird", random=16), 9, 9).all(), "more than there are means all"


def test_bigbird_in_pieces_is_the_same(monkeypatch):
    choice = Choice.of("bigbird", random=3)
    whole = build_mask(choice, 41, 37)
    monkeypatch.setattr("core.attention.masks.patterns._MAX_CELLS", 5 * 37)
    assert torch.equal(build_mask(choice, 41, 37), whole)


def test_luong_m_is_the_window_and_may_have_its_gaussian():
    # exp(−distance² / 2σ²) with σ = D / 2 = 1: 1, e^(−1/2), e^(−2) inside ±2.
    x = torch.randn(1, 7, 6)
    masks = (Choice.of("local_m", window=2, gaussian=gaussian) for gaussian in (False, True))
    plain, bell = (
        Attention(AttentionConfig(6, 1, projection="identity", mask=mask)) for mask in masks
    )
    without, with_ = plain(x), bell(x)
    torch.testing.assert_close(without.weights.sum(-1), torch.ones(1, 1, 7))
    factor = torch.tensor(
        [
            [0.0 if abs(i - j) > 2 else [1, 0.60653066, 0.13533528][abs(i - j)] for j in range(7)]
            for i in range(7)
        ]
    )
    torch.testing.assert_close(
        (with_.weights, with_.normalized), (without.weights * factor, without.weights)
    )
    both = Attention(bell.config.with_(mask=Choice.of("and", bell.config.mask, bell.config.mask)))
    torch.testing.assert_close(both(x).weights, without.weights * factor.square())
    assert (with_.weights.sum(-1) < 1).all()


def test_luong_p_is_blind_to_padding():
    torch.manual_seed(3)
    layer = Attention(AttentionConfig(6, 2, mask=Choice.of("local_p", window=2)))
    x = torch.randn(1, 5, 6)
    filled = torch.cat((x, torch.full((1, 4, 6), float("nan"))), 1)
    torch.testing.assert_close(
        layer(x, filled, key_mask=torch.arange(9)[None] < 5).merged, layer(x).merged
    )
    hidden = layer.projection.query(x)[0, 3, :3]  # the first head's query at 3
    mask: Any = layer.mask
    place = 5 * torch.sigmoid(mask.vector[0] @ torch.tanh(mask.weight[0] @ hidden))
    assert layer(x).mask[0, 0, 3].tolist() == [abs(j - place.item()) <= 2 for j in range(5)]


@each("choice", [Choice("local_p"), Choice.of("local_m", gaussian=True)])
def test_mask_that_reweighs_cannot_be_part_of_or_and_not(choice):
    for key in ("or", "not"):
        pytest.raises(
            ConfigError, AttentionConfig, mask=Choice.of(key, Choice.of("and", choice))
        ).match(f"mask = {key} .* {choice.key} .* take mask = and")
    steps = Attention(AttentionConfig(24, 3, mask=Choice.of("and", CAUSAL, choice)))(
        torch.randn(2, 5, 24)
    )
    assert not steps.weights.triu(1).any() and (steps.weights.sum(-1)[:, :, 1:] < 1).all()


def test_what_reads_content_is_refused_without_it():
    for key in CONTENT:
        pytest.raises(ConfigError, build_mask, Choice(key), 3, 3).match("take Attention")
    pytest.raises(
        ConfigError,
        make_mask(choice_with_all(Choice("local_p")), AttentionConfig(8, 1)),
        ScoreBlock.whole(3, 3),
    ).match("mask = local_p reads q")


def test_a_formula_by_head_masks_each_head_in_its_own_way():
    weights = Attention(
        AttentionConfig(
            24, 3, mask=Choice.of("formula", text="where(h == 1, j <= i, abs(i - j) <= h)")
        )
    )(torch.randn(2, 5, 24)).weights
    assert (
        (weights[:, 0].diagonal(dim1=1, dim2=2) == 1).all()
        and not weights[:, 1].triu(1).any()
        and (weights[:, 2] > 0)[0].equal(build_mask(Choice.of("local", window=2), 5, 5))
    )


@given(st.integers(1, 64), st.integers(1, 64), st.randoms(use_true_random=False))
def test_a_drawing_comes_back_from_its_text(queries, keys, chance):
    drawing = torch.tensor([[chance.random() < 0.5 for _ in range(keys)] for _ in range(queries)])
    assert parse_drawing(drawing_of(drawing)).equal(drawing)
    config = AttentionConfig(mask=Choice.of("drawn", drawing=drawing_of(drawing)))
    assert AttentionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@each(
    ("choice", "says"),
    [
        (Choice.of("formula", text="i - j"), "gives a truth value"),
        (Choice.of("formula", text="j <= k"), "k is not known"),
        (Choice.of("formula", text=3), "expected a text"),
        (Choice.of("document", lengths="3, x"), "whole numbers from 1"),
        (Choice.of("document", lengths="3, 0"), "whole numbers from 1"),
        (Choice.of("document", lengths="100001"), "whole numbers from 1 to 100000"),
        (Choice.of("tree", parents="-, 0, 2" + "9" * 4000), "node 2: "),
        (Choice.of("document", lengths="1 " * 65), "65 documents"),
        (Choice.of("document", lengths=""), "0 documents"),
        (Choice.of("dilated", dilation=0), "expected 1 to 64"),
        (
            Choice.of("tree", parents="-, 0, 2"),
            "node 2: '2'; expected the number of an earlier node",
        ),
        (Choice.of("tree", parents="0"), "node 0: '0'"),
        (Choice.of("tree", parents="-, x"), "node 1: 'x'"),
        (Choice.of("tree", parents=""), "0 nodes"),
        (Choice.of("tree", parents="- " * 257), "257 nodes"),
        (Choice.of("shared_prefix", lengths="0"), "whole numbers from 1"),
        (Choice.of("and"), "one or more parts"),
        (Choice("or"), "one or more parts"),
        (Choice("not"), "exactly one part"),
        (Choice.of("not", CAUSAL, CAUSAL), "exactly one part"),
        (Choice.of("block", CAUSAL), "no parts"),
        *(
            (Choice.of("drawn", drawing=text), "drawing")
            for text in (
                "",
                "3",
                "3x3",
                "3x3:",
                "3x3:4.6",
                "3x3:4.6.8",
                "3x3:4.6.7.0",
                "0x1:",
                "65x1:0",
                "03x3:4.6.7",
                "3x3:4.6.g",
                "3x3:4.6.07",
                "3x3 :4.6.7",
                "3X3:4.6.7",
                "3x3:4.6.F",
                "²x3:4.6.7",
                "1x1:-",
            )
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(choice, says):
    pytest.raises(ConfigError, AttentionConfig, mask=choice).match(says)


def test_a_formula_that_divides_by_zero_says_so():
    layer = Attention(AttentionConfig(24, 3, mask=Choice.of("formula", text="i / j > 1")))
    pytest.raises(ConfigError, layer, torch.randn(2, 5, 24)).match(
        "divides by zero, first at i = 0, j = 0|divides by zero, first at"
    )


def test_a_composed_mask_costs_what_its_parts_do():
    # A rule makes no product; local-p has its network: 8 × 8 numbers a head meet each of 5 queries.
    rule = Choice.of("formula", text="j <= i and i - j < 4")
    assert (
        flops(rule) == flops(Choice.of("and", CAUSAL, Choice.of("not", rule))) == flops(CAUSAL) == 0
        and flops(Choice.of("and", CAUSAL, Choice("local_p")))
        == flops(Choice("local_p"))
        == 2 * 3 * 5 * 8 * 8
    )


def flops(mask):
    return (
        next(item for item in MASKS if item.key == mask.key)
        .cost(AttentionConfig(24, 3, mask=mask), Area.whole(5, 7, masked=True))
        .flops
    )


@each("item", [item for item in MASKS if item.key not in COMPOSITIONS])
def test_the_short_rule_fills_its_own_numbers_in(item):
    text = item.short.format(**{param.key: param.default for param in item.params}, length=5)
    assert text and "{" not in text


# How many layers a mask needs until everything has met: against paths counted one step at a time.


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
    # ±3 crosses 12 places in 4 layers; 4 back in 3; through a global token 2; blocks never meet.
    needed = layers_needed(
        build_mask(choice, 13, 13) if choice.key != "none" else torch.ones(13, 13).bool()
    )
    assert needed.max() == most and (needed == 0).sum() == never


def test_a_matrix_that_is_not_square_is_refused():
    pytest.raises(ValueError, layers_needed, torch.ones(3, 4).bool()).match("on itself")


# Typed formulas: Python's own arithmetic cell by cell, nothing but the formula's own error, and never a NaN.


T, S, H, OFFSET = 3, 5, 2, 2
CELLS = ScoreBlock.whole(T, S, num_heads=H, offset=OFFSET)
PYTHON = {
    name: getattr(math, name) for name in ("exp", "log", "sqrt", "tanh", "floor", "sin", "cos")
}
PYTHON |= {"abs": abs, "min": min, "max": max}


def python(text, i, j, h, score):
    """What Python makes of the same text at one cell; ArithmeticError or ValueError where it refuses."""
    names = {
        "i": float(i),
        "j": float(j),
        "h": float(h),
        "T": float(OFFSET + T),
        "S": float(S),
        "score": score,
    }
    # the oracle alone: the lab itself has no eval
    value = eval(text, {"__builtins__": {}}, PYTHON | names)
    if isinstance(value, complex):
        raise ValueError("Python makes this complex")
    return value


def numbers():
    leaves = st.sampled_from(["i", "j", "h", "T", "S", "score", "0.0", "1.0", "2.0", "0.5", "3.25"])

    def more(part):
        two = st.tuples(part, st.sampled_from("+ - * / % **".split()), part)
        return st.one_of(
            two.map(" ".join),
            two.map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            part.map("-{}".format),
            st.tuples(
                st.sampled_from(["abs", "exp", "log", "sqrt", "tanh", "floor", "sin", "cos"]), part
            ).map(lambda t: f"{t[0]}({t[1]})"),
            st.tuples(st.sampled_from(["min", "max"]), part, part).map(
                lambda t: f"{t[0]}({t[1]}, {t[2]})"
            ),
        )

    return st.recursive(leaves, more, max_leaves=6)


def truths():
    signs = st.sampled_from("< <= > >= == !=".split())
    plain = st.tuples(numbers(), signs, numbers()).map(" ".join)
    return st.recursive(
        plain | st.tuples(numbers(), signs, numbers(), signs, numbers()).map(" ".join),
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from(["and", "or"]), part).map(" ".join),
            part.map("not {}".format),
            part.map("({})".format),
        ),
        max_leaves=3,
    )


def agree(text, kind):
    score = torch.linspace(-2, 2, H * T * S, dtype=torch.float64).reshape(1, H, T, S)
    cells = list(itertools.product(range(H), range(T), range(S)))

    def theirs(h, i, j):
        return python(text, i + OFFSET, j, h, score[0, h, i, j].item())

    assume(len(text) <= MAX_TEXT)
    try:
        ours = parse(text, kind)(CELLS, score if kind == "score" else None).expand(1, H, T, S)
    except FormulaError as error:
        assert not error.why.startswith(("it ", "a ")), f"{text} was not read: {error}"
        # Python goes on with an infinity
        assume("too large" not in error.why and "no finite" not in error.why)
        pytest.raises((ArithmeticError, ValueError), list, itertools.starmap(theirs, cells))
        return
    for h, i, j in cells:
        assert ours[0, h, i, j].item() == pytest.approx(theirs(h, i, j), rel=1e-9, abs=1e-9), (
            text,
            h,
            i,
            j,
        )


@given(numbers())
@example("-2.0 ** 2.0 * 3.0 % i - 2.0 ** -j")
@example("7.0 % -i + -7.0 % i - 1.0 / 2.0 / i")
def test_numbers_are_pythons(text):
    agree(text, "score")


@given(truths().filter(lambda text: "score" not in text))
@example("not i < j and j > 0.0 or i == j")
@example("0.0 < j <= i < T and 6.0 / j > 2.0")
@example("j > 0.0 and not 6.0 / j > 2.0 or j == 0.0")
def test_truth_values_are_pythons(text):
    agree(text, "mask")


@each(
    ("kind", "text", "at", "says"),
    [
        ("score", "score - 0.5*abs(i-k)", 18, "k is not known"),
        ("score", "score.real", 5, "'.' has no meaning here"),
        ("score", "__class__", 0, "__class__ is not known"),
        ("score", "eval(1)", 0, "eval is not known"),
        ("score", "exp", 0, "exp is a function"),
        ("score", "where(i < j, 1)", 0, "where takes 3 arguments; 2 are given"),
        (
            "score",
            "where(i, 1, 2)",
            6,
            "where takes a truth value here, and this is a number; compare it, as",
        ),
        ("score", "where(i < j, 1, i < j)", 18, "one kind"),
        ("score", "i < j", 2, "gives a number"),
        ("score", "score and 1", 0, "and takes a truth value here, and this is a number"),
        ("score", "1 + (i < j)", 7, "+ takes a number here, and this is a truth value; where"),
        ("mask", "i - j", 2, "gives a truth value"),
        ("mask", "score > 1", 0, "score formulas alone"),
        ("mask", "i = j", 2, "write =="),
        ("mask", "i < j & j < 3", 6, "write and"),
        ("mask", "(i < j", 6, "bracket of character 1 is not closed"),
        ("mask", "i < j j", 6, "does not fit"),
        ("mask", "i <", 3, "the formula ends where a number"),
        ("mask", "", 0, "it is empty"),
        ("mask", "i < 1e99", 4, "too large"),
        ("mask", "i if j else h", 0, "has no meaning here"),
        ("mask", "i << 2", 0, "has no meaning here"),
        ("mask", "min(*i) > 1", None, "takes 2 to 8"),
        ("mask", "i < " + "1+" * MAX_NODES + "1", None, "operations, names and numbers"),
        ("mask", "i < " + " " * MAX_TEXT + "1", MAX_TEXT, "characters"),
        ("mask", "i / j > 1", 2, "divides by zero, first at i = 2, j = 0"),
        ("mask", "i % (j - 3) > 1", 2, "divides by zero, first at i = 2, j = 3"),
        ("score", "score / (i - j)", 6, "divides by zero, first at h = 0, i = 2, j = 2"),
        ("score", "log(i - 3)", 0, "log needs a number above 0, first at i = 2"),
        ("score", "sqrt(h - 1)", 0, "sqrt needs a number from 0, first at h = 0"),
        ("score", "(0 - 8) ** (1/3)", 8, "no finite number"),
        ("score", "exp(90 * i)", 0, "too large"),
        ("score", "1 / 0", 2, "divides by zero;"),
    ],
)
def test_an_error_points_at_its_character_and_cell(kind, text, at, says):
    with pytest.raises(FormulaError) as refused:
        parse(text, kind)(CELLS, torch.ones(1, H, T, S))
    assert says in refused.value.why
    assert at is None or refused.value.at == at


@each(
    "text",
    [
        "where(score > 0, log(score), 0)",
        "where(score > 0, score ** 0.5, sqrt(0 - score))",
        "sqrt(abs(score))",
        "abs(score) ** 0.5",
        "where(score != 0, 1 / score, 7)",
        "score % 2",
        "where(score > 0, score ** -1, tanh(score))",
        "(0 - 2) ** (score - score) + score",
        "cos(2) ** floor(score) + abs(score)",
    ],
)
def test_gradients_are_finite_beside_bad_cells(text):
    score = torch.tensor([-2.0, -1.0, 0.0, 1e-3, 3.0]).repeat(1, H, T, 1).requires_grad_()
    parse(text, "score")(CELLS, score).sum().backward()
    assert score.grad.isfinite().all() and score.grad.abs().sum() > 0


def test_a_formula_worked_by_hand():
    # score − 0.5·|i − j| for queries 2, 3, 4 and five keys, all scores 1; and the window of four with key 0.
    got = parse("score - 0.5*abs(i-j)", "score")(CELLS, torch.ones(1, 1, T, S))
    assert got[0, 0].tolist() == [
        [0, 0.5, 1, 0.5, 0],
        [-0.5, 0, 0.5, 1, 0.5],
        [-1, -0.5, 0, 0.5, 1],
    ]
    got = parse("j <= i and i - j < 3 or j == 0", "mask")(CELLS)
    assert got.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 1, 1, 1]]
    by_head = parse("where(h == 0, j <= i, j > i)", "mask")(CELLS)
    assert by_head.shape == (H, T, S) and torch.equal(by_head[0], ~by_head[1])


@each("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_dtype_is_kept_and_half_precision_computed_in_fp32(dtype):
    score = torch.full((1, H, T, S), 1.5, dtype=dtype)
    assert (
        parse("score * 1000 * 1000 / 1000 / 1000", "score")(CELLS, score).tolist() == score.tolist()
    )
    if dtype == torch.float16:
        pytest.raises(FormulaError, parse("score * 100000", "score"), CELLS, score).match(
            "too large for torch.float16"
        )


def test_signs_of_a_copied_equation_are_read():
    # Minus, times and the three comparisons as print has them; a place in the text stays where it is.
    printed, typed = parse("j ≤ i − 1 or i ≠ 2·j", "mask"), parse("j <= i - 1 or i != 2*j", "mask")
    assert torch.equal(printed(CELLS), typed(CELLS)) and printed.latex() == typed.latex()
    with pytest.raises(FormulaError) as refused:
        parse("j ≤ i − k", "mask")
    assert refused.value.at == 8


def test_a_broken_score_is_not_blamed_on_the_formula():
    assert (
        parse("tanh(score) + 1", "score")(CELLS, torch.full((1, H, T, S), float("nan")))
        .isnan()
        .all()
    )


@each(
    ("kind", "text", "latex"),
    [
        ("score", "score - 0.5*abs(i-j)", r"s_{ij} - 0.5 \cdot \left|i - j\right|"),
        ("score", "-(i - (j - 1))", r"-\left(i - \left(j - 1\right)\right)"),
        ("score", "score / (2 + i) ** 2", r"\frac{s_{ij}}{\left(2 + i\right)^{2}}"),
        ("score", "2 * -3e-7", r"2 \cdot \left(-3 \cdot 10^{-7}\right)"),
        ("score", "floor(i % 2) + exp(j)", r"\left\lfloori \bmod 2\right\rfloor + e^{j}"),
        (
            "mask",
            "0 < j <= i and not (i == j or h != 1)",
            r"0 < j \le i \wedge \neg \left(i = j \vee h \ne 1\right)",
        ),
        (
            "score",
            "where(i < j, 0, max(i, 2))",
            r"\begin{cases} 0 & i < j \\ \max\left(i,\ 2\right) & \text{else} \end{cases}",
        ),
    ],
)
def test_latex(kind, text, latex):
    assert parse(text, kind).latex().replace(" ", "") == latex.replace(" ", "")


def test_nested_comparisons_cost_no_more_than_they_are_long():
    # A middle term of a chain is computed once, so that nesting does not double the work at each level.
    text = "1"
    for _ in range(16):
        text = f"where(0<{text}<2,1,0)"
    assert parse(f"{text} == 1", "mask")(CELLS).all()


# What holds for every position, drawn from the entries themselves: blocks, distances, gradients, where it enters.


B, QUERIES, KEYS_COUNT, C, HEADS = 2, 5, 11, 24, 3
KEYS = [e.key for e in POSITIONS]
BIASED = [e.key for e in POSITIONS if e.enters == "scores"]
ROTATED = [e.key for e in POSITIONS if e.enters == "q, k"]
# what a place may change beside the distance: FIRE counts from the text's start, the others read the content
NOT_BY_DISTANCE = {
    "fire",
    "relative_logits",
    "cope",
    "forgetting",
    "wall",
    "path",
    "selective",
    "multi_token",
    "position_temperature",
    "formula",
    "and",
}
OTHER_ROWS = {e.key for e in POSITIONS if "other rows" in e.traits}


def layer_of(key, **choices):
    return positioned(AttentionConfig(C, HEADS, position=key, **choices)).eval()


def inputs(layer, queries=QUERIES, offset=KEYS_COUNT - QUERIES):
    x, context = torch.randn(B, queries, C), torch.randn(B, KEYS_COUNT, C)
    q, k, v = layer.projection(x, context, offset)
    return layer.kernel_inputs(q, k, v, x, context, offset=offset)


@each("key", BIASED)
@each(
    ("rows", "columns"),
    [(slice(1, 4), slice(2, 9)), (slice(0, 5), slice(0, 1)), (slice(3, 4), slice(0, 11))],
)
def test_the_bias_of_a_block_is_the_block_of_the_bias(key, rows, columns):
    made = inputs(layer_of(key))
    whole, q, k = made.bias(), made.q[:, :, rows], made.k[:, :, columns]
    part = slice_inputs(made, rows, columns, q, k, made.v).bias()
    assert (whole is None) == (part is None)
    if whole is not None:
        torch.testing.assert_close(
            part.expand(B, HEADS, rows.stop - rows.start, columns.stop - columns.start),
            whole.expand((B, HEADS, QUERIES, KEYS_COUNT))[:, :, rows, columns],
            rtol=1e-5,
            atol=1e-6,
        )


@each("key", [e.key for e in POSITIONS if "adjusts" in e.traits and e.key not in OTHER_ROWS])
def test_rows_are_adjusted_each_on_its_own(key):
    layer, scores = layer_of(key), torch.randn(B, HEADS, QUERIES, KEYS_COUNT)
    block, rows = inputs(layer).block, slice(1, 4)
    whole = layer.position.adjust(scores, block)
    torch.testing.assert_close(
        layer.position.adjust(scores[:, :, rows], block.part(rows)), whole[:, :, rows]
    )
    columns = slice(0, 6)
    part = layer.position.adjust(scores[..., columns], block.part(columns=columns))
    needs_row = "whole rows" in next(e for e in POSITIONS if e.key == key).traits
    assert torch.allclose(part, whole[..., columns], atol=1e-6) is not needs_row


@each("key", sorted(OTHER_ROWS))
def test_a_position_that_reads_other_rows_refuses_a_part(key):
    layer, x = layer_of(key, mask="causal"), torch.randn(B, KEYS_COUNT, C)
    for part in (slice(3, 4), slice(5, KEYS_COUNT)):
        pytest.raises(ConfigError, layer, x[:, part], x[:, : part.stop], offset=part.start).match(
            f"position = {key} reads .* position = forgetting"
        )


@each("key", [e.key for e in POSITIONS if "values" in e.traits])
def test_the_values_of_blocks_sum_to_the_whole(key):
    layer, weights = layer_of(key), torch.rand(B, HEADS, QUERIES, KEYS_COUNT)
    block = inputs(layer).block
    parts = [
        layer.position.values(weights[..., c], block.part(columns=c))
        for c in (slice(0, 4), slice(4, 11))
    ]
    torch.testing.assert_close(parts[0] + parts[1], layer.position.values(weights, block))


@each("key", ROTATED)
def test_a_rotation_far_out_does_not_lose_its_angle(key):
    # An angle made in bf16 would be off by whole turns at place 4000.
    position = layer_of(key).position
    x = torch.ones(1, HEADS, 1, C // HEADS)
    exact = position.double().rotate(x.double(), offset=4000)
    torch.testing.assert_close(
        position.bfloat16().rotate(x.bfloat16(), offset=4000).double(), exact, rtol=0, atol=3e-2
    )


@each("key", [key for key in ROTATED if key not in ("grid_rope", "pope")])
@each("layout", ["halves", "interleaved"])
def test_a_rotated_score_sees_the_distance_alone(key, layout):
    layer = layer_of(Choice.of(key, layout=layout, share=0.75))
    q, k = torch.randn(1, HEADS, 1, C // HEADS), torch.randn(1, HEADS, 1, C // HEADS)
    turn = layer.position.rotate
    near, far, other = (
        (turn(q, i, 99) * turn(k, j, 99)).sum() for i, j in ((7, 3), (57, 53), (7, 4))
    )
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-4)
    assert (near - other).abs() > 1e-3


@each("key", [key for key in BIASED if key not in NOT_BY_DISTANCE])
def test_a_bias_sees_the_distance_alone(key):
    # The same q and k, moved 40 places on: the same bias (Toeplitz, where the content is not read).
    layer = layer_of(key)
    block = inputs(layer).block
    moved = replace(block, i=block.i + 40, j=block.j + 40)
    torch.testing.assert_close(
        layer.position.bias(moved), layer.position.bias(block), rtol=1e-4, atol=1e-5
    )


@each("key", KEYS)
def test_every_learned_number_is_reached(key):
    layer = layer_of(key)
    weights = dict(layer.position.named_parameters())
    if not weights:
        pytest.skip("nothing is learned here")
    layer(torch.randn(B, QUERIES, C)).merged.square().sum().backward()
    unreached = [
        name
        for name, weight in weights.items()
        if weight.grad is None or not weight.grad.abs().sum() > 0
    ]
    assert not unreached


@each("key", ROTATED)
def test_turns_first_made_for_a_picture_can_be_trained_with(key):
    layer, x = layer_of(key), torch.randn(1, 17, C)
    with torch.inference_mode():
        layer(x)
    layer(x).merged.sum().backward()
    assert layer.projection.query.weight.grad.abs().sum() > 0


@each("entry", POSITIONS)
def test_an_entry_says_where_it_enters(entry):
    config = AttentionConfig(24, 3, position=Choice(entry.key))
    position = layer_of(entry.key).position
    assert bool(properties.additive_table(position, 6, 24).any()) is (entry.enters == "x")
    rotations = properties.rotation_matrices(position, 6, config.qk_dim)
    assert bool(properties.rotation_pairs(rotations)) is ("q, k" in enters(config.position))
    changes = {
        name
        for name in ("bias", "adjust", "values")
        if getattr(type(position), name) is not getattr(Position, name)
    }
    assert bool(changes) is (entry.enters == "scores")
    if not entry.parts:
        assert ("adjust" in changes, "values" in changes) == (
            ("adjusts" in entry.traits, "values" in entry.traits)
        )
    assert entry.short and (entry.paper or entry.source or entry.key in ("formula", "and")), (
        "what is typed has no author"
    )


DIM = C // HEADS
COUNTS = [
    ("learned", {"max_len": 9}, 9 * C),
    ("shaw", {"distance": 4}, 2 * 9 * DIM),
    ("shaw", {"distance": 4, "values": False}, 9 * DIM),
    ("t5", {"buckets": 8, "max_distance": 20}, 8 * HEADS),
    ("transformer_xl", {}, C * C + 2 * C),
    ("deberta", {"distance": 5}, 10 * C + 2 * C * C),
    ("kerple", {}, 2 * HEADS),
    ("fire", {"hidden": 7}, 2 + 14 + 8 * HEADS),
    ("pope", {}, C),
    ("relative_logits", {"size": 5, "distance": 7}, C * HEADS * 5 + 5 * 7),
    ("cope", {"places": 6}, 6 * DIM),
    ("forgetting", {}, C * HEADS + HEADS),
    ("wall", {}, C * C + C),
    ("path", {"rank": 5, "width": 2}, 5 * C + 5 * C + 2 * C + C * HEADS + HEADS),
    ("multi_token", {"queries": 4, "keys": 3}, HEADS * 4 * 3),
]


@each("key", KEYS)
def test_parameters_are_as_many_as_the_papers_count(key):
    # None but in the tables of those that are counted; a T5 has a table a head.
    rows = [(params, count, HEADS) for name, params, count in COUNTS if name == key] or [
        ({}, 0, HEADS)
    ]
    rows += [({}, 32 * heads, heads) for heads in heads_that_divide(6) if key == "t5"]
    for params, count, heads in rows:
        layer = Attention(AttentionConfig(C, heads, position=Choice.of(key, **params)))
        assert sum(p.numel() for p in layer.position.parameters()) == count


def test_learned_positions_start_small():
    # As GPT-2's and BERT's do, with a standard deviation of .02.
    assert Learned(64, max_len=128).table.weight.std().item() == pytest.approx(0.02, rel=0.05)


# What is measured of an encoding, against what is known of it.


def test_what_is_added_is_the_table():
    torch.testing.assert_close(
        properties.additive_table(Sinusoidal(7, 100.0), 11, 7),
        sinusoids(torch.arange(11.0), 7, 100.0),
    )
    learned = Learned(7, 13)
    torch.testing.assert_close(properties.additive_table(learned, 11, 7), learned.table.weight[:11])
    assert not properties.additive_table(Position(), 11, 7).any()


def test_the_matrix_of_a_turn_does_what_the_encoding_does():
    position, q = Rotary(10, 10000.0, "interleaved", 0.8), torch.randn(1, 1, 6, 10)
    torch.testing.assert_close(
        torch.einsum("tij,tj->ti", properties.rotation_matrices(position, 6, 10), q[0, 0]),
        position.rotate(q)[0, 0],
    )


@each(("layout", "first"), [("halves", (0, 4)), ("interleaved", (0, 1))])
def test_pairs_are_found_in_the_turns(layout, first):
    # Ten dimensions of which eight turn, by 1, 0.1, 0.01 and 0.001.
    pairs = properties.rotation_pairs(
        properties.rotation_matrices(Rotary(10, 10000.0, layout, 0.8), 7, 10)
    )
    assert len(pairs) == 4 and (pairs[0].first, pairs[0].second) == first
    assert ([pair.angle for pair in pairs], pairs[0].wavelength) == (
        pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-4),
        pytest.approx(2 * math.pi, rel=1e-5),
    )


def test_pairs_of_sinusoids_rotate_by_their_angles():
    # Seven dimensions: three pairs, whose angles fall by 100^(-2/7), and a sine without its cosine.
    pairs = properties.sinusoid_pairs(sinusoids(torch.arange(5.0), 7, 100.0))
    assert ([(pair.first, pair.second) for pair in pairs], [pair.angle for pair in pairs]) == (
        [(0, 1), (2, 3), (4, 5)],
        pytest.approx([1, 100 ** (-2 / 7), 100 ** (-4 / 7)], rel=1e-5),
    )


def test_alignment_is_the_mean_cosine_of_the_angles():
    turns = properties.rotation_matrices(Rotary(4, 100.0, "halves"), 5, 4)
    expected = torch.tensor([(math.cos(d) + math.cos(d / 10)) / 2 for d in range(5)])
    torch.testing.assert_close(properties.alignment(turns)[0], expected, rtol=1e-5, atol=1e-6)
    grown = properties.rotation_matrices(
        Rotary(4, 100.0, "halves", rule=yarn, factor=math.e, original=64, fast=32.0, slow=1.0), 5, 4
    )
    torch.testing.assert_close(
        properties.alignment(grown)[0, 0], torch.tensor(1.1**2), rtol=1e-5, atol=1e-6
    )


def test_cosines_of_sinusoids_depend_on_the_distance_alone():
    similarity = properties.cosines(sinusoids(torch.arange(9.0), 8))
    assert similarity.shape == (9, 9)
    for d in range(9):
        row = similarity.diagonal(d)
        torch.testing.assert_close(row, row[:1].expand_as(row), rtol=1e-5, atol=1e-5)


@each("shift", [1, 5, 20])
def test_shift_of_sinusoids_is_rotation_in_closed_form(shift):
    table = sinusoids(torch.arange(300.0), 32)
    assert properties.shift_error(properties.sinusoid_shift(table[shift]), table, shift) < 1e-6
    assert (
        properties.shift_error(properties.fit_shift(table[:200], shift), table[:200], shift) < 1e-4
    )
    assert properties.shift_error(torch.eye(32), table, shift) > 0.1


def test_a_shift_of_a_random_table_is_no_linear_map():
    # With more places than dimensions: neither the closed form nor a fit, and a fit least where it never looked.
    table = torch.randn(300, 32)
    fit = properties.fit_shift(table[:200], 5)
    seen, unseen = (properties.shift_error(fit, part, 5) for part in (table[:200], table[200:]))
    assert (
        properties.shift_error(properties.sinusoid_shift(table[5]), table, 5) > 1
        and 0.8 < seen < unseen
    )


def test_an_odd_last_dimension_stays_out_of_the_closed_form():
    table = sinusoids(torch.arange(50.0), 7)
    closed = properties.sinusoid_shift(table[3])
    torch.testing.assert_close(closed[6], torch.eye(7)[6])
    torch.testing.assert_close(table[:-3] @ closed.mT[:, :6], table[3:, :6], rtol=1e-5, atol=1e-5)


# What a position makes of its weights or inputs alone is made once a call, however many blocks a kernel cuts.


TABLES = {
    "transformer_xl": ["project"],
    "deberta": ["key", "query"],
    "forgetting": ["gate"],
    "wall": ["gate"],
}


@each("key", TABLES)
@each("kernel", ["chunked", "local", "block_sparse"])
def test_a_table_is_made_once_a_call(key, kernel):
    layer, made = layer_of(key, kernel=Choice.of(kernel, block=4)), []
    for name in TABLES[key]:
        getattr(layer.position, name).register_forward_hook(lambda *_, name=name: made.append(name))
    layer(torch.randn(1, 13, C), record=False).merged.sum().backward()
    assert made == TABLES[key]
