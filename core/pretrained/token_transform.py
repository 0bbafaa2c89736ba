"""Which tokens of a reading are drawn: pieces merged into words, special tokens or sinks hidden, one sentence alone."""

from __future__ import annotations

from typing import Literal

from core import map_transform
from core.map_transform import Groups, MapTransform
from core.pretrained.base import Line
from core.trace import AttentionTrace

Sentences = Literal["all", "ab", "ba", "aa", "bb"]


def token_transform(
    trace: AttentionTrace,
    rows: Line,
    columns: Line,
    *,
    words: bool = False,
    special: bool = False,
    sinks: bool = False,
    sentences: Sentences = "all",
) -> MapTransform:
    """The map transform of a trace of one kind; the identity where no row or no column would be left.

    `words` merges the pieces of a word; `special` and `sinks` hide those tokens. `sentences` are the query's and the
    key's: "ab" is from sentence A to B.
    """
    down, across = (
        map_transform.group_by_word(line.word) if words else map_transform.single_tokens(len(line))
        for line in (rows, columns)
    )
    if special:
        down, across = (
            map_transform.hide_tokens(down, rows.special),
            map_transform.hide_tokens(across, columns.special),
        )
    if sentences != "all":
        first, second = ("ab".index(letter) for letter in sentences)
        down, across = _of_sentence(down, rows, first), _of_sentence(across, columns, second)
    if sinks:
        across = map_transform.hide_tokens(across, map_transform.find_sinks(trace)) or across
    if not (down and across):
        return MapTransform.plain(len(rows), len(columns))
    return MapTransform(down, across)


def _of_sentence(groups: Groups, line: Line, segment: int) -> Groups:
    hidden = [
        own != segment or special for own, special in zip(line.segment, line.special, strict=True)
    ]
    return map_transform.hide_tokens(groups, hidden)
