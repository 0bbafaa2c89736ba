"""The page's controls, read from the session alone: the picture is drawn before its widgets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from core.attention import AXES, AttentionConfig, Choice, ConfigError
from core.attention.masks import MASKS
from core.tokens import tokenize
from dashboard.views.one_query import matrices
from dashboard.views.one_query.compute import Source
from dashboard.views.one_query.session import (
    SEED,
    get,
    heads_of,
    query_row,
    read_choice,
    start,
    uses_matrices,
)
from dashboard.widgets.mechanism_editor import refusal

NO_TOKEN = "There is no token here. Type a word, or a sentence: each word becomes one token."
EXACT = Choice("exact")
PADDING = 2  # keys, when a padding mask is first chosen

Fields = dict[str, Any]  # of an AttentionConfig, before they are known to go together


@dataclass(frozen=True)
class Controls:
    """One state of the page: an input, a mechanism (None with the error when refused), and what is picked."""

    source: Source | None
    config: AttentionConfig | None
    error: str  # why there is no source, or no config
    notes: tuple[str, ...]
    items: tuple[tuple[str, Any], ...]  # the fields of the config, whether or not they go together
    seed: int
    real: int | None
    query: int = 0
    head: int = 0
    half: int = 0
    stage: int = 1
    focus: tuple[str, int] | None = None

    @property
    def exact_config(self) -> AttentionConfig | None:
        """The mechanism with the exact kernel, the only one that makes every step."""
        return self.config.with_(kernel=EXACT) if self.config else None

    @property
    def fields(self) -> Fields:
        return dict(self.items)


def read_controls() -> Controls:
    """Read the controls from the session, with a default wherever nothing was picked."""
    source, error, notes = _read_source()
    fields = _read_fields(source)
    config = None
    if source is not None:
        try:
            config = AttentionConfig(**fields)
        except ConfigError as why:
            error = str(why)
    real = int(get("real", default_real(source))) if needs_real(fields["mask"]) else None
    return Controls(
        source,
        config,
        error,
        notes,
        tuple(fields.items()),
        int(get("seed", SEED)),
        real,
        query_row(source.queries) if source else 0,
        _index("head", fields["num_heads"]),
        _index("half", map_count(config)),
        get("stage") or start().stage,
        get("focus"),
    )


def _index(name: str, count: int) -> int:
    """The picked index below `count` (of a head or a map), or 0."""
    index = get(name, 0) or 0
    return index if index < count else 0


def _read_source() -> tuple[Source | None, str, tuple[str, ...]]:
    """The input or None, the error, and notes on what was cut."""
    if uses_matrices():
        try:
            return (
                Source.of_matrices(
                    matrices.check(get("edited") or matrices.parse(matrices.WORKED))
                ),
                "",
                (),
            )
        except matrices.MatrixError as error:
            return None, str(error), ()
    cut = tokenize(get("tokens", start().words) or "")
    return (Source.sentence(cut.tokens), "", cut.notes) if cut.tokens else (None, NO_TOKEN, ())


def _read_fields(source: Source | None) -> Fields:
    """The six choices and the sizes; typed matrices are one head without a projection."""
    fields: Fields = {axis: read_choice(axis) for axis in AXES}
    if not uses_matrices():
        d_model = get("d_model", start().d_model)
        return fields | {"d_model": d_model, "num_heads": heads_of(d_model)}
    width = len(source.matrices.q[0]) if source and source.matrices else 1
    return fields | {"projection": Choice("identity"), "d_model": width, "num_heads": 1}


def needs_real(mask: Choice) -> bool:
    """Whether a mask depends on which keys are real: its rule then contains their number."""
    rules = {item.key: item.short for item in MASKS}
    return any("{length}" in rules[leaf.key] for leaf in mask.leaves())


def default_real(source: Source | None) -> int:
    return max(0, (len(source.keys) if source else 0) - PADDING)


def map_count(config: AttentionConfig | None) -> int:
    """The number of maps that the projection combines into one head."""
    return config.score_heads // config.num_heads if config else 1


def nearest_fit(fields: Fields, error: str) -> list[tuple[str, Choice]]:
    """The axis and choice with the nearest number of those that an error says to take (kv_heads = one of 1, 2)."""
    match = re.search(r"take (\w+) = (?:one of )?((?:\d+(?:, | or )?)+)", error)
    if match is None:
        return []
    name, numbers = match.group(1), [int(text) for text in re.findall(r"\d+", match.group(2))]
    for axis in AXES:
        choice: Choice = fields[axis]
        current = dict(choice.params).get(name)
        if isinstance(current, int):
            for number in sorted(numbers, key=lambda value: abs(value - current)):
                other = Choice.of(
                    choice.key, *choice.parts, **{**dict(choice.params), name: number}
                )
                if refusal({**fields, axis: other}) is None:
                    return [(axis, other)]
    return []
