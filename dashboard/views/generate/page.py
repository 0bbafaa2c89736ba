"""The page Generate: the continuation of a text, step by step, and the attention of each new token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import streamlit as st

from core.decoding import Hypothesis
from core.pretrained import Pretrained, PretrainedError
from core.pretrained.generate import score_continuation
from core.pretrained.induction_scores import most_informative_head
from core.trace import Kind
from dashboard.charts import search_tree
from dashboard.charts.palette import Ink
from dashboard.charts.token_bars import bars
from dashboard.components.attention_view import attention_view
from dashboard.components.tree_view import tree_view
from dashboard.runtime.link_values import fragment, read_linked, read_pair, write_linked, write_pair
from dashboard.runtime.page_pictures import add_script, begin_fragment
from dashboard.runtime.threads import one_thread
from dashboard.views.generate import text
from dashboard.views.generate.charts import step_strips
from dashboard.views.generate.compute import (
    LIKELIEST,
    Search,
    StepView,
    outputs,
    run,
    score_path,
    search_probabilities,
    step_view,
    text_of,
)
from dashboard.views.generate.controls import draw_controls
from dashboard.views.generate.script import script
from dashboard.views.generate.session import PICKED, current_path, current_search, pick_candidate, slider_key, timeline
from dashboard.widgets.decoding import outputs_table
from dashboard.widgets.model_picker import choose_model, input_errors
from dashboard.widgets.model_picker.head_choice import choose_head, current_head_of
from dashboard.widgets.model_picker.models import is_small
from dashboard.widgets.panels import fact, next_page, plain, theme, title
from dashboard.widgets.params import BOUND
from dashboard.widgets.presentation import draw_chart
from dashboard.widgets.sampling import sources

ALIGNED = 32  # tokens of a source and an answer between which lines are drawn
SIDES: dict[Kind, str] = {"cross": "Source", "causal": "Earlier output"}
EARLIER_NAMES: dict[str, Kind] = {"What was said": "causal"}  # of SIDES, in older links
KIND = "generate:kind"
RANKS, FEW, LONG = 8, 4, 40  # candidates of a step that are drawn; fewer once there are so many steps


def page() -> None:
    """Draw the page from top to bottom."""
    title("Generate",
          "A model writes one token after another. See its alternatives at each step, and where each new token "
          "attends.")
    choice = choose_model("generate", needs=("generate",))
    if choice is not None and choice.pretrained is not None:
        try:
            search = current_search(draw_controls(choice), choice.pretrained)
            slot = st.empty()  # the progress takes the place of the results, so that nothing moves
            _run(search, choice.pretrained, slot)
            with slot.container():
                _stopped(search)
                _results(search, choice.pretrained)
        except (PretrainedError, ValueError) as error:
            st.info(plain(str(error)), icon=":material/edit:")
    next_page("generate")


def _run(search: Search, pretrained: Pretrained, container: st.delta_generator.DeltaGenerator) -> None:
    """Continue the search, with its text so far and a button to stop it."""
    parts: list[st.delta_generator.DeltaGenerator] = []

    def draw(search: Search) -> None:
        if not parts:
            left, right = container.container().columns([0.86, 0.14])
            parts.append(left.empty())
            right.button("Stop", icon=":material/stop:", key="generate:stop", on_click=_stop, args=(search, True),
                         width="stretch")
        _progress(search, pretrained, parts[0])

    if not search.done:
        with one_thread(is_small(pretrained)):
            run(search, draw)
        search.share()


def _stopped(search: Search) -> None:
    """Say that the search was stopped, with a button that continues it."""
    if not search.done:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"Stopped after {search.length} tokens.")
            st.button("Continue", icon=":material/play_arrow:", key="generate:go-on", on_click=_stop,
                      args=(search, False))


def _stop(search: Search, stopped: bool) -> None:
    search.stopped = stopped


@fragment
def _results(search: Search, pretrained: Pretrained) -> None:
    """Draw what a step changes, which reruns alone."""
    begin_fragment()
    with input_errors():
        _outputs(search, pretrained)


def _outputs(search: Search, pretrained: Pretrained) -> None:
    hypotheses = outputs(search)
    if not hypotheses:
        return
    texts = [text_of(search.controls.ref, one.tokens) for one in hypotheses]
    path, step = current_path(search, hypotheses)
    result = score_path(search.controls.ref, search.controls.inputs, search.tree.tokens(path[-1]))
    text_container = st.container()
    timeline(search, hypotheses, texts, path, step)
    kinds = result.trace.kinds
    kind = kinds[0] if len(kinds) == 1 else _kind_field(kinds)
    view = step_view(search, pretrained, path, step, result, kind)
    usual = most_informative_head(view.trace, view.keys, view.tokens)
    linked, bad = read_pair("head", view.trace.shape)
    first = linked or current_head_of(search.controls.ref, kind, view.trace.shape)
    left, right = st.columns([0.54, 0.46], gap="medium")
    with left:
        layer, head = _matrix(view, *(first or usual))
    with right:
        _likeliest(view)
        _heads(view, *(first or usual))
    if first or (layer, head) != usual:
        choose_head(search.controls.ref, kind, (layer, head))
    write_pair("head", (layer, head) if first or (layer, head) != usual else None)
    add_script(partial(script, view, hypotheses, (layer, head)))
    with text_container:
        if bad:
            st.warning(bad)
        st.html(step_strips(view, view.trace.map(layer), head, theme()))
    fact(f"{text.token_fact(result.logits[step], view.tokens[step], view.names, step)} "
         f"{text.attention_fact(view.trace.map(layer), head, step, view.keys, view.tokens)}")
    _outputs_and_tree(view, hypotheses, texts)


def _outputs_and_tree(view: StepView, hypotheses: Sequence[Hypothesis], texts: Sequence[str]) -> None:
    """Draw the outputs, and the tree of all candidates."""
    search, settings = view.search, view.search.controls.settings
    outputs_table(hypotheses, texts, settings.strategy == "sampling")
    with st.popover("As text", icon=":material/content_copy:"):
        st.code(text_of(search.controls.ref, view.tokens) or "nothing", language=None, wrap_lines=True)
    if sentence := text.outputs_fact(settings, hypotheses, texts):
        fact(sentence)
    ranks = RANKS if search.length <= LONG else FEW
    spots = search_tree.spots(search.tree, view.path, ranks)
    drawn = partial(search_tree.picture, search.tree, view.names, view.path, step=view.step, ranks=ranks)
    tree_view(drawn, partial(search_tree.rows, search.tree, view.names),
              f"{len(search.tree.candidates)} candidates; the best output is {texts[0] or 'nothing'}.",
              theme=theme(), follow=st.session_state[PICKED] is not None, key="generate:tree",
              on_pick=partial(pick_candidate, tuple(view.path), search.tree))
    st.latex(text.equation(settings, search.tree, view.path, view.step))
    st.caption(plain(text.caption(search, len(spots), view.continuation.note)))
    sources(settings.strategy, key="generate:source-code")


def _progress(search: Search, pretrained: Pretrained, container: st.delta_generator.DeltaGenerator) -> None:
    """Draw the best output so far: its newest token with the attention, and the likeliest tokens."""
    best = outputs(search)[0]
    most = min(search.controls.settings.longest, search.start.room)
    result = score_continuation(pretrained, search.start, best.tokens)
    view = step_view(search, pretrained, search.tree.path(best.leaf), len(best) - 1, result, result.trace.kinds[0])
    layer, head = most_informative_head(view.trace, view.keys, view.tokens)
    with container.container():
        st.progress(min(1.0, search.length / most), f"{search.length} of at most {most} tokens")
        st.html(step_strips(view, view.trace.map(layer), head, theme()))
        _likeliest(view)


def _kind_field(kinds: Sequence[Kind]) -> Kind:
    """Draw the choice between the source and the earlier output."""
    if (linked := EARLIER_NAMES.get(st.query_params.get(KIND, ""))) is not None:
        st.session_state[KIND] = linked
    return st.segmented_control(
        "Attends to", kinds, default=kinds[0], required=True, key=KIND, format_func=SIDES.__getitem__,
        label_visibility="collapsed", **BOUND,
        help="The tokens whose weights are shown: the source, or what the model wrote before.")


def _matrix(view: StepView, layer: int, head: int) -> tuple[int, int]:
    """Draw all steps of one head, with lines where they attend to a source; returns the picked head."""
    side = "the source" if view.kind == "cross" else "the text before it"
    few = max(len(view.tokens), len(view.keys)) <= ALIGNED
    show: Literal["both", "matrix"] = "both" if view.kind == "cross" and few else "matrix"
    shape, of = view.trace.maps[layer].weights.shape[1:], (view.search.controls, view.kind)
    pin = read_linked("generate", "pin", shape, of)  # type: ignore[arg-type]
    picked = attention_view(
        view.trace, key=f"generate:map:{view.kind}", pin=pin, layer=layer, head=head, query=view.step, show=show,
        height=420, link=f"generate:{view.kind}", row_slider=slider_key(len(view.path)),
        title=f"Where each new token attends in {side}",
        reads="new token (row) attends to → read (column)",
        fact=f"{len(view.tokens)} new tokens attend to {len(view.trace.maps[0].keys)} tokens")
    write_linked("generate", "pin", picked.pin)
    return picked.layer, picked.head


def _heads(view: StepView, layer: int, head: int) -> None:
    """Draw every head, to pick one."""
    layers, most = view.trace.shape
    attention_view(view.trace, key=f"generate:grid:{view.kind}", layout="grid", layer=layer, head=head,
                   link=f"generate:{view.kind}", fact=f"{layers} layers of {most} heads")


def _likeliest(view: StepView) -> None:
    """Draw the likeliest tokens at the step, by the model and, where they differ, by the search."""
    logits, settings = view.continuation.logits[view.step], view.search.controls.settings
    model = logits.softmax(-1)
    shares, label = {"model": model}, "drawn from" if settings.strategy == "sampling" else "allowed"
    search = search_probabilities(view)
    if float((search - model).abs().max()) > 1e-6:
        shares[label] = search
    st.markdown(f"**Most likely tokens at step {view.step + 1}**")
    draw_chart(st, bars(shares, view.names, view.tokens[view.step], Ink.of(theme()), LIKELIEST),
               alt="The likeliest next tokens of this step")
    if len(shares) > 1:
        st.caption(f"Faint: the model's own probability. Full: the probability that the search uses ({label}).")
