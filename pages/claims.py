"""Claims: classic statements about attention, each measured, with a verdict from the data."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import streamlit as st

import dashboard.page as lab
from core.claims import run as claim_runs
from core.claims.base import MIN_SEEDS, Claim, ClaimResult, Figure, Pick, Sketch, judge, rule_lines
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.run import ClaimConfig, Group, find_group
from core.entries import ConfigError, refuse_if
from core.files import zip_files
from core.runs.machine import machine
from dashboard.draw import claims as draw

PAGE = "claims"
ALL = ""
SOURCES = {"shipped": "The lab's", "own": "Yours", "both": "Both"}
WHOSE = {"shipped": ("the lab's", "The lab's measurement"), "own": ("yours", "Your run")}


key = "claims:{}".format  # of a widget


def open_choice() -> None:
    Controls.claim.value = Controls.read("choice").choice


class Controls(lab.Fields, page="claims"):
    hide = lab.Toggle(
        "Hide verdicts to guess first",
        help="Hides the verdicts and pictures here. A link keeps it.",
    )
    results = lab.Segmented(
        "Results",
        options=SOURCES,
        default="own",
        help="The lab's own measurement, yours, or both in one figure.",
    )
    choice = lab.Select[str](
        "Claim",
        options=lambda c: {one.key: one.name for one in CLAIMS},
        help="Opens another claim.",
        also={"bind": None, "persist_state": None, "on_change": open_choice},
    )
    claim = lab.LinkedValue(ALL, "claim")
    run = lab.LinkedValue("")  # the id of the reader's own


def _run_id(text: str) -> str:
    refuse_if(find_group(text) is None, f"{text[:40]!r} is no run on this machine")
    return text


def own_run(claim: Claim, run_id: object) -> Group | None:
    """The reader's run of this claim; None where there is none, or it is of another claim."""
    with suppress(ConfigError):
        if (
            group := lab.computed(find_group, run_id)
        ) is not None and group.config.claim == claim.key:
            return group
    return None


def as_shipped(own: Group) -> claim_runs.Shipped:
    measured, data = own.measured, own.runs[0].metadata()
    return claim_runs.ship(
        measured.claim,
        measured.settings,
        measured.results.cells,
        (data.get("machines") or [machine("cpu")])[-1],
        claim_runs.command(measured.claim, measured.settings, measured.seeds),
        float(data.get("created", 0)),
    )


def archive(result: claim_runs.Shipped) -> bytes:
    figures = {
        f"figure-{at}-{re.sub(r'[^a-z0-9]+', '-', figure.measure.lower()).strip('-')}.{kind}": {
            "spec": draw.results_figure(figure, {"": result}, "light", named=True),
            "format": kind,
        }
        for at, figure in enumerate(result.claim.figures, 1)
        for kind in ("svg", "pdf")
    }
    return zip_files(
        f"claim-{result.claim.key}", claim_runs.text_files(result) | lab.render(figures)
    )


OPEN, SHOWN = "", "none"  # no guess yet; shown without one


def draw_guess(claim: Claim, measured: ClaimResult | None) -> dict[str, draw.Guess] | None:
    """Draw the question of a claim, and its answer once there is a guess; nothing where nothing was measured.

    Returns the line that was drawn before, by measure, or None where the results may not be seen yet.
    """
    if measured is None or not measured.seeds:
        return {}
    if isinstance(claim.guess, Sketch):
        return _sketch(claim, claim.guess, measured)
    pick, complete = claim.guess, measured.results.complete(measured.conditions)
    answer = pick.answer(complete)  # seeds that lack a condition cannot answer
    reason = f"The data say: {pick.options[answer][0].lower() + pick.options[answer][1:]}."
    reasons = tuple("" if at == answer else reason for at in range(len(pick.options)))
    question = lab.Question(lab.plain(pick.question), pick.options, answer, reasons)
    return {} if lab.predict(key(claim.key), question) else None


