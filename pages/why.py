"""Why attention: the bottleneck of one vector, measured, and trained again on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError, entry
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models.recurrent import RecurrentSeq2Seq
from core.runs.runs import Run
from core.studies import why as study
from core.studies.runs import RunData
from core.training import Record, SeedStats
from dashboard.draw import why as draw

# The controls, and the two runs that they start.


PAGE, RUNS = "why", "runs"
Pair = tuple[Run, Run]


def offered_seconds(_: object = None) -> list[int]:
    return [seconds for seconds in study.SECONDS if seconds <= lab.limits.max_run_seconds()]


class Controls(lab.Fields, page="why"):
    d_model = lab.Select(
        "Size of the vector",
        study.SIZES,
        study.Trial.d_model,
        text="{} numbers".format,
        hidden=True,
        help="How many numbers the encoder has for the sentence",
    )
    longest = lab.Select(
        "Longest source",
        study.LONGEST,
        study.Trial.longest,
        text="{} words".format,
        hidden=True,
        help="The longest English sentence of the training data",
    )
    score = lab.Select(
        "Score",
        {score: entry("score", score).name for score in study.SCORES},
        hidden=True,
        help="How the model with attention compares a query with a key",
    )
    seconds = lab.Select[int](
        "Training each",
        offered_seconds,
        lambda _: min(int(study.Trial.seconds), offered_seconds()[-1]),
        text=study.training_label,
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
    cell = lab.CellField()
    last = lab.SessionValue[str | None](None)  # the ids of the two runs
    seen = lab.SessionValue(False)  # whether the page was drawn before
    word = lab.SessionValue(0)  # the row of the map whose query is followed

    @property
    def trial(self) -> study.Trial:
        return study.Trial(self.d_model, self.longest, self.score, self.seconds, self.seed)


def controls(live_pair: Pair | None, saved: bool) -> tuple[str, study.Trial]:
    """What the chart of the saved measurement shows, and what the next two runs train."""
    chart = "two"
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if saved:
            chart = Controls.draw("chart", into=lab.HERE).chart
        with st.popover("Settings", icon=":material/tune:", help="What the next two runs train"):
            values = Controls.draw(
                "d_model", "longest", "score", "seconds", "seed", into=lab.HERE
            ).trial
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


def _start(values: study.Trial) -> None:
    configs = []
    for model in values.pair:
        with_attention = "with " if model.score else ""
        named = {"name": f"Why attention: {with_attention}{model.name()}"}
        configs.append((values.config(model), named))

    def start() -> None:
        st.query_params[RUNS] = ".".join(run.id for run in lab.queue.start_all(configs))

    lab.flash_errors(PAGE, "The runs could not be started: ", start, lab.limits.QueueFull, OSError)


def _stop(pair: Pair) -> None:
    for run in filter(lab.limits.mine, pair):
        lab.queue.stop(run)


def linked_pair() -> tuple[Pair | None, str]:
    """The runs of the link, else of the session; and a warning when the link's are not here."""
    ids, last = st.query_params.get(RUNS), Controls.last.value
    if ids is None and last is not None and _pair(last) is not None:
        st.query_params[RUNS] = ids = last
    Controls.last.value = ids
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
class Comparison(study.Result):
    """The results of the two runs; without parts it is the saved measurement."""

    parts: tuple[RunData, ...] = ()

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
        return Comparison(**vars(lab.shared(study.load)))
    parts = tuple(map(lab.load_run, pair))
    learned = tuple(study.TrainedModel.of(each.required_config, each.records) for each in parts)
    return Comparison(
        study.Trial.of(parts[1].required_config),
        learned,
        study.sentence(
            {one.model: (each.run, each.records) for one, each in zip(learned, parts, strict=True)}
        ),
        parts=parts,
    )


# The page Why attention: the controls, the progress of two runs, the curves, the alignment and the numbers.


