"""Side by side, without a browser: first sight, adding, moving, editing, the link, and what cannot be drawn."""

import re
from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.attention import AXES, AttentionConfig, Choice, ConfigError, entry
from core.attention.cost import (
    ClosedFormCost,
    Measurement,
    attention_cost,
    closed_form_cost,
    visible_share,
)
from core.pretrained import LayerQKV, layer_qkv, read
from core.studies import compare as study
from core.studies.efficient import ONE_AT_A_TIME
from dashboard.draw import compare as draw
from dashboard.draw.formats import number
from dashboard.ui.models import EMBEDDED, load_model
from tests.attention import drawing
from tests.cases import each
from tests.pages.app import Case, assert_says, html_text, open_at, page_cases

TIME = r"<td>[\d.]+\u00a0[mµ]?s"


SEEDED_LINK = {"source": "seeded", "text": "The animal was too tired .", "length": "128"}
LINK = SEEDED_LINK | {
    "m": ["score=dot", "mask=and(causal,local(window=1))", "normalizer=softmax(temperature=0.5)"],
    "minus": "2.1",
    "sizes": "24.3.2",
    "seed": "7",
    "pin": "4.1",
}
TEXTS = "a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$"
OWN_QUERIES = {"m": ["", "projection=differential"]}
BAD = {
    "source": "<b>",
    "minus": "7.7",
    "sizes": "16.5.0",
    "pin": "99.0",
    "seed": "x",
    "length": "3",
}
test_what_it_says = page_cases(
    "compare",
    {
        "a link": Case(
            LINK,
            [
                "Causal and local window",
                "d_model 24, head 2 of 3",
                "seed 7",
                ">tired</b></span>",  # the pinned query is spoken of
            ],
            controls={"compare:minuend": 2},
        ),
        "the pair at the end": Case(
            {"m": ["position=rope", "position=alibi"]},
            ["ALiBi against RoPE", "tokens away on average, instead of", "nats instead of"],
        ),
        "the pair that is subtracted": Case(
            {"m": ["", "position=alibi", "kernel=linear"], "minus": "2.0"},
            [
                "inear kernel against the dot product",
                "takes its weight from keys 5.33 tokens away",
            ],
        ),
        "a pair with negative weights": Case(
            SEEDED_LINK | {"m": ["", "projection=differential"]}, ["negative weights have no mean"]
        ),
        "a shorter sentence drops the pin": Case(
            LINK, do=[("session_state", "compare:text", "one two three")], query={"pin": None}
        ),
        "what cannot be compared": Case(
            OWN_QUERIES, ["Differential", "MiniLM", "computes its own"]
        ),
        "the way out": Case(
            OWN_QUERIES,
            never=["computes its own"],
            do=[("button", "compare:seeded", None)],
            query={"source": "seeded"},
        ),
        "nothing beside itself": Case(
            SEEDED_LINK,
            ["Choose two different mechanisms"],
            do=[("selectbox", "compare:minuend", 0)],
        ),
        "equations, papers and weights": Case(
            SEEDED_LINK | {"m": ["", "score=additive", "projection=gated"]},
            [
                r"\quad w =",
                "Bahdanau et al. 2014",
            ],
            do=[("session_state", "compare:sources", True)],
        ),
        **{
            f"{text} of {source}": Case({"source": source, "text": text}, ["tokens"], ["<script>"])
            for text in TEXTS
            for source in ("seeded", "3.1")
        },
        "a long text": Case({"text": "word " * 600}, ["the first 256 are compared"]),
        "no text": Case(SEEDED_LINK | {"text": ""}, ["There is no token here"]),
        "a broken link": Case(
            {**SEEDED_LINK, **BAD, "m": ["score=warp", ""]},
            [*(f"The link's {name} is not used" for name in ("m", *BAD) if name != "pin")]
            + ["The link says pin = 99.0", "from within two tokens"],
        ),
        "sentence, sizes, head and seed of all": Case(
            SEEDED_LINK,
            ["3 tokens, d_model 24, head 2 of 3", "2,400"],  # four maps of 24 × 24 and biases
            do=[
                step
                for kind, name, value in (
                    ("text_area", "text", "one two three"),
                    ("number_input", "seed", 5),
                    ("select_slider", "d_model", 24),
                    ("selectbox", "heads:24", 3),
                    ("selectbox", "head:3", 2),
                )
                for step in (
                    ("session_state", "compare:tokens", True),
                    (kind, f"compare:{name}", value),
                )
            ]
            + [("query_params", "length", "128")],  # a closed popover forgets nothing
            query={"sizes": "24.3.2", "seed": "5", "text": "one two three"},
        ),
    },
)


