"""The page Questions: every answer opens, its numbers are right, and its links lead to pages."""

from html import unescape

import pytest
import torch

from dashboard.navigation import STEPS
from pages.questions import ANSWERS
from tests.pages.app import app_at, html_text, without_terms


@pytest.fixture
def app():
    return app_at("questions")


def test_every_answer_opens_with_its_numbers_and_links(app):
    app.query_params["questions:question"] = ANSWERS["padding"].question
    app.run()
    assert app.radio(key="questions:question").value == "padding"
    for key, answer in ANSWERS.items():
        app.radio(key="questions:question").set_value(key).run()
        assert answer.text in unescape(without_terms(" ".join(item.value for item in app.markdown)))
        if answer.study is not None:
            assert html_text(app).count("<tr") == len(answer.study()) + 1
        assert {page for page, _ in answer.pages} <= {step.key for step in STEPS}


def evidence(key: str) -> tuple[list[list[str]], str]:
    """The table and the sentence of an answer."""
    answer = ANSWERS[key]
    rows = answer.study()
    return answer.cells(rows), answer.sentence(rows)


def test_scores_grow_with_the_root_of_d_and_scaling_keeps_the_weights_even():
    rows, _ = evidence("scaling")
    for d, std, *_ in rows:
        assert float(std) == pytest.approx(int(d) ** 0.5, rel=0.15)
    assert float(rows[-1][2]) > 0.9 > 0.5 > float(rows[-1][3])


def test_masks_and_views_change_what_they_should():
    _, sentence = evidence("masks")
    assert "5 of the 5" in sentence and "mask 0 do" in sentence
    x = torch.arange(3).repeat_interleave(4).view(1, 3, 4)
    wrong = (x.view(1, 2, 3, 2) != x.view(1, 3, 2, 2).transpose(1, 2)).any(-1).sum()
    assert f"the wrong token into {wrong} of 6" in evidence("reshaping")[1]
    rows, _ = evidence("padding")
    assert float(rows[0][1]) > 0.01 and float(rows[1][1]) < 1e-6 and float(rows[2][2]) == 0


def test_families_have_the_attentions_of_their_papers():
    rows, _ = evidence("families")
    assert [row[1:] for row in rows] == [["2", "0", "0"], ["0", "2", "0"], ["2", "2", "2"]]
