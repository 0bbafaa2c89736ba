"""Why attention: the bottleneck of one vector, measured, and trained again on request."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError, entry
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models.recurrent import RecurrentSeq2Seq
from core.runs.runs import Run
from core.studies.why import (
    EVERY,
    FEW,
    FEW_STEPS,
    LONGEST,
    METRICS,
    MODELS,
    SCORES,
    SECONDS,
    SIZES,
    Model,
    Result,
    Sentence,
    TrainedModel,
    Trial,
    by_length,
    load,
    models,
    over_time,
    sentence,
    training_label,
)
from core.training import Prediction, Record, SeedStats

# The controls, and the two runs that they start.


Points = Sequence[tuple[Any, SeedStats]]  # x, and the values there
Line = tuple[str, int, Points]  # a model's name, its index in the series, and its (x, percent)
PAGE, RUNS, LAST = "why", "runs", "why:last"
Pair = tuple[Run, Run]


def offered_seconds(_: Any = None) -> list[int]:
    return [seconds for seconds in SECONDS if seconds <= lab.limits.max_run_seconds()]


class Controls(lab.Fields, page="why"):
    d_model = lab.Select(
        "Size of the vector",
        SIZES,
        Trial.d_model,
        text="{} numbers".format,
        hidden=True,
        help="How many numbers the encoder has for the sentence",
    )
    longest = lab.Select(
        "Longest source",
        LONGEST,
        Trial.longest,
        text="{} words".format,
        hidden=True,
        help="The longest English sentence of the training data",
    )
    score = lab.Select(
        "Score",
        {score: entry("score", score).name for score in SCORES},
        hidden=True,
        help="How the model with attention compares a query with a key",
    )
    seconds = lab.Select[int](
        "Training each",
        offered_seconds,
        lambda _: min(int(Trial.seconds), offered_seconds()[-1]),
        text=training_label,
        hidden=True,
        help="Seconds of training for each of the two models, or a few steps",
    )
    seed = lab.Number(
        "Seed",
        0,
        0,
        2**31 - 1,
        hidden=True,
        help="Another seed gives other random parameters and sentences",
    )
    chart = lab.Select(
        "Chart",
        {
            "two": "Two models",
            "larger": "A larger vector",
            "learned": "A learned score",
            "bleu": "Partly right translations",
        },
        hidden=True,
        help="What the chart of the saved measurement shows",
    )


def controls(live_pair: Pair | None, saved: bool) -> tuple[str, Trial]:
    """What the chart of the saved measurement shows, and what the next two runs train."""
    chart = "two"
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if saved:
            chart = Controls.draw("chart", into=lab.HERE).chart
        with st.popover("Settings", icon=":material/tune:", help="What the next two runs train"):
            values = Trial(
                **Controls.draw("d_model", "longest", "score", "seconds", "seed", into=lab.HERE)
            )
        if live_pair and lab.limits.mine(live_pair[0]):
            lab.stop_button(st, PAGE, _stop, live_pair)
        else:
            lab.start_button(
                st,
                "Run it",
                type="secondary",
                width="content",
                key="why:run",
                on_click=_start,
                args=(values,),
                help="Trains two models on this machine at the same time: one without attention, one with it.",
            )
    return chart, values


def _start(values: Trial) -> None:

    configs = [
        (
            values.config(model),
            {"name": f"Why attention: {'with ' * bool(model.score)}{model.name()}"},
        )
        for model in values.pair
    ]

    def start() -> None:
        st.query_params[RUNS] = ".".join(run.id for run in lab.queue.start_all(configs))

    lab.flash_errors(PAGE, "The runs could not be started: ", start, lab.limits.QueueFull, OSError)


def _stop(pair: Pair) -> None:
    for run in filter(lab.limits.mine, pair):
        lab.queue.stop(run)


def linked_pair() -> tuple[Pair | None, str]:
    """The runs of the link, else of the session; and a warning when the link's are not here."""
    ids, last = st.query_params.get(RUNS), st.session_state.get(LAST)
    if ids is None and last is not None and _pair(last) is not None:
        st.query_params[RUNS] = ids = last
    st.session_state[LAST] = ids
    pair = None if ids is None else _pair(ids)
    wrong = (
        "The link names runs that are not on this machine, or are no such pair. Below is the saved "
        "measurement."
    )
    return pair, wrong if ids is not None and pair is None else ""


