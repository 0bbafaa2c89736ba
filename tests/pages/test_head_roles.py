import io
from dataclasses import replace

import numpy as np
import pytest

from core.interpret.corpus import (
    SAVED,
    CorpusConfig,
    corpora_folder,
    read_measurement,
    work,
)
from core.interpret.head_tests import (
    CHOICES,
    OWN,
    TESTS,
    SyntaxResult,
    default_test,
    parses as parses_of,
    queries_by_sentence,
    read_parses,
    score_relation,
    score_repeats,
    with_relation,
)
from core.interpret.roles import (
    ROLES,
    UNIFORM,
    RoleInputs,
    RoleScores,
    read_all,
    role_inputs,
    score_roles,
)
from core.pretrained import ModelInputs, load_lab_model, load_minilm
from core.runs.runs import Run, list_runs
from core.tasks import reading
from dashboard.draw import corpus as draw_corpus, grids as charts, head_roles as draw
from dashboard.server import queue
from dashboard.ui.runs import find_measurement
from pages import head_roles as page
from tests.pages.app import (
    Case,
    assert_case,
    assert_says,
    assert_script,
    csv_rows,
    everything,
    open_at,
    page_cases,
    query_value,
)

SYNTAX = {"head_roles:view": "Syntax"}
TESTS_LINK = {"head_roles:view": "Standard tests"}
ROLE, RELATION, SENTENCE, TEST, HEAD, WORD_HEAD, TEST_HEAD = (
    field.key_of(page.Controls())
    for field in (
        *(page.Controls.role, page.Controls.relation, page.Controls.sentence, page.Controls.test),
        *(page.Controls.head, page.Controls.word_head, page.Controls.test_head),
    )
)
test_what_it_says = page_cases(
    "head_roles",
    {
        "a broken link": Case(
            {ROLE: "<b>", HEAD: "L9·H99"},
            controls={ROLE: "previous", HEAD: "L0·H2"},
        ),
        "a head of a map": Case(
            {},
            ["Its role is delimiter; 4 of 72 heads have the role previous token."],
            do=[("session_state", page.Controls.picked.key, ("L3·H11", "head"))],
            controls={HEAD: "L3·H11"},
        ),
        "another head": Case({}, ["L2·H11 takes"], do=[("selectbox", HEAD, "L2·H11")]),
        "another role has its own head": Case(
            {HEAD: "L2·H11"},
            do=[("selectbox", ROLE, "same")],
            controls={HEAD: "L2·H9"},
        ),
        "another model has another role": Case(
            {ROLE: "Same word"},
            do=[("selectbox", "inside:model", "induction")],
            controls={ROLE: "induction", HEAD: "L1·H2"},
        ),
        # Sentences of a person's own are measured, and those that the model does not know are named
        "own sentences": Case(
            {"inside:model": "induction"},
            ["measured on 2 sentences of your own", "1 of your sentences is left out"],
            do=[
                (
                    "text_area",
                    "head_roles:own",
                    "the red fox saw the red fox\nQwertz uiop asdf\nthe old dog and the old cat",
                )
            ],
        ),
        "an encoder": Case({"inside:model": "numbers"}, never=["no token here can show it"]),
        "a decoder cannot look ahead": Case(
            {"inside:model": "numbers", "head_roles:kind": "Decoder"},
            ["causal self-attention", "Next token––––no token here can show it"],
        ),
        "a relation, a head and a sentence": Case(
            SYNTAX | {RELATION: "Verb → object", WORD_HEAD: "L2·H0", SENTENCE: "5"},
            [
                "from which L2·H0 takes most",
                "misses a target in sentence 5",
                "finds each target in sentence",
            ],
            controls={WORD_HEAD: "L2·H0", SENTENCE: "5"},
        ),
        "another relation has its best head": Case(
            SYNTAX | {RELATION: "Verb → object", WORD_HEAD: "L2·H0"},
            do=[("selectbox", RELATION, "Determiner → noun")],
            controls={WORD_HEAD: "L3·H1"},
        ),
        "no such file": Case(
            SYNTAX | {page.FILE: "sha256:" + "0" * 64}, ["179 sentences annotated by hand"]
        ),
        "a file that is gone": Case(
            SYNTAX,
            ["is not on this machine", "179 sentences annotated by hand"],
            do=[("session_state", page.FILE, "sha256:" + "1" * 64)],
        ),
        "another test has its own head": Case(
            TESTS_LINK,
            do=[("selectbox", TEST, "Previous token")],
            controls={TEST_HEAD: "L0·H2"},
        ),
        "another model has its own test": Case(
            TESTS_LINK | {"inside:model": "induction"},
            do=[("selectbox", "inside:model", "all-MiniLM-L6-v2")],
            controls={TEST: "Duplicate token", TEST_HEAD: "L2·H9"},
        ),
        "a model without ordered items has another test": Case(
            TESTS_LINK | {TEST: "Successor"},
            do=[("selectbox", "inside:model", "induction")],
            controls={TEST: "Induction"},
        ),
    },
)


