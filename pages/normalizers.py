"""Normalizers: the same scores through every rule that turns scores into weights."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import AXES, Choice, Softmax, entry
from core.attention.normalizers import Entmax, Hard, Sigmoid, Sink, TopK
from core.entries import refuse_if
from core.studies.scores import (
    RowWeights,
    Scores,
    example,
    normalize_row,
    normalizer_of,
    sweep,
)

# The page's controls: typed scores, their factor, the temperature, and the key that is picked.


MAX_SCORES, LARGEST = 32, 1e4
NAMES = {item.key: item.name for item in AXES["normalizer"]}
BASELINE = "softmax"
MAX_CURVES = 4
USUAL = "softmax", "sink", "sigmoid", "sparsemax"
MAX_PILLS = 12  # keys; with more their names fit neither in pills nor under the bars
MASKED = "x"
TEMPERATURE = "temperature"
SINK = entry("normalizer", "sink")
# the sink starts at 1 on this page
START: Any = replace(next(one for one in SINK.params if one.key == "start"), default=1.0)
key = "normalizers:{}".format  # a widget's key, which is also its name in the link


# The list of keys: pills, or where these do not fit, a list that opens.
KEY: dict[str, Any] = {
    "key": "key",
    "text": lab.plain,
    "help": "The key whose weight the equation and the curves show.",
}


class Controls(lab.Fields, page="normalizers"):
    scores = lab.Text(
        "Scores of one query",
        lambda _: write(example()[2]),
        span=2,
        help=f"Type numbers with commas between them, and {MASKED} for a masked key.",
    )
    spread = lab.SelectSlider(
        "Scores times",
        [0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
        1.0,
        help="Every score is multiplied by this number first.",
    )
    temperature = lab.SelectSlider(
        "Temperature τ",
        [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0],
        1.0,
        help="Normalizers with a temperature divide the scores by it. A small temperature makes the "
        "largest weight larger.",
    )
    sink = lab.Number(
        f"{SINK.name} b",
        START.default,
        START.low,
        START.high,
        START.step,
        slider=True,
        help=START.help,
    )
    pill = lab.Segmented(
        "Key",
        lambda values: values.names,
        lambda values: values.names[values.largest],
        pills=True,
        **KEY,
    ).optional(lambda values: len(values.names) <= MAX_PILLS)
    item = lab.Select(
        "Key",
        lambda values: values.names,
        lambda values: values.names[values.largest],
        also=lambda _: {"width": lab.room(260)},
        **KEY,
    ).optional(lambda values: len(values.names) > MAX_PILLS)
    equation = lab.Select(
        "Equation of",
        NAMES,
        BASELINE,
        also=lambda _: {"width": lab.room(170)},
        help="The normalizer whose formula is shown, with the picked key's numbers.",
    )
    curves = lab.MultiSelect(
        f"Up to {MAX_CURVES} normalizers",
        NAMES,
        USUAL,
        max_options=MAX_CURVES,
        help="Each is a figure above and a curve below.",
    )


def own_widgets(normalizer: str) -> dict[str, str]:
    """The parameters of a normalizer that have a field of this page."""
    names = {param.key for param in entry("normalizer", normalizer).params}
    fields = {TEMPERATURE: TEMPERATURE} if TEMPERATURE in names else {}
    return fields | {"start": "sink"} if normalizer == SINK.key else fields


def draw_controls() -> lab.Values:
    """Draw the controls; ConfigError when the scores cannot be read.

    `scaled` are the scores as they go into the normalizers, `picked` a key's index.
    """
    values = Controls.draw("scores", "spread", "temperature")
    scores = parse(values.scores)
    tokens, _, first = example()
    numbered = [f"key {at}" for at in range(len(scores))]
    names = tokens if len(scores) == len(tokens) else tuple(numbered)
    top = max(
        range(len(scores)), key=lambda at: -math.inf if (score := scores[at]) is None else score
    )
    picked = Controls.draw("pill", "item", into=lab.HERE, names=names, largest=top)
    name = picked.pill or picked.item
    factor = values.spread
    # under the picture, and before it in this run, as it has what the picture is drawn from
    picture = st.container()
    with lab.settings_panel("Choose normalizers"):
        chosen = Controls.draw("curves", "sink", into=lab.HERE)
        lab.params_panel(
            "normalizer", key=key("params"), exclude=lambda name: (*own_widgets(name),)
        )
    shared = {**values, **chosen}
    choices = [
        Choice.of(
            item.key,
            **lab.params_in_session(item, key=key("params"))
            | {name: shared[field] for name, field in own_widgets(item.key).items()},
        )
        for item in AXES["normalizer"]
    ]
    return lab.Values(
        values,
        scores=scores,
        names=names,
        own=scores != first,
        picture=picture,
        shown=chosen.curves,
        factor=factor,
        scaled=tuple(None if score is None else score * factor for score in scores),
        choices=tuple(choices),
        picked=names.index(name) if name in names else top,
    )


def parse(text: str) -> Scores:
    """Numbers separated by commas, x for a masked key; ConfigError names the first that is neither."""
    parts = [part.strip() for part in text.replace("−", "-").split(",")]
    if not parts[-1]:
        parts.pop()  # a comma at the end is a list that is still being typed
    refuse_if(
        not parts,
        f"There is no score here. Type numbers with commas between them; {MASKED} masks a key.",
    )
    refuse_if(
        len(parts) > MAX_SCORES,
        f"There are {len(parts)} scores; this page draws at most {MAX_SCORES}.",
    )
    scores: list[float | None] = []
    for index, part in enumerate(parts):
        try:
            score = None if part.lower() == MASKED else float(part)
        except ValueError:
            score = math.nan
        quoted = f"“{part[:20]}”" if part else "empty"
        refuse_if(
            score is not None and not abs(score) <= LARGEST,
            f"Score {index}, {quoted}, is not a number from −{LARGEST:,.0f} to {LARGEST:,.0f}; "
            f"write numbers with commas between them, and {MASKED} for a masked key.",
        )
        scores.append(score)
    return tuple(scores)


def write(scores: Scores) -> str:
    return ", ".join(MASKED if score is None else f"{score:.2f}" for score in scores)


# A row of weights as bars, one small figure a normalizer, in plain HTML: it shows as soon as the text does.


NO_KEY = "no key"
LABEL_HEIGHT = 0.17  # of that of the bars
MIN_UNASSIGNED = 5e-3  # a smaller weight, which two decimals would not show, is not drawn

STYLE = """<style>
.nb{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:20px 16px;--hair:color-mix(in srgb,
  currentColor 10%,transparent);--quiet:color-mix(in srgb,currentColor 62%,transparent)}