def _pair(text: str) -> Pair | None:
    runs = [lab.limits.find_run(name) for name in text.split(".")]
    try:
        configs = [run.config() for run in runs if run]
    except (ConfigError, TypeError, ValueError, KeyError):
        return None
    kinds = [(each.task.key, each.model.kind, each.model.attention is None) for each in configs]
    pair = kinds == [("numbers", "recurrent", True), ("numbers", "recurrent", False)]
    return (runs[0], runs[1]) if pair and len(runs) == 2 else None  # type: ignore[return-value]


# The data of the page: the saved measurement, or the two runs of the link, read from their folders.


@dataclass(frozen=True)
class Comparison(Result):
    """The results of the two runs; without parts it is the saved measurement."""

    parts: tuple[lab.RunData, ...] = ()

    @property
    def live(self) -> bool:
        return any(part.live for part in self.parts)

    @property
    def lengths(self) -> list[str]:
        return sorted(
            {bucket.lengths for one in self.learned for bucket in one.buckets},
            key=lambda name: int(name.split("–")[0]),
        )

    @property
    def name(self) -> str:
        return ".".join(part.run.id for part in self.parts) or "kept"

    @property
    def shown(self) -> Comparison:
        measured = all(one.points for one in self.learned)
        return load_comparison(None) if self.live and not measured else self


def load_comparison(pair: Pair | None) -> Comparison:
    """Read the runs' folders as they are now; of none, the measurement of `make bottleneck`."""
    if pair is None:
        return Comparison(**vars(lab.shared(load)))
    parts = tuple(map(lab.load_run, pair))
    learned = tuple(TrainedModel.of(each.required_config, each.records) for each in parts)
    return Comparison(
        Trial.of(parts[1].required_config),
        learned,
        sentence(
            {one.model: (each.run, each.records) for one, each in zip(learned, parts, strict=True)}
        ),
        parts=parts,
    )


# What the page computes as Python.


def script(data: Comparison, metric: str) -> lab.Script:
    source = """
from core.studies.why import by_length, load, models

saved = load()  # `make bottleneck` trains all of these models again
learned, sentence = saved.learned, saved.sentence
"""
    if data.parts:
        source = f"""
from core.runs.runs import open_run
from core.studies.why import TrainedModel, by_length, models, sentence as read_sentence

runs = [open_run(path) for path in [{", ".join(lab.path_code(part.run.path) for part in data.parts)}]]
# core.training.train(runs[0].config()) trains one again, a record after the other
learned = [TrainedModel.of(run.config(), run.records()) for run in runs]
sentence = read_sentence({{one.model: (run, run.records()) for one, run in zip(learned, runs)}})
"""
    results = {
        "scores.to_numpy()": np.array(
            [
                [stats.mean for stats in by_length(data.learned, model, metric).values()]
                for model in models(data.learned)
            ]
        )
    }
    cells = [
        lab.Cell(
            f"{HEADINGS[metric][0]} by the words in the source: the mean over the seeds of each model.",
            f"""
import pandas as pd
{source}
rows = pd.DataFrame([
    {{"model": model.name(with_size=True), "words": words, "score": stats.mean}}
    for model in models(learned)
    for words, stats in by_length(learned, model, {metric!r}).items()])
scores = rows.pivot_table(index="model", columns="words", values="score", sort=False)
print(scores.round(1))
""",
            """
import altair as alt

alt.Chart(rows).mark_line(point=True).encode(x=alt.X("words", sort=None), y="score", color="model")
""",
            f"why:{metric}",
        )
    ]
    if data.sentence is not None and data.sentence.frames:
        results["weights"] = data.sentence.frames[-1][1]
        cells.append(
            lab.Cell(
                "The attention of one long sentence at the last step: a row for each output word.",
                """
step, weights = sentence.frames[-1]  # (T, S)
source, target = sentence.source, [*sentence.target, "<eos>"]
""",
                """
from dashboard.show import show_maps

show_maps({f"Step {step}": weights}, target, source)
""",
                f"why:map:{data.name}",
            )
        )
    return lab.Script(tuple(cells), results)


