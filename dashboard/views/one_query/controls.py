"""The page's controls, read from the session alone: the picture is drawn before its widgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.attention import AXES, AttentionConfig, Choice, ConfigError
from core.masks import MASKS
from dashboard.runtime.tokens import SENTENCE, tokenize
from dashboard.views.one_query import choices, matrices
from dashboard.views.one_query.choices import Fields
from dashboard.views.one_query.compute import Source
from dashboard.views.one_query.session import (
    D_MODEL,
    SEED,
    STAGE,
    get,
    heads_of,
    picked_index,
    query_row,
    uses_matrices,
)

NO_TOKEN = "There is no token here. Type a word, or a sentence: each word becomes one token."
EXACT = Choice("exact")
PADDING = 2  # keys, when a padding mask is first chosen


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
    stage: int = STAGE
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
    source, message, notes = read_source()
    fields = read_fields(source)
    config = None
    if source is not None:
        try:
            config = AttentionConfig(**fields)
        except ConfigError as error:
            message = str(error)
    return Controls(
        source, config, message, notes, tuple(fields.items()), int(get("seed", SEED)),
        read_real(fields["mask"], source), query_row(source.queries) if source else 0,
        picked_index("head", fields["num_heads"]), picked_index("half", map_count(config)),
        get("stage", STAGE) or STAGE, get("focus"))


def read_source() -> tuple[Source | None, str, tuple[str, ...]]:
    """The input or None, the error, and notes on what was cut."""
    if uses_matrices():
        try:
            return Source.of_matrices(matrices.check(get("edited") or matrices.parse(matrices.WORKED))), "", ()
        except matrices.MatrixError as error:
            return None, str(error), ()
    cut = tokenize(get("tokens", SENTENCE) or "")
    return (Source.sentence(cut.tokens), "", cut.notes) if cut.tokens else (None, NO_TOKEN, ())


def read_fields(source: Source | None) -> Fields:
    """The six choices and the sizes; typed matrices are one head without a projection."""
    fields: Fields = {axis: choices.read(axis) for axis in AXES}
    if not uses_matrices():
        d_model = get("d_model", D_MODEL)
        return fields | {"d_model": d_model, "num_heads": heads_of(d_model)}
    width = len(source.matrices.q[0]) if source and source.matrices else 1
    return fields | {"projection": Choice("identity"), "d_model": width, "num_heads": 1}


def needs_real(mask: Choice) -> bool:
    """Whether a mask depends on which keys are real: its rule then contains their number."""
    rules = {item.key: item.short for item in MASKS}
    return any("{length}" in rules[leaf.key] for leaf in mask.leaves())


def read_real(mask: Choice, source: Source | None) -> int | None:
    return int(get("real", default_real(source))) if needs_real(mask) else None


def default_real(source: Source | None) -> int:
    return max(0, (len(source.keys) if source else 0) - PADDING)


def map_count(config: AttentionConfig | None) -> int:
    """The number of maps that are combined into one head."""
    return config.score_heads // config.num_heads if config else 1
