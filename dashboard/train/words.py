"""What the Train page says: facts, progress, places and tables, as text or escaped HTML; makes no st call."""

from __future__ import annotations

import html
from collections.abc import Sequence
from difflib import SequenceMatcher

from core.training.config import RunConfig
from core.training.record import Bucket, Prediction, Record
from core.training.runs import Status

UNITS = {"copy": ("letter", "sequences"), "reverse": ("letter", "sequences"), "dates": ("character", "dates")}


def unit(task_key: str) -> tuple[str, str]:
    """What one token and what a whole output is called: ("letter", "sequences")."""
    return UNITS.get(task_key, ("word", "sentences"))


def percent(share: float) -> str:
    """0.034 → "3 %", with a no-break space; only all is called 100 %, and only none 0 %."""
    whole = round(share * 100)
    if whole == 100 and share < 1:
        return f"{min(share * 100, 99.9):.1f}\u00a0%"
    return f"{max(share * 100, 0.1):.1f}\u00a0%" if whole == 0 and share > 0 else f"{whole}\u00a0%"


def fact(record: Record, task_key: str, head: tuple[int, int] | None) -> str:
    """One measured sentence or two about a step, in Markdown; `head` is the (layer, head) whose weight is told."""
    one, many = unit(task_key)
    step = f":primary[**{record.step:,}**]"
    said = ""
    if record.expected and head is not None and record.even is not None:
        layer, h = head
        weight = record.expected[layer][h]
        only = len(record.expected) * len(record.expected[0]) == 1
        where = "" if only else f" in head L{layer}·H{h}"
        said = f"At step {step} the right {one} gets **{weight:.2f}** of the weight{where}; "
        said += f"even attention would give it {record.even:.2f}. "
    return said + _scores(record, one, many, "So " if said else f"At step {step} ")


def _scores(record: Record, one: str, many: str, start: str) -> str:
    if record.letters is None:
        return ""
    text = f"{start}{percent(record.letters)} of the {one}s are right"
    if record.exact is None:
        return text + "."
    join = ", but only " if record.letters - record.exact > 0.2 else " and "
    text += f"{join}{percent(record.exact)} of whole {many}"
    return text + (f"; BLEU is {record.bleu:.0f}." if record.bleu is not None else ".")


def progress(records: Sequence[Record], config: RunConfig) -> tuple[float, str]:
    """How far a running run is, 0 to 1, and in words with the time left."""
    if not records:
        return 0.0, "Setting up…"
    last = records[-1]
    share = min(1.0, max(last.step / config.steps, last.elapsed / config.seconds))
    text = f"Step {last.step:,} of {config.steps:,}"
    if last.final:
        return 1.0, text
    if last.step and last.elapsed:
        left = min(last.elapsed * (config.steps - last.step) / last.step, config.seconds - last.elapsed)
        text += f", about {max(1, round(left))} s left"
    return share, text


def waiting(place: int) -> str:
    """The place in the queue, in words."""
    return f"Waiting: place {place} in the queue. It begins when {'a run ends' if place == 1 else f'{place} runs end'}."


def ending(status: Status, records: Sequence[Record]) -> str:
    """How an ended run ended, with what it reached over how many held-out items."""
    last = next((r for r in reversed(records) if r.exact is not None), None)
    if last is None or status.state == "failed":
        return status.message
    return f"{status.message} {percent(last.exact)} of {last.held_out:,} held-out exact."


def wrong_tokens(target: Sequence[str], predicted: Sequence[str]) -> list[bool]:
    """For each predicted token whether it is wrong: place by place, or aligned when the lengths differ."""
    if len(target) == len(predicted):
        return [a != b for a, b in zip(target, predicted, strict=True)]
    wrong = [True] * len(predicted)
    for block in SequenceMatcher(None, target, predicted, autojunk=False).get_matching_blocks():
        wrong[block.b : block.b + block.size] = [False] * block.size
    return wrong


def missing(target: Sequence[str], predicted: Sequence[str]) -> int:
    """Tokens of the target that a shorter prediction lacks."""
    return max(0, len(target) - len(predicted))


def examples_table(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """Input, output with wrong tokens underlined in the accent, and how many are wrong: an HTML table, all escaped."""
    cell = f"border:1px solid {line};padding:6px 9px;text-align:left;vertical-align:top;font-weight:400"
    # The code font is for what is compared letter by letter; words are read.
    code = f"{cell};overflow-wrap:anywhere"
    if not separator:
        code += ";font-family:'Source Code Pro',monospace;font-size:13px"
    rows = [
        f"<tr><td style=\"{code}\">{html.escape(separator.join(e.source))}</td>"
        f"<td style=\"{code}\">{_marked(e, separator, pick)}</td>"
        f'<td style="{cell};text-align:right">{_count(e)}</td></tr>'
        for e in examples
    ]
    head = "".join(
        f'<th scope="col" style="{cell};opacity:.75{extra}">{name}</th>'
        for name, extra in (("input", ""), ("output", ""), ("wrong", ";text-align:right"))
    )
    return _table(head, rows)


def buckets_table(buckets: Sequence[Bucket], line: str) -> str:
    """How many held-out sources of each length, exact match, and BLEU where it was measured: an HTML table."""
    cell = f"border:1px solid {line};padding:4px 9px;text-align:right;font-weight:400"
    likeness = buckets[0].bleu is not None
    names = ["tokens", "held out", "exact", *(["BLEU"] if likeness else [])]
    head = "".join(f'<th scope="col" style="{cell};opacity:.75">{name}</th>' for name in names)
    rows = []
    for bucket in buckets:
        shown = [bucket.lengths, f"{bucket.count}", percent(bucket.exact)]
        shown += [f"{bucket.bleu:.1f}"] if likeness else []
        rows.append("<tr>" + "".join(f'<td style="{cell}">{html.escape(text)}</td>' for text in shown) + "</tr>")
    return _table(head, rows)


def _table(head: str, rows: Sequence[str]) -> str:
    return (
        '<table style="width:100%;border-collapse:collapse;font-size:14px">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _count(example: Prediction) -> int:
    return sum(wrong_tokens(example.target, example.predicted)) + missing(example.target, example.predicted)


def _marked(example: Prediction, separator: str, pick: str) -> str:
    parts = []
    for token, wrong in zip(example.predicted, wrong_tokens(example.target, example.predicted), strict=True):
        safe = html.escape(token)
        mark = f'<b style="color:{pick};text-decoration:underline;text-underline-offset:3px">{safe}</b>'
        parts.append(mark if wrong else safe)
    return separator.join(parts) or "<i>nothing yet</i>"