# The page's facts, conditions, equations and tables, as Markdown, LaTeX or escaped HTML.


PERCENT = "\u00a0%"
LEAD = 10.0  # BLEU by which attention leads clearly
BLEU = "**BLEU**, 0 to 100: how much of a translation is right, by its word sequences; a part of a sentence counts, too."
LEARNED = (
    "**general** multiplies the states of the encoder by a learned matrix before they are "
    "compared with the state of the decoder."
)
HEADINGS = {
    "bleu": ("BLEU", "BLEU, by the length of the source"),
    "sequence_accuracy": ("Exact match, %", "Sentences translated without a mistake, %"),
}


def names(learned: Sequence[TrainedModel]) -> dict[Model, str]:
    """The name of every model; of one with a larger vector than the first, that."""
    ordered = models(learned)
    return {
        model: "larger vector" if model.d_model > ordered[0].d_model else model.name()
        for model in ordered
    }


def pair_of(learned: Sequence[TrainedModel], metric: str = "sequence_accuracy") -> list[Points]:
    """A metric by length of the saved models without attention and with it."""
    return [list(by_length(learned, model, metric).items()) for model in Trial().pair]


def stats_text(stats: SeedStats) -> str:
    """40 ± 2, without a line break, and without a standard deviation that rounds to 0."""
    more = stats.std is not None and stats.std >= 0.5
    return f"{stats.mean:.0f}" + (f"\u00a0±\u00a0{stats.std:.0f}" if more else "")


def fact_text(data: Comparison, shown: bool = True) -> str:
    """The shortest sentences with attention and without; where `shown` the longest. All lengths are in a table below."""
    ordered = models(data.learned)
    first, attention = ordered[0], next((model for model in ordered if model.score), None)
    if attention is None or first.score is not None:
        return ""
    reread = by_length(data.learned, attention, "sequence_accuracy")
    one_vector = by_length(data.learned, first, "sequence_accuracy")
    lengths = [length for length in reread if length in one_vector]
    if not lengths:
        return ""
    length = lengths[-1 if shown else 0]
    return (
        f"Of sentences of {length} words, attention translates **{reread[length].mean:.0f}{PERCENT}** without a mistake, "
        f"one vector **{one_vector[length].mean:.0f}{PERCENT}**.{'' if shown else ' Pick an answer to see longer sentences.'}"
    )


def clear_lead(learned: Sequence[TrainedModel]) -> int | None:
    """The first step from which attention leads by LEAD BLEU in all later measurements; None where it never does."""
    without, attention = (dict(over_time(learned, model, "bleu", "step")) for model in Trial().pair)
    later = takewhile(
        lambda step: attention[step].mean - without[step].mean >= LEAD,
        sorted(without.keys() & attention.keys(), reverse=True),
    )
    return min(map(int, later), default=None)


def too_few_steps(data: Comparison, saved: Sequence[TrainedModel]) -> str:
    """Why two ended runs show no advantage of attention, and what to do; empty where they show one."""
    ends = [one.points[-1] for one in data.learned if one.points]
    if data.live or len(ends) != 2:
        return ""
    without, attention = ends
    clear, few = clear_lead(saved), min(one.step for one in ends)
    leads = (
        ""
        if clear is None
        else f"In the saved measurement its lead exceeds {LEAD:.0f} BLEU from step {clear:,} on. "
    )
    if few < EVERY:
        return (
            f"This machine reached only {lab.plural(few, 'step')} of a model: too few to compare, since attention must first "
            f"learn which words belong together. {leads}Take more seconds of training."
        )
    if attention.bleu > without.bleu:
        return ""
    why = "One run varies with its seed and size: take another seed or longer sentences."
    if clear is not None and attention.step < clear:
        why = (
            f"The reason is too few steps: it was trained for {attention.step:,}, and attention must first "
            f"learn which words belong together. {leads}Take more seconds of training, or a smaller vector, "
            "which trains faster."
        )
    return (
        f"In this run attention shows no advantage: BLEU {lab.score(attention.bleu)}, without attention "
        f"{lab.score(without.bleu)}. {why}"
    )