.nb .figure{margin:0;min-width:0;display:flex;flex-direction:column}
.nb .title{font-size:14px;line-height:18px;font-weight:600;margin-bottom:18px}
.nb small{display:block;font-size:12px;line-height:16px;font-weight:400;color:var(--quiet);overflow-wrap:anywhere}
.nb .bars{display:flex;gap:3px;height:84px;flex:none;margin-top:auto;border-bottom:1px solid var(--hair)}
.nb .bar{flex:1;position:relative;min-width:2px}
.nb .bar i{position:absolute;left:0;right:0;bottom:0;border-radius:2px 2px 0 0;background:var(--ink)}
.nb .bar b{position:absolute;left:-12px;right:-12px;text-align:center;font-size:12px;line-height:14px;font-weight:400}
.nb .none i{background:none;border:1px dashed var(--quiet);border-bottom:0;box-sizing:border-box}
.nb .masked{background:repeating-linear-gradient(45deg,var(--hair) 0 1px,transparent 1px 5px)}
.nb .names{display:flex;gap:3px;height:54px;font-size:12px;line-height:1.1}
.nb .names span{flex:1;writing-mode:vertical-rl;min-width:2px;display:flex;align-items:center;max-height:52px;
  overflow:hidden;white-space:nowrap;color:var(--quiet);padding-top:4px}