def _sketch(claim: Claim, question: Sketch, measured: ClaimResult) -> dict[str, draw.Guess] | None:
    if lab.guide_is_hidden():
        return {}
    xs, name = measured.results.xs(question.condition, question.measure), f"{claim.key}:sketch"
    line = lab.LinkedValue(OPEN, name, key(name))
    written = line.linked(lambda link: _written(_read(link, question, xs).values()))
    figure = next(figure for figure in claim.figures if figure.measure == question.measure)
    with st.container(border=True, gap="small", key=key(f"{name}:question")):
        lab.paragraph(f"**Draw it first.** {lab.plain(question.question)}")
        if written == OPEN:
            lab.sketch(
                xs,
                question.low,
                question.high,
                key=key(f"{name}:paper"),
                x_title=figure.x,
                log_x="x" in figure.log,
                log_y="y" in figure.log,
                share=figure.unit == "share",
                take=lambda ys: line.set(_written(ys or ())),
            )
            return None
        guess = _read(written, question, xs)
        with st.container(
            horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
        ):
            lab.paragraph(
                draw.guess_distance(guess, measured, question, figure)
                if guess
                else "Shown without a guess.",
                width="stretch",
            )
            st.button(
                "Draw again",
                key=key(f"{name}:again"),
                icon=":material/edit:",
                on_click=line.set,
                args=(OPEN,),
            )
    return {question.measure: guess} if guess else {}


def _written(ys: Iterable[float]) -> str:
    return "_".join(map(lab.as_text, ys)) or SHOWN


def _read(link: str, question: Sketch, xs: Sequence[float]) -> draw.Guess:
    """The line of a link; a ValueError for another number of points, or one out of bounds."""
    if link == SHOWN:
        return {}
    ys = [float(part) for part in link.split("_")]
    refuse_if(
        len(ys) != len(xs) or not all(question.low <= y <= question.high for y in ys),
        f"expected {len(xs)} numbers from {question.low:g} to {question.high:g}",
    )
    return dict(zip(xs, ys, strict=True))


def page() -> None:
    lab.title(
        "Claims",
        "Classic statements about attention, each measured here.",
    )
    arrived = lab.is_new("claim")
    chosen = Controls.claim.linked(lab.one_of([claim.key for claim in CLAIMS]))
    if arrived and (linked := st.query_params.get("claim")) is not None:
        st.query_params["claim"] = linked  # the browser shows no link to the same page
    Controls.run.linked(_run_id)
    if chosen == ALL:
        _index()
    else:
        _one(lab.computed(claim_of, chosen))


@lab.fragment
def _index() -> None:
    results = {claim.key: claim_runs.shipped(claim) for claim in CLAIMS}
    lab.add_script(partial(draw.verdicts_script, results.values()))
    hidden = Controls.draw("hide", into=lab.HERE).hide
    with st.container():  # which keeps the place of the cards
        if not hidden:
            lab.fact(draw.index_fact(results.values()))
    subjects = list(dict.fromkeys(claim.subject for claim in CLAIMS))
    with st.grid(3, min_column_width=260, gap="small"):
        for claim in sorted(CLAIMS, key=lambda claim: subjects.index(claim.subject)):
            with st.container(border=True, gap="small", height="stretch"):
                st.page_link(
                    lab.step_of(PAGE).page(),
                    label=f":small[**{lab.plain(claim.name)}**]",
                    query_params={"claim": claim.key},
                    help=f"{lab.plain(claim.statement)} {lab.plain(claim.subject)} · {lab.plain(claim.source.text)}",
                )
                st.html(draw.card(claim, results[claim.key], lab.theme(), hidden))
    lab.caption(draw.legend_text())


