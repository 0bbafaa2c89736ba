"""The page Claims: all of them by subject, or one of them with its guess, figures, verdict and a run of one's own."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.claims.base import Claim, rule_lines
from core.claims.catalogue import CLAIMS
from core.claims.run import ClaimConfig, Group
from core.claims.shipped import Shipped, citation
from core.entries import ConfigError
from core.runs.runs import Run
from dashboard.navigation import step_of
from dashboard.runtime import jobs
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.ui.presentation import draw_chart
from dashboard.ui.tables import table
from dashboard.views.claims import cards, charts, compute, export, intervals, script, text
from dashboard.views.claims.compute import ClaimResult, OwnRun
from dashboard.views.claims.controls import (
    PAGE,
    RUN,
    chosen_claim,
    draw_claim_choice,
    draw_hide,
    draw_settings,
    draw_source,
    key,
    open_index,
)
from dashboard.views.claims.guess import Shown, draw_guess
from dashboard.widgets import run_controls
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    fact,
    next_page,
    paragraph,
    placeholder,
    plain,
    source_panel,
    theme,
    title,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title("Claims", text.LEAD)
    claim = chosen_claim()
    if claim is None:
        _index()
    else:
        _one(claim)
    next_page(PAGE)


@fragment
def _index() -> None:
    """Draw a card for each claim, by subject; verdicts are hidden where the reader wants to guess first."""
    results = {claim.key: compute.lab_result(claim) for claim in CLAIMS}
    add_script(lambda: script.index([each for each in results.values() if each]))
    hidden = draw_hide()
    overview = st.container()  # which keeps the place of the cards
    if not hidden:
        with overview:
            fact(text.overview([each and each[1].verdict.state for each in results.values()]))
    subjects = list(dict.fromkeys(claim.subject for claim in CLAIMS))
    with st.grid(3, min_column_width=260, gap="small"):
        for claim in sorted(CLAIMS, key=lambda claim: subjects.index(claim.subject)):
            result = results[claim.key]
            _card(claim, result and result[1], hidden)
    caption(" ".join(f"**{state}**: {meaning}." for state, meaning in text.MEANINGS.items()))


def _card(claim: Claim, measured: ClaimResult | None, hidden: bool) -> None:
    with st.container(border=True, gap="small", height="stretch"):
        st.page_link(
            step_of(PAGE).path,
            label=f":small[**{plain(claim.name)}**]",
            query_params={"claim": claim.key},
        )
        st.html(cards.card(claim, measured, theme(), hidden))


def _one(claim: Claim) -> None:
    """Draw one claim: sentence and source, guess, figures, verdict, and a run of the reader's own."""
    choice, index = st.columns([0.84, 0.16], gap="small", vertical_alignment="bottom")
    with choice:
        draw_claim_choice(claim)
    index.button(
        "All claims", icon=":material/apps:", width="stretch", on_click=open_index, key=key("index")
    )
    st.markdown(f"## {plain(claim.statement)}")
    paragraph(text.source_line(claim))
    lab, own = compute.lab_result(claim), compute.own_run(claim, st.session_state.get(RUN))
    add_script(partial(script.script, lab, own))
    measured = {
        "shipped": None if lab is None else lab[1],
        "own": None if own is None else own.measured,
    }
    guess = draw_guess(claim, measured["shipped"] or measured["own"])
    if guess.seen:
        _results(claim, measured, guess)
        _replicate(lab, own)
    st.markdown("### What would have refuted it")
    paragraph(plain(" ".join([claim.refutation, *rule_lines(claim)])))
    _published(claim)
    st.markdown("### What this does not show")
    paragraph(plain(claim.limits))
    _run(claim, lab and lab[0], own)
    details(
        "What was tried before, sources and code", partial(_sources, claim, lab), key("sources")
    )


def _results(claim: Claim, measured: dict[str, ClaimResult | None], guess: Shown) -> None:
    """Draw the figures of the chosen results, their verdict and its parts."""
    there = {
        name: each for name, each in measured.items() if each is not None and each.results.cells
    }
    if not there:
        placeholder("Nothing was measured yet. Run it below.", height=120)
        return
    chosen = draw_source(claim) if len(there) == 2 else next(iter(there))
    sources = there if chosen == "both" else {chosen: there[chosen]}
    names = {"shipped": "the lab's", "own": "yours"}
    named = {names[name]: each for name, each in sources.items()}
    for figure in claim.figures:
        drawn = guess.drawn.get(figure.measure)
        chart_title(figure.title, legend=charts.legend(figure, named, theme(), drawn))
        draw_chart(
            st,
            charts.results_figure(figure, named, theme(), drawn),
            key=key(f"figure:{figure.measure}"),
            alt=f"{figure.title} of each condition, over seeds",
        )
    for name, each in sources.items():
        fact(text.verdict_fact(each, {"shipped": "The lab's measurement", "own": "Your run"}[name]))
        st.html(intervals.parts_table(each.verdict.effects, theme()))
    caption(text.RULE)


