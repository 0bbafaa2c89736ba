"""Fine-tune: one head before and after, its sentences of numbers, and the table of outputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from core.interpret.map_transform import HeadChange
from core.interpret.trace import AttentionTrace
from core.pretrained.finetune import FineTuneConfig, Rows, name_of
from core.training import Prediction, Record
from dashboard.draw.attention_view import Tile
from dashboard.draw.curves import Curve, balanced_points, points
from dashboard.draw.figures import Ink
from dashboard.draw.formats import number, percent, plain, share_text
from dashboard.draw.tables import html_table


@dataclass(frozen=True)
class BeforeAfter:
    """The maps of one type before training and at a step, and the heads, the one that moved most first.

    They are of the `sentence`-th watched one, or, with None, what both models make of the `text`.
    """

    text: str
    sentence: int | None
    step: int
    last: bool
    first: AttentionTrace
    now: AttentionTrace
    heads: list[HeadChange]

    def tiles(self, head: HeadChange) -> list[Tile]:
        first, now = (trace.map(head.layer) for trace in (self.first, self.now))
        return [
            Tile("Before training", "step 0", first.weights[head.head], first.mask, 0),
            Tile(
                "After training" if self.last else "During training",
                f"step {self.step:,}",
                now.weights[head.head],
                now.mask,
                1,
            ),
        ]


def gained(both: BeforeAfter, head: HeadChange) -> str:
    """The cell (query, key) of a head that gained most, and how far the head moved."""
    now = both.now.map(head.layer)
    before, weights = (tile.weights for tile in both.tiles(head))
    row, column = map(int, np.unravel_index((weights - before).argmax(), weights.shape))
    return (
        f"In head **{head.name}**, :primary[**{plain(now.queries[row])}**] now takes "
        f"**{share_text(weights[row, column])}** from **{plain(now.keys[column])}**, "
        f"{number(before[row, column])} before; {number(head.moved)} of the head's weight has moved to other tokens."
    )


NAMES = {"classify": "accuracy", "pairs": "sequence accuracy"}


def accuracies(records: Sequence[Record], task: str) -> list[Curve]:
    return [
        Curve(NAMES[task], points(records, "sequence_accuracy", 100)),
        Curve("balanced accuracy", balanced_points(records)),
        Curve("token accuracy", points(records, "token_accuracy", 100)),
    ]


def score_text(now: Record, start: float | None, rows: Rows, task: str) -> str:
    """The scores at a step, compared with those before training and of the majority class."""
    labels = task == "classify"
    text = (
        f"At step {now.step:,}, {NAMES[task]} is **{percent(now.sequence_accuracy)}** on {now.held_out} held-out "
        f"{'texts' if labels else 'sources'}; before training it was {percent(start)}"
    )
    if now.balanced is not None:
        text += f". Balanced accuracy is **{percent(now.balanced)}**"
    if labels:
        label, share = rows.majority
        ties = f" (one of {rows.ties} equally frequent labels)" if rows.ties > 1 else ""
        text += f"; the majority class, “{plain(label)}”{ties}, reaches {percent(share)}"
    text += "."
    if now.cut:
        text += f" {now.cut:,} outputs were cut at the length of the longest target, before an end token."
    return text


def conditions(config: FineTuneConfig, about: dict, rows: Rows, machine: str = "") -> str:
    """The conditions of the numbers; `machine` is where the run trained, if that is known."""
    new, cut, labels = (
        about.get("new_words") or (),
        about.get("truncated") or 0,
        config.task == "classify",
    )
    words = ", ".join([*map(plain, new[:10]), *(["…"] if len(new) > 10 else [])])
    own_head = labels and "new_head" in about and not about["new_head"]
    parts = {
        f"{plain(name_of(config.model))}, {about.get('learns', 0):,} of {about.get('weights', 0):,} weights train": True,
        f"{len(rows.learned):,} training rows, {len(rows.held_out):,} held out": True,
        f"seed {config.seed}": True,
        f"trained on {plain(machine)}": machine,
        "its classification head is new": labels and about.get("new_head"),
        "its own head has the same labels": own_head,
        f"{len(new)} words were not in its vocabulary ({words}); their vectors start near the mean of the others": new,
        f"{rows.repeated} repeated rows are used once": rows.repeated,
        f"{cut:,} rows are cut at {about.get('max_tokens', 0):,} tokens": cut,
    }
    sentences = {
        "Only the classification head is trained, so no attention changes.": labels
        and config.layers == 0,
        f"{'; '.join(filter(parts.get, parts))}.": True,
        "The decoder reads the correct target (teacher forcing), so the rows of a map stay the same.": not labels,
        "A change is not yet a reason: to test whether a head matters, switch it off on the page Why this answer.": True,
    }
    return " ".join(filter(sentences.get, sentences))


def table(
    before: Sequence[Prediction], now: Sequence[Prediction], columns: Sequence[str], ink: Ink
) -> str:
    def output(prediction: Prediction) -> str:
        text = " ".join(prediction.predicted) or "nothing"
        struck = Markup('<span style="color:{};text-decoration:line-through">{}</span>')
        return text if prediction.right else struck.format(ink.quiet, text)

    return html_table(
        columns,
        [
            (
                " ".join(last.source),
                " ".join(last.target),
                output(first),
                output(last),
            )
            for first, last in zip(before, now, strict=False)
        ],
        ink.hairline,
        ("",) * len(columns),
    )