def test_lines_are_read_once_each():
    assert draw.read_sentences("a b\n\n  a   b \nc") == (("a b", "c"), None)
    taken, trouble = draw.read_sentences(
        "\n".join([*map(str, range(draw.MAX_SENTENCES + 5)), "x" * (draw.MAX_LETTERS + 1)])
    )
    assert len(taken) == draw.MAX_SENTENCES
    assert "first 60" in trouble and "1 of the lines" in trouble


def test_the_csv_holds_every_head():
    model = load_lab_model("induction")
    scores = score_roles(read_all(model, role_inputs(model)), "causal")
    rows = csv_rows(draw.roles_csv(scores))
    by_head = {(int(one["layer"]), int(one["head"]), one["role"]): one for one in rows}
    able = [role.key for role, count in zip(ROLES, scores.rows, strict=True) if count]
    assert set(by_head) == {(*head, key) for head in scores.heads for key in able}
    assert {key[:2]: key[2] for key, one in by_head.items() if one["is_its_role"] == "1"} == {
        head: ROLES[index].key for head, index in scores.head_roles.items()
    }
    assert float(by_head[1, 2, "induction"]["score"]) == pytest.approx(
        scores.score[[role.key for role in ROLES].index("induction"), 1, 2], abs=1e-6
    )


def test_a_head_that_is_nearly_even_has_no_role():
    shape = len(ROLES), 1, 1
    even = RoleScores(
        "self",
        np.full(shape, UNIFORM + 0.05),
        np.full(shape, 0.7),
        np.full(shape, 0.01),
        rows=np.full(len(ROLES), 9),
        numbers=(0,),
    )
    even.score[:-1] = 0.1
    fact = draw.role_fact(
        even, (0, 0), len(ROLES) - 1, RoleInputs((ModelInputs("a"),), "example sentences")
    )
    assert "its weights are nearly even" in fact and "1 example sentence;" in fact


def test_arrays_alone_are_measured_on_themselves():
    # One layer of two heads over a text that comes again: one looks one back, the other at what followed before.
    tokens = np.array("<s> dog sun tree ship hand dog sun tree ship hand".split())
    rows = np.arange(len(tokens))
    looks = np.maximum(rows - 1, 0), np.where(rows > 5, rows - 4, 0)
    weights = np.stack([np.eye(len(tokens), dtype=np.float32)[each] for each in looks])
    np.savez(out := io.BytesIO(), layer_0=weights, tokens=tokens)
    app = open_at("head_roles")
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    app.file_uploader(key="inside:array-file").set_value(("mine.npz", out.getvalue(), "")).run()
    assert_says(app, "measured on the input above", "In this input")
    for role, head, name in (
        ("previous", "L0·H0", "previous token"),
        ("induction", "L0·H1", "induction"),
    ):
        app.selectbox(key=ROLE).set_value(role).run()
        assert app.selectbox(key=HEAD).value == head
        assert_says(app, f"1 of 2 heads has the role {name}")


# The views Syntax and Standard tests.