def open_page(**query) -> AppTest:
    return open_at("compare", **SEEDED_LINK | query)


def order(app: AppTest) -> list[str]:
    return app.selectbox(key="compare:minuend").options


def press(app: AppTest, what: str, place: int) -> None:
    app.menu_button(key=f"compare:line:{place}").click(what).run()


def test_first_sight_measures_something(monkeypatch):
    first = html_text(open_at("compare"))
    times = re.findall(TIME, first)
    assert len(times) == 4 and len(re.findall(TIME + "¹", first)) == 1, "the window is masked"
    monkeypatch.setattr(study, "measure_costs", lambda *_: pytest.fail("measured again"))
    assert re.findall(TIME, html_text(open_at("compare"))) == times, (
        "what one session measured another one has"
    )


@pytest.mark.parametrize(
    ("what", "place", "after"),
    [
        ("Move after", 0, ["ALiBi", "Dot product", "Local window", "Linear"]),
        ("Duplicate", 2, ["Dot product", "ALiBi", "Local window", "Local window 2", "Linear"]),
        ("Remove", 1, ["Dot product", "Local window", "Linear"]),
    ],
)
def test_the_list_moves_duplicates_and_removes(what, place, after):
    app = open_page()
    press(app, what, place)
    assert order(app) == after
    of = [app.selectbox(key=f"compare:{name}").value for name in ("minuend", "subtrahend")]
    assert of == [0, 1] or what != "Move after", "the difference stays with its two"


def test_the_list_adds_and_takes_the_layers_of_a_model():
    app = open_page(m=["", "position=alibi"])
    assert app.menu_button(key="compare:line:0").options == ["Change", "Move after", "Duplicate"]
    app.selectbox(key="compare:add").set_value("score=cosine").run()
    assert len(order(app)) == 3 and "score=cosine" in app.query_params["m"]
    assert app.selectbox(key="compare:add").value is None
    app.selectbox(key="compare:layers").set_value("gpt_oss").run()
    texts = app.query_params["m"]
    assert len(order(app)) == 2 and not app.error
    assert all("causal" in text for text in texts) and "causal_local" in "".join(texts)
    app = open_page(m=["", "position=alibi"] * 3)
    assert app.selectbox(key="compare:add").disabled
    assert "Duplicate" not in app.menu_button(key="compare:line:0").options


def test_the_dialog_changes_one_mechanism():
    app = open_page()
    press(app, "Change", 1)
    for _ in range(2):  # a test reruns the whole page, which shuts a dialog
        app.session_state["compare:editing"] = 1
        app.selectbox(key="compare:edit:1:position").set_value("rope").run()
    app.session_state["compare:editing"] = 1
    app.button(key="compare:take").click().run()
    assert order(app)[1] == "RoPE" and "position=rope" in app.query_params["m"]


def test_what_changes_is_measured_on_a_press():
    app = open_page()
    assert len(re.findall(TIME, html_text(app))) == 4
    app.selectbox(key="compare:add").set_value("score=cosine").run()
    assert len(re.findall(TIME, html_text(app))) == 4
    app.button(key="compare:measure").click().run()
    assert len(re.findall(TIME, html_text(app))) == 5
    app.selectbox(key="compare:length").set_value(256).run()
    assert not re.search(TIME, html_text(app)) and app.query_params["length"] == "256"
    assert_says(app, "Costs at 256 tokens, d_model 16, 4 heads", "press Measure")


# Side by side, without a page: links survive, weights are shared by name, and what is said is what is measured.


DOT, ALIBI = AttentionConfig(16, 4), AttentionConfig(16, 4, position=Choice("alibi"))
SETUP = study.Comparison((DOT, ALIBI), source=study.SEEDED, text="one two three four five")