def _replicate(lab: compute.LabResult | None, own: OwnRun | None) -> None:
    """Say what the lab's result was measured on; offer the files of each result, and how to cite this page."""
    if lab is not None:
        caption(text.shipped_line(lab[0]))
    with st.container(horizontal=True, vertical_alignment="center"):
        if lab is not None:
            _download("Replicate: the lab's files", "lab", *lab)
        if own is not None and own.measured.seeds and not own.live:
            _download("Replicate: your files", "own", export.as_shipped(own), own.measured)


def _download(label: str, name: str, result: Shipped, measured: ClaimResult) -> None:
    st.download_button(
        label,
        lambda: export.archive(result, measured),
        f"claim-{measured.claim.key}.zip",
        "application/zip",
        icon=":material/folder_zip:",
        on_click="ignore",
        key=key(f"zip:{name}"),
        help="A ZIP with the config, all numbers as CSV, each figure as SVG and PDF, the parts as a "
        "LaTeX table, the command, the versions and BibTeX.",
    )


def _published(claim: Claim) -> None:
    """Draw the paper's own figures, marked as the paper's."""
    st.markdown("### What the paper measured")
    for one in claim.published:
        chart_title(f"Published, not measured here: {one.place}")
        words = [
            at
            for at in range(len(one.columns))
            if at == 0 or not any(map(str.isdigit, "".join(row[at] for row in one.rows)))
        ]
        table(
            one.columns,
            one.rows,
            caption=f"Published figures: {one.place}",
            left=words,
            markers=False,
        )
        caption(f"{plain(one.setting)} [Source]({one.url})")
    if claim.no_published:
        caption(plain(claim.no_published))


def _run(claim: Claim, result: Shipped | None, own: OwnRun | None) -> None:
    """Draw the settings, the button that runs the claim, and how far a run is."""
    st.markdown("### Run it")
    config = draw_settings(claim)
    if run_controls.pressed(PAGE, config):
        groups: list[Group] = []
        run_controls.start_run(
            PAGE, config, lambda: _start(config, groups), lambda _: _select(groups[0]), ConfigError
        )
        st.rerun()
    run_controls.show_flash(PAGE)
    if own is not None and own.live:
        _bar(claim, own)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Run it",
            icon=":material/play_arrow:",
            type="primary",
            key=key("start"),
            on_click=run_controls.press,
            args=(PAGE,),
            help="Workers measure every condition from every seed.",
        )
        st.caption(text.time_needed(claim, result, config))
    run_controls.limits_line(steps=False)
    if own is not None and own.failure:
        st.error(plain(own.failure))
    if own is not None and own.done < own.count:
        st.caption(text.unfinished(own))
        run_controls.continue_button(st, PAGE, _continue, own, primary=False)


def _start(config: ClaimConfig, groups: list[Group]) -> Run:
    groups.append(jobs.measure_claim(config))
    return groups[0].runs[0]


def _select(group: Group) -> None:
    st.session_state[RUN] = group.id
    st.session_state.pop(key("results"), None)


def _continue(own: OwnRun) -> None:
    for run in own.group.runs:
        if run.status().state != "finished":
            run_controls.continue_run(PAGE, run)


def _bar(claim: Claim, own: OwnRun) -> None:
    buttons, column = st.columns([1, 3.4], vertical_alignment="center")
    run_controls.stop_button(buttons, PAGE, _stop, own)
    with column:
        poll(
            lambda: compute.own_run(claim, own.group.id) or own,
            _progress,
            True,
            key("progress"),
            interval=SLOW_POLL_INTERVAL,
            still_live=lambda now: now.live and now.done == own.done,
        )  # else new figures


def _stop(own: OwnRun) -> None:
    for run in own.group.runs:
        run_controls.end_run(run)


def _progress(own: OwnRun) -> None:
    run = own.group.runs[0]
    run_controls.show_progress(
        run,
        run.status() if not own.live else own.statuses[0],
        ending="",
        progress=lambda: text.progress(own),
    )


def _sources(claim: Claim, lab: compute.LabResult | None) -> None:
    paragraph(f"**Tried before the shipped settings.** {plain(claim.tried)}")
    paragraph("**To cite** the source, and this page:")
    st.code(
        claim.source.bibtex + citation(claim, text.today() if lab is None else lab[0].date),
        language="bibtex",
    )
    source_panel(claim.measure)