def test_the_csv_of_syntax_has_every_relation():
    readings = read_parses(load_minilm(), parses_of("")[:40])
    result = SyntaxResult(readings, tuple(score_relation(readings, *choice) for choice in CHOICES))
    score = result.scores[result.names.index("Verb → object")]
    values = csv_rows(draw.syntax_csv(result))
    key = {"layer": "3", "head": "1", "relation": "object", "direction": "forward"}
    [one] = [row for row in values if key.items() <= row.items()]
    assert len({row["relation"] + row["direction"] for row in values}) * 72 == len(values)
    queries = queries_by_sentence(result, score, (3, 1))
    right = [[query.right for query in each] for each in queries.values()]
    verdicts = [all(each) for each in right]
    assert verdicts[0] and verdicts[1:] == sorted(verdicts[1:]), "a success, the failures, the rest"
    assert (one["instances"], one["hits"]) == (str(sum(map(len, right))), str(sum(map(sum, right))))
    own = next(
        one.name()
        for (one, _), count in result.counts.items()
        if count > 9 and one.source == "governor"
    )
    (first_row, *_), judged = draw.syntax_rows(with_relation(result, own)), draw.syntax_rows(result)
    assert first_row[0] == own and len(judged) == sum(one is not None for one in result.scores)
    # The targets of a sentence's queries are drawn as such
    sentence, first = next(iter(queries.items()))
    parse = readings.sentences[sentence].parse
    html = charts.query_lines(parse, np.full((len(parse.words),) * 2, 0.125), first, "light")
    targets = sum(len(query.targets) for query in first)
    assert html.count('class="target"') == targets and "0.13" in html


def test_labels_of_one_s_own_have_one_number_and_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    # In even sentences the capital stands before its country, in odd ones behind it
    texts = [
        "# text = Paris lies in France\n1\t4\tcapital",
        "# text = France has Paris\n3\t1\tcapital",
    ]
    app = open_at("head_roles", **SYNTAX, **{page.FILE: reading.put("\n\n".join(texts * 6))})
    text = everything(app).replace("\N{NO-BREAK SPACE}", " ")
    assert app.selectbox(key=RELATION).value == "capital: first → second"
    assert "the word 3 after or 2 before, 0 %" in text and "3 after or 2 before0 %" in text
    assert (
        "fewer than 10–" not in text and "12 relations with fewer than 10 instances are not" in text
    )
    assert "`1 4 capital`" in text


def test_file_of_one_s_own_waits_for_press_and_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    monkeypatch.setattr("dashboard.page.UNASKED", 0)
    blocks = OWN.read_text("utf-8").split("\n\n")
    app = open_at("head_roles", **SYNTAX, **{page.FILE: reading.put("\n\n".join(blocks[:12]))})
    assert_says(app, "3 of 12 sentences measured")
    assert_case(
        app, Case(do=[("button", "head_roles:read:go", None)], says=["12 sentences of your file"])
    )
    assert app.button(key=f"{page.FILE}:clear")
    assert_script(app)


def test_the_csv_of_the_standard_tests_has_every_test():
    scores = score_repeats(load_minilm())
    assert TESTS[default_test(scores)].key == "duplicate"
    rows = csv_rows(draw.repeats_csv(scores))
    assert len(rows) == 72 * len(TESTS) and rows[72 + 2 * 12 + 9]["score"].startswith("0.61")


# The page Heads over a corpus.


TEXTS = (
    "the old man and the old king\nthe king and the queen\nthe man and the old man and the old man"
)
OWN_TEXTS = CorpusConfig("lab:induction", "texts", TEXTS, kind="causal")
OWN_LINK = {
    "inside:model": "induction",
    "corpus:source:training": "Your own texts",
    "corpus:data": TEXTS,
}


@pytest.fixture
def no_workers(monkeypatch):
    monkeypatch.setattr(queue, "max_workers", lambda: 0)


