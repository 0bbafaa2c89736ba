"""The page Generate: what a model says after a text, step by step, and where each new token looked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.decoding import Hypothesis
from core.pretrained import Pretrained, PretrainedError
from core.pretrained.generate import decode_text
from core.pretrained.induction_scores import most_informative_head
from dashboard.charts import search_tree
from dashboard.components.tree_view import tree_view
from dashboard.runtime.query_params import read_pair, write_pair
from dashboard.views.generate import sections, text
from dashboard.views.generate.compute import PICKED, Controls, Search, continuation_of, current_search, outputs, run
from dashboard.views.generate.controls import draw_settings
from dashboard.views.generate.sections import SIDES, StepView
from dashboard.views.generate.timeline import current_path, pressed, timeline
from dashboard.widgets.decoding_sources import sources
from dashboard.widgets.model_picker import choose_model
from dashboard.widgets.model_picker.head_choice import choose_head, current_head_of
from dashboard.widgets.panels import fact, next_page, plain, theme, title
from dashboard.widgets.params import BOUND

RANKS, FEW, LONG = 8, 4, 40  # candidates of a step that are drawn; fewer once there are so many steps


def page() -> None:
    title("Generate",
          "A model says one token after another. See what else it might have said, and where each new token looked.")
    chosen = choose_model("generate", needs=("generate",))
    if chosen is not None and chosen.pretrained is not None:
        try:
            search = current_search(Controls(chosen.ref, chosen.inputs, draw_settings()), chosen.pretrained)
            _run(search, chosen.pretrained)
            _shown(search, chosen.pretrained)
        except (PretrainedError, ValueError) as error:
            st.info(plain(str(error)), icon=":material/edit:")
    next_page("generate")


def _run(search: Search, pretrained: Pretrained) -> None:
    """Let the search go on, with its text so far and a way to stop it; then say so if it was stopped."""
    place = st.empty()
    parts: list[st.delta_generator.DeltaGenerator] = []

    def draw(search: Search) -> None:
        if not parts:
            left, right = place.container().columns([0.86, 0.14])
            parts.append(left.empty())
            right.button("Stop", icon=":material/stop:", key="generate:stop", on_click=_stop, args=(search, True),
                         width="stretch")
        sections.progress_view(search, pretrained, parts[0])

    run(search, draw)
    place.empty()
    if not search.done:
        with place.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"Stopped after {search.length} tokens.")
            st.button("Go on", icon=":material/play_arrow:", key="generate:go-on", on_click=_stop, args=(search, False))


def _stop(search: Search, stopped: bool) -> None:
    search.stopped = stopped


def _shown(search: Search, pretrained: Pretrained) -> None:
    hypotheses = outputs(search)
    if not hypotheses:
        return
    texts = [decode_text(pretrained, one.tokens) for one in hypotheses]
    path, step = current_path(search, hypotheses)
    continuation = continuation_of(search.controls, search.tree.tokens(path[-1]))
    text_place = st.container()
    timeline(search, hypotheses, texts, path, step)
    kinds = continuation.trace.kinds
    kind = kinds[0] if len(kinds) == 1 else st.segmented_control(
        "Looks at", kinds, default=kinds[0], required=True, key="generate:kind", format_func=SIDES.get,
        label_visibility="collapsed", **BOUND)
    view = sections.step_view(search, pretrained, path, step, continuation, kind)
    usual = most_informative_head(view.trace, view.keys, view.tokens)
    linked, bad = read_pair("head", view.trace.shape)
    first = linked or current_head_of(search.controls.ref, kind, view.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    with left:
        layer, head = sections.matrix(view, *(first or usual))
    with right:
        sections.likeliest(view)
        sections.heads(view, *(first or usual))
    if first or (layer, head) != usual:
        choose_head(search.controls.ref, kind, (layer, head))
    write_pair("head", (layer, head) if first or (layer, head) != usual else None)
    with text_place:
        if bad:
            st.warning(bad)
        sections.reading(view, view.trace.map(layer), head)
    fact(f"{text.token_fact(continuation.logits[step], view.tokens[step], view.names, step)} "
         f"{text.attention_fact(view.trace.map(layer), head, step, view.keys, view.tokens)}")
    _outputs_and_tree(view, hypotheses, texts)


def _outputs_and_tree(view: StepView, hypotheses: Sequence[Hypothesis], texts: Sequence[str]) -> None:
    """The outputs, and the tree of all that was weighed."""
    search, settings = view.search, view.search.controls.settings
    sections.outputs_table(hypotheses, texts, settings.strategy == "sampling")
    with st.popover("As text", icon=":material/content_copy:"):
        st.code(decode_text(view.pretrained, view.tokens) or "nothing", language=None, wrap_lines=True)
    if sentence := text.outputs_fact(settings, hypotheses, texts):
        fact(sentence)
    ranks = RANKS if search.length <= LONG else FEW
    drawn = search_tree.spots(search.tree, view.path, ranks)
    tree_view(search_tree.picture(search.tree, view.names, view.path, theme(), view.step, ranks),
              f"{len(search.tree.candidates)} candidates; the best output is {texts[0] or 'nothing'}.",
              follow=st.session_state[PICKED] is not None, key="generate:tree",
              on_pick=partial(pressed, tuple(view.path), search.tree))
    st.latex(text.equation(settings, search.tree, view.path, view.step))
    st.caption(plain(text.caption(search, len(drawn), view.continuation.note)))
    sources(settings.strategy, key="generate:source-code")
