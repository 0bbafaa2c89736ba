"""Sentences, equation, table and CSV of the view Syntax."""

from __future__ import annotations

from core.interpret.syntax import RelationScore
from core.interpret.trace import Head
from dashboard.draw.formats import number, percent, plain
from dashboard.draw.picture_files import csv_file
from dashboard.views.head_roles.syntax.compute import CHOICES, NAMES, Interval, SyntaxResult

TABLE_HEAD = (
    "relation",
    "instances",
    "best head",
    "accuracy",
    "95 % interval",
    "best offset",
    "its accuracy",
)


def fact(result: SyntaxResult, score: RelationScore, head: Head) -> str:
    """The accuracy of a head, of the best offset, and of the best head on sentences that did not pick it."""
    source, target = _ends(score)
    own = Interval.of(score.hits[head])
    offset = float(score.offset_hits.mean(-1).max())
    best = Interval.of(score.held_out[1])
    return (
        f"From the {source}, the word to which :primary[**{result.readings.name(head)}**] attends most is the "
        f"**{target}** in **{percent(own.share)}** of {own.count} cases. The best fixed offset, the word "
        f"{_offset(score.best_offset)}, is right in {percent(offset)}. Chosen on one half of the sentences and "
        f"measured on the other, the best head reaches **{percent(best.share)}**, {_interval(best)}."
    )


def equation(score: RelationScore, head: Head) -> str:
    """The weight between two words, and the accuracy of the head with its numbers."""
    hits = int(score.hits[head].sum())
    return (
        r"a_{uw} = \frac{1}{|u|}\sum_{i \in u}\ \sum_{j \in w} a_{ij} \qquad "
        r"\frac{1}{|Q|}\sum_{u \in Q} \left[\arg\max_{w \neq u} a_{uw} \in T_u\right] = "
        rf"\frac{{{hits}}}{{{score.count}}} = {number(hits / score.count)}"
    )


def caption(result: SyntaxResult, score: RelationScore, model: str, own: bool) -> str:
    """Under which conditions the numbers of the view hold."""
    readings = result.readings
    source, target = _ends(score)
    which = "annotated by hand for this page" if own else "of your file"
    heads = sum(readings.heads)
    line = (
        f"{model}, {len(readings.sentences)} sentences {which}. Q are the {score.count} instances of the {source}; "
        f"T is its {target}. A word's weight is the sum over its tokens as a key and their mean as a query. "
        "Special tokens and the word itself are left out. The grid shows accuracy on all sentences, faint where "
        f"the best fixed offset is at least as good. The best of {heads} heads would be chosen on the sentences "
        "that measure it; so the table chooses head and offset on the even sentences, measures them on the odd "
        "ones, and the other way round. The interval is Wilson's."
    )
    if readings.kind == "causal":
        line += " A causal model attends only to earlier words, so only these are asked for."
    if readings.left_out:
        line += (
            f" {readings.left_out} sentences are left out: the model knows too few of their words, or cuts "
            "them."
        )
    return line


def table_rows(result: SyntaxResult) -> list[list[str]]:
    """A row a relation and direction: the heads chosen on either half, their accuracy and that of the best offset."""
    rows = []
    for name, score in zip(NAMES, result.scores, strict=True):
        if score is None:
            rows.append([name, "fewer than 10", *"–––––"])
            continue
        heads, hits = score.held_out
        best = Interval.of(hits)
        rows.append(
            [
                name,
                str(score.count),
                ", ".join(dict.fromkeys(map(result.readings.name, heads))),
                percent(best.share),
                f"{percent(best.low)} to {percent(best.high)}",
                _offset(score.best_offset),
                percent(float(score.offset_held_out.mean())),
            ]
        )
    return rows


def to_csv(result: SyntaxResult) -> bytes:
    """Every head in every relation: hits, instances, accuracy on all sentences."""
    return csv_file(
        ["layer", "head", "relation", "direction", "hits", "instances", "accuracy"],
        [
            [
                result.readings.numbers[head[0]],
                head[1],
                relation.key,
                "reverse" if reverse else "forward",
                int(score.hits[head].sum()),
                score.count,
                f"{score.accuracy[head]:.6f}",
            ]
            for (relation, reverse), score in zip(CHOICES, result.scores, strict=True)
            if score is not None
            for head in result.heads()
        ],
    )


def sentence_line(model: str, name: str) -> str:
    """What the colours of the sentences below it mean."""
    return (
        f"Each word on the colour of its weight from the framed word, in {plain(name)} of {plain(model)}; the "
        "right answer is underlined."
    )


def _ends(score: RelationScore) -> tuple[str, str]:
    relation = score.relation
    return (
        (relation.target, relation.source) if score.reverse else (relation.source, relation.target)
    )


def _offset(offset: int) -> str:
    side, size = "after" if offset > 0 else "before", abs(offset)
    return f"just {side}" if size == 1 else f"{size} {side}"


def _interval(one: Interval) -> str:
    return f"with a 95 % interval from {percent(one.low)} to {percent(one.high)}"