@cache
def recorded(text: str, layer: int) -> LayerQKV:
    return layer_qkv(load_model(EMBEDDED), text, layer)


def recorded_of(setup: study.Comparison) -> LayerQKV | None:
    return None if setup.seeded else recorded(setup.text, setup.layer_head[0])


def compute_map(setup: study.Comparison, config: AttentionConfig) -> study.MapResult:
    return study.compute_map(setup, config, recorded_of(setup))


def tokens_of(setup: study.Comparison) -> study.Tokens:
    return study.tokens_of(setup, recorded_of(setup))


@each(
    "setup",
    [
        study.default_controls(),
        SETUP,
        replace(
            SETUP,
            d_model=24,
            num_heads=3,
            head=2,
            seed=7,
            minus=(0, 1),
            length=256,
            mechanisms=tuple(config.with_(d_model=24, num_heads=3) for config in (DOT, ALIBI)),
        ),
        replace(study.default_controls(), source="5.11", minus=(3, 2), text="a <b> & ü 🙂"),
        replace(
            study.default_controls(),
            mechanisms=(
                *study.default_controls().mechanisms[::-1],
                study.default_controls().mechanisms[0],
            ),
        ),
    ],
)
def test_a_link_carries_every_setting(setup):
    assert study.from_query(study.to_query(setup)) == (setup, [])


@each(
    ("name", "value", "warning"),
    [
        ("m", ["score=dot"], "It has 1 mechanisms; expected 2 to 6"),
        ("m", ["score=dot", "score=warp"], "expected one of"),
        ("m", ["("] * 7, "It has 7 mechanisms"),
        ("source", "9.9", "layer.head from 0.0 to 5.11"),
        ("sizes", "16.3.0", "does not divide"),
        ("sizes", "16", "sizes=16.4.0"),
        ("minus", "1.1", "two different mechanisms"),
        ("minus", "0.4", "from 0 to 3"),
        ("seed", "-1", "whole numbers"),
        ("length", "7", "expected one of 128"),
    ],
)
def test_a_broken_link_says_so_and_the_rest_of_it_is_kept(name, value, warning):
    setup, refused = study.from_query({name: value, "text": "kept"})
    assert len(refused) == 1 and warning in refused[0]
    assert setup == replace(study.default_controls(), text="kept")


def test_minilm_s_map_is_minilm_s_own_attention():
    setup, model = replace(study.default_controls(), source="2.7"), load_model(EMBEDDED)
    trace = read(model, setup.text).trace
    assert (*trace.shape, model.model.config.hidden_size) == (
        study.LAYERS,
        study.HEADS,
        study.WIDTH,
    )
    np.testing.assert_allclose(
        compute_map(setup, setup.mechanisms[0]).weights, trace.head(2, 7), atol=1e-5
    )
    assert tokens_of(setup).names == trace.map(0).keys


def test_what_minilm_s_queries_cannot_have_is_said():
    setup = study.default_controls()
    for config, reason in (
        (AttentionConfig(384, 12, Choice("multi_query")), "computes its own queries and keys"),
        (AttentionConfig(384, 12, position=Choice("sinusoidal")), "is added before queries"),
    ):
        assert reason in compute_map(setup, config).error
        assert not compute_map(replace(setup, source=study.SEEDED), config).error


@each(
    ("index", "place", "order", "minus"),
    [
        (2, "before", (0, 2, 1, 3), (2, 0)),
        (0, "after", (1, 0, 2, 3), (0, 1)),
        (1, "twice", (0, 1, 1, 2, 3), (1, 0)),
        (0, "removed", (1, 2, 3), (0, 1)),
    ],
)
def test_a_moved_mechanism_keeps_the_difference(index, place, order, minus):
    before = study.default_controls()
    after = before.moved(index, place)
    assert after.mechanisms == tuple(before.mechanisms[at] for at in order)
    assert after.minus == minus


