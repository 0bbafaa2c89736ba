"""A run of every form and input, trained for two steps, drawn whole: maps, examples as what they are, and the fact."""

import re
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from streamlit.testing.v1 import AppTest

from core.models import ModelConfig, sentence_spans
from core.runs import archive as validate
from core.runs.runs import Run, create_run
from core.runs.worker import work
from core.studies.compare_runs import source_at
from core.tasks import Task, TaskConfig, make_task
from core.training import loop, recommended
from dashboard.draw.formats import number, percent
from dashboard.draw.palette import Ink, rgb_of
from dashboard.draw.tables import DocumentWeights, lines
from dashboard.ui.run_data import load_run, summarize
from pages.compare_runs import sides
from pages.train import fits, of_model, run_question as question
from tests.pages.app import assert_script, html_text, page_text

DATA = {
    "own_text": "So it goes on, and on it goes, as before; and so on.\n" * 30
    + "At last it ends. Or not. " * 9,
    "own_pairs": "".join(f"{n}\t{n:b}\n" for n in range(80)),
    "own_table": "size,shape,kind\n"
    + "".join(f"{n % 7},{'ab'[n % 2]},{'xy'[n % 2]}\n" for n in range(60)),
}
# One row in twelve is rare, and nothing but chance tells which.
LOPSIDED = "a,b,kind\n" + "".join(
    f"{n * 37 % 101},{n * 53 % 97},{'rare' if n % 12 == 0 else 'common'}\n" for n in range(240)
)
FORMS = [
    ("recall", "decoder"),
    ("sort", "hybrid"),
    ("language", "classifier"),
    ("iris", "classifier"),
    ("documents", "hierarchical"),
    ("documents", "classifier"),
    ("iris", "one_token"),
    ("digits", "classifier"),
    ("pictures", "transformer"),
    ("series", "forecaster"),
    ("own_text", "decoder"),
    ("own_pairs", "transformer"),
    ("own_table", "classifier"),
]
KINDS = {
    "transformer": ["cross", "causal", "self"],
    "hybrid": ["cross", "self"],
    "hierarchical": ["sentences", "words"],
}


def script():
    import streamlit as st

    from core.runs.runs import find_run
    from dashboard.ui.run_data import load_run
    from pages.train import draw

    draw(load_run(find_run(st.session_state["id"])))


def drawn(config: TaskConfig, kind: str | None = None, **changes: Any) -> tuple[Task, Run, AppTest]:
    """A task, its run of two steps, and the figures of that run."""
    task = make_task(config)
    changes = {"steps": 2, "record_every": 1, "batch_size": 4, **changes}
    run = create_run(recommended(task, kind, **changes))
    assert work(run.path) == "finished", run.status().message
    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["id"] = run.id
    app.run()
    assert not app.error and not app.exception
    return task, run, app


@pytest.mark.parametrize("task, kind", FORMS)
def test_a_run_is_drawn_as_what_it_is(task, kind):
    given: dict[str, Any] = {"data": DATA[task]} if task in DATA else {}
    made, run, app = drawn(TaskConfig.of(task, **given), kind, held_out=12, num_examples=3)
    assert_script(app)
    assert "At step" in page_text(app) and app.selectbox(key="train:example").options
    if made.input == "patches":
        assert html_text(app).count("data:image/png") >= 3
    for other in KINDS.get(kind, ()):
        picker = app.selectbox(key=f"train:kind:{run.id}")
        assert len(picker.options) == len(KINDS[kind])
        picker.set_value(other).run()
        assert_script(app)


@pytest.mark.parametrize(
    "task, data", [("own_table", LOPSIDED), ("iris", ""), ("digits", ""), ("language", "")]
)
def test_a_class_is_told_beside_the_majority_class(task, data, monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 60)
    config = TaskConfig.of(task, **({"data": data} if data else {}))
    made, run, app = drawn(config, held_out=60, num_examples=1)
    last = run.records()[-1]
    held_out = made.held_out(60)
    confusion = last.confusion
    rows = [sum(row) for row in confusion]
    assert sum(rows) == len(held_out) == last.held_out and len(rows) == len(made.classes)
    assert sum(row[i] for i, row in enumerate(confusion)) / sum(rows) == pytest.approx(
        last.token_accuracy
    )
    name, share = made.majority(60)
    assert share == rows[made.classes.index(name)] / sum(rows)
    html = " ".join(element.proto.body for element in app.get("html"))
    text = re.sub("<[^>]+>|\\\\", "", html)
    assert "guessing" not in text and html.count('aria-label="Confusion matrix"') == 1
    assert f"the majority class “{name}” reaches {percent(share)}" in text
    assert f"balanced accuracy {percent(last.balanced)}" in text
    if task == "own_table":
        assert (name, round(share, 2)) == ("common", 0.92) and "logistic regression reaches" in text
        assert made.baseline_loss == pytest.approx(0.287, abs=0.01), "not log 2 = 0.693"


# Documents on Train: the drawing of both levels, its numbers, and the controls of the hierarchical model.


TOKENS = ("it", "rained", ".", "he", "<b>", "was", "not", ".", "so")


def documents(kind):
    """A run of two steps and its page; its watched example of the last record is drawn."""
    return drawn(TaskConfig.of("documents", sentences=4), kind, held_out=12, num_examples=3)


def document_html(app):
    bodies = [element.proto.body for element in app.get("html")]
    return next(body for body in bodies if 'aria-label="Weights of sentences and words"' in body)


