import re
from functools import partial
from typing import Any

import pytest

from core.interpret.trace import (
    induction,
    most_informative_head,
)
from core.pretrained import ModelInputs, load_lab_model
from core.pretrained.example_inputs import text_of
from core.pretrained.generate import (
    SearchSettings,
    decode_text,
    generate,
    prepare_generation,
    score_continuation,
)
from dashboard.draw.formats import number
from pages import generate as page
from tests.pages.app import open_at, query_value, tree

open_page = partial(open_at, "generate")


def html(at):
    return re.sub(r"<[^>]+>", "", " ".join(e.proto.body for e in at.get("html")))


def strip(at):
    return " ".join(e.proto.body for e in at.get("html") if 'class="lab-strip"' in e.proto.body)


def test_at_first_sight_the_lab_s_language_model_repeats_a_sentence():
    at = open_page()
    model, given = load_lab_model("induction"), ModelInputs(text_of("induction"))
    best = generate(model, given, SearchSettings()).hypotheses[0]
    started = prepare_generation(model, given)
    path = score_continuation(model, started, best.tokens)
    keys = (*started.read.ids, *best.tokens[:-1])
    layer, head = most_informative_head(path.trace, keys, best.tokens)
    item = path.trace.map(layer)
    text = decode_text(model, best.tokens)
    assert text in [code.value for code in at.code], "the whole text, to be copied"
    first = float(path.logits[0].softmax(-1)[best.tokens[0]])
    heads, even, _ = induction(item, keys, best.tokens)
    assert heads[head] > 3 * even, "the head that is shown first copies"
    for words in (
        text[:30],
        f"At step 1 the model gives {item.queries[0]} {number(first)}",
        f"Head L{layer}·H{head} puts {number(item.weights[head, 0].max())} of its weight",
        f"it puts {number(heads[head])} on that earlier token; uniform attention would put {number(even)}",
        number(best.logp),
    ):
        assert words in html(at)


def test_an_answer_that_is_begun_is_gone_on_with():
    at = open_page(
        **{"inside:model": "numbers", "inside:text": "forty-seven", "inside:target": "acht"}
    )
    given, model = ModelInputs("forty-seven", target="acht"), load_lab_model("numbers")
    tokens = generate(model, given, SearchSettings()).hypotheses[0].tokens
    assert ">acht<" in strip(at) and decode_text(model, tokens) in html(at)
    assert "acht" not in decode_text(model, tokens[:1])


@pytest.mark.parametrize(
    ("strategy", "key", "value"),
    [
        ("Beam", "width", 2),
        ("Beam", "penalty", 0.0),
        ("Sampling", "temperature", 3.0),
        ("Sampling", "top_k", 2),
        ("Sampling", "top_p", 0.1),
        ("Sampling", "samples", 2),
        ("Sampling", "seed", 7),
        ("Greedy", "no_repeat", 2),
        ("Greedy", "longest", 3),
    ],
)
def test_every_setting_changes_what_is_found(strategy, key, value):
    at = open_page(**{"generate:strategy": strategy, "inside:text": "the dog saw a"})
    before = tree(at) + html(at)
    fields: list[Any] = [
        e for kind in ("slider", "select_slider", "number_input") for e in at.get(kind)
    ]
    next(e for e in fields if e.key == f"generate:{key}").set_value(value)
    at.run()
    assert tree(at) + html(at) != before


def test_what_one_session_searched_all_others_have():
    link = {"inside:text": "the king saw the dog . the king", "generate:strategy": "Sampling"}
    first, again = open_page(**link), open_page(**link)
    assert again.session_state[page.GOING].tree is first.session_state[page.GOING].tree
    timed = [
        " steps per second" in " ".join(caption.value for caption in at.caption)
        for at in (first, again)
    ]
    assert timed == [True, False] and strip(again) == strip(first)


def test_the_timeline_moves_the_token_that_is_said():
    at = open_page()
    before = strip(at)
    slide(at, 5)
    assert "At step 5 the model gives" in html(at) and strip(at) != before
    now = at.session_state[page.GOING]
    assert query_value(at, "at") == f"{now.tree.hypotheses[0].leaf}.4"
    assert "At step 5 the model gives" in html(open_page(at=query_value(at, "at")))


def slide(at, step):
    next(e for e in at.slider if e.key.startswith("generate:step")).set_value(step)
    at.run()


def test_another_output_is_looked_at_where_it_parts_from_the_best():
    at = open_page(**{"generate:strategy": "Beam"})
    tree = at.session_state[page.GOING].tree
    at.selectbox(key="generate:output").set_value(tree.hypotheses[2].leaf).run()
    best, other = (tree.path(tree.hypotheses[place].leaf) for place in (0, 2))
    parts = next(
        step for step, (one, two) in enumerate(zip(best, other, strict=False)) if one != two
    )
    assert query_value(at, "at") == f"{other[-1]}.{parts}"
    assert f"At step {parts + 1} the model" in html(at)
    slide(at, 1)
    # Still on that output, though the best begins alike.
    assert query_value(at, "at") == f"{other[-1]}.0"


def test_a_search_that_is_stopped_shows_what_it_has_and_goes_on(monkeypatch):
    """As a slow model does: it is drawn while it goes on, and Stop holds it between two steps."""
    drawn = []

    def stop_after_three(now, draw, run=page.run):
        def watched(now):
            draw(now)
            drawn.append(now.length)
            now.stopped = now.stopped or len(drawn) == 3

        run(now, watched)

    for name, value in (("PATIENCE", -1), ("BETWEEN", -1), ("SHARE", 0), ("run", stop_after_three)):
        monkeypatch.setattr(page, name, value)
    at = open_page(**{"inside:text": "the young queen sees the river . the young"})
    assert drawn == [1, 2, 3] and "Stopped after 3 tokens." in [m.value for m in at.markdown]
    first = at.session_state[page.GOING].tree
    at.button(key="generate:go-on").click().run()
    assert at.session_state[page.GOING].tree is first and at.session_state[page.GOING].done
    assert len(first.hypotheses[0]) == 20 and drawn[-1] == 20
    assert "Stopped" not in " ".join(m.value for m in at.markdown)
