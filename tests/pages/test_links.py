"""Links bring the values of all controls: those that a page declares, and those that closed popovers hide."""

import os
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.attention import Choice
from core.tasks import TaskConfig, make_task
from core.training import recommended
from dashboard.fields import base
from dashboard.fields.reset import BUILT, PENDING, forget_page
from dashboard.ui.guide import SHOW, TRIED
from tests.pages.app import (
    Case,
    assert_case,
    controls_of,
    open_at,
    open_page,
    page_cases,
    page_text,
    set_state,
    shown,
    without_terms,
)

STACK, CELL = "train:copy:transformer", "train:reverse:recurrent"
RUN = {
    "steps": 300,
    "seconds": 60.0,
    "patience": 2,
    "keep_best": True,
    "finish_early": False,
    "optimizer": "sgd",
    "schedule": "constant",
    "warmup": 7,
    "batch_size": 16,
    "clip": 2.0,
    "weight_decay": 0.2,
    "label_smoothing": 0.1,
    "min_rate": 0.2,
    "decayed": "matrices",
    "beta1": 0.8,
    "beta2": 0.99,
    "device": "cpu",
    "precision": "bf16",
}
# For each page: its link, its popovers, and a value for each control in them (and for some that are always in sight).
PAGES: dict[str, tuple[str, dict[str, str], tuple[str, ...], dict[str, Any]]] = {
    "train, stacked": (
        "train",
        {"train:task": "copy", "train:copy:kind": "transformer"},
        ("train:copy:group", f"{STACK}:sizes", f"{STACK}:training"),
        {
            "train:copy:length": 8,
            "train:seed": 3,
            "train:example": 2,
            f"{STACK}:rate": 0.02,
            f"{STACK}:heads:48": 4,
            "train:copy:vocab": 9,
            f"{STACK}:d_model": 48,
            f"{STACK}:layers": 2,
            f"{STACK}:norm": "pre",
            f"{STACK}:residual": "hyper",
            f"{STACK}:streams": 3,
            f"{STACK}:normalization": "rms",
            f"{STACK}:activation": "gelu",
            f"{STACK}:d_ff": 80,
            f"{STACK}:dropout": 0.1,
            f"{STACK}:tied": True,
            f"{STACK}:output_bias": False,
            f"{STACK}:scaled_embedding": False,
        }
        | {
            f"{STACK}:{name}": value
            for name, value in (RUN | {"checkpointing": True, "initialization": "gpt2"}).items()
        },
    ),
    "train, recurrent": (
        "train",
        {"train:task": "reverse", "train:reverse:kind": "recurrent"},
        (f"{CELL}:sizes", f"{CELL}:training"),
        {
            f"{CELL}:d_model": 48,
            f"{CELL}:layers": 2,
            f"{CELL}:cell": "lstm",
            f"{CELL}:bidirectional": False,
            f"{CELL}:feeding": "input",
            f"{CELL}:dropout": 0.1,
            f"{CELL}:tied": True,
            f"{CELL}:scaled_embedding": False,
        }
        | {f"{CELL}:{name}": value for name, value in RUN.items()},
    ),
    "sweeps": (
        "sweeps",
        {"sweeps:axis": "Score"},
        (),
        {"sweeps:values:reverse:transformer:score": ["additive", "cosine"]},
    ),
    "fine_tune, texts": (
        "fine_tune",
        {},
        ("fine_tune:panel:classify",),
        {
            f"fine_tune:{name}:classify": value
            for name, value in {
                "epochs": 3,
                "layers": 2,
                "learning_rate": 1e-3,
                "batch_size": 8,
                "seed": 4,
            }.items()
        },
    ),
    "fine_tune, pairs": (
        "fine_tune",
        {"fine_tune:task": "Pairs of sequences"},
        ("fine_tune:panel:pairs",),
        {
            f"fine_tune:{name}:pairs": value
            for name, value in {
                "epochs": 3,
                "learning_rate": 1e-3,
                "batch_size": 8,
                "seed": 4,
            }.items()
        },
    ),
    "decode": (
        "decode",
        {"decode:strategy": "Sampling"},
        (),
        {"decode:no_repeat": 2, "decode:longest:28": 9, "decode:samples": 5, "decode:seed": 3},
    ),
}


@pytest.mark.parametrize("case", PAGES)
def test_a_link_brings_what_a_closed_popover_hides(case):
    page, link, popovers, values = PAGES[case]
    panels = dict.fromkeys(popovers, True)
    app = open_page(page, link, panels | values)
    drawn = controls_of(app)
    assert {key: drawn.get(key) for key in values} == values
    closed = open_page(page, app.query_params)
    assert closed.query_params == app.query_params
    assert {key: closed.session_state[key] for key in values} == values
    assert set(drawn) - set(controls_of(closed)) <= set(values), "the table above lacks a control"
    assert controls_of(open_page(page, closed.query_params, panels)) == drawn


