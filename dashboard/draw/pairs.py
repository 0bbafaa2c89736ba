"""Many pairs: the grid of heads, a head at each token, the table of all ways, and the sentences of numbers."""

from collections.abc import Sequence

import numpy as np

from core.interpret import pairs as study
from core.interpret.corpus import CONFIDENCE
from core.interpret.interventions import BY_KEY
from dashboard.draw.components import Cell
from dashboard.draw.figures import Spec
from dashboard.draw.formats import number, percent, plain, plural, signed, written

HEIGHT, SHOWN = 260, 8
PAPERS = r"""**Contrast pairs** — a text and another that differs in what decides, as for the indirect object (IOI).
[Wang et al. 2023](https://arxiv.org/abs/2211.00593)

**Which text and which measure** — how the choice of the corrupted text changes what is found.
[Zhang and Nanda 2024](https://arxiv.org/abs/2309.16042)

**The interval** — Student's t over the pairs of a file: $\bar{x} \pm t_{n-1}\,s/\sqrt{n}$. Pairs of a template share its
words: each word is left out once, and the variances of both lists are added up.
[MacKinnon, Nielsen and Webb 2024](https://arxiv.org/abs/2406.08880)"""
QUANTITIES: dict[study.PairQuantity, str] = {
    "difference": "logit difference",
    "log-probability": "log-probability",
    "kl": "KL divergence",
}
TARGETS = {
    "difference": "the logit of the answer minus that of the other one",
    "log-probability": "the log-probability of the answer",
    "kl": "minus the KL divergence from the whole model’s answer to the clean text",
}
# Two of the pairs once more, in the page's script.
AGAIN = Cell(
    "The same from the model itself: two of the pairs, by one way. Leave `[:2]` out for all of them.",
    """
from core.interpret.pairs import measure_pairs
from core.pretrained import load_folder
from core.pretrained.finetune import folder_of, name_of

config = measurement.config
model = load_folder(folder_of(config.model), name_of(config.model))
again = measure_pairs(model, config.pairs[:2], config.ways[:1], config.quantity)
print(dict(zip(again.names, again.mean(config.ways[0]).round(2))))
""",
)
CHART = """
import altair as alt
import pandas as pd

way = "{way}"
rows = [{{"layer": name.split("·")[0], "head": name.split("·")[1], "effect": mean, "half": half}}
        for name, mean, half in zip(effects.names, effects.mean(way), effects.half(way))]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="head:O", y="layer:N", color="effect:Q")
"""


def places(effects: study.PairEffects) -> dict[tuple[int, int], int]:
    """The place of each head in the results, by the index of its layer and its own."""
    layers = layer_names(effects)
    return {
        (layers.index(name.partition("·")[0]), head[2]): at
        for at, (name, head) in enumerate(zip(effects.names, effects.heads, strict=True))
    }


def layer_names(effects: study.PairEffects) -> list[str]:
    return list(dict.fromkeys(name.partition("·")[0] for name in effects.names))


def grid_rows(effects: study.PairEffects, way: str) -> list[Spec]:
    means, halves = effects.mean(way), effects.half(way)
    order = np.argsort(-np.abs(means), kind="stable").tolist()
    return [
        {
            "layer": name.partition("·")[0],
            "head": str(head[2]),
            "name": name,
            "change": float(means[at]),
            "half": None if np.isnan(halves[at]) else float(halves[at]),
            "by": with_half(means[at], halves[at]),
            "share": f"{order.index(at) + 1} of {len(order)}",
        }
        for at, (name, head) in enumerate(zip(effects.names, effects.heads, strict=True))
    ]


def with_half(mean: float, half: float) -> str:
    if np.isnan(half):
        return written(signed(float(mean)), float(mean))
    text = f"{signed(float(mean))} ± {number(float(half))}"
    return written(text, {"": float(mean), " ±": float(half)})


def strongest(effects: study.PairEffects, picked: int) -> list[int]:
    """The heads with the largest mean effect by any way, and the picked one."""
    largest = np.max([np.abs(effects.mean(way)) for way in effects.effects], axis=0)
    order = np.argsort(-largest, kind="stable")[:SHOWN].tolist()
    return order if picked in order else [*order, picked]


def table(effects: study.PairEffects, picked: int) -> tuple[list[str], list[list[str]]]:
    """The head of the table of heads by all ways, and its rows."""
    values = [(effects.mean(way), effects.half(way)) for way in effects.effects]
    rows = [
        [effects.names[at], *(with_half(mean[at], half[at]) for mean, half in values)]
        for at in strongest(effects, picked)
    ]
    return ["head", *(BY_KEY[way].name for way in effects.effects)], rows


