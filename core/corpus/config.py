"""Which model is measured on which texts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from core.entries import ConfigError, check_fields, quote
from core.interpret.trace import Kind
from core.pretrained.finetune import MINILM

Source = Literal["own", "training", "texts"]
Split = Literal["lines", "paragraphs"]
MOST_TEXTS = 1_000
DEFAULT_TEXTS = 300
KINDS: tuple[Kind, ...] = ("self", "causal")


@dataclass(frozen=True)
class CorpusConfig:
    """A model and a corpus; ConfigError for values that cannot be measured.

    `model` is named as in a fine-tuning run. `source` is "own" (the lab's 300 sentences), "training" (what a model of
    the lab was trained on) or "texts": `data`, one text a line or a paragraph, by `split`. At most `count` texts are
    measured. With `ablation`, every head is switched off on every text, which costs a pass a head.
    """

    model: str = MINILM
    source: Source = "own"
    data: str = ""
    split: Split = "lines"
    kind: Kind = "self"
    count: int = DEFAULT_TEXTS
    ablation: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (
            ("source", get_args(Source)),
            ("split", get_args(Split)),
            ("kind", KINDS),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} = {quote(getattr(self, name))}; expected one of {', '.join(allowed)}."
                )
        if not isinstance(self.model, str) or not isinstance(self.data, str):
            raise ConfigError("model and data must be texts.")
        if (
            isinstance(self.count, bool)
            or not isinstance(self.count, int)
            or not 1 <= self.count <= MOST_TEXTS
        ):
            raise ConfigError(
                f"count = {quote(self.count)}; expected a whole number from 1 to {MOST_TEXTS:,}."
            )

    def to_json(self) -> dict[str, Any]:
        """The config as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> CorpusConfig:
        """The config in a dict; ConfigError for an unknown name or an invalid value."""
        return cls(**check_fields(cls, data, "A corpus"))