def _first_result(setting: Trial) -> str:
    after = f", or after {training_label(setting.seconds)} of training"
    return f"at step {FEW}{'' if setting.seconds == FEW_STEPS else after}"


def _bands(data: Comparison) -> str:
    seeds = len({one.seed for one in data.learned})
    if seeds == 1:
        return ""
    return f" Each line is the mean of {seeds} seeds, its pale band ± their standard deviation."


def conditions(data: Comparison) -> str:
    task = (
        f"English number words to German, at most {data.setting.longest} words, 20,000 training pairs; the same "
        "bidirectional GRU in each model, AdamW, batches of 64"
    )
    scored = (
        f"Each model is scored on {max((one.held_out for one in data.learned), default=0):,} held-out sentences, "
        "which it translates word by word without help."
    )
    labels = names(data.learned)
    if data.parts:
        spent = ", ".join(
            f"{labels[one.model]} {lab.plural(one.points[-1].step, 'step')} in {lab.duration(one.points[-1].seconds)}"
            if one.points
            else f"{labels[one.model]} not yet measured"
            for one in data.learned
        )
        return (
            f"Trained on this machine: {task}. Training, {training_label(data.setting.seconds)} planned for each: {spent}. "
            f"{scored}"
        )
    ends = sorted({one.points[-1].step for one in data.learned})
    steps = " to ".join(f"{end:,}" for end in dict.fromkeys((ends[0], ends[-1])))
    spent = ", ".join(
        f"{labels[model]} {lab.duration(seconds)}" for model, seconds in data.seconds.items()
    )
    return (
        f"Controls by `make bottleneck`: {task}, {steps} steps each. {scored}{_bands(data)} "
        f"Processor time of a run, with measuring: {spent}; {data.machine}."
    )


def progress(name: str, last: Record, controls: Trial) -> tuple[float, str]:
    if controls.seconds == FEW_STEPS:
        return min(1.0, last.step / FEW), f"{name}: step {last.step} of {FEW}"
    spent = min(last.train_seconds, controls.seconds)  # the last step may end later
    reached = f"starts; its result comes {_first_result(controls)}"
    if last.step:
        reached = f"step {last.step:,}, {spent:.0f} of {controls.seconds:g} s"
    return spent / controls.seconds, f"{name}: {reached}"


def equations(setting: Trial, sentence: Sentence, weights: np.ndarray, row: int) -> tuple[str, str]:
    """The context of an output without attention and with it, its largest weights written out."""

    def safe(word: str) -> str:
        return "".join(sign for sign in word if sign.isalnum() or sign == ";")

    last, outputs = len(sentence.source) - 1, len(sentence.target)
    top = np.argsort(-weights[row])[:3]
    terms = [
        rf"{lab.latex(weights[row, key])}\, h_{{{key}}}^{{\text{{{safe(sentence.source[key])}}}}}"
        for key in sorted(top)
    ]
    if (rest := 1 - float(weights[row, top].sum())) >= 0.005:
        terms.append(rf"{lab.latex(rest)}\,(\text{{rest}})")
    word = safe((*sentence.target, "end")[row])
    context = rf"c_{{{row}}}^{{\text{{{word}}}}} &= \sum_i \alpha_{{{row},i}}\, h_i"
    summed = r" \\ &\quad + ".join(terms)  # one a line: the column is narrow
    return (
        rf"c_0 = c_1 = \dots = c_{{{outputs}}} = [\overrightarrow{{h}}_{{{last}}};\, \overleftarrow{{h}}_0] "
        rf"\in \mathbb{{R}}^{{{setting.d_model}}}"
    ), rf"\begin{{aligned}} {context} \\ &= {summed} \end{{aligned}}"


