"""Why attention: its two figures, its sentences of numbers, equations and tables, and code of its script."""

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from core.studies import why as study
from core.studies.why import (
    EVERY,
    FEW,
    FEW_STEPS,
    METRICS,
    Model,
    Sentence,
    TrainedModel,
    Trial,
    by_length,
    models,
    over_time,
    training_label,
)
from core.training import Prediction, Record, SeedStats
from dashboard.draw.components import Cell
from dashboard.draw.figures import (
    CATEGORIES,
    Ink,
    Spec,
    Theme,
    axis_style,
    field,
    figure as plain_figure,
    filtered_layer,
    layer,
    literal,
    right_margin,
    separate,
    series_encoding,
    table_columns,
    titled_figure,
)
from dashboard.draw.formats import (
    duration,
    latex,
    latex_signed,
    listed,
    number,
    plain,
    plural,
    score,
    share_text,
    written,
)
from dashboard.draw.tables import RIGHT, html_table, marked, mistakes

Points = Sequence[tuple[Any, SeedStats]]  # x, and the values there
Line = tuple[str, int, Points]  # a model's name, its index in the series, and its (x, percent)
# What the toolbar of a chart offers, Export has for every picture.
STYLE = """<style>[data-testid=stFullScreenFrame]:has([data-testid=stVegaLiteChart]) [data-testid=stElementToolbar] {
  display: none }</style>"""
HEIGHT, TOP = 230, 104.0  # pixels of the plot, and the top of its axis in percent
SHAPES = ("circle", "square", "triangle-up", "diamond")
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


def fact_text(data: study.Result, shown: bool = True, metric: str = "sequence_accuracy") -> str:
    """The shortest sentences with attention and without; where `shown` the longest. All lengths are in a table below."""
    ordered = models(data.learned)
    first, attention = ordered[0], next((model for model in ordered if model.score), None)
    if attention is None or first.score is not None:
        return ""
    reread = by_length(data.learned, attention, metric)
    one_vector = by_length(data.learned, first, metric)
    lengths = [length for length in reread if length in one_vector]
    if not lengths:
        return ""
    length = lengths[-1 if shown else 0]
    read, lost = stats_text(reread[length]), stats_text(one_vector[length])
    if metric == "bleu":
        return f"For sentences of {length} words, attention reaches **{read}** of 100 in BLEU, one vector **{lost}**."
    return (
        f"Of sentences of {length} words, attention translates **{read}{PERCENT}** without a mistake, "
        f"one vector **{lost}{PERCENT}**."
    )


def clear_lead(learned: Sequence[TrainedModel]) -> int | None:
    """The first step from which attention leads by LEAD BLEU in all later measurements; None where it never does."""
    without, attention = (dict(over_time(learned, model, "bleu", "step")) for model in Trial().pair)
    later = takewhile(
        lambda step: attention[step].mean - without[step].mean >= LEAD,
        sorted(without.keys() & attention.keys(), reverse=True),
    )
    return min(map(int, later), default=None)


def too_few_steps(learned: Sequence[TrainedModel], saved: Sequence[TrainedModel]) -> str:
    """Why two ended runs show no advantage of attention, and what to do; empty where they show one."""
    ends = [one.points[-1] for one in learned if one.points]
    if len(ends) != 2:
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
            f"This machine reached only {plural(few, 'step')} of a model: too few to compare, since attention must first "
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
        f"In this run attention shows no advantage: BLEU {score(attention.bleu)}, without attention "
        f"{score(without.bleu)}. {why}"
    )


def first_result(setting: Trial) -> str:
    after = f", or after {training_label(setting.seconds)} of training"
    return f"at step {FEW}{'' if setting.seconds == FEW_STEPS else after}"


def bands(data: study.Result) -> str:
    seeds = len({one.seed for one in data.learned})
    if seeds == 1:
        return ""
    return f" A line is the mean of {seeds} seeds, its band ± their standard deviation."


def conditions(data: study.Result, here: bool) -> str:
    task = (
        f"English number words to German, at most {data.setting.longest} words, 20,000 training pairs; the same "
        "bidirectional GRU in each model, AdamW, batches of 64"
    )
    scored = (
        f"Each model is scored on {max((one.held_out for one in data.learned), default=0):,} held-out sentences, "
        "which it translates word by word without help."
    )
    labels = names(data.learned)
    if here:
        spent = ", ".join(
            f"{labels[one.model]} {plural(one.points[-1].step, 'step')} in {duration(one.points[-1].seconds)}"
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
        f"{labels[model]} {duration(seconds)}" for model, seconds in data.seconds.items()
    )
    return (
        f"Controls by `make bottleneck`: {task}, {steps} steps each. {scored}{bands(data)} "
        f"Processor time of a run, with measuring: {spent}; {data.machine}."
    )