test_what_corpus_says = page_cases(
    "corpus",
    {
        "pictures": Case(
            {"inside:model": "digits", "corpus:y": "OV copying"},
            [
                "the mean over 300 pictures",
                "300 pictures, measured on",
                "OV copying has no values: this model reads and writes no tokens",
            ],
            ["300 texts", "a text's"],
        ),
        "no text": Case(
            {**OWN_LINK, "corpus:data": ""},
            ["There is no text yet; paste it or choose a file.", "Measure (disabled)"],
        ),
        "no character of a text": Case(
            {**OWN_LINK, "corpus:data": "a\x00b"},
            ["holds the control character U+0000", "Measure (disabled)"],
        ),
    },
)


def test_own_texts_wait_for_a_press_and_then_for_a_worker(no_workers):
    app = open_at("corpus", **OWN_LINK)
    app.button(key="corpus:start").click().run()
    [run] = list_runs(corpora_folder())
    assert query_value(app, "corpus:run") == run.id and not list_runs()
    for one in (app, open_at("corpus", **OWN_LINK, **{"corpus:run": run.id})):
        assert "number 1 in the queue" in one.get("progress")[0].proto.text
    assert_says(open_at("corpus", **OWN_LINK), "These texts were not measured with this model yet.")
    queue.stop(run)


def test_a_stopped_measurement_shows_what_it_has(no_workers):
    run = OWN_TEXTS.create(corpora_folder() / "20260101-000000-abcdef")
    assert find_measurement(OWN_TEXTS, None, SAVED) is None
    assert draw_corpus.progress(read_measurement(run)) == (0.0, "Loading the model")
    left = iter([False, True])
    run.set_status(*work(run, lambda: next(left)))
    measurement = read_measurement(run)
    assert measurement.corpus.seconds > 0
    measurement.corpus.seconds = 2.4
    assert draw_corpus.progress(measurement) == (2 / 3, "2 of 3 texts; about 3 s left")
    app = open_at("corpus", **OWN_LINK, **{"corpus:run": run.id})
    assert_says(
        app,
        "Stopped after 2 of 3 texts, which are saved.",
        "induction, causal self-attention, 2 texts, measured on",
    )
    app.button(key="corpus:continue").click().run()
    assert run.status().state == "queued"
    run.set_status(*work(run, lambda: False))
    others = replace(OWN_TEXTS, count=2), replace(OWN_TEXTS, ablation=True)
    for linked in (None, run.id):
        assert [find_measurement(one, linked, SAVED) for one in (OWN_TEXTS, *others)] == [
            run,
            None,
            None,
        ]
    assert find_measurement(CorpusConfig(), "../../etc", SAVED) == Run(SAVED / "minilm")
    assert_says(
        open_at("corpus", **OWN_LINK, **{"corpus:x": "Ablation effect"}),
        "induction, causal self-attention, 3 texts",
        "Ablation effect was not measured here. Turn on “Switch heads off”",
    )


def test_a_head_of_a_corpus_belongs_to_its_model():
    usual = open_at("corpus", **{"inside:model": "induction"}).selectbox(key="corpus:head").value
    app = open_at("corpus", **{"corpus:head": "L0·H1"})
    assert app.selectbox(key="corpus:head").value == "L0·H1" != usual
    app.selectbox(key="inside:model").set_value("induction").run()
    assert app.selectbox(key="corpus:head").value == usual


def test_the_table_has_every_measure_of_every_head():
    measurement = read_measurement(Run(SAVED / "induction"))
    lines = csv_rows(draw_corpus.to_csv(measurement))
    assert {line["head"] for line in lines} == set(measurement.heads)
    assert len(measurement.heads) == 8
    one = next(line for line in lines if (line["head"], line["measure"]) == ("L1·H2", "induction"))
    assert float(one["mean"]) == pytest.approx(
        np.nanmean(measurement.corpus.values_of("induction", (1, 2))), abs=1e-5
    )
    assert (one["texts"], one["role"]) == ("300", "induction")


@pytest.mark.parametrize(
    ("view", "text"), [("Roles", "The animal"), ("Syntax", "parses"), ("Standard tests", "random")]
)
def test_the_source_of_an_export_names_what_was_read(view, text):
    about = open_at("head_roles", **{"head_roles:view": view}).session_state["page_pictures"].about
    assert text in about["text"] and ("animal" in about["text"]) == (view == "Roles")
