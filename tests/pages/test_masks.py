"""The page Masks without a browser: every mask, two joined, a typed rule, a drawing, bad links, each in words."""

import re
from functools import partial
from typing import Any

import pytest
import torch

from core.attention import AXES, Choice
from core.attention.masks import COMPOSITIONS, build_mask
from core.studies import masks
from dashboard.draw.formats import percent
from pages import masks as page
from tests.cases import each
from tests.pages.app import (
    Case,
    controls_of,
    html_text,
    open_at,
    page_cases,
    page_text,
    set_control,
)

MASKS = [item for item in AXES["mask"] if item.key not in COMPOSITIONS]
open_page = partial(open_at, "masks", "masks:")
put = partial(set_control, "masks:")


def test_every_mask_can_be_picked_with_its_parameters():
    at = open_page()
    for mask in MASKS:
        at = put(at, "selectbox", "first", mask.key)
        assert not at.error and not at.warning, mask.key
        assert ("Nothing is masked" in html_text(at)) == (mask.key == "none"), mask.key
        parameters = {f"masks:first:{mask.key}:{param.key}" for param in mask.params}
        assert parameters <= controls_of(at).keys()


def test_a_rule_that_cannot_be_read_is_pointed_at():
    at = put(open_page(first="Formula"), "text_input", "first:formula:text", "j <= i and k == 0")
    assert at.code[0].value.splitlines()[1].index("^") == 11


RULE = ("text_input", "first:formula:text", "j <= i and j % 3 == 0")
# Causal local is 33 cells of the 78 that causal has.
JOINED = {"and": 33, "or": 78, "not": 111, "and_not": 0, "or_not": 99}
DRAWING = "12x12:800.c00.e00.700.380.1c0.0e0.070.038.01c.00e.007"
DRAWN = ("selectbox", "first", "drawn")
test_what_it_says = page_cases(
    "masks",
    {
        **{
            f"joined by {join}": Case(
                {"first": "Causal local"}, [f"{cells} of 144"], do=[("selectbox", "join", join)]
            )
            for join, cells in JOINED.items()
        },
        "a formula is drawn as typed": Case(
            {"first": "Formula"}, ["j bmod 3 = 0", "30 of 144"], do=[RULE]
        ),
        "a bad one keeps the last": Case(
            {"first": "Formula"},
            ["k is not known", "30 of 144", "last rule that could be read"],
            do=[RULE, ("text_input", "first:formula:text", "j <= i and k == 0")],
        ),
        "the stack and the batch": Case(
            says=[
                "<b style='font-weight:600'>2</b> layers connect every token",
                "56 of 192 cells belong to padding",
                "0.00",
            ],
            do=[
                ("session_state", "stacked", True),
                ("session_state", "batched", True),
                ("selectbox", "first", "global_window"),
            ],
        ),
        "a parameter changes the numbers": Case(
            {"first": "Causal local"},
            ["50 of 144"],
            do=[("number_input", "first:causal_local:lookback", 4)],
        ),
        "a rule that cannot be computed": Case(
            {"first": "Formula", "first:formula:text": "i / j > 1"}, ["divides by zero"]
        ),
        "a row without a key": Case(
            {
                "first": "Drawn by hand",
                "tokens": "red green blue",
                "first:drawn:drawing": "3x3:4.0.7",
            },
            ["No key is left for “green”, so its output is 0"],
        ),
        "a mask that needs weights": Case(
            {"first": "Luong local-p", "join": "or"}, ["local_p", "take mask"]
        ),
        "names that nobody knows": Case(
            {"first": "Clairvoyant", "join": "xor"},
            ["Clairvoyant; expected one of None", "xor", "78 of 144"],
        ),
        "no token": Case({"tokens": " "}, ["no token here"]),
        "too many tokens": Case({"tokens": "word " * 70}, ["first 64 are used", "of 4096"]),
        "a drawing begins with the mask that was there": Case(
            {"first": "Causal local"},
            ["33 of 144"],
            do=[DRAWN],
            controls={"first:drawn:drawing": DRAWING},
        ),
        "what was drawn stays": Case(
            {"first": "Causal local"},
            ["33 of 144"],
            do=[DRAWN, ("selectbox", "first", "causal"), DRAWN],
        ),
        "the reach of a stack is closed": Case(
            {"first": "Causal local"}, never=["layers connect all pairs"]
        ),
        "a cell of the stack opens it": Case(
            {"first": "Causal local", "reach": "5.0"}, ["layers connect all pairs"]
        ),
        "a cell of three words": Case(
            {"tokens": "red green blue", "cell": "0.2"}, ["text{red},,text{blue}"]
        ),
        "no such cell": Case(
            {"tokens": "red green blue", "cell": "9.9"}, ["text{green},,text{red}"]
        ),
        "a cell": Case({"cell": "9.2"}, [r"text{didn't}"]),
        "padding": Case({"first": "Padding"}, ["120 of 144"], controls={"real": 10}),
        "all is padding": Case(
            {"first": "Padding"}, ["No key is left for"], do=[("number_input", "real", 0)]
        ),
        "a name is text": Case({"tokens": "<b>x</b> $y$ **z**"}, never=["<b>x</b>"]),
    },
    prefix="masks:",
)