def progress(name: str, last: Record, controls: Trial) -> tuple[float, str]:
    if controls.seconds == FEW_STEPS:
        return min(1.0, last.step / FEW), f"{name}: step {last.step} of {FEW}"
    spent = min(last.train_seconds, controls.seconds)  # the last step may end later
    reached = f"starts; its result comes {first_result(controls)}"
    if last.step:
        reached = f"step {last.step:,}, {spent:.0f} of {controls.seconds:g} s"
    return spent / controls.seconds, f"{name}: {reached}"


def safe(word: str) -> str:
    """A word as LaTeX may have it."""
    return "".join(sign for sign in word if sign.isalnum() or sign == ";")


def equations(setting: Trial, sentence: Sentence, weights: np.ndarray, row: int) -> tuple[str, str]:
    """The context of an output without attention and with it, its largest weights written out."""

    last, outputs = len(sentence.source) - 1, len(sentence.target)
    top = np.argsort(-weights[row])[:3]
    terms = [
        rf"{latex(weights[row, key])}\, h_{{{key}}}^{{\text{{{safe(sentence.source[key])}}}}}"
        for key in sorted(top)
    ]
    if (rest := 1 - float(weights[row, top].sum())) >= 0.005:
        terms.append(rf"{latex(rest)}\,(\text{{rest}})")
    word = safe((*sentence.target, "end")[row])
    context = rf"c_{{{row}}}^{{\text{{{word}}}}} &= \sum_i \alpha_{{{row},i}}\, h_i"
    summed = r" \\ &\quad + ".join(terms)  # one a line: the column is narrow
    return (
        rf"c_0 = c_1 = \dots = c_{{{outputs}}} = [\overrightarrow{{h}}_{{{last}}};\, \overleftarrow{{h}}_0] "
        rf"\in \mathbb{{R}}^{{{setting.d_model}}}"
    ), rf"\begin{{aligned}} {context} \\ &= {summed} \end{{aligned}}"


def meeting_text(met: study.Meeting) -> str:
    """Whose query meets whose keys, and what it takes, in one sentence of numbers."""
    return (
        f"At step **{met.step}**, the query of :primary[{plain(met.word)}], from the decoder, scores "
        f"**{number(met.scores[met.best])}** with the key of “{plain(met.words[met.best])}”, from the encoder, and takes "
        f"**{share_text(float(met.weights[met.best]))}** of its value: **cross-attention**."
    )


def meeting_equation(met: study.Meeting, score: str) -> str:
    """The same in numbers: query, key and value, score, weight, and the sum that the output word takes."""
    at = met.best
    name, key = (rf"\text{{{safe(word)}}}" for word in (met.word, met.words[at]))
    product, scored = r"\mathrm{score}(q, k)", latex(met.scores[at])
    if score == "dot":
        first = rf"{latex_signed(met.query[0])} \cdot {latex_signed(met.keys[at, 0])}"
        product, scored = r"q \cdot k", rf"{first} + \dots = {scored}"
    lines = (
        rf"q_{{{name}}} &= {listed(met.query.tolist(), 1)}",
        rf"k_{{{key}}} &= v_{{{key}}} = {listed(met.keys[at].tolist(), 1)}",
        rf"{product} &= {scored}",
        rf"w &= e^{{{latex(met.scores[at])}}} / \textstyle\sum_j e^{{s_j}} = {latex(met.weights[at])}",
        rf"\textstyle\sum_j w_j v_j &= {listed(met.taken.tolist(), 1)}",
    )
    return r"\begin{aligned} " + r" \\ ".join(lines) + r" \end{aligned}"


