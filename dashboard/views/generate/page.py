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
from dashboard.views.generate.compute import PICKED, Going, Request, followed, going, outputs, run
from dashboard.views.generate.controls import draw_settings
from dashboard.views.generate.sections import SIDES, Looked
from dashboard.views.generate.timeline import picked, pressed, timeline
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
            now = going(Request(chosen.ref, chosen.given, draw_settings()), chosen.pretrained)
            _run(now, chosen.pretrained)
            _shown(now, chosen.pretrained)
        except (PretrainedError, ValueError) as error:
            st.info(plain(str(error)), icon=":material/edit:")
    next_page("generate")


def _run(now: Going, pretrained: Pretrained) -> None:
    """Let the search go on, with its text so far and a way to stop it; then say so if it was stopped."""
    place = st.empty()
    parts: list[st.delta_generator.DeltaGenerator] = []

    def draw(now: Going) -> None:
        if not parts:
            left, right = place.container().columns([0.86, 0.14])
            parts.append(left.empty())
            right.button("Stop", icon=":material/stop:", key="generate:stop", on_click=_stop, args=(now, True),
                         width="stretch")
        sections.live(now, pretrained, parts[0])

    run(now, draw)
    place.empty()
    if not now.done:
        with place.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"Stopped after {now.length} tokens.")
            st.button("Go on", icon=":material/play_arrow:", key="generate:go-on", on_click=_stop, args=(now, False))


def _stop(now: Going, stopped: bool) -> None:
    now.stopped = stopped


def _shown(now: Going, pretrained: Pretrained) -> None:
    said = outputs(now)
    if not said:
        return
    texts = [decode_text(pretrained, one.tokens) for one in said]
    path, step = picked(now, said)
    found = followed(now.request, now.tree.tokens(path[-1]))
    text_place = st.container()
    timeline(now, said, texts, path, step)
    kinds = found.trace.kinds
    kind = kinds[0] if len(kinds) == 1 else st.segmented_control(
        "Looks at", kinds, default=kinds[0], required=True, key="generate:kind", format_func=SIDES.get,
        label_visibility="collapsed", **BOUND)
    this = sections.looked(now, pretrained, path, step, found, kind)
    usual = most_informative_head(this.trace, this.keys, this.tokens)
    asked, bad = read_pair("head", this.trace.shape)
    begun = asked or current_head_of(now.request.ref, kind, this.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    with left:
        layer, head = sections.matrix(this, *(begun or usual))
    with right:
        sections.likeliest(this)
        sections.heads(this, *(begun or usual))
    if begun or (layer, head) != usual:
        choose_head(now.request.ref, kind, (layer, head))
    write_pair("head", (layer, head) if begun or (layer, head) != usual else None)
    with text_place:
        if bad:
            st.warning(bad)
        sections.reading(this, this.trace.map(layer), head)
    fact(f"{text.said_fact(found.logits[step], this.tokens[step], this.names, step)} "
         f"{text.looked_fact(this.trace.map(layer), head, step, this.keys, this.tokens)}")
    _weighed(this, said, texts)


def _weighed(this: Looked, said: Sequence[Hypothesis], texts: Sequence[str]) -> None:
    """The outputs, and the tree of all that was weighed."""
    now, settings = this.now, this.now.request.settings
    sections.listed(said, texts, settings.strategy == "sampling")
    with st.popover("As text", icon=":material/content_copy:"):
        st.code(decode_text(this.pretrained, this.tokens) or "nothing", language=None, wrap_lines=True)
    if sentence := text.outputs_fact(settings, said, texts):
        fact(sentence)
    ranks = RANKS if now.length <= LONG else FEW
    drawn = search_tree.spots(now.tree, this.path, ranks)
    tree_view(search_tree.picture(now.tree, this.names, this.path, theme(), this.step, ranks),
              f"{len(now.tree.candidates)} candidates; the best output is {texts[0] or 'nothing'}.",
              follow=st.session_state[PICKED] is not None, key="generate:tree",
              on_pick=partial(pressed, tuple(this.path), now.tree))
    st.latex(text.equation(settings, now.tree, this.path, this.step))
    st.caption(plain(text.caption(now, len(drawn), this.found.note)))
    sources(settings.strategy, key="generate:source-code")
