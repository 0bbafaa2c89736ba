"""What the reader sets, and the two runs it asks for: the same model without attention and with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training import RunConfig
from core.training.config import BOUNDS

SIZES = (16, 32, 64, 96, 128, 192, 256)
LONGEST = (20, 30, 40, 50, 60, 70, 80)
SECONDS = (5, 10, 20, 45, 90, 180)
SCORES = ("dot", "general", "additive", "concat", "scaled_dot", "cosine")
MEASURING = 3.0  # times its training that a run may take with its measuring, on a machine that does other things too


@dataclass(frozen=True)
class Setting:
    """The vector's size, the longest source in words, the score, the seconds of training each, and the seed."""

    d_model: int = 128
    longest: int = 60
    score: str = "dot"
    seconds: float = 45.0
    seed: int = 0

    def config(self, score: str | None) -> RunConfig:
        """Number words from English to German; no score is no attention. Both get equal seconds of training.

        The rate falls as 1/√step, which needs no end known beforehand, and neither ends before its time.
        """
        return RunConfig(
            TaskConfig.of("numbers", max_source=self.longest), ModelConfig.recurrent(self.d_model, score),
            steps=BOUNDS["steps"][1], batch_size=64, learning_rate=4e-3, warmup=50, schedule="inverse_sqrt",
            seed=self.seed, seconds=min(BOUNDS["seconds"][1], 60 + MEASURING * self.seconds), trained=self.seconds,
            record_every=50, held_out=200, watch=8, finish_early=False)

    def counted(self, score: str | None, steps: int) -> RunConfig:
        """The same for so many steps instead of seconds, which gives the same numbers on any machine."""
        return replace(self.config(score), steps=steps, trained=BOUNDS["trained"][1], seconds=BOUNDS["seconds"][1],
                       record_every=max(1, steps // 18))

    @classmethod
    def of(cls, config: RunConfig) -> Setting:
        """The setting that a run was asked with; a run without attention has the default's score."""
        model = config.model
        score = cls.score if model.attention is None else model.attention.score.key
        return cls(model.d_model, int(config.task["max_source"]), score, config.trained, config.seed)