@each("option", [*study.addable()])
def test_what_can_be_added_has_a_map_or_a_reason_and_a_name(option):
    minilm = replace(study.default_controls(), text="one two three")
    for setup in (SETUP, minilm):
        try:
            config = study.mechanism_of(option, setup.sizes)
        except ConfigError as error:
            assert str(error).endswith(".")
            continue
        result = compute_map(setup, config)
        size = len(tokens_of(setup).names)
        if result.error:
            assert result.error.endswith(".") and setup is minilm
        else:
            assert result.weights.shape == (size, size) and np.isfinite(result.weights).all()
        assert draw.name_of(config) and "{" not in draw.heading_note(config)
        axis, _, key = option.partition("=")
        if axis in AXES and not entry(axis, key).parts:
            assert draw.name_of(config) == entry(axis, key).name


def test_measures_by_hand():
    weights = np.array([[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
    result = study.MapResult(weights)
    assert result.entropy == pytest.approx(np.log(2) / 4)
    assert result.distance == pytest.approx((0.5 + 0 + 1 + 3) / 4)
    assert result.near == pytest.approx(3 / 4) == study.MapResult(-7 * weights).near, (
        "a share, whatever the rows sum to"
    )
    assert study.MapResult(np.zeros((3, 3))).near == 0
    assert study.MapResult(-weights).entropy is None and study.MapResult(-weights).distance is None
    weights = np.full((5, 5), 0.1)
    weights[0, 4], weights[2, 3], weights[1, 3] = 0.9, 0.8, 0.5
    assert study.default_cell(weights, (True, False, False, False, False)) == (1, 3), (
        "the cell worth reading is no neighbour and no special token"
    )


def test_the_fact_is_what_is_measured():
    setup = study.default_controls()
    results = [compute_map(setup, config) for config in setup.mechanisms]
    names, tokens = draw.names_of(setup.mechanisms), tokens_of(setup)
    cell = study.default_cell(results[0].weights, tokens.special)
    assert (
        "may not take from “animal” under the local window; under the other, it takes 0.68 from it."
        in draw.fact_text(replace(setup, minus=(2, 0)), names, results, tokens, cell)
    )
    setup = replace(SETUP, mechanisms=(DOT, AttentionConfig(16, 4, Choice("gated"))))
    results = [compute_map(setup, config) for config in setup.mechanisms]
    names = ["Dot product", "Gated output"]
    sentence = draw.fact_text(setup, names, results, tokens_of(setup), (0, 2))
    assert sentence.startswith("Gated output and the dot product give the same weights")
    assert sentence.endswith("in both.")


def test_names_say_what_is_special():
    configs = [DOT, ALIBI, DOT, DOT]
    assert draw.names_of(configs) == ["Dot product", "ALiBi", "Dot product 2", "Dot product 3"]
    mask = Choice.of("and", Choice("causal"), Choice.of("not", Choice.of("local", window=1)))
    assert draw.name_of(AttentionConfig(16, 2, mask=mask)) == "Causal and not local window"
    both = AttentionConfig(16, 2, score=Choice("dot"), position=Choice("alibi"))
    assert draw.name_of(both) == "Dot product + ALiBi"


@each("key", [item.key for item in AXES["mask"]])
@each("kernel", ["exact", "fused"])
def test_a_dense_kernel_has_the_flops_of_every_cell(key, kernel):
    try:
        config = AttentionConfig(24, 3, mask=drawing.plain("mask", key), kernel=kernel)
    except ConfigError:
        return
    assert closed_form_cost(config, 12).flops >= closed_form_cost(AttentionConfig(24, 3), 12).flops


@each(("axis", "key"), [(axis, item.key) for axis in AXES for item in AXES[axis]])
def test_mechanism_is_credited_to_paper_of_its_entry_alone(axis, key):
    # A rule that a person types, draws or joins is nobody's paper.
    item = entry(axis, key)
    try:
        note = draw.heading_note(AttentionConfig(24, 3, **{axis: drawing.plain(axis, key)}))
    except ConfigError:
        return
    own = not item.paper
    assert own == (key in ("formula", "drawn", "and", "or", "not"))
    if own:
        assert str(item.year) not in note and not any(
            other.paper and draw.citation(other) in note for other in AXES[axis]
        )


def test_costs_by_hand():
    dot, window = AttentionConfig(16, 2), AttentionConfig(16, 2, mask=Choice.of("local", window=3))
    assert visible_share(dot, 128) == 1.0
    assert visible_share(window, 10) == pytest.approx((7 * 10 - 2 * (1 + 2 + 3)) / 100)
    whole, masked = closed_form_cost(dot, 10), closed_form_cost(window, 10)
    assert (whole.dense, masked.dense) == (False, True)
    assert whole.flops == attention_cost(dot, 10, 10).flops == 2 * 2 * 10 * 10 * 16
    assert masked.flops == whole.flops, "all cells are computed, and then some are masked"
    assert whole.parameters == 4 * (16 * 16 + 16)
    assert not closed_form_cost(window.with_(kernel=Choice("local")), 10).dense
    causal = AttentionConfig(16, 2, mask="causal", kernel="fused")
    assert closed_form_cost(causal, 10).flops == whole.flops
    learned = AttentionConfig(16, 2, mask="local_p", kernel="block_sparse")
    exact = learned.with_(kernel=Choice("exact"))
    assert closed_form_cost(learned, 10).at_most and not closed_form_cost(exact, 10).at_most


def test_measuring_goes_to_its_end():
    able, unable = (
        AttentionConfig(16, 2),
        AttentionConfig(16, 2, position=Choice.of("learned", max_len=8)),
    )
    forms = AttentionConfig(16, 2, position=Choice.of("formula", formula="score / (i - j)"))
    results: study.Measurements = {}
    fractions = list(study.measure_costs([able, able, unable, forms], 32, results))
    assert fractions[-1] == 1.0 and fractions == sorted(fractions)
    assert results[able, 32].seconds > 0 and results[able, 32].bytes >= 2 * 32 * 32 * 4
    assert results[forms, 32].skipped and not results[forms, 32].seconds


def test_nothing_is_measured_beside_another_measurement():
    results: study.Measurements = {}
    with ONE_AT_A_TIME:
        steps = study.measure_costs([DOT], 8, results)
        assert [next(steps), next(steps)] == [0.0, 0.0] and not results
    assert list(steps)[-1] == 1.0 and results
    with closing(study.measure_costs([DOT], 8, {})) as steps:  # the page goes on to something else
        next(steps)
    assert ONE_AT_A_TIME.acquire(timeout=1)
    ONE_AT_A_TIME.release()


def test_the_caption_says_what_is_implied_or_signed():
    results = [study.MapResult(np.eye(2), implied=True), study.MapResult(-np.eye(2))]
    caption = draw.caption_text(
        SETUP, study.Tokens(("a", "b"), (False, False)), results, ["Linear", "Diff"]
    )
    assert "Linear: implied weights" in caption and "Diff: weights may be negative" in caption
    assert "seed 126" in caption
    result = study.MapResult(np.eye(3))
    assert draw.table_row(
        "x", result, ClosedFormCost(90, 1e6, True), 1, Measurement("x", 8, 0.0123, 2_000_000), 100
    ) == ["x", "0.00", "0.00", "12.3\u00a0ms¹", "2\u00a0MB", "1\u00a0M", "− 10"]
    assert draw.table_row("x", study.MapResult(-np.eye(3)), None, 1, None, 100) == ["x"] + ["–"] * 6


def test_the_equation_of_a_cell_has_its_own_numbers():
    setup = study.default_controls()
    dot, alibi, window, linear = (compute_map(setup, config) for config in setup.mechanisms)
    i, j = cell = study.default_cell(dot.weights, tokens_of(setup).special)
    assert f"s = {dot.scores[i, j]:.2f},\\quad w = 0.68" in draw.weight_latex(
        dot, "it", "animal", cell
    )
    apart = dot.scores[i, j] - alibi.scores[i, j]
    assert apart == pytest.approx(2**-2 * (i - j), abs=1e-5), (
        "the second of twelve slopes is a quarter"
    )
    assert (
        f"s = {number(dot.scores[i, j])} - {number(apart)} = {number(alibi.scores[i, j])},\\quad w = 0.41"
        in (draw.weight_latex(alibi, r"\text{it}", r"\text{animal}", cell))
    )
    assert draw.weight_latex(window, "it", "animal", cell).endswith(r"s = -\infty,\quad w = 0")
    assert draw.weight_latex(linear, "it", "animal", cell).endswith(r":\quad w = 0.070")