.nb .names .pick,.nb .pick b{color:var(--pick);font-weight:600}
.nb .sum{font-size:12px;line-height:16px;color:var(--quiet);margin-top:2px}
</style>"""


def weights_tile(row: RowWeights, controls: lab.Values) -> str:
    """One normalizer: a bar a key from 0 to 1, and a hollow one for the weight that goes to no key."""
    weights = [
        None if score is None else float(weight)
        for score, weight in zip(controls.scores, row.weights, strict=True)
    ]
    rest = row.unassigned > MIN_UNASSIGNED
    heights = [min(max(weight or 0.0, 0.0), 1.0) for weight in [*weights, row.unassigned]]
    labels = [*controls.names, *[NO_KEY] * rest]
    top = max(range(len(weights)), key=lambda at: weights[at] or 0.0)
    named = {controls.picked, top, len(weights)}
    item = entry("normalizer", row.key)
    zeros = f" · {row.zeros} exact zero{'s' * (row.zeros > 1)}" if row.zeros else ""
    return figure(
        item.name,
        item.short,
        weights,
        [
            bar(
                labels[at],
                weight,
                (0.0, heights[at]),
                named=at in named,
                raised=sum(
                    0 < at - other < len(labels) / 4
                    and abs(heights[at] - heights[other]) < LABEL_HEIGHT
                    for other in named
                ),
                css="pick" if at == controls.picked else "none" if at == len(weights) else "",
            )
            for at, weight in enumerate([*weights, *[row.unassigned] * rest])
        ],
        labels,
        controls.picked,
        f"Σ {lab.number(row.total)}{zeros}",
    )


def scores_tile(controls: lab.Values) -> str:
    """What goes in: signed bars around the line of 0, green above and purple below."""
    values = [0.0 if score is None else score for score in controls.scaled]
    low, high = min(0.0, *values), max(0.0, *values)
    span = (high - low) or 1.0
    return figure(
        "Scores",
        "input",
        controls.scaled,
        [
            bar(
                controls.names[at],
                score,
                ((min(value, 0.0) - low) / span, (max(value, 0.0) - low) / span),
                named=at == controls.picked,
                css="pick" if at == controls.picked else "",
                style=f";background:{lab.SIGNED[lab.theme()][8 if value >= 0 else 2]};border-radius:2px",
                below=value < 0,
            )
            for at, (score, value) in enumerate(zip(controls.scaled, values, strict=True))
        ],
        controls.names,
        controls.picked,
        f"{lab.number(low)} to {lab.number(high)}",
    )


def bar(
    name: str,
    value: float | None,
    ends: tuple[float, float],
    *,
    named: bool,
    css: str,
    raised: int = 0,
    style: str = "",
    below: bool = False,
) -> str:
    """One bar between two shares of the height, hatched where the key is masked (None).

    A number is raised by so many lines, where it would cover those of bars before it.
    """
    low, high = (100 * end for end in ends)
    value_text = "masked" if value is None else lab.number(value)
    edge = f"{low:.1f}% - 15px" if below else f"{high:.1f}% + {1 + 13 * raised}px"
    text = f'<b style="bottom:calc({edge})">{value_text}</b>' if named and value is not None else ""
    return (
        f'<div class="bar {"masked " * (value is None)}{css}" title="{escape(name)}: {value_text}">'
        f'<i style="bottom:{low:.1f}%;height:{high - low:.1f}%{style}"></i>{text}</div>'
    )


def figure(
    title: str,
    note: str,
    values: Sequence[float | None],
    bars: Sequence[str],
    names: Sequence[str],
    picked: int,
    foot: str,
) -> str:
    parts = [
        f"{name} {'masked' if value is None else lab.number(value)}"
        for name, value in zip(names, values, strict=False)
    ]
    under = "".join(
        f"<span class='{'pick' if at == picked else ''}'>{escape(name)}</span>"
        for at, name in enumerate(names)
    )
    below = (
        f'<div class="names" aria-hidden="true">{under}</div>'
        if len(names) <= MAX_PILLS + 1
        else ""
    )
    description = escape(f"{title}: {', '.join(parts)}; {foot}")
    return (
        f'<div class="figure" role="img" aria-label="{description}">'
        f'<div class="title">{escape(title)}<small>{escape(note)}</small></div>'
        f'<div class="bars">{"".join(bars)}</div>{below}<div class="sum">{escape(foot)}</div></div>'
    )


# What the page computes as Python.


def script(controls: lab.Values, rows: Sequence[RowWeights]) -> lab.Script:
    picked = [choice for choice in controls.choices if choice.key in controls.shown]
    cells = (
        lab.Cell(
            "The same scores through every normalizer, in double precision.",
            f"""
