"""Sentences, equation, caption and CSV of the page Heads over a corpus."""

from __future__ import annotations

import math
import re
import time

import numpy as np

from core.corpus import Measure
from core.corpus.joint_map import JointMap
from core.corpus.measures import ABLATION, COPYING
from core.corpus.statistics import CELLS, CONFIDENCE, MOST_TOKENS
from core.interpret.trace import Head
from core.pretrained import Pretrained
from core.roles import ROLES
from dashboard.draw.formats import byte_size, latex, number, percent, signed
from dashboard.draw.picture_files import csv_file
from dashboard.views.corpus.compute import Measurement

VIEW_NOTES = {
    "strongest": "The texts with the largest values, each with the row that shows the measure most.",
    "typical": "At each tenth of all texts the one nearest to the decile, with the row nearest to its value.",
    "weakest": "The texts with the smallest values, each with the row that shows the measure least.",
}
READ_MARKS = "The query is outlined, each token has the colour of its weight"


def about(words: str, noun: str) -> str:
    """The same words about pictures, where these are what the model reads."""
    return re.sub(r"\btext(s?)\b", rf"{noun}\1", words)


def fact(measurement: Measurement, measure: Measure, head: Head) -> str:
    """The head's mean with its interval, and how its texts are distributed."""
    corpus, values = measurement.corpus, measurement.values(measure, head)
    valid = values[~np.isnan(values)]
    name, mean = measurement.scores.name(head), float(corpus.mean(measure.key)[head])
    half = float(corpus.interval(measure.key)[head])
    about = f"**{number(mean)}** ± {number(half)}" if np.isfinite(half) else f"**{number(mean)}**"
    low, high = (float(np.quantile(valid, share)) for share in (0.1, 0.9))
    return (
        f":primary[**{name}**]: {_subject(measure)} {about}, the mean over {len(valid):,} texts with its "
        f"{percent(CONFIDENCE)} interval. Eight texts in ten lie between {number(low)} and {number(high)}. "
        f"{role(measurement, head)}"
    )


def _subject(measure: Measure) -> str:
    if measure.role is not None:
        if measure.role.targets is None:
            return "the share of its keys that it uses is"
        weight = f"its weight on {measure.role.attends_to}"
        return f"{weight}, is" if "," in weight else f"{weight} is"
    return f"its {in_sentence(measure)} is"


def in_sentence(measure: Measure) -> str:
    """The measure's name inside a sentence: entropy, OV copying."""
    return (
        measure.name
        if measure.name[:2].isupper()
        else f"{measure.name[0].lower()}{measure.name[1:]}"
    )


def role(measurement: Measurement, head: Head) -> str:
    """The head's role over all rows, beside its chance; and whether it has one."""
    scores = measurement.scores
    index = scores.head_roles.get(head)
    if index is None:
        return "It has no role: in none is it clearly above chance."
    score, chance = (float(one[index][head]) for one in (scores.score, scores.chance))
    baseline = "shuffled keys" if ROLES[index].targets else "random scores"
    return (
        f"Its role is {ROLES[index].name.lower()}: {number(score)} over {scores.rows[index]:,} rows, where "
        f"{baseline} would give {number(chance)}."
    )


def equation(measurement: Measurement, measure: Measure, head: Head) -> str:
    """The mean and its 95 % interval, with the head's numbers."""
    corpus = measurement.corpus
    valid = int((~np.isnan(measurement.values(measure, head))).sum())
    mean, half = (float(values(measure.key)[head]) for values in (corpus.mean, corpus.interval))
    return (
        r"\bar{x} \pm t_{n-1}\,\frac{s}{\sqrt{n}}"
        rf" = {latex(mean)} \pm {latex(half)}, \qquad n = {valid}"
    )


def failing(measurement: Measurement, measure: Measure, head: Head) -> str:
    """How often a role fails: the texts in which more weight lies elsewhere than on the expected keys."""
    values = measurement.values(measure, head)
    valid = values[~np.isnan(values)]
    below = int((valid < 0.5).sum())
    if measure.role is None or measure.role.targets is None:
        return ""
    return (
        f"In {below:,} of {len(valid):,} texts the head puts less than half of its weight on "
        f"{measure.role.attends_to}. "
    )


def view_note(view: str, measurement: Measurement, measure: Measure, head: Head) -> str:
    """What the table of texts shows."""
    expected = (
        ", and the keys that the role expects are underlined"
        if measure.role and measure.role.targets
        else ""
    )
    before = failing(measurement, measure, head) if view == "weakest" else ""
    return f"{before}{VIEW_NOTES[view]} {READ_MARKS}{expected}."


