"""Every mask: a case worked by hand, agreement of any rectangle with the whole, and refusals in words."""

import itertools
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, strategies as st

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.basics import ScoreBlock
from core.attention.formula import MAX_NODES, MAX_TEXT, FormulaError, parse
from core.attention.masks import COMPOSITIONS, MASKS, build_mask, make_mask
from core.attention.masks.layouts import Drawing, parse_drawing
from core.attention.masks.patterns import layers_needed
from core.entries import Area
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
        Choice.of("document", lengths="2, 3"),
        "##...... ##...... ..###... ..###... ..###... .....###",
    ),
    "tree": (
        Choice.of("tree", prefix=2, parents="-, 0, 0, 2"),
        "#....... ##...... ###..... ####.... ###.#... ###.##..",
    ),
    "shared_prefix": (
        Choice.of("shared_prefix", prefix=1, lengths="2, 2"),
        "#....... ##...... ###..... #..#.... #..##... #....#..",
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
        Choice.of("bigbird", block=2, window=0, globals=1, random=0),
        "######## ######## ####..## ####..## ######## ########",
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
CONTENT = ["local_p", "moba", "lightning"]
PLAIN = [choice for choice, _ in WORKED.values()] + [
    Choice.of("bigbird", block=2, random=2),
    Choice.of("formula", text="where(h == 0, j <= i, j > i + h)"),
    Choice.of("drawn", drawing="3x3:4.6.7", beyond="seen"),
]


def drawn_as(allowed):
    return " ".join("".join(".#"[cell] for cell in row) for row in allowed.int().tolist())


@each("key", WORKED)
def test_a_worked_case(key):
    choice, want = WORKED[key]
    assert drawn_as(make_mask(choice_with_all(choice))(ScoreBlock.whole(6, 8))) == want.strip()


def test_every_entry_has_one():
    """padding and the masks that read content read more than positions; theirs are below and in tests/oracles."""
    assert {item.key for item in MASKS} == set(WORKED) | {"padding", "local_p", "moba", "lightning"}


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


def test_bigbird_draws_the_same_blocks_each_time_and_others_by_another_seed():

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
    monkeypatch.setattr("core.attention.masks.layouts._MAX_CELLS", 5 * 37)
    assert torch.equal(build_mask(choice, 41, 37), whole)


def test_luong_m_is_the_window_and_may_have_its_gaussian():
    """exp(−distance² / 2σ²) with σ = D / 2 = 1: 1, e^(−1/2), e^(−2) inside ±2."""
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
    assert (with_.weights.sum(-1) < 1).all()


def test_luong_p_looks_at_the_same_place_however_long_the_padding_is():
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
def test_a_mask_that_reweighs_cannot_be_a_part_of_or_and_not(choice):
    for key in ("or", "not"):
        with pytest.raises(ConfigError, match=f"mask = {key} .* {choice.key} .* take mask = and"):
            AttentionConfig(mask=Choice.of(key, Choice.of("and", choice)))
    steps = Attention(AttentionConfig(24, 3, mask=Choice.of("and", CAUSAL, choice)))(
        torch.randn(2, 5, 24)
    )
    assert not steps.weights.triu(1).any() and (steps.weights.sum(-1)[:, :, 1:] < 1).all()


def test_what_reads_content_is_refused_without_it():
    for key in CONTENT:
        with pytest.raises(ConfigError, match="take Attention"):
            build_mask(Choice(key), 3, 3)
    with pytest.raises(ConfigError, match="mask = local_p reads q"):
        make_mask(choice_with_all(Choice("local_p")), AttentionConfig(8, 1))(ScoreBlock.whole(3, 3))


def test_a_formula_by_head_masks_each_head_in_its_own_way():
    config = AttentionConfig(
        24, 3, mask=Choice.of("formula", text="where(h == 1, j <= i, abs(i - j) <= h)")
    )
    weights = Attention(config)(torch.randn(2, 5, 24)).weights
    assert (
        (weights[:, 0].diagonal(dim1=1, dim2=2) == 1).all()
        and not weights[:, 1].triu(1).any()
        and (weights[:, 2] > 0)[0].equal(build_mask(Choice.of("local", window=2), 5, 5))
    )


@given(st.integers(1, 64), st.integers(1, 64), st.randoms(use_true_random=False))
def test_a_drawing_comes_back_from_its_text(queries, keys, chance):
    drawing = Drawing(
        tuple("".join(chance.choice("01") for _ in range(keys)) for _ in range(queries))
    )
    assert parse_drawing(drawing.text()) == drawing == Drawing.of(drawing.tensor())
    config = AttentionConfig(mask=Choice.of("drawn", drawing=drawing.text()))
    assert AttentionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@each(
    ("choice", "says"),
    [
        (Choice.of("formula", text="i - j"), "gives a truth value"),
        (Choice.of("formula", text="j <= k"), "k is not known"),
        (Choice.of("formula", text=3), "expected a text"),
        (Choice.of("document", lengths="3, x"), "whole numbers from 1"),
        (Choice.of("document", lengths="3, 0"), "whole numbers from 1"),
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
    with pytest.raises(ConfigError, match=says):
        AttentionConfig(mask=choice)


def test_a_formula_that_divides_by_zero_says_so_and_never_reaches_the_weights():
    layer = Attention(AttentionConfig(24, 3, mask=Choice.of("formula", text="i / j > 1")))
    with pytest.raises(
        ConfigError, match="divides by zero, first at i = 0, j = 0|divides by zero, first at"
    ):
        layer(torch.randn(2, 5, 24))


def test_a_composed_mask_costs_what_its_parts_do():
    """A rule makes no product; local-p has its network: 8 × 8 numbers a head meet each of 5 queries."""
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
    """±3 crosses 12 places in 4 layers; 4 back in 3; through a global token 2; blocks never meet."""
    needed = layers_needed(
        build_mask(choice, 13, 13) if choice.key != "none" else torch.ones(13, 13).bool()
    )
    assert needed.max() == most and (needed == 0).sum() == never


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="on itself"):
        layers_needed(torch.ones(3, 4).bool())


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
    value = eval(
        text, {"__builtins__": {}}, PYTHON | names
    )  # the oracle alone: the lab itself has no eval
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
        with pytest.raises((ArithmeticError, ValueError)):
            list(itertools.starmap(theirs, cells))
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
def test_truth_values_are_pythons_and_short_circuit_as_there(text):
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
        ("score", "where(i, 1, 2)", 6, "where takes a truth value here"),
        ("score", "where(i < j, 1, i < j)", 18, "one kind"),
        ("score", "i < j", 2, "gives a number"),
        ("score", "score and 1", 0, "and takes a truth value here, and this is a number"),
        ("score", "1 + (i < j)", 7, "+ takes a number here"),
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
def test_an_error_points_at_the_character_and_cell_and_says_what_fits(kind, text, at, says):
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
def test_gradients_are_finite_also_beside_cells_that_would_not_be(text):
    score = torch.tensor([-2.0, -1.0, 0.0, 1e-3, 3.0]).repeat(1, H, T, 1).requires_grad_()
    parse(text, "score")(CELLS, score).sum().backward()
    assert score.grad.isfinite().all() and score.grad.abs().sum() > 0


def test_a_formula_worked_by_hand():
    """score − 0.5·|i − j| for queries 2, 3, 4 and five keys, all scores 1; and the window of four with key 0."""
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
def test_the_dtype_is_kept_and_half_precision_computed_in_fp32(dtype):
    score = torch.full((1, H, T, S), 1.5, dtype=dtype)
    assert (
        parse("score * 1000 * 1000 / 1000 / 1000", "score")(CELLS, score).tolist() == score.tolist()
    )
    if dtype == torch.float16:
        with pytest.raises(FormulaError, match="too large for torch.float16"):
            parse("score * 100000", "score")(CELLS, score)


def test_signs_of_a_copied_equation_are_read():
    """Minus, times and the three comparisons as print has them; a place in the text stays where it is."""
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
    """A middle term of a chain is computed once, so that nesting does not double the work at each level."""
    text = "1"
    for _ in range(16):
        text = f"where(0<{text}<2,1,0)"
    assert parse(f"{text} == 1", "mask")(CELLS).all()