def sentence_table(sentence: Sentence, labels: Mapping[Model, str], pick: str, line: str) -> str:
    source, target = sentence.source, sentence.target
    return lab.html_table(
        ("", "sentence", "wrong or missing"),
        [
            ("source", html.escape(" ".join(source)), ""),
            ("target", html.escape(" ".join(target)), ""),
            *(
                (
                    labels[model],
                    lab.marked(Prediction(source, target, output), " ", pick),
                    f"{sum(lab.wrong_tokens(target, output)) + lab.missing(target, output)}",
                )
                for model, output in sentence.outputs.items()
            ),
        ],
        line,
        ("white-space:nowrap", "", lab.RIGHT),
    )


def numbers(learned: Sequence[TrainedModel], lengths: Sequence[str]) -> list[list[str]]:
    return [
        [
            label,
            *(
                lab.written(
                    " / ".join(stats_text(each[length]) for each in scores if length in each)
                    or "–",
                    {
                        f": {metric}{name}": value
                        for metric, each in zip(("BLEU", "exact match, %"), scores, strict=True)
                        if length in each
                        for name, value in (("", each[length].mean), (" ±", each[length].std))
                        if value is not None
                    },
                )
                for length in lengths
            ),
        ]
        for model, label in names(learned).items()
        for scores in [[by_length(learned, model, metric) for metric in METRICS]]
    ]


# The page Why attention: the controls, the progress of two runs, the curves, the alignment and the numbers.


HEIGHT, TOP = 230, 104.0  # pixels of the plot, and the top of its axis in percent
SHAPES = ("circle", "square", "triangle-up", "diamond")

OPTIONS = ("One vector", "Attention", "Both the same")
EQUAL = 5.0  # percentage points; losses closer than this are the same

CELL = "why:cell"  # the pinned cell, in the link


def page() -> None:
    lab.title(
        "Why attention",
        "One model translates from one vector; one rereads the sentence: attention.",
    )
    (pair, trouble), saved = linked_pair(), lab.shared(load)
    live = pair is not None and not all(run.status().ended for run in pair)
    data = partial(load_comparison, pair)
    left, right = st.columns(2, gap="medium")
    with left:
        # The charts tell the answer.
        shown = lab.predict("why", question(saved.learned)) or pair is not None
        with lab.picture("why"):
            place = st.container()
        if pair is None:
            lab.try_this("why", moves(saved.learned))
        chart, values = controls(pair if live else None, pair is None)
        metric = "bleu" if chart == "bleu" else "sequence_accuracy"
        with place:
            visible = shown or chart != "two"
            lab.poll(data, partial(_results, visible, chart, metric), live, "why:results")
        lab.limits_line()
        for message in filter(None, (trouble, lab.pop_flash(PAGE))):
            st.warning(message)
        setting = saved.setting if pair is None else Trial.of(pair[1].config())
        if not live and (trouble or values != setting):
            what = f"the saved measurement of {saved.learned[0].points[-1].step:,} steps"
            st.caption(
                f"The charts show {what if pair is None else f'runs of {training_label(setting.seconds)}'}, with "
                f"{setting.d_model} numbers and up to {setting.longest} words. **Run it** trains both models on this "
                "machine with your settings."
            )
        lab.poll(data, _progress, live, "why:progress")
    with right:
        lab.poll(
            data,
            partial(_map, metric),
            live,
            "why:figures",
        )
    if st.session_state.setdefault("why:seen", False):
        # not on the first run, which has enough to load
        st.session_state[lab.queue.SPARE] = lab.queue.warm_up(live)
    st.session_state["why:seen"] = True
    lab.poll(data, partial(_training, shown), live, "why:training")
    lab.details("Papers, equations and the code of the model", _sources, "why:sources")


def _results(shown: bool, chart: str, metric: str, live: Comparison) -> None:
    data = live.shown
    visible = {
        label
        for model, label in names(data.learned).items()
        if model in data.setting.pair
        or (chart == "larger" and model.score is None)
        or (chart == "learned" and model.score)
    }
    lines = [
        (name, index, points if shown else points[:1])
        for name, index, points in _lines(data.learned, metric)
        if name in visible
    ]
    _length_chart(metric, data.lengths, lines)
    if sentence := fact_text(data, shown):
        lab.fact(sentence)
    more = {"bleu": BLEU, "learned": LEARNED}.get(chart, "")
    lab.caption(f"English number words to German.{_bands(data) if shown else ''} {more}")
    if live is not data:
        lab.caption(
            "This is still the saved measurement. The result of your runs comes "
            f"{_first_result(live.setting)}."
        )