def token_rows(effects: study.PairEffects, picked: int) -> list[Spec]:
    """A cell for each of the strongest heads at each token."""
    assert effects.positions is not None
    means = effects.positions.mean(0)
    return [
        {
            "layer": effects.names[at],
            "head": token,
            "name": f"{effects.names[at]} at {token}",
            "change": float(means[at, place]),
            "by": with_half(means[at, place], half),
        }
        for at in strongest(effects, picked)
        for place, (token, half) in enumerate(
            zip(
                token_names(effects),
                effects.half_of(effects.positions[:, at]),
                strict=True,
            )
        )
    ]


def token_names(effects: study.PairEffects) -> list[str]:
    return [f"{at} {token}" for at, token in enumerate(effects.tokens)]


def fact_text(
    effects: study.PairEffects, way: str, picked: int, quantity: study.PairQuantity
) -> str:
    means, halves = effects.mean(way), effects.half(way)
    first = int(np.abs(means).argmax())
    name = f"**{effects.names[first]}**"
    if first == picked:
        name = f":primary[{name}]"
    text = (
        f"Over {plural(len(effects.pairs), 'pair')}, {name} {'helps' if means[first] > 0 else 'hurts'} the answer by "
        f"**{with_half(means[first], halves[first])}** ({BY_KEY[way].name}), the most of {len(means)} heads. "
    )
    if first != picked:
        text += (
            f":primary[**{effects.names[picked]}**]: {with_half(means[picked], halves[picked])}. "
        )
    clean, corrupted = (signed(float(one.mean())) for one in (effects.clean, effects.corrupted))
    return (
        text
        + {
            "difference": f"On the clean texts the answer leads the other by {clean}, on the corrupted ones by {corrupted}.",
            "log-probability": f"Its log-probability is {clean} on the clean texts, {corrupted} on the corrupted ones.",
            "kl": f"The corrupted texts change the model’s answer by {corrupted}.",
        }[quantity]
    )


def example_text(pair: study.Pair) -> str:
    """One of the pairs, in words."""
    return (
        f"One of them: “{plain(pair.clean)}” **{plain(pair.answer)}**; corrupted: “{plain(pair.corrupted)}” "
        f"**{plain(pair.other)}**."
    )


def sure_text(effects: study.PairEffects, way: str) -> str:
    """How many intervals leave out 0, and how many would by chance."""
    means, halves = effects.mean(way), effects.half(way)
    if np.isnan(halves).all():
        return "One pair has no interval; give more of them."
    sure = int((np.abs(means) > halves).sum())
    return (
        f"The 95 % intervals of {sure} of {len(means)} heads leave out 0; of as many heads without any effect "
        f"about {number((1 - CONFIDENCE) * len(means))} would by chance."
    )


def strongest_token(effects: study.PairEffects, picked: int) -> int:
    """The token at which a head, patched in there alone, has the largest mean effect."""
    assert effects.positions is not None
    return int(np.abs(effects.positions[:, picked].mean(0)).argmax())


def token_text(effects: study.PairEffects, picked: int) -> str:
    assert effects.positions is not None
    most = strongest_token(effects, picked)
    values = effects.positions[:, picked]
    mean, half = values.mean(0)[most], effects.half_of(values)[most]
    whole, share = float(effects.mean("patched")[picked]), ""
    if abs(whole) > 0.01:
        share = f", {percent(mean / whole)} of what it brings at all tokens at once"
    return (
        f":primary[**{effects.names[picked]}**] helps most by what it writes at token {most}, "
        f"**{plain(effects.tokens[most])}**: {with_half(mean, half)}{share}."
    )


def conditions(measurement: study.Measurement) -> str:
    effects = measurement.effects
    assert effects is not None
    words, count = [pair.words for pair in effects.pairs], len(effects.pairs)
    lists = " × ".join(str(len({*each})) for each in zip(*words, strict=False))
    interval = (
        f"by leaving out one word at a time: the {count} pairs share {lists} words, so they are not independent"
        if all(words)
        else f"by Student’s t; the unit is the pair, n = {count}"
    )
    return (
        f"Measured: {TARGETS[measurement.config.quantity]}. Above 0 the head helps the answer, by every way. Mean ± half "
        f"of its 95 % interval, {interval}. The way “mean” takes a head’s mean output over all tokens of both texts of "
        "these pairs."
    )


def progress(measurement: study.Measurement) -> tuple[float, str]:
    done, count = measurement.done, measurement.count
    if not done:
        return 0.0, "Loading the model"
    return done / count, f"{done:,} of {plural(count, 'pair')}"


def pair_rows(pairs: Sequence[study.Pair]) -> list[list[str]]:
    """The table of pairs, its head first."""
    rows = ["row", *(str(pair.line) for pair in pairs)]
    return [[row, *cells] for row, cells in zip(rows, study.to_rows(pairs), strict=True)]