def meeting_chart(met: study.Meeting, name: str, ink: Ink) -> Spec:
    """A bar for each English word: its score or its weight, with the largest weight in the accent."""
    rows = [
        {
            "at": at,
            "word": word,
            "y": float(value),
            "fill": ink.pick if at == met.best else ink.series[0],
        }
        for at, (word, value) in enumerate(zip(met.words, getattr(met, f"{name}s"), strict=True))
    ]
    axis = axis_style(ink) | {
        "labelAngle": -90,
        "labelOverlap": False,
        "grid": False,
        "labelPadding": 3,
    }
    axis |= {"labelColor": ink.text, "labelExpr": f"{json.dumps(met.words)}[datum.value]"}
    lower = name == "weight"  # whose words are for both
    axis |= {"labels": lower}
    y = field("y", None, axis=axis_style(ink) | {"tickCount": 3, "minExtent": 32})
    bars = {
        "x": {"field": "at", "type": "ordinal", "title": None, "axis": axis},
        "y": y | {"scale": {"domain": [0, 1]} if lower else {"zero": True}},
        "color": literal("fill"),
        "tooltip": [
            {"field": "word", "title": " "},
            {"field": "y", "title": name, "format": ".3~f"},
        ],
    }
    named = table_columns({"word": "English word", "y": name})
    return plain_figure([layer("bar", rows, bars, cornerRadius=2)], 170 if lower else 100) | named


MEETING = """
import altair as alt
import pandas as pd

words = [f"{{at}} {{word}}" for at, word in enumerate(meeting.words)]
rows = pd.DataFrame({{"word": words, "{0}": meeting.{0}s}})
alt.Chart(rows).mark_bar().encode(x=alt.X("word", sort=None), y="{0}")
"""


def sentence_table(sentence: Sentence, labels: Mapping[Model, str], pick: str, line: str) -> str:
    source, target = sentence.source, sentence.target
    return html_table(
        ("", "sentence", "wrong or missing"),
        [
            ("source", " ".join(source), ""),
            ("target", " ".join(target), ""),
            *(
                (
                    labels[model],
                    marked(Prediction(source, target, output), " ", pick),
                    f"{sum(wrong) + missing}",
                )
                for model, output in sentence.outputs.items()
                for wrong, missing in [mistakes(target, output)]
            ),
        ],
        line,
        ("white-space:nowrap", "", RIGHT),
    )


def numbers(learned: Sequence[TrainedModel], lengths: Sequence[str]) -> list[list[str]]:
    return [
        [
            label,
            *(
                written(
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


SCORES = """
import altair as alt
import pandas as pd

rows = pd.DataFrame([{"model": model, "words": words, "score": score}
                     for model, each in scores.items() for words, score in each.items()])
alt.Chart(rows).mark_line(point=True).encode(x=alt.X("words", sort=None), y="score", color="model")
"""


def map_cell(sentence: Sentence, step: int, name: str) -> Cell:
    return Cell(
        f"The attention of one long sentence at step {step}: a row for each output word.",
        f"""
sentence, step = result.sentence, {step}
weights = dict(sentence.frames)[step]  # (T, S)
""",
        """
from dashboard.show import show_maps

show_maps({f"Step {step}": weights}, [*sentence.target, "<eos>"], sentence.source)
""",
        f"why:map:{name}",
        {"weights": dict(sentence.frames)[step]},
    )


def lines_of(learned: Sequence[TrainedModel], metric: str, clock: str = "") -> list[Line]:
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


# Quality against the source's length and against training time, as Vega-Lite whose rows alone change.


def figure(title: str, x: Spec, x_tip: Spec, unit: str, theme: Theme) -> Spec:
    indices = [str(index) for index in range(len(SHAPES))]
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, TOP], "nice": False},
        "axis": {"values": [0, 25, 50, 75, 100]},
    }
    shape = series_encoding("place", indices, SHAPES)
    both = {
        "x": x,
        "y": y,
        "color": series_encoding("place", indices, CATEGORIES[theme][: len(SHAPES)]),
    }
    return titled_figure(
        title,
        [
            filtered_layer(
                "point",
                "errorband",
                {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                opacity=0.16,
                interpolate="linear",
            ),
            filtered_layer("point", "line", both, strokeWidth=2),
            filtered_layer(
                "point", "point", {**both, "shape": shape}, filled=True, size=34, opacity=1
            ),
            filtered_layer(
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
            filtered_layer(
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
        Ink.of(theme),
        **right_margin(4),
    )


def rows(lines: Sequence[Line]) -> list[Spec]:
    """The data of either figure: kind, model, index, x or the name of a range, mean, low, high and std."""
    lines = [line for line in lines if line[2]]
    heights = separate([points[-1][1].mean / TOP for _, _, points in lines])
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