def _length_chart(metric: str, lengths: Sequence[str], lines: Sequence[Line]) -> None:
    name, heading = HEADINGS[metric]
    lab.draw_chart(
        st,
        _figure(
            heading,
            {
                "field": "name",
                "type": "nominal",
                "title": "words in the source",
                "scale": {"domain": list(lengths)},
                "axis": {"grid": False, "labelAngle": 0, "labelPadding": 8},
            },
            {"field": "name", "title": "words"},
            name,
            lab.theme(),
        ),
        rows(lines),
        theme=None,
        key=f"why:{metric}",
        width="stretch",
        alt=f"{name} against words in the source, one line a model",
    )


def _progress(data: Comparison) -> None:
    if data.parts:
        for column, part, one in zip(
            st.columns(2, gap="medium"), data.parts, data.learned, strict=True
        ):
            last, name = [Record(0), *part.records][-1], one.model.name().capitalize()
            how = part.status.message
            if part.status.state == "finished":
                how = (
                    f"Finished after {lab.plural(last.step, 'step')} in "
                    f"{lab.duration(last.train_seconds)} of training."
                )
            with column:
                lab.show_progress(
                    part.run,
                    part.status,
                    ending=f"{name}: {how}",
                    progress=partial(progress, name, last, data.setting),
                    name=f"{name}: waits",
                )
                st.page_link(
                    lab.step_of("train").page(),
                    label="Open this run in Train",
                    icon=":material/play_circle:",
                    query_params={"run": part.run.id},
                )
        if not data.live and st.button("Back to the saved measurement", key="why:kept"):
            st.query_params.pop(RUNS, None)
            st.session_state.pop(LAST, None)
            st.rerun()  # the whole page: this stands in a fragment
        if explanation := too_few_steps(data, lab.shared(load).learned):
            st.info(explanation, icon=":material/lightbulb:")


def _learning_chart(data: Comparison) -> None:
    """BLEU over what both models get equally: seconds of training here, steps in the saved measurement."""
    clock = "seconds" if data.parts else "step"
    ends = [getattr(p, clock) for one in data.learned for p in one.points]
    lab.draw_chart(
        st,
        _figure(
            "Translations during training, in BLEU",
            {
                "field": "x",
                "type": "quantitative",
                "title": "seconds of training" if clock == "seconds" else "step",
                "scale": {
                    "domain": [0, max(1.0, *ends, data.setting.seconds if data.live else 0)],
                    "nice": False,
                },
                "axis": {"grid": False, "tickCount": 5, "labelPadding": 8},
            },
            {"field": "x", "title": clock, "format": ",.0f"},
            "BLEU",
            lab.theme(),
        ),
        rows(_lines(data.learned, "bleu", clock)),
        theme=None,
        key="why:learning",
        width="stretch",
        alt=f"BLEU against {clock}, one line a model",
    )
    lab.caption(f"{BLEU} {LEARNED}")


def _map(metric: str, live: Comparison) -> None:
    data = live.shown
    lab.add_script(partial(script, data, metric))
    sentence, words = data.sentence, st.container()
    weights, row = _alignment(data)
    if weights is not None and sentence is not None:
        # How to read the map, on its picked row
        largest = int(weights[row].argmax())
        with words:
            lab.paragraph(
                "**What attention reads.** A row is a word that it writes, a column one of the English sentence: "
                f"**{lab.plain((*sentence.target, '<eos>')[row])}** puts {lab.share_text(weights[row, largest])} of "
                f"its weight "
                f"on **{lab.plain(sentence.source[largest])}**. The slider shows earlier steps."
            )
        lab.details(
            "What an output word reads, as an equation",
            partial(_equations, equations(data.setting, sentence, weights, row)),
            "why:equation",
        )


def _training(shown: bool, live: Comparison) -> None:
    data = live.shown
    if shown:
        _learning_chart(data)
    if data.parts:
        lab.caption(conditions(data))
    lab.details("One sentence translated, and all numbers", partial(_numbers, data), "why:numbers")


