"""What the controls say, read from the session alone: so the picture can be drawn before the controls are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.attention import AXES, AttentionConfig, Choice, ConfigError
from core.masks import MASKS
from dashboard.runtime.tokens import SENTENCE, tokenize
from dashboard.views.one_query import choices, matrices
from dashboard.views.one_query.choices import Fields
from dashboard.views.one_query.compute import Source
from dashboard.views.one_query.session import D_MODEL, SEED, STAGE, get, given, heads_of, one_of, row_of

NO_TOKEN = "There is no token here. Type a word, or a sentence: each word becomes one token."
EXACT = Choice("exact")
HIDDEN_KEYS = 2  # of the keys, when a padding mask is first chosen


@dataclass(frozen=True)
class Settings:
    """One state of the page: an input, a mechanism (None with the reason when refused) and what is looked at."""

    source: Source | None
    config: AttentionConfig | None
    said: str  # why there is no source, or no config
    notes: tuple[str, ...]
    chosen: tuple[tuple[str, Any], ...]  # the fields of the config, known to go together or not
    seed: int
    real: int | None
    query: int = 0
    head: int = 0
    half: int = 0
    stage: int = STAGE
    focus: tuple[str, int] | None = None

    @property
    def drawn(self) -> AttentionConfig | None:
        """The mechanism as it is drawn: by the exact kernel, which alone makes every step."""
        return self.config.with_(kernel=EXACT) if self.config else None

    @property
    def fields(self) -> Fields:
        return dict(self.chosen)


def settings() -> Settings:
    """What the session holds now, with what is usual wherever nothing was picked."""
    source, said, notes = source_now()
    fields = fields_now(source)
    config = None
    if source is not None:
        try:
            config = AttentionConfig(**fields)
        except ConfigError as error:
            said = str(error)
    return Settings(
        source, config, said, notes, tuple(fields.items()), int(get("seed", SEED)), real_now(fields["mask"], source),
        row_of(source.queries) if source else 0, one_of("head", fields["num_heads"]), one_of("half", maps_of(config)),
        get("stage", STAGE) or STAGE, get("focus"))


def source_now() -> tuple[Source | None, str, tuple[str, ...]]:
    """The input, or None and why; and what of a text was left out."""
    if given():
        try:
            return Source.given(matrices.check(get("edited") or matrices.parse(matrices.WORKED))), "", ()
        except matrices.MatrixError as error:
            return None, str(error), ()
    cut = tokenize(get("tokens", SENTENCE) or "")
    return (Source.sentence(cut.tokens), "", cut.notes) if cut.tokens else (None, NO_TOKEN, ())


def fields_now(source: Source | None) -> Fields:
    """The six choices and the sizes. Given matrices are one head, and there is nothing to project."""
    fields: Fields = {axis: choices.read(axis) for axis in AXES}
    if not given():
        d_model = get("d_model", D_MODEL)
        return fields | {"d_model": d_model, "num_heads": heads_of(d_model)}
    wide = len(source.matrices.q[0]) if source and source.matrices else 1
    return fields | {"projection": Choice("identity"), "d_model": wide, "num_heads": 1}


def needs_real(mask: Choice) -> bool:
    """Whether a mask asks which keys are real: its rule then speaks of their number."""
    rules = {item.key: item.short for item in MASKS}
    return any("{length}" in rules[leaf.key] for leaf in mask.leaves())


def real_now(mask: Choice, source: Source | None) -> int | None:
    return int(get("real", usual_real(source))) if needs_real(mask) else None


def usual_real(source: Source | None) -> int:
    return max(0, (len(source.keys) if source else 0) - HIDDEN_KEYS)


def maps_of(config: AttentionConfig | None) -> int:
    """How many heads that meet are folded into one."""
    return config.score_heads // config.num_heads if config else 1