OPTIONS = ("One vector", "Attention", "Both the same")
EQUAL = 5.0  # percentage points; losses closer than this are the same


def page() -> None:
    lab.title(
        "Why attention",
        "One model keeps one vector of a sentence; one rereads its words: attention.",
    )
    (pair, trouble), saved = linked_pair(), lab.shared(study.load)
    live = pair is not None and not all(run.status().ended for run in pair)
    data = partial(load_comparison, pair)
    left, right = st.columns(2, gap="medium")
    with left:
        # The charts tell the answer.
        shown = lab.predict("why", question(saved.learned)) or pair is not None
        if pair is None:
            lab.try_this("why", moves(saved.learned))
        chart, values = controls(pair if live else None, pair is None)
        lab.limits_line()
        for message in filter(None, (trouble, lab.pop_flash(PAGE))):
            st.warning(message)
        setting = saved.setting if pair is None else study.Trial.of(pair[1].config())
        if not live and (trouble or values != setting):
            what = f"the saved measurement of {saved.learned[0].points[-1].step:,} steps"
            st.caption(
                f"The charts show {what if pair is None else f'runs of {study.training_label(setting.seconds)}'}, with "
                f"{setting.d_model} numbers and up to {setting.longest} words. **Run it** trains both models on this "
                "machine with your settings."
            )
        lab.poll(data, _progress, live, "why:progress")
    metric = "bleu" if chart == "bleu" else "sequence_accuracy"
    with right, lab.picture("why"):
        visible = shown or chart != "two"
        lab.poll(data, partial(_results, visible, chart, metric), live, "why:results")
    lab.poll(data, partial(_map, metric), live, "why:figures")
    if Controls.seen.value:
        # not on the first run, which has enough to load
        lab.SessionValue[object](None, lab.queue.SPARE).value = lab.queue.warm_up(live)
    Controls.seen.value = True
    lab.poll(data, _training, live, "why:training")
    lab.details("Papers, equations and the code of the model", _sources, "why:sources")
    st.html(draw.STYLE)


def _results(shown: bool, chart: str, metric: str, live: Comparison) -> None:
    data = live.shown
    visible = {
        label
        for model, label in draw.names(data.learned).items()
        if model in data.setting.pair
        or (chart == "larger" and model.score is None)
        or (chart == "learned" and model.score)
    }
    lines = [
        (name, index, points if shown else points[:1])
        for name, index, points in draw.lines_of(data.learned, metric)
        if name in visible
    ]
    _length_chart(metric, data.lengths, lines)
    if sentence := draw.fact_text(data, shown, metric):
        lab.fact(sentence)
    more = {"bleu": draw.BLEU, "learned": draw.LEARNED}.get(chart, "")
    lab.caption(f"English number words to German.{draw.bands(data) if shown else ''} {more}")
    if live is not data:
        lab.caption(
            "This is still the saved measurement. The result of your runs comes "
            f"{draw.first_result(live.setting)}."
        )