from core.attention import Choice
from core.studies.scores import normalize_row

choices = {lab.source_of(list(controls.choices))}
names = {lab.source_of(controls.names)}
scores, factor = {lab.source_of(controls.scores)}, {controls.factor}  # None: masked
weights = {{choice.key: normalize_row(choice, scores, factor).weights for choice in choices}}
for key, each in weights.items():
    print(key, dict(zip(names, each.tolist())), "to no key:", 1 - each.sum())
""",
            results={"list(weights.values())": np.stack([each.weights for each in rows])},
        ),
        lab.Cell(
            "The weight of one key as its score runs from −6 to 6, or as far as its own lies, while the others stay.",
            f"""
from core.studies.scores import sweep

picked = {controls.picked}  # {controls.names[controls.picked]!r}
curves = {{choice.key: sweep(choice, scores, factor, picked) for choice in choices
          if choice.key in {lab.source_of([choice.key for choice in picked])}}}  # (score, weight)
""",
            """
import altair as alt
import pandas as pd

points = pd.DataFrame([(key, *point) for key, curve in curves.items() for point in curve],
                      columns=["normalizer", "score", "weight"])
alt.Chart(points).mark_line().encode(x="score", y="weight", color="normalizer")
""",
            "normalizers:chart",
            {
                "list(curves.values())": [
                    lab.cached(sweep, choice, controls.scores, controls.factor, controls.picked)
                    for choice in picked
                ]
            },
        ),
    )
    return lab.Script(cells if picked else cells[:1])


# Sentences, equations and table cells of the page Normalizers.


WRITTEN = (Softmax, TopK, Sink, Sigmoid, Entmax, Hard)  # the equations that have numbers


def fact_text(results: Sequence[RowWeights], scores: Scores) -> str:
    visible = sum(score is not None for score in scores)
    if not visible:
        return "Every key is masked, so every normalizer gives weights of 0, and no score has a gradient."
    softmax = next((each for each in results if each.key == BASELINE), results[0])
    soft = [each for each in results if "hard" not in entry("normalizer", each.key).traits]
    sparse = max(soft, key=lambda each: each.zeros)
    rest = ", ".join(
        f"**{lab.number(each.unassigned)}** with {label(each, False)}"
        for each in results
        if each.unassigned > MIN_UNASSIGNED
    )
    zeros = (
        f"{label(sparse)} gives **{sparse.zeros} of {visible}** keys a weight of exactly 0; "
        f"{label(softmax, False)} gives {softmax.zeros or 'none'} a weight of 0."
        if sparse.zeros
        else "No soft normalizer here gives a key a weight of exactly 0."
    )
    return f"{zeros} Weight that goes to no key: {rest}." if rest else zeros


def snippet(choice: Choice, scores: Scores) -> str:
    values = ", ".join("0.0" if score is None else f"{score:g}" for score in scores)
    mask = ", ".join(str(score is not None) for score in scores)
    return (
        "import torch\nfrom core.attention import AttentionConfig, Choice, entry\n\n"
        f"choice = {lab.source_of(choice)}\n"
        'normalizer = entry("normalizer", choice.key).build(AttentionConfig(2, 1, normalizer=choice))\n'
        f"weights = normalizer(torch.tensor([[[[{values}]]]]), torch.tensor([{mask}]))\nprint(weights)\n"
    )


def label(row: RowWeights, first: bool = True) -> str:
    return lab.plain(NAMES[row.key] if first else lab.lower_name(NAMES[row.key]))


def equation(row: RowWeights, names: Sequence[str], j: int, colour: str) -> tuple[str, ...]:
    left = lab.coloured(rf"w_{{{lab.latex_name(names[j], j)}}}", colour)
    result = lab.coloured(rf"\mathbf{{{lab.latex(float(row.weights[j]))}}}", colour)
    live = " = ".join(filter(None, (left, numbers(row, j), result)))
    return entry("normalizer", row.key).latex, live


def numbers(row: RowWeights, j: int) -> str:
    normalizer, score = row.normalizer, lab.latex(float(row.prepared[j]))
    nonzero = [int(m) for m in np.flatnonzero(row.weights)]
    if nonzero and isinstance(normalizer, Hard):
        return rf"[\,{score} = \max_m s_m = {lab.latex(float(row.prepared[nonzero].max()))}\,]"
    if nonzero and isinstance(normalizer, Entmax):
        top, step = int(row.weights.argmax()), normalizer.alpha - 1.0
        threshold = step * row.prepared[top] - row.weights[top] ** step
        outside = "" if step == 1 else f"^{{{lab.latex(1 / step)}}}"
        scaled = lab.latex(float(step * row.prepared[j]))
        return rf"\max({scaled} - {lab.latex_signed(float(threshold))},\ 0){outside}"
    if j not in nonzero or not isinstance(normalizer, WRITTEN):
        return ""
    if isinstance(normalizer, Sigmoid):
        return rf"\sigma({score})"
    # e^s over a sum of such powers, of which four are written
    largest = sorted(sorted(nonzero, key=lambda m: (m != j, -row.prepared[m]))[:4])
    below = [f"e^{{{lab.latex(float(row.prepared[m]))}}}" for m in largest]
    if isinstance(normalizer, Sink):
        rest = 0.0 if normalizer.sink is None else float(normalizer.sink.detach().max())
        below.insert(0, "1" if rest == 0 else f"e^{{{lab.latex(rest)}}}")
    if len(largest) < len(nonzero):
        below.append(r"\cdots")
    return rf"\frac{{e^{{{score}}}}}{{{' + '.join(below)}}}"


# The page: the same scores as bars through each normalizer, one equation, the table, curves of weight, and sources.


def page() -> None:
    st.html(STYLE)
    lab.title(
        "Normalizers", "A normalizer turns scores into weights. Here each gets the same scores."
    )
    lab.take_built("normalizers", adopt, axes=("normalizer",))
    explore()


def adopt(built: lab.Built) -> None:
    """Draw the normalizer that was built elsewhere first, and write its equation."""
    choice = built.get("normalizer", Choice(BASELINE))
    own, shown = own_widgets(choice.key), dict.fromkeys([choice.key, *USUAL])
    st.session_state.update(
        {key(own.get(name, f"params:{choice.key}:{name}")): value for name, value in choice.params}
        | {key("equation"): choice.key, key("curves"): list(shown)[:MAX_CURVES]}
    )


@lab.fragment
@lab.shown_errors()
def explore() -> None:
    controls = draw_controls()
    rows = [
        lab.cached(normalize_row, choice, controls.scores, controls.factor)
        for choice in controls.choices
    ]
    shown = [row for row in rows if row.key in controls.shown]
    with controls.picture:
        bars(controls, shown)
        lab.fact(
            fact_text([row for row in rows if row in shown or row.key == BASELINE], controls.scores)
        )
        lab.draw_equation(
            Controls,
            "normalizer",
            dict(zip(controls.choices, rows, strict=True)),
            lambda row: equation(
                row, controls.names, controls.picked, lab.Ink.of(lab.theme()).pick
            ),
        )
    curves(controls, rows)
    lab.details(f"All {len(rows)} normalizers", partial(everything, controls, rows), key("all"))
    sources = partial(
        lab.equation_sources,
        Controls,
        "normalizer",
        controls.choices,
        normalizer_of,
        partial(snippet, scores=controls.scaled),
    )
    lab.details("Equations, papers and the code that just ran", sources, key("sources"))


def bars(controls: lab.Values, rows: Sequence[RowWeights]) -> None:
    tiles = [scores_tile(controls), *(weights_tile(row, controls) for row in rows)]
    # STYLE is a separate element, which never changes
    colours = f"--ink:{lab.WEIGHTS[lab.theme()][5]};--pick:{lab.PICK[lab.theme()]}"
    st.html(f'<div class="nb" style="{colours}">{"".join(tiles)}</div>')


def everything(controls: lab.Values, rows: Sequence[RowWeights]) -> None:
    bars(controls, rows)
    lab.table(
        (
            "normalizer",
            "sum of weights",
            "to no key",
            "weights of 0",
            "entropy",
            "largest weight",
            "scores with gradient",
        ),
        [
            [
                entry("normalizer", each.key).name,
                lab.number(each.total),
                lab.number(each.unassigned) if each.unassigned > lab.NOISE else "–",
                str(each.zeros),
                lab.number(each.entropy),
                lab.number(float(each.weights.max())),
                str(each.learning),
            ]
            for each in rows
        ],
        caption="What each normalizer's weights measure",
        markers=False,
    )
    given = (
        f"These are the scaled dot-product scores of the query {lab.plain(example()[1])}, with "
        "head dimension 16 and seed 126."
    )
    where = "You typed these scores." if controls.own else given
    times = f" They are multiplied by {controls.factor:g} first." if controls.factor != 1 else ""
    hard = [label(each) for each in rows if each.learning and isinstance(each.normalizer, Hard)]
    borrowed = f" {' and '.join(hard)} trains with the gradient of softmax: its own is zero."
    lab.caption(
        f"{where}{times} Temperature τ = {controls.temperature:g}. A dashed bar is weight that goes to {NO_KEY}, "
        f"from {MIN_UNASSIGNED:g} on. Entropy is in nats. A score has a gradient if training changes it."
        f"{borrowed if hard else ''}",
    )


def curves(controls: lab.Values, rows: Sequence[RowWeights]) -> None:
    st.markdown("## Weight against score")
    lab.add_script(partial(script, controls, rows))
    series = [
        lab.Curve(
            NAMES[choice.key],
            lab.cached(sweep, choice, controls.scores, controls.factor, controls.picked),
        )
        for choice in controls.choices
        if choice.key in controls.shown
    ]
    if not series:
        st.info("Pick a normalizer to see its curve.", icon=":material/show_chart:")
        return
    points = series[0].points
    st.markdown(
        f"**Weight of “{lab.plain(controls.names[controls.picked])}”**, while the other scores stay the same"
    )
    lab.draw_chart(
        st,
        lab.fixed_chart(
            [curve.name for curve in series],
            "score of this key",
            points[0][0],
            points[-1][0],
            lab.Ink.of(lab.theme()),
        ),
        lab.curve_rows(series, controls.scaled[controls.picked]),
        theme=None,
        key=key("chart"),
        alt="The weight of one key as its score rises",
    )
