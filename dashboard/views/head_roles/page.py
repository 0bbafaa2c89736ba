"""The page Head roles: every head by its role, one role in every head, one head in every role, and on a text."""

from __future__ import annotations

import streamlit as st

from core.pretrained import ModelInputs, PretrainedError, Reading
from core.roles import ROLES, Example, RoleInputs, RoleScores, clearest_example
from core.roles.scores import share_used, weight_on_targets
from core.trace import Kind
from dashboard.charts.vega import Spec
from dashboard.components.attention_view import Patches, attention_view
from dashboard.runtime.role_scores import examples_of, inputs_of, readings_of, role_scores_of
from dashboard.views.head_roles import charts, controls, text
from dashboard.views.head_roles.text import Head
from dashboard.widgets.model_picker import ModelChoice, choose_model
from dashboard.widgets.panels import fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.role_marks import best_table

HERE, SET = "here", "set"


def page() -> None:
    title("Head roles", "What each head looks at, sentence after sentence: nine roles, each beside the chance of it.")
    chosen = choose_model("head_roles")
    try:
        if chosen is not None and set(chosen.reading.trace.kinds) == {"cross"}:
            st.info("Between two sequences there is no before and after, so cross-attention has no roles. The page "
                    "Pretrained models draws it.", icon=":material/info:")
        elif chosen is not None:
            _roles(chosen)
    except PretrainedError as error:
        st.info(plain(str(error)), icon=":material/edit:")
    next_page("head_roles")


def _roles(chosen: ModelChoice) -> None:
    kinds = [kind for kind in chosen.reading.trace.kinds if kind != "cross"]
    reads_text = chosen.pretrained is not None and chosen.pretrained.reads in ("text", "pair")
    places = st.columns(len(kinds) + 1 + reads_text, vertical_alignment="bottom")
    kind = controls.kind_of(kinds, places[0])
    role_place, head_place, *more = places[len(kinds) - 1 :]
    own, trouble = controls.own_sentences(more[0]) if more else ((), None)
    if trouble:
        st.warning(trouble)
    with st.spinner("Measuring every head, once for each model"), st.skeleton(height=240):
        inputs = inputs_of(chosen.ref, chosen.inputs, kind, own)
        scores = role_scores_of(chosen.ref, chosen.inputs, kind, own)
    of = f"{chosen.ref} {kind}"
    controls.follow_picked_head(scores, chosen.ref)
    role = controls.role_of(scores, of, role_place)
    here = controls.head_of(scores, role, of, head_place)
    controls.store_picked_head(scores, chosen.ref, role, here)
    _grids(scores, role, here)
    fact(text.fact(scores, here, role, inputs))
    with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="medium"):
        for part in text.equation(scores, here, role):
            st.latex(part, width="content")
    _on_a_text(chosen, inputs, scores, kind, role, here)
    st.caption(plain(text.caption(scores, role, inputs, chosen.reading.trace.source, _left_out(own, inputs))))
    _sources(role)


def _left_out(own: tuple[str, ...], inputs: RoleInputs) -> int:
    """How many of a person's own sentences the model knows too few words of."""
    read = {given.text for given in inputs.givens}
    return sum(sentence not in read for sentence in own)


def _grids(scores: RoleScores, role: int, here: Head) -> None:
    """Left every head by its role, right every head's score in one role; both pick a head."""
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Every head by its role**")
        _grid(charts.role_grid(scores, here, theme()), "head_roles:roles", "Layers by heads, each in its role's colour")
    with right:
        st.markdown(f"**{ROLES[role].name}**, score from 0 to 1")
        _grid(charts.score_grid(scores, role, here, theme()), "head_roles:scores",
              f"Layers by heads, each with its score as {ROLES[role].name.lower()}")


def _grid(spec: Spec, key: str, alt: str) -> None:
    st.vega_lite_chart(spec=spec, key=key, width="content", alt=alt, selection_mode="head",
                       on_select=lambda: controls.pick_from_grid(key))


def _on_a_text(chosen: ModelChoice, inputs: RoleInputs, scores: RoleScores, kind: Kind, role: int, here: Head) -> None:
    """The head itself, on the reader's text or where the set shows the role best, with its scores in all roles."""
    readings = readings_of(chosen.ref, inputs, kind)
    of_set = clearest_example(readings, kind, ROLES[role], *here)
    on_text = clearest_example([chosen.reading], kind, ROLES[role], *here)
    what = _what(chosen)
    left, right = st.columns([1.1, 1], gap="medium", vertical_alignment="top")
    with left:
        where = st.segmented_control("Read it on", [HERE, SET], default=HERE, key="head_roles:where", required=True,
                                     label_visibility="collapsed",
                                     format_func={HERE: f"Your {what}", SET: "Where the set shows it best"}.get)
        if where == SET and of_set:
            reading, example, given = readings[of_set.reading], of_set, inputs.givens[of_set.reading]
        else:
            reading, example, given = chosen.reading, on_text, chosen.inputs
        _map(reading, kind, scores, here, example, given)
    with right:
        st.markdown(f"**{scores.name(here)} in every role**, the line is chance ± 3 spreads")
        st.vega_lite_chart(spec=charts.head_bars(scores, here, theme()), key="head_roles:bars",
                           alt=f"The scores of {scores.name(here)} in every role, beside chance")
        fact(text.on_text(reading, kind, example, role, what))
    best_table(text.table_rows(scores, inputs, examples_of(chosen.ref, inputs, kind)))
    st.download_button("All scores, CSV", lambda: text.to_csv(scores), "head-roles.csv", "text/csv",
                       icon=":material/download:", on_click="ignore")


def _what(chosen: ModelChoice) -> str:
    """What the person gave, in a word."""
    if chosen.pretrained is None:
        return "array"
    return chosen.pretrained.reads if chosen.pretrained.reads in ("picture", "sound") else "text"


def _map(reading: Reading, kind: Kind, scores: RoleScores, here: Head, example: Example | None,
         given: ModelInputs) -> None:
    """The head's map, or what each of its rows looks at in the picture that was read."""
    line = reading.lines(kind)[0]
    patches = None
    if line.grid is not None and given.picture is not None:
        patches = Patches(given.picture.numpy(), *line.grid, first=len(line) - line.grid[0] * line.grid[1])
    view = attention_view(
        reading.trace.of(kind), key="head_roles:map", layer=here[0], head=here[1], patches=patches,
        show="both" if patches else "matrix", height=420, query=None if example is None else example.query,
        fact=f"Head {scores.name(here)} on {len(line)} tokens")
    if (view.layer, view.head) != here:
        controls.pick_and_rerun(scores.name((view.layer, view.head)))


def _sources(role: int) -> None:
    shown = st.expander("Papers, and what just ran", on_change="rerun", key="head_roles:source")
    if shown.open:
        with shown:
            for one in ROLES:
                st.markdown(f"**{one.name}** — {plain(one.meaning)}. [{one.paper}]({one.url})")
            source_panel(ROLES[role].targets or share_used)
            source_panel(weight_on_targets)