def _one(claim: Claim) -> None:
    choice, index = st.columns([0.84, 0.16], gap="small", vertical_alignment="bottom")
    Controls.set(choice=claim.key)
    Controls.draw("choice", into=choice)
    index.button(
        "All claims",
        icon=":material/apps:",
        width="stretch",
        on_click=Controls.claim.set,
        args=(ALL,),
        key=key("index"),
    )
    st.markdown(f"## {lab.plain(claim.statement)}")
    shipped, own = lab.computed(claim_runs.shipped, claim), own_run(claim, Controls.run.value)
    verdicts: dict[str, Any] = {
        "judged": lab.computed(judge, shipped) if shipped else None,
        "own": lab.computed(claim_runs.judge_group, own) if own and own.measured.seeds else None,
    }
    if any(verdicts.values()):
        lab.as_python(**{name: one for name, one in verdicts.items() if one})
    both = {"shipped": shipped, "own": own and own.measured}
    measured = {name: each for name, each in both.items() if each and each.results.cells}
    picture = st.container()
    guess = draw_guess(claim, next(iter(measured.values()), None))
    if guess is not None:
        _results(claim, measured, guess)
        with st.container(horizontal=True, vertical_alignment="center"):
            if shipped is not None:
                _download("Replicate: the lab's files", "lab", shipped)
            if own is not None and own.measured.seeds and not own.live:
                _download("Replicate: your files", "own", as_shipped(own))
    elif isinstance(claim.guess, Pick):
        figure, hidden = claim.figures[0], dict([*measured.items()][:1])
        with picture:
            _figure(figure, hidden, covered=True)
            lab.caption(draw.covered_text(figure, *hidden.values()))
    lab.details(
        "Its source, its limits, and what would refute it",
        partial(_source, claim),
        key("source"),
    )
    _run(claim, shipped, own)
    lab.details(
        "What was tried before, sources and code", partial(_sources, claim, shipped), key("sources")
    )


def _source(claim: Claim) -> None:
    source = lab.plain(claim.source.text)
    source = f"[{source}]({claim.source.url})" if claim.source.url else source
    lab.paragraph(f"Claimed by {source}: *{lab.plain(claim.source.title)}*.")
    st.markdown("### What would have refuted it")
    lab.paragraph(lab.plain(" ".join([claim.refutation, *rule_lines(claim)])))
    st.markdown("### What the paper measured")
    for one in claim.published:
        lab.chart_title(f"Published, not measured here: {one.place}")
        lab.table(
            one.columns,
            [[*map(draw.published, row)] for row in one.rows],
            caption=f"Published figures: {one.place}",
            left=[
                at
                for at in range(len(one.columns))
                if at == 0 or not any(map(str.isdigit, "".join(row[at] for row in one.rows)))
            ],
            markers=False,
        )
        lab.caption(f"{lab.plain(one.setting)} [Source]({one.url})")
    if claim.no_published:
        lab.caption(lab.plain(claim.no_published))
    st.markdown("### What this does not show")
    lab.paragraph(lab.plain(claim.limits))


def _figure(
    figure: Figure,
    sources: Mapping[str, ClaimResult],
    guess: draw.Guess | None = None,
    covered: bool = False,
) -> None:
    lab.draw_chart(
        st,
        draw.results_figure(figure, sources, lab.theme(), guess, covered=covered),
        key=key(f"figure:{figure.measure}"),
        alt=f"{figure.title} of each condition, over seeds",
        heading=figure.title,
        legend=lab.legend(
            draw.curves_of(figure, sources, lab.theme(), guess), lab.Ink.of(lab.theme()), least=1
        ),
    )


def _results(
    claim: Claim, sources: Mapping[str, ClaimResult], guess: dict[str, draw.Guess]
) -> None:
    if not sources:
        lab.placeholder("Nothing was measured yet. Run it below.", height=120)
        return
    if len(sources) == 2 and (chosen := Controls.draw("results", into=lab.HERE).results) != "both":
        sources = {chosen: sources[chosen]}
    named = {WHOSE[name][0]: each for name, each in sources.items()}
    for name, each in sources.items():
        lab.fact(draw.verdict_text(WHOSE[name][1], each))
    for figure in claim.figures:
        _figure(figure, named, guess.get(figure.measure))
    lab.caption(
        "Each colour is one condition, over several random starts (seeds); its band or bar shows how sure their "
        "mean is."
    )
    with lab.settings_panel("Its parts: what each test asks, and what came out"):
        if claim.scope:
            lab.paragraph(lab.plain(f"Measured {claim.scope}."))
        if shipped := claim_runs.shipped(claim):
            lab.caption(draw.shipped_text(shipped))
        for each in sources.values():
            st.html(draw.parts_html(each.verdict, lab.theme()))
        lab.caption(
            f"A part holds where the whole interval of its mean over {MIN_SEEDS} seeds or more lies within its bounds, "
            "and is refuted where the whole interval lies outside; the intervals cover all parts together (95 %, "
            "Student's t, Bonferroni), those of shares between 0 and 1. Ratios (×) are averaged as "
            "logarithms; the charts draw the plain mean of the seeds, with its own 95 % interval. It cannot be told "
            "where the models have not learned, or where the task leaves no room."
        )