def map_note(points: JointMap, name: str, tokens: int, texts: int, near: float) -> str:
    """What the joint map shows, and what was done to the vectors."""
    return (
        f"{tokens:,} queries and keys of {name} from the first {texts} texts, projected onto the plane in which "
        f"they vary most: it holds {percent(sum(points.share))} of their variance. The queries were multiplied by "
        f"{number(points.scale)}, the keys divided by it and moved to the mean of the queries, which changes no "
        f"weight. The correlation of nearness in the plane, −distance², with q·k is {signed(near)}."
    )


def caption(measurement: Measurement, pretrained: Pretrained, token_bytes: int) -> str:
    """Under which conditions the page's numbers hold; `token_bytes` are those of all maps of one token."""
    corpus, data = measurement.corpus, measurement.run.metadata()
    day = time.strftime("%Y-%m-%d", time.gmtime(float(data.get("created", 0))))
    kind = "causal self-attention" if measurement.config.kind == "causal" else "self-attention"
    parts = [
        f"{pretrained.name}, {kind}, {corpus.read:,} texts, measured on {day}. A measure is the mean over the "
        "rows of a text's own tokens; its mean and interval are taken over texts, which all count the same."
    ]
    if corpus.cut:
        parts.append(
            f"Of {corpus.cut:,} {'text' if corpus.cut == 1 else 'texts'} only the first {MOST_TOKENS} tokens "
            "were read."
        )
    if corpus.failed:
        noun = "text" if len(corpus.failed) == 1 else "texts"
        parts.append(f"{len(corpus.failed):,} {noun} could not be read: {corpus.error}")
    parts += data.get("notes", ())
    ablation = any(measure.key == ABLATION for measure in measurement.measures)
    most = token_bytes * (CELLS if ablation else MOST_TOKENS**2)
    parts.append(
        f"One text at a time was in memory: at most {byte_size(most)} of attention maps, and "
        f"{byte_size(_sums_bytes(measurement))} of running sums, however many texts."
    )
    if ablation:
        change = (
            "1 − cosine of the embedding"
            if pretrained.head == "none"
            else "the change of the probability of the "
        )
        parts.append(
            f"The ablation effect is {change}{'' if pretrained.head == 'none' else 'likeliest answer'}."
        )
    return " ".join(parts)


def _sums_bytes(measurement: Measurement) -> int:
    corpus = measurement.corpus
    assert corpus.means is not None and corpus.roles is not None
    return sum(
        array.nbytes for part in (corpus.means, corpus.roles) for array in vars(part).values()
    )


def not_measured(measure: Measure, measurement: Measurement) -> str:
    """Why a measure has no values, and what would give some."""
    if measure.key == ABLATION and not measurement.config.ablation:
        return f"{measure.name} was not measured here. Turn on “Switch heads off” in Corpus, and measure again."
    if measure.key == ABLATION:
        return f"{measure.name} has no values: the model answers none of these texts, as one that fills masks."
    if measure == COPYING:
        return (
            f"{measure.name} has no values: this model reads and writes no tokens, or has no matrices of single "
            "heads."
        )
    return f"{measure.name} has no values: none of these texts can show it."


def progress(measurement: Measurement) -> tuple[float, str]:
    """How far a measurement is, and how long the rest takes at this rate."""
    done, count = measurement.corpus.texts, measurement.count
    if not done:
        return 0.0, "Loading the model"
    left = math.ceil(measurement.corpus.seconds * (count - done))
    return done / max(count, 1), f"{done:,} of {count:,} texts; about {left:,} s left"


def to_csv(measurement: Measurement) -> bytes:
    """Every measure of every head as a table: the mean, half of its interval, and the number of texts."""
    corpus, roles, rows = measurement.corpus, measurement.scores.head_roles, list[list[object]]()
    for name, head in measurement.heads.items():
        role_name = ROLES[roles[head]].key if head in roles else ""
        for measure in measurement.measures:
            mean, half = corpus.mean(measure.key)[head], corpus.interval(measure.key)[head]
            if not np.isnan(mean):
                rows.append(
                    [
                        name,
                        measure.key,
                        f"{mean:.6f}",
                        f"{half:.6f}",
                        corpus.texts_of(measure.key)[head],
                        role_name,
                    ]
                )
    return csv_file(
        ["head", "measure", "mean", "half_of_95_percent_interval", "texts", "role"], rows
    )
