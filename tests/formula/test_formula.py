"""Typed formulas: Python's own arithmetic cell by cell, nothing but the formula's own error, and never a NaN."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, example, given, strategies as st

from core.attention.basics import ScoreBlock
from core.attention.formula import MAX_NODES, MAX_TEXT, FormulaError, parse
from tests.cases import each

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
        want = pytest.approx(theirs(h, i, j), rel=1e-9, abs=1e-9)
        assert ours[0, h, i, j].item() == want, (text, h, i, j)


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
    ],
)
def test_an_error_points_at_the_character_and_says_what_fits(kind, text, at, says):
    with pytest.raises(FormulaError) as refused:
        parse(text, kind)
    assert says in refused.value.why
    assert at is None or refused.value.at == at


@each(
    ("kind", "text", "at", "says"),
    [
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
def test_what_is_not_finite_is_refused_with_its_cell(kind, text, at, says):
    with pytest.raises(FormulaError) as refused:
        parse(text, kind)(CELLS, torch.ones(1, H, T, S))
    assert says in refused.value.why and refused.value.at == at


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


def test_a_worked_case():
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
    score = torch.full((1, H, T, S), float("nan"))
    assert parse("tanh(score) + 1", "score")(CELLS, score).isnan().all()


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