def _download(label: str, name: str, result: claim_runs.Shipped) -> None:
    st.download_button(
        label,
        lambda: archive(result),
        f"claim-{result.claim.key}.zip",
        "application/zip",
        icon=":material/folder_zip:",
        on_click="ignore",
        key=key(f"zip:{name}"),
        help="A ZIP with the config, all numbers as CSV, each figure as SVG and PDF, the parts as a "
        "LaTeX table, the command, the versions and BibTeX.",
    )


def _run(claim: Claim, result: claim_runs.Shipped | None, own: Group | None) -> None:
    st.markdown("### Run it")
    with st.grid(6, min_column_width=120):
        values = {
            param.key: lab.param_widget(param, key=key(f"{claim.key}:{param.key}"))
            for param in claim.params
        }
    config = ClaimConfig(claim.key, values)  # what a run of the reader's would measure
    lab.start_run(
        PAGE,
        config,
        lab.queue.measure_claim,
        _select,
        ConfigError,
        run_of=lambda group: group.runs[0],
    )
    lab.show_flash(PAGE)
    if own is not None and own.live:
        buttons, column = st.columns([1, 3.4], vertical_alignment="center")
        lab.stop_button(buttons, PAGE, _stop, own)
        with column:
            lab.poll(
                lambda: own_run(claim, own.id) or own,
                _progress,
                True,
                key("progress"),
                interval=lab.SLOW_POLL_INTERVAL,
                still_live=lambda now: now.live and count(now) == count(own),
            )  # else new figures
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Run it",
            icon=":material/play_arrow:",
            type="primary",
            key=key("start"),
            on_click=lab.press,
            args=(PAGE,),
            help="Workers measure every condition from every seed.",
        )
        st.caption(draw.time_needed(claim, result, config))
    lab.limits_line(steps=False)
    if own is None:
        return
    for status in [status for status in own.statuses if status.state == "failed"][:1]:
        st.error(lab.plain(status.message))
    if count(own) < len(own.config.cells):
        st.caption(
            f"Your run made {count(own)} of {len(own.config.cells)} measurements, which are saved; Continue makes the "
            "others."
        )
        lab.continue_button(st, PAGE, _continue, own, primary=False)


def count(own: Group) -> int:
    return len(own.measured.results.cells)


def _select(group: Group) -> None:
    Controls.run.value = group.id
    Controls.set(results="own")


def _continue(own: Group) -> None:
    for run in own.runs:
        if run.status().state != "finished":
            lab.continue_run(PAGE, run)


def _stop(own: Group) -> None:
    for run in own.runs:
        lab.end_run(run)


def _progress(own: Group) -> None:
    done, planned, after = own.measured.results.cells, len(own.config.cells), ""
    if done:  # by the mean of those so far, on cores of their own
        spent = sum(cell.seconds for cell in done)
        left = spent / len(done) * (planned - len(done)) / len(own.runs)
        after = f", about {lab.about_duration(left)} left"
    lab.show_progress(
        own.runs[0],
        own.statuses[0],
        ending="",
        progress=lambda: (
            len(done) / max(1, planned),
            f"{len(done)} of {planned} measurements{after}",
        ),
    )


def _sources(claim: Claim, shipped: claim_runs.Shipped | None) -> None:
    date = time.strftime("%Y-%m-%d", time.gmtime()) if shipped is None else shipped.date
    lab.paragraph(f"**Tried before the shipped settings.** {lab.plain(claim.tried)}")
    lab.paragraph("**To cite** the source, and this page:")
    st.code(claim.source.bibtex + claim_runs.citation(claim, date), language="bibtex")
    lab.source_panel(claim.measure)