def _equations(texts: Sequence[str]) -> None:
    for equation in texts:
        st.latex(equation, width="content")
    lab.caption(
        "$h_i$ is the state of the encoder at word $i$: $\\overrightarrow{h}_i$ has read the sentence from its start, "
        "$\\overleftarrow{h}_i$ from its end. $c_t$ is the vector that output word $t$ reads, and $\\alpha_{t,i}$ its "
        "weight on word $i$. First equation: without attention, all output words read the same vector. Then: with "
        "attention, each reads its own weighted sum. Pick a cell to change the output word."
    )


def _numbers(data: Comparison) -> None:
    if data.sentence is not None:
        ink = lab.Ink.of(lab.theme())
        st.html(sentence_table(data.sentence, names(data.learned), ink.pick, ink.hairline))
        lab.caption(
            "This is one held-out sentence. The number of wrong words varies from sentence to sentence, so a model "
            "that is better over all of them can be worse here."
        )
    lab.caption(
        f"{BLEU} **Exact match**: the share of held-out sentences that are translated without a mistake."
    )
    lab.table(
        ["words: BLEU / exact match, %", *data.lengths],
        numbers(data.learned, data.lengths),
        caption="Quality by the length of the source",
    )
    if not data.parts:
        lab.caption(conditions(data))


def _lines(learned: Sequence[TrainedModel], metric: str, clock: str = "") -> list[Line]:
    return [
        (
            name,
            index,
            over_time(learned, model, metric, clock)
            if clock
            else list(by_length(learned, model, metric).items()),
        )
        for index, (model, name) in enumerate(names(learned).items())
    ]


def _alignment(data: Comparison) -> tuple[np.ndarray | None, int]:
    """The attention of the long sentence over training time; the weights at the picked step, and the picked row."""
    sentence = data.sentence
    if sentence is None or not sentence.frames:
        lab.placeholder("These runs ended before their first measurement.", 380)
        return None, 0
    source, target = sentence.source, sentence.target
    row = max((at for at, word in enumerate(target) if word == ";"), default=-1) + 1
    steps = dict(sentence.frames)
    last, weights = sentence.frames[-1]
    most = int(weights[row].argmax())
    state = lab.attention_view(
        AttentionTrace(
            (AttentionMap("cross", 0, weights[None], (*target, "<eos>"), source),), data.name
        ),
        key=f"why:map:{data.name}",
        layout="frames",
        frames=list(sentence.frames),
        query=row,
        live=data.live,
        height=420,
        pin=lab.read_linked("why", CELL, weights.shape),
        fact=f"{target[row]} puts {lab.share_text(weights[row, most])} of its weight on {source[most]}",
        title=f"A sentence of {len(source)} words",
        reads="output (row) attends to → input (column)",
    )
    pin = lab.write_linked("why", CELL, state.pin)
    return steps[state.frame if state.frame in steps else last], row if pin is None else pin[0]


def _sources() -> None:
    st.markdown(
        "Without attention: [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215). The first "
        "attention: [Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473). The output layer here: "
        "[Luong et al. 2015](https://arxiv.org/abs/1508.04025), equation 5."
    )
    lab.entries_panel([entry("score", score) for score in SCORES])
    lab.source_panel(RecurrentSeq2Seq)


# What a reader predicts and tries on Why attention.


def question(learned: Sequence[TrainedModel]) -> lab.Question:
    """Which model loses more from the shortest to the longest sentences, by the saved measurement."""
    ends = [(points[0], points[-1]) for points in pair_of(learned)]
    gap, minus = (first.mean - last.mean for (_, first), (_, last) in ends)
    gap -= minus
    return lab.Question(
        "Sentences grow from 10 to 60 words. Which model loses more exact translations?",
        OPTIONS,
        2 if abs(gap) < EQUAL else 0 if gap > 0 else 1,
        ("A vector has the same size for every sentence; attention has one vector for each word.",)
        * len(OPTIONS),
    )