@pytest.mark.parametrize("kind", ["hierarchical", "classifier"])
def test_a_document_is_drawn_with_the_weights_of_the_run(kind):
    task, run, app = documents(kind)
    example = task.held_out(3)[1]
    app.selectbox(key="train:example").set_value(1).run()
    html, frame = document_html(app), run.frame(2)
    spans = sentence_spans(example.source)
    rows = re.findall(r"<tr style=.*?</tr>", html)
    assert len(rows) == len(spans)
    span, words = task.deciding(example)
    assert [i for i, row in enumerate(rows) if "outline" in row] == [spans.index(span)]
    assert [
        re.sub("<[^>]+>", "", row.split("<td")[3]).split(">", 1)[1].removesuffix(" decides")
        for row in rows
    ] == [" ".join(example.source[i] for i in span) for span in spans]
    shown = [re.search(r'text-align:right[^>]*">([^<]*)<', row)[1] for row in rows]
    if kind == "hierarchical":
        by_sentence, by_word = frame["1:sentences"][0, 0, 0], frame["1:words"][0, 0].sum(0)
    else:
        layer, head = app.selectbox(key=f"train:head:{run.id}:self").value
        whole = frame["1:self"][layer, head].mean(0)
        by_sentence = np.array([whole[s.start : s.stop].sum() for s in spans])
        by_word = np.concatenate(
            [whole[s.start : s.stop] / whole[s.start : s.stop].sum() for s in spans]
        )
    assert shown == [number(share) for share in by_sentence]
    assert by_sentence.sum() == pytest.approx(1, abs=0.01)
    text = page_text(app)
    for sentence in (
        f"it gets {number(by_sentence[spans.index(span)])} of the weight",
        f"{number(sum(by_word[i] for i in words))} of the weight within it",
        f"The class is **{example.target[0]}**",
        "the deciding sentence gets",
    ):
        assert sentence in text


def test_by_hand_a_drawing():
    """A sentence has what its words have; words are escaped, and readable on every colour of the scale."""
    weights = np.array([0.1, 0.1, 0, 0.0, 0.3, 0, 0, 0.3, 0.2], dtype=np.float32)
    levels = DocumentWeights.of_words(TOKENS, weights)
    assert levels.sentences == pytest.approx([0.2, 0.6, 0.2]) and levels.words == pytest.approx(
        [0.5, 0.5, 0, 0, 0.5, 0, 0, 0.5, 1]
    )
    html = lines(levels, range(3, 8), "light", Ink.of("light"))
    assert (
        html.count("<tr style") == 3
        and html.count("decides") == 1
        and "&lt;b&gt;" in html
        and "<b>" not in html
    )
    assert "0.50 of its sentence, 0.30 of the document" in html
    none = DocumentWeights.of_words(TOKENS, np.zeros(9, dtype=np.float32))
    assert not none.words.any(), "a sentence without weight"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_are_readable_on_every_weight(theme):
    def luminance(colour):
        shares = (v / 255 for v in rgb_of(colour))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        return np.dot(linear, (0.2126, 0.7152, 0.0722))

    for weight in np.linspace(0, 1, 41):
        levels = DocumentWeights(("a",), np.array([weight]), np.array([1.0]))
        html = lines(levels, None, theme, Ink.of(theme))
        back, fore = re.search(r"background:(#\w{6});color:(#\w{6})", html).groups()
        high, low = sorted((luminance(back), luminance(fore)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (weight, back, fore)


def test_both_levels_have_names_pass_the_checks_of_an_upload_and_stand_beside_another_model():
    """The product of both levels stands beside the Transformer's row of the class, on the same words."""
    (_, run, app), (task, other, _) = documents("hierarchical"), documents("classifier")
    picker = app.selectbox(key=f"train:kind:{run.id}")
    assert picker.options == ["Sentences of the document", "Words of each sentence"]
    picker.set_value("words").run()
    assert document_html(app)
    assert question(load_run(run)) is None, "where guessing reaches one half"
    example, frame = task.held_out(3)[2], run.frame(2)
    both = sides([summarize(run), summarize(other)])
    levels, row = (source_at(side, 2, 2)[1] for side in both)
    assert levels.rows == row.rows == ("class",) and levels.columns == row.columns == example.source
    words, sentences = frame["2:words"][0, 0], frame["2:sentences"][0, 0, 0]
    spans = sentence_spans(example.source)
    by_hand = [words[n, i] * sentences[n] for n, span in enumerate(spans) for i in span]
    assert levels.weights[0, 0, 0] == pytest.approx(by_hand, abs=1e-5)
    assert row.weights.sum(-1) == pytest.approx(np.ones((2, 4, 1)), abs=0.01)
    validate.frames(run, run.config())
    halves = {name: value.astype(np.float16) for name, value in frame.items()}
    run.frame_path(2).write_bytes(save(halves | {"0:words": halves["0:words"][..., :-1].copy()}))
    with pytest.raises(ValueError, match="0:words is F16"):
        validate.frames(run, run.config())


def test_the_controls_of_a_hierarchical_model():
    """Neither positions nor what a decoder reads are on offer; the mechanisms are those of one learned query."""
    start = ModelConfig.from_json(
        make_task(TaskConfig.of("documents")).recommended["hierarchical"].model
    )
    keys = [param.key for param in of_model(start)]
    assert keys == ["layers", "cell", "bidirectional", "dropout"]
    names = ("bahdanau", "luong_general", "luong_local_m", "vaswani", "linear_transformer")
    assert [fits(key, "hierarchical", (32, 1)) for key in names] == [True] * 2 + [False] * 3