GUIDED = [
    path.stem
    for path in sorted((Path(__file__).parents[2] / "pages").glob("*.py"))
    if "    lab.try_this(" in path.read_text("utf-8")
]


def begins(app: AppTest, *starts: str) -> list[str]:
    return [text.value for text in app.markdown if text.value.startswith(starts)]


@pytest.mark.parametrize("page", GUIDED)
def test_one_answer_is_right(page):
    app = open_at(page)
    keys = [button.key for button in app.button if ":try:" in (button.key or "")]
    for pills in [pills for pills in app.pills if (pills.key or "").endswith(":predict")]:
        verdicts = []
        for option in pills.options:
            app.pills(key=pills.key).set_value(option).run()
            assert option != SHOW or begins(app, "The answer: **")
            verdicts += [text.split("]")[0] for text in begins(app, ":green[", ":orange[")]
        answers = len(pills.options) - (SHOW in pills.options)
        assert verdicts.count(":green[Right.") == 1 and len(verdicts) == answers
    for key in keys:
        if key not in {button.key for button in app.button}:
            app = open_at(page)
        before = shown(app)
        app.button(key=key).click().run()
        about, move = app.session_state[TRIED.key]
        assert about == key.partition(":try:")[0]
        assert {name: app.session_state[name] for name in move.values} == move.values
        (notice,) = begins(app, "**Notice:**")
        assert move.notice[:20] in without_terms(notice) and not app.error and shown(app) != before
    assert keys


def test_the_attention_of_train_is_in_its_link():
    now = recommended(make_task(TaskConfig.of("copy")), "transformer").model.attention.with_(
        score=Choice.of("additive")
    )
    app = open_page("train", {"train:task": "copy"}, {f"{STACK}:attention:now": now})
    again = open_page(
        "train", dict(app.query_params) | {"run": "example_recurrent", "train:seed": "7"}
    )
    assert again.session_state[f"{STACK}:attention:now"].score.key == "additive"
    assert_case(again, Case(controls={"train:task": "copy", "train:seed": 7}))


RECIPE = "train:reverse:transformer"


BAD = {
    "train:task": "nonsense",
    "train:seed": "-1",
    f"{RECIPE}:rate": "inf",
    f"{RECIPE}:layers": "99",
    f"{RECIPE}:d_model": "0",
    "train:reverse:kind": "1",
    f"{RECIPE}:attention:now": "score=nonsense",
}


test_a_link_of_train = page_cases(
    "train",
    {
        "the settings of a run": Case(
            {"run": "example_recurrent"},
            controls={"train:task": "reverse", "train:reverse:kind": "recurrent"},
        ),
        "bad values leave the recipe": Case(
            BAD,
            controls={"train:seed": 0, f"{RECIPE}:mechanism": "recommended"},
            query=dict.fromkeys(BAD),
        ),
    },
)


def test_a_late_text_does_not_set_a_control_back():
    name, app = "train:reverse:length", open_page("train", {})
    # 9 as sent before the browser had received 8
    late = [("slider", name, 9), ("slider", name, 8), ("query_params", name, "9")]
    assert_case(app, Case(do=late, controls={name: 8}, query={name: "8"}))
    assert_case(app, Case(do=[("query_params", name, "7")], controls={name: 7}))  # another link
    app.switch_page("../pages/runs.py").run()
    app.query_params[name] = "9"  # a link from another page
    assert_case(app.switch_page("../pages/train.py").run(), Case(controls={name: 9}))


# A change of d_model keeps the heads that were chosen wherever they divide it, on every page with both controls.


# page: its link, what opens the panel of sizes, the key of d_model, and that of the heads at a width
WITH_HEADS = {
    "heads": ({"heads:weights": "Random"}, None, "heads:d_model", "heads:heads:False:{}"),
    "one_query": ({"one:d_model": "64"}, None, "one:d_model", "one:heads"),
    "positions": ({}, None, "positions:d_model", "positions:heads:{}"),
    "compare": (
        {"source": "seeded", "sizes": "64.8.0"},
        "compare:tokens",
        "compare:d_model",
        "compare:heads:{}",
    ),
    "transformer": (
        {"transformer:start": "random"},
        None,
        "transformer:d_model",
        "transformer:heads",
    ),
    "train": (
        {},
        "train:reverse:transformer:sizes",
        "train:reverse:transformer:d_model",
        "train:reverse:transformer:heads:{}",
    ),
}