def _length_chart(metric: str, lengths: Sequence[str], lines: Sequence[draw.Line]) -> None:
    name, heading = draw.HEADINGS[metric]
    lab.draw_chart(
        st,
        draw.figure(
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
        draw.rows(lines),
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
                    progress=partial(draw.progress, name, last, data.setting),
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
            Controls.last.pop()
            st.rerun()  # the whole page: this stands in a fragment
        saved = lab.shared(study.load).learned
        if not data.live and (explanation := draw.too_few_steps(data.learned, saved)):
            st.info(explanation, icon=":material/lightbulb:")


def _learning_chart(data: Comparison) -> None:
    """BLEU over what both models get equally: seconds of training here, steps in the saved measurement."""
    clock = "seconds" if data.parts else "step"
    ends = [getattr(p, clock) for one in data.learned for p in one.points]
    lab.draw_chart(
        st,
        draw.figure(
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
        draw.rows(draw.lines_of(data.learned, "bleu", clock)),
        theme=None,
        key="why:learning",
        width="stretch",
        alt=f"BLEU against {clock}, one line a model",
    )
    lab.caption(f"{draw.BLEU} {draw.LEARNED}")


def _map(metric: str, live: Comparison) -> None:
    data = live.shown
    sentence = data.sentence
    runs = tuple(part.run for part in data.parts)
    result = lab.recorded(study.result_of, runs, data) if runs else lab.shared(study.load)
    made: dict[str, Any] = {"scores": lab.computed(study.scores_by_length, result, metric)}
    charts, cells = {f"why:{metric}": draw.SCORES}, []
    left, right = st.columns(2, gap="medium")
    with left:
        words = st.container()
        weights, row, step = _alignment(data)
    if weights is not None and sentence is not None:
        cells = [draw.map_cell(sentence, step, data.name)]
        # How to read the map, on its picked row
        with words:
            lab.paragraph(
                f"With attention, **{lab.plain((*sentence.target, '<eos>')[row])}** takes most from "
                f"**{lab.plain(sentence.source[int(weights[row].argmax())])}**: a row is a German word, a column an "
                "English one."
            )
        with right:
            _word_slider(row, weights, sentence)
            if step in sentence.vectors:
                made["meeting"] = met = lab.computed(study.meeting, result, row, step)
                charts |= {f"why:{name}": draw.MEETING.format(name) for name in BARS}
                _meeting(met, data.setting.score)
            else:
                saved = ", ".join(map("{:,}".format, sentence.vectors))
                lab.caption(
                    f"The model of step {step:,} is not saved, so its query and keys are not here"
                    f"{f'; those of step {saved} are' if saved else ''}."
                )
            lab.details(
                "What an output word reads, as an equation",
                partial(_equations, draw.equations(data.setting, sentence, weights, row)),
                "why:equation",
            )
    lab.as_python(draw=charts, also=cells, **made)


BARS = {"score": "Score: query · key", "weight": "Weight: softmax of the scores"}


def _pin_word(best: Sequence[int]) -> None:
    """Pin the cell from which the slider's word takes most; `best` has its column for each word."""
    Controls.cell.pin((Controls.word.value, best[Controls.word.value]))


def _word_slider(row: int, weights: np.ndarray, sentence: study.Sentence) -> None:
    """The German word whose query is followed: the row of the map's pinned cell, which is in the link."""
    words, best = (*sentence.target, "<eos>"), weights.argmax(-1).tolist()
    Controls.word.value = row  # also after a press on the map
    st.select_slider(
        "German word",
        range(len(words)),
        format_func=lambda at: f"{at + 1} {words[at]}",  # a word may stand twice
        key=Controls.word.key,
        on_change=lab.guarded(Controls.word.key, partial(_pin_word, best)),
        help="The word whose query meets the keys of the English words, at the step of the map",
    )


def _meeting(met: study.Meeting, score: str) -> None:
    """One output word's query among the keys of all input words."""
    for name, heading in BARS.items():
        lab.draw_chart(
            st,
            draw.meeting_chart(met, name, lab.Ink.of(lab.theme())),
            alt=f"{heading}, one bar an English word",
            heading=heading,
            key=f"why:{name}",
        )
    lab.fact(draw.meeting_text(met))
    st.latex(draw.meeting_equation(met, score), width="content")
    if score == "dot":
        lab.caption(
            "The score here is q · k itself, and a key is its own value. The next page divides by √D, and makes both "
            "by matrices."
        )


def _training(live: Comparison) -> None:
    data = live.shown
    if data.parts:
        _learning_chart(data)
        lab.caption(draw.conditions(data, bool(data.parts)))
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
    if not data.parts:
        _learning_chart(data)
    if data.sentence is not None:
        ink = lab.Ink.of(lab.theme())
        st.html(
            draw.sentence_table(data.sentence, draw.names(data.learned), ink.pick, ink.hairline)
        )
        lab.caption(
            "This is one held-out sentence. The number of wrong words varies from sentence to sentence, so a model "
            "that is better over all of them can be worse here."
        )
    lab.caption(
        "**Exact match**: the share of held-out sentences that are translated without a mistake."
    )
    lab.table(
        ["words: BLEU / exact match, %", *data.lengths],
        draw.numbers(data.learned, data.lengths),
        caption="Quality by the length of the source",
    )
    if not data.parts:
        lab.caption(draw.conditions(data, bool(data.parts)))


def _alignment(data: Comparison) -> tuple[np.ndarray | None, int, int]:
    """The attention of the long sentence over training time; the weights at the picked step, the picked row, the step."""
    sentence = data.sentence
    if sentence is None or not sentence.frames:
        lab.placeholder("These runs ended before their first measurement.", 380)
        return None, 0, 0
    source, target = sentence.source, (*sentence.target, "<eos>")
    row = max((at for at, word in enumerate(target) if word == ";"), default=-1) + 1
    steps = dict(sentence.frames)
    last, weights = sentence.frames[-1]
    pin = Controls.cell.pinned(weights.shape)
    picked = row if pin is None else pin[0]
    most = int(weights[picked].argmax())
    state = lab.attention_view(
        AttentionTrace((AttentionMap("cross", 0, weights[None], target, source),), data.name),
        key=f"why:map:{data.name}",
        layout="frames",
        frames=list(sentence.frames),
        query=row,
        live=data.live,
        height=420,
        pin=pin,
        fact=f"At step {last} {target[picked]} takes {lab.share_text(weights[picked, most])} from {source[most]}",
        title=f"A sentence of {len(source)} words",
        reads="output (row) takes from → input (column)",
    )
    pin = Controls.cell.pin(state.pin)
    step = state.frame if state.frame in steps else last
    return steps[step], row if pin is None else pin[0], step


def _sources() -> None:
    st.markdown(
        "Without attention: [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215). The first "
        "attention: [Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473). The output layer here: "
        "[Luong et al. 2015](https://arxiv.org/abs/1508.04025), equation 5."
    )
    lab.entries_panel([entry("score", score) for score in study.SCORES])
    lab.source_panel(RecurrentSeq2Seq)


# What a reader predicts and tries on Why attention.


def question(learned: Sequence[study.TrainedModel]) -> lab.Question:
    """Which model loses more from the shortest to the longest sentences, by the saved measurement."""
    ends = [(points[0], points[-1]) for points in draw.pair_of(learned)]
    gap, minus = (first.mean - last.mean for (_, first), (_, last) in ends)
    gap -= minus
    return lab.Question(
        "Sentences grow from 10 to 60 words. Which model loses more exact translations?",
        OPTIONS,
        2 if abs(gap) < EQUAL else 0 if gap > 0 else 1,
        ("A vector has the same size for every sentence; attention has one vector for each word.",)
        * len(OPTIONS),
    )


def moves(learned: Sequence[study.TrainedModel]) -> tuple[lab.Move, ...]:
    """Another chart of the saved measurement, whose models `learned` are, and what it shows of its sentences."""
    without, attention, larger = (
        study.by_length(learned, model, "sequence_accuracy")
        for model in (*study.Trial().pair, study.MODELS[0])
    )
    middle, long = (list(without)[at] for at in (1, -1))

    def exact(model: Mapping[str, SeedStats], length: str) -> str:
        return f"{draw.stats_text(model[length])}{draw.PERCENT}"

    return (
        lab.Move(
            "A larger vector",
            Controls.state(chart="larger"),
            f"A vector twice as large translates {exact(larger, middle)} of the sentences of {middle} words without a "
            f"mistake, the smaller one {exact(without, middle)}. Of {long} words it is {exact(larger, long)}, with "
            f"attention {exact(attention, long)}.",
        ),
    )
