"""One truth: a number under one name is one value on all pages, or says over what; statistics wait behind a press."""

import re
from functools import cache
from typing import Any

import pytest
from streamlit.testing.v1.element_tree import Block

from core.attention import AXES
from core.attention.cost import parameters
from core.claims.catalogue import CLAIMS
from core.interpret.roles import ROLES, SENTENCES
from core.models.cards import CARDS
from core.pretrained import lab_models, load_lab_model
from core.studies import mechanisms as study
from dashboard.draw.questions import ANSWERS
from dashboard.navigation import STEPS
from pages import mechanisms as page
from tests.pages.app import open_at, page_text
from tests.pages.test_snapshots import SAVED, from_text

COUNTED = re.compile(rf"({'|'.join(role.name for role in ROLES)}|No role) (\d+)\b(?! ±)")
ROLE_LINE = re.compile(r"^(?:A corner|Roles).*No role \d+")
STATISTICS = re.compile(
    r"Kendall|Spearman|Student|Bonferroni|[τρσ]\b|eigenvalue|standard deviation"
)
# whose first screens say in words what they draw, before any formula
IN_WORDS = (
    *("circuits", "head_roles", "corpus", "claims", "mechanisms", "efficient", "evidence"),
    *("cache", "decode", "generate", "compare", "compare_runs", "report", "cards"),
)


@cache
def first_sight(key: str) -> list[str]:
    return from_text((SAVED / f"{key}.txt").read_text("utf-8"))["first sight"]


LINES = [(step.key, line) for step in STEPS for line in first_sight(step.key)]


def test_roles_over_the_same_texts_are_counted_alike():
    counts: dict[str, dict[str, int]] = {}
    lines = [line for _, line in LINES if ROLE_LINE.match(line)]
    assert len(lines) >= 2
    for line in lines:
        over = re.search(r"\bover ([^:,]+)[:,]", line, re.IGNORECASE)
        assert over, f"over what: {line}"
        now = {role: int(count) for role, count in COUNTED.findall(line)}
        assert sum(now.values()) == 72 and counts.setdefault(over[1], now) == now
    (table,) = [line for line in first_sight("head_roles") if line.startswith("role heads best")]
    listed = {role: int(count) for role, count in COUNTED.findall(table) if int(count)}
    shown = counts["30 example sentences"]
    assert listed == {role: count for role, count in shown.items() if role != "No role"}


@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "writer", "only-attention"])
def test_a_model_has_one_number_of_heads(model):
    config = load_lab_model(model).model.config if model != "all-MiniLM-L6-v2" else None
    heads = 72 if config is None else config.num_hidden_layers * config.num_attention_heads
    pages = {key for key, line in LINES if line.startswith(f"{model}")}
    said = [
        (key, int(count) + (which == "other"))
        for key, line in LINES
        if key in pages
        for which, count in re.findall(r"\b(of|other) (?:the )?(\d+) heads", line)
    ]
    assert pages and not [one for one in said if one[1] != heads]


def test_counts_in_words_are_those_of_the_lab():
    text = "\n".join(line for _, line in LINES)
    choices, claims = re.findall(r"(\d+) choices", text), re.findall(r"Of (\d+) claims", text)
    assert [*map(int, choices)] == [sum(map(len, AXES.values()))] and [*map(int, claims)] == [
        len(CLAIMS)
    ]


def test_mechanisms_counts_the_layer_that_it_draws():
    app = open_at("mechanisms", **{"mechanisms:axis": "Projections"})
    (table,) = app.dataframe
    assert "d_model 16 with 4 heads" in table.proto.columns
    drawn = [
        parameters(page.example_config("projection", item.key, 16, 4))["projection"]
        for item in sorted(AXES["projection"], key=lambda item: item.year)
    ]
    assert list(table.value.parameters) == drawn
    assert (study.BASELINE.d_model, study.BASELINE.num_heads) == page.SIZES == (16, 4)


def outside_panels(block: Block) -> list[tuple[str, str]]:
    """The kind and text of what is in sight without a press, from top to bottom."""
    seen = list[tuple[str, str]]()
    for node in block.children.values():
        if isinstance(node, Block):
            seen += (
                [] if node.type in ("expander", "expandable", "popover") else outside_panels(node)
            )
        elif node.type in ("markdown", "caption", "latex"):
            seen.append((node.type, str(node.value)))
        elif node.type == "html":
            seen.append((node.type, re.sub(r"<[^>]+>", "", node.proto.body)))
    return seen


@pytest.mark.parametrize("key", IN_WORDS)
def test_statistics_and_formulas_are_one_press_further(key):
    link = {"claim": "iris", "claims:iris:predict": "Show me"} if key == "claims" else {}
    seen = outside_panels(open_at(key, **link).main)
    assert not [text for kind, text in seen if kind == "latex" or STATISTICS.search(text)]


def test_the_answer_on_explanation_comes_before_its_test():
    main: Any = open_at("evidence").main
    said = [str(one.value) for one in main if one.type in ("markdown", "caption")]
    answer = next(at for at, text in enumerate(said) if "one explanation of an answer" in text)
    tests = [at for at, text in enumerate(said) if re.search("Kendall|τ", text)]
    assert tests and answer < min(tests) and not re.search("Kendall|τ", said[answer])


def test_the_tour_of_pages_counts_what_there_is():
    said = (SAVED.parents[2] / "docs" / "pages.md").read_text("utf-8")
    counts = {
        "published models": len(CARDS),
        "small models trained by the lab": len(lab_models()),
        "roles measured over 30 sentences": len(ROLES),
    }
    words = dict(zip("six nine".split(), (6, 9), strict=True))
    for name, count in counts.items():
        (number,) = re.findall(rf"(\w+) {name}", " ".join(said.split()))
        assert (words.get(number) or int(number)) == count, name
    assert len(SENTENCES) == 30


def answers_in_numbers() -> dict[str, Any]:
    return {key: one for key, one in ANSWERS.items() if one.study}


def test_an_answer_says_over_what_it_counts():
    for key, one in answers_in_numbers().items():
        said = " ".join((one.sentence(one.study()), *one.columns))
        assert re.search(r"\bD =|d_model =|layers|tokens|of 6 rows|output", said), key


def test_a_linked_page_shows_the_numbers_of_the_answer():
    linked = {key: one for key, one in answers_in_numbers().items() if one.query}
    assert "scaling" in linked
    for one in linked.values():
        app = open_at(one.pages[0][0], **one.query)
        drawn = page_text(app) + "".join(chart.proto.spec for chart in app.get("vega_lite_chart"))
        for said in re.findall(r"\b\d\.\d+\b", one.sentence(one.study())):
            assert re.search(rf"\b{re.escape(said)}\b", drawn), said
        assert not app.warning and not app.exception