@pytest.mark.parametrize("page", WITH_HEADS)
def test_heads_are_kept(page):
    link, panel, d_model, heads = WITH_HEADS[page]
    app = open_at(page, "", **link)

    def control(key):
        if panel:
            set_state(app, panel)
        return next(one for one in [*app.select_slider, *app.selectbox] if one.key == key)

    widths = [width for width in (64, 48, 12, 64, 5, 128) if str(width) in control(d_model).options]
    control(d_model).set_value(64).run()
    control(heads.format(64)).set_value(8).run()
    for width in widths:
        control(d_model).set_value(width).run()
        assert control(heads.format(width)).value == max(n for n in range(1, 9) if width % n == 0)
    control(heads.format(128)).set_value(2).run()
    control(d_model).set_value(64).run()
    assert control(heads.format(64)).value == 2


# Reset: a page's values leave session and link, those of other pages stay.


def test_keys_of_page_are_those_of_its_name_and_of_its_link(monkeypatch):
    names = ["masks:rule", "masks_old", "heads:d_model", "inside:model", "one:score"]
    monkeypatch.setattr("streamlit.session_state", dict.fromkeys(names))
    assert [*forget_page("masks", ["inside:model"])] == ["masks:rule", "inside:model"] and [
        *forget_page("one_query", [])
    ] == ["one:score"]


def test_reset_lets_go_of_the_picked_head():
    app = open_at("pretrained", head="4.3")
    assert "L4·H3" in page_text(app)
    set_state(app, PENDING, ("pretrained", ["head"], {}))
    assert "L3·H1" in page_text(app.run()) and "head" not in app.query_params


def test_a_reset_page_opens_as_at_first():
    app = open_at("mechanisms", "mechanisms:", axis="Kernels")
    app.session_state["masks:other"] = "stays"
    app.session_state[BUILT] = "scores", {"score": Choice("cosine")}
    assert_case(app, Case(controls={"mechanisms:axis": "kernel"}))
    assert not set_state(
        app, PENDING, ("mechanisms", ["mechanisms:axis"], {})
    ).button_group  # the widgets leave the browser
    at_first = {"mechanisms:axis": "position", "masks:other": "stays"}
    assert_case(app.run(), Case(controls=at_first, query={"mechanisms:axis": None}))
    assert PENDING not in app.session_state and BUILT not in app.session_state


# A button that starts runs starts one for the same settings, however often it is pressed while that one goes on.


PRESSED = {
    "train": {},
    "fine_tune": {},
    "sweeps": {},
    "claims": {"claim": "sinks"},
    "corpus": {"corpus:texts": "own"},
}


@pytest.mark.parametrize("page", PRESSED)
def test_many_presses_start_what_one_starts(page):
    app, counts = open_at(page, **PRESSED[page]), []
    for _ in range(3):
        set_state(app, f"{page}:pressed")
        counts.append(len(list(Path(os.environ["ATTENTION_LAB_RUNS"]).rglob("run.json"))))
    assert counts[0] > 0 and counts == counts[:1] * 3


def test_a_late_change_is_not_answered():
    base._call_back("train:gone:size", pytest.fail, "its values are cleared")


def test_page_waits_for_memory_and_one_that_is_open_runs_on(monkeypatch):
    free = [1e9]
    monkeypatch.setattr("core.memory.free_bytes", lambda: free[0])
    monkeypatch.setattr("core.memory._caches", set())
    app = open_at("masks")
    free[0] = 0
    assert not app.run().error, "it is open"
    said = open_at("masks")
    assert "needs about 15 MB of memory, and nothing is free" in said.error[0].value
    assert [title.value for title in said.title] == ["Masks"] and not said.text_input
    assert said.button(key="page:again").click().run().error
    free[0] = 1e9
    assert said.button(key="page:again").click().run().text_input and not said.error


@pytest.mark.parametrize(
    "page, link, says",
    [
        ("circuits", {"circuits:edges": "999"}, "edges = 999; expected a number from 1 to 60."),
        ("circuits", {"circuits:head": "L9·H9"}, "head = L9·H9; expected one of L0·H0, L0·H1"),
        ("pretrained", {"pretrained:layers": "L99"}, "layers = L99; expected one of L0, L1"),
        ("generate", {"generate:layer": "L99"}, "layer = L99; expected one of L0, L1"),
        ("generate", {"generate:strength": "abc"}, "strength = abc; expected a number from"),
        ("pairs", {"pairs:quantity": "zz"}, "quantity = zz; expected one of "),
        ("head_roles", {"head_roles:view": "zz"}, "view = zz; expected one of Roles"),
    ],
)
def test_a_lost_value_of_a_link_is_said(page, link, says):
    (toast,) = open_at(page, **link).toast
    assert f"The link says {says}" in toast.value.replace("\\", "")