def moves(learned: Sequence[TrainedModel]) -> tuple[lab.Move, ...]:
    """Other charts of the saved measurement, whose models `learned` are, and what they show of its sentences."""
    without, attention, *others = (
        by_length(learned, model, "sequence_accuracy")
        for model in (*Trial().pair, MODELS[0], MODELS[-1])
    )
    larger, general = others
    bleu = [points[-1][1].mean for points in pair_of(learned, "bleu")]
    middle, long = (list(without)[at] for at in (1, -1))

    def exact(model: Mapping[str, SeedStats], length: str) -> str:
        return lab.percent(model[length].mean / 100)

    return (
        lab.Move(
            "A larger vector",
            {"why:chart": "larger"},
            f"A vector twice as large translates {exact(larger, middle)} of the sentences of {middle} words without a "
            f"mistake, the smaller one {exact(without, middle)}. Of {long} words it is {exact(larger, long)}, with "
            f"attention {exact(attention, long)}.",
        ),
        lab.Move(
            "A learned score",
            {"why:chart": "learned"},
            "The second line with attention compares words by a learned matrix instead of a plain dot product. Of the "
            f"sentences of {long} words it translates {exact(general, long)} without a mistake, the dot product "
            f"{exact(attention, long)}.",
        ),
        lab.Move(
            "Partly right translations",
            {"why:chart": "bleu"},
            f"A translation with mistakes counts, too, for its right parts. For {long} words one vector reaches "
            f"{lab.score(bleu[0])} of 100, attention {lab.score(bleu[1])}.",
        ),
    )


# Quality against the source's length and against training time, as Vega-Lite whose rows alone change.


def _figure(title: str, x: lab.Spec, x_tip: lab.Spec, unit: str, theme: lab.Theme) -> lab.Spec:
    indices = [str(index) for index in range(len(SHAPES))]
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, TOP], "nice": False},
        "axis": {"values": [0, 25, 50, 75, 100]},
    }
    shape = lab.series_encoding("place", indices, SHAPES)
    both = {
        "x": x,
        "y": y,
        "color": lab.series_encoding("place", indices, lab.CATEGORIES[theme][: len(SHAPES)]),
    }
    return lab.titled_figure(
        title,
        [
            lab.filtered_layer(
                "point",
                "errorband",
                {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                opacity=0.16,
                interpolate="linear",
            ),
            lab.filtered_layer("point", "line", both, strokeWidth=2),
            lab.filtered_layer(
                "point", "point", {**both, "shape": shape}, filled=True, size=34, opacity=1
            ),
            lab.filtered_layer(
                "point",
                "point",
                {
                    **both,
                    "tooltip": [
                        {"field": "model", "title": " "},
                        x_tip,
                        {"field": "y", "title": unit, "format": ".0f"},
                        {"field": "spread", "title": "± std between seeds", "format": ".0f"},
                    ],
                },
                opacity=0,
                size=200,
            ),
            lab.filtered_layer(
                "label",
                "text",
                {**both, "x": {"value": "width"}, "text": {"field": "model"}},
                align="left",
                dx=10,
                fontSize=12,
                fontWeight=600,
                baseline="middle",
            ),
        ],
        HEIGHT,
        lab.Ink.of(theme),
        **lab.right_margin(4),
    )


def rows(lines: Sequence[Line]) -> list[lab.Spec]:
    """The data of either figure: kind, model, index, x or the name of a range, mean, low, high and std."""
    lines = [line for line in lines if line[2]]
    heights = lab.separate([points[-1][1].mean / TOP for _, _, points in lines])
    points: list[dict[str, Any]] = [
        {"kind": "point", "model": name, "place": str(index)}
        | ({"x": 0.0, "name": x} if isinstance(x, str) else {"x": float(x), "name": ""})
        | {
            "y": stats.mean,
            "low": max(0.0, stats.mean - (stats.std or 0.0)),
            "high": min(100.0, stats.mean + (stats.std or 0.0)),
            "spread": stats.std or 0.0,
        }
        for name, index, of in lines
        for x, stats in of
    ]
    labels = [
        {"kind": "label", "model": name, "place": str(index), "y": height * TOP}
        for (name, index, _), height in zip(lines, heights, strict=True)
    ]
    return points + labels