def test_the_rule_that_ran_is_shown():
    at = open_page()
    at.session_state["masks:sources"] = True
    at.run()
    assert any("def causal(" in c.value for c in at.code)
    known: dict[str, Any] = {}
    exec(at.code[-1].value, known)
    assert known["layer"].config.mask == Choice.of("causal")


def test_what_is_drawn_or_typed_can_be_trained_with():
    """From a link, whose parameters are bound to the page's controls when the page is left."""
    at = open_page(first="Formula")
    at.button(key="masks:train").click().run()
    assert not at.error
    taken = at.session_state["train:reverse:transformer:attention:now"]
    assert taken.mask.key == "formula" and taken.mask["text"] == "j <= i and i - j < 4 or j == 0"


def test_pytorch_means_the_opposite_and_was_run_to_say_so():
    at = open_page(tokens="red green blue", cell="1.2")
    at.session_state["masks:pytorch"] = True
    shown = page_text(at.run())
    assert "NaN" not in shown
    check = masks.torch_check(Choice.of("causal"), ("red", "green", "blue"), None)
    assert check.difference < 1e-6 and check.forbidden == pytest.approx(1) and check.nan_rows == 0
    blind = masks.torch_check(Choice.of("not", Choice.of("causal")), tuple("abcd"), None)
    assert blind.nan_rows == 1 and blind.difference < 1e-6, "a query without a key"
    assert f"**{percent(check.forbidden)}** of the weight" in shown
    rows = re.findall(r"<td>(True|False)</td>", html_text(at))
    assert rows[:6] == ["True", "True", "False", "False", "False", "True"]


@each("mask", MASKS)
def test_every_mask_is_converted_or_is_said_to_multiply_weights(mask):
    real = 4 if mask.key == "padding" else None
    check = masks.torch_check(Choice.of(mask.key), tuple("abcdef"), real)
    assert "reweighs" in mask.traits if check is None else check.difference < 1e-5


def test_the_prediction_is_counted():
    question = page.question(12)
    assert question.options[question.answer] == "Their columns"
    assert "24 of 144" in question.reasons[0]


def test_a_mask_that_reads_content_says_what_it_chose():
    at = put(open_page(), "selectbox", "first", "moba")
    assert "keys a query by their content" in html_text(at)
    effect, full = (
        masks.mask_effect(choice, tuple("abcdef"), None, 0)
        for choice in (Choice.of("moba", size=2, blocks=1), Choice("causal"))
    )
    chosen = effect.selection
    assert chosen.keys == pytest.approx(effect.allowed.sum(1).mean()) and 0 < chosen.recall <= 1
    shares = (full.after * effect.allowed).sum(1) / full.after.sum(1)
    assert full.selection is None and chosen.weight == pytest.approx(shares.mean(), abs=1e-6)


def test_the_typed_rule_to_try_differs_from_the_causal_mask_on_a_short_sentence():
    rule = build_mask(Choice.of("formula", text=page.FORMULA), 5, 5)
    removed = torch.ones(5, 5, dtype=torch.bool).tril() & ~rule.reshape(5, 5)
    assert removed.nonzero().tolist() == [[3, 1], [4, 1], [4, 2]]
