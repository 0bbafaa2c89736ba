"""The view Syntax of the page Head roles: accuracy by head and relation, and where a head fails."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.interpret.syntax import Relation, RelationScore, score_relation, word_weights
from core.interpret.trace import AttentionTrace, Head
from dashboard.draw.attention_view import attention_view
from dashboard.draw.formats import plain
from dashboard.draw.page_pictures import add_script
from dashboard.ui.links import read_linked, write_linked
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.panels import caption, details, fact, paragraph, source_panel, theme
from dashboard.ui.presentation import draw_chart
from dashboard.ui.tables import table
from dashboard.views.head_roles.fields import follow_view, head_chart
from dashboard.views.head_roles.script import syntax_script
from dashboard.views.head_roles.syntax import charts, compute, text
from dashboard.views.head_roles.syntax.compute import NAMES, SyntaxResult
from dashboard.views.head_roles.syntax.controls import HEAD, draw_controls, sentence_field

CLARK = "https://arxiv.org/abs/1906.04341"


def draw_syntax(choice: ModelChoice) -> None:
    """Draw the view from top to bottom."""
    if choice.pretrained is None:
        st.info(
            "An uploaded array has no text, so it has no syntax to show.", icon=":material/info:"
        )
        return
    drawn = draw_controls(choice)
    if drawn is None:
        return
    controls, result = drawn
    score = result.scores[controls.relation]
    assert score is not None
    _figures(result, score, controls.relation, controls.head)
    fact(text.fact(result, score, controls.head))
    st.latex(text.equation(score, controls.head))
    sentence, query, trace = _sentence(choice, result, score, controls.head)
    add_script(partial(syntax_script, choice, controls, result, sentence, query, trace))
    table(
        text.TABLE_HEAD,
        text.table_rows(result),
        caption="The best head of each relation, and the best fixed offset",
        left=(0, 2),
        markers=False,
    )
    st.download_button(
        "All accuracies, CSV",
        lambda: text.to_csv(result),
        "syntactic-heads.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )
    caption(plain(text.caption(result, score, choice.reading.trace.source, not controls.reference)))
    details("Papers and source", _sources, "head_roles:syntax-source")


def _figures(result: SyntaxResult, score: RelationScore, relation: int, head: Head) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        paragraph(f"**{NAMES[relation]}**, accuracy of every head")
        head_chart(
            charts.accuracy_grid(result, score, head, theme()),
            "head_roles:accuracies",
            HEAD,
            f"Layers by heads, each with its accuracy for {NAMES[relation]}",
        )
    with right:
        paragraph("**The best head of each relation**; the tick is the best fixed offset")
        draw_chart(
            st,
            charts.relation_dots(result, relation, theme()),
            key="head_roles:relations",
            alt="Relations with the accuracy of their best head and of the best fixed offset",
        )


def _sentence(
    choice: ModelChoice, result: SyntaxResult, score: RelationScore, head: Head
) -> tuple[int, int, AttentionTrace]:
    """Draw a sentence with the weights from its queries, and its map of words; returns it, its query and the maps."""
    queries = compute.queries_by_sentence(result, score, head)
    name = result.readings.name(head)
    sentence = sentence_field(
        result, queries, (choice.ref, name, score.relation.key, score.reverse)
    )
    trace = compute.words_of(choice.ref, result, sentence)
    parse = result.readings.sentences[sentence].parse
    st.html(charts.STYLE)
    st.html(
        charts.query_lines(parse, trace.maps[head[0]].weights[head[1]], queries[sentence], theme())
    )
    st.caption(text.sentence_line(choice.reading.trace.source, name))
    shape = (len(parse), len(parse))
    pin = read_linked("head_roles", "word_pin", shape, (choice.ref, sentence))
    view = attention_view(
        trace,
        key="head_roles:words",
        layer=head[0],
        head=head[1],
        pin=pin,
        height=420,
        query=queries[sentence][0].word,
        fact=f"Head {name} on {len(parse)} words",
        caption="Between words; what goes to special tokens is missing.",
    )
    write_linked("head_roles", "word_pin", view.pin)
    follow_view(view, head, HEAD, result.readings.name)
    return sentence, queries[sentence][0].word, trace


def _sources() -> None:
    st.markdown(
        f"Attention between words, both directions and the best fixed offset as the baseline: "
        f"[Clark et al. 2019]({CLARK}), section 4. Relations: "
        "[Universal Dependencies](https://universaldependencies.org/u/dep/)."
    )
    for each in (Relation.targets, word_weights, score_relation):
        source_panel(each)
