"""What the reader sets, and the two runs it asks for: the same model without attention and with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training import RunConfig
from core.training.config import BOUNDS

SIZES = (16, 32, 64, 96, 128, 192, 256)
LONGEST = (20, 30, 40, 50, 60, 70, 80)
SECONDS = (5, 10, 20, 45, 90, 180)
SCORES = ("dot", "general", "additive", "concat", "scaled_dot", "cosine")
MEASURING = 3.0  # times its training that a run may take with its measuring, on a machine that does other things too


class Model(NamedTuple):
    """What is told apart: the score of the attention (None: no attention), and how many numbers a state has."""

    score: str | None
    d_model: int

    @classmethod
    def of(cls, config: RunConfig) -> Model:
        attention = config.model.attention
        return cls(None if attention is None else attention.score.key, config.model.d_model)


@dataclass(frozen=True)
class Setting:
    """The vector's size, the longest source in words, the score, the seconds of training each, and the seed."""

    d_model: int = 128
    longest: int = 60
    score: str = "dot"
    seconds: float = 45.0
    seed: int = 0

    @property
    def pair(self) -> tuple[Model, Model]:
        return Model(None, self.d_model), Model(self.score, self.d_model)

    def config(self, model: Model) -> RunConfig:
        """Number words from English to German, all models with equal seconds of training.

        The rate falls as 1/√step, which needs no end known beforehand, and neither ends before its time.
        """
        return RunConfig(
            TaskConfig.of("numbers", max_source=self.longest), ModelConfig.recurrent(model.d_model, model.score),
            steps=BOUNDS["steps"][1], batch_size=64, learning_rate=4e-3, warmup=50, schedule="inverse_sqrt",
            seed=self.seed, seconds=min(BOUNDS["seconds"][1], 60 + MEASURING * self.seconds), trained=self.seconds,
            record_every=25, decode_every=2, held_out=120, watch=8, finish_early=False)

    def counted(self, model: Model, steps: int) -> RunConfig:
        """The same for so many steps instead of seconds, which gives the same numbers on any machine; as the end is
        known, the rate falls to it as a cosine."""
        return replace(self.config(model), steps=steps, trained=BOUNDS["trained"][1], seconds=BOUNDS["seconds"][1],
                       record_every=max(1, steps // 18), decode_every=1, schedule="cosine")

    @classmethod
    def of(cls, config: RunConfig) -> Setting:
        """The setting that the run with attention was asked with."""
        model = Model.of(config)
        return cls(model.d_model, int(config.task["max_source"]), model.score or cls.score, config.trained, config.seed)
