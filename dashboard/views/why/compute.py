"""The data of the page: the saved measurement, or the two runs of the link, read from their folders."""

from __future__ import annotations

from dataclasses import dataclass

from core.runs.folder import Status
from core.runs.runs import Run
from dashboard.runtime.run_data import records_of
from dashboard.server.cache import shared
from dashboard.views.why import bottleneck
from dashboard.views.why.controls import Controls, Pair
from dashboard.views.why.trained_models import Sentence, TrainedModel, sentence


@dataclass(frozen=True)
class PairedRun:
    """One of the two runs: its status and results, its last step, and its seconds of training."""

    run: Run
    status: Status
    learned: TrainedModel
    step: int
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The setting, the trained models and their sentence; without parts it is the saved measurement."""

    setting: Controls
    learned: tuple[TrainedModel, ...]
    sentence: Sentence | None
    parts: tuple[PairedRun, ...] = ()

    @property
    def live(self) -> bool:
        return any(not part.status.ended for part in self.parts)

    @property
    def measured(self) -> bool:
        """Whether each model has a result."""
        return all(one.points for one in self.learned)

    @property
    def name(self) -> str:
        return ".".join(part.run.id for part in self.parts) or "kept"


def saved_measurement() -> bottleneck.Result:
    """The measurement of `make bottleneck`; shared by all sessions."""
    return shared(bottleneck.load)


def load_comparison(pair: Pair | None) -> Comparison:
    """Read the runs' folders as they are now."""
    if pair is None:
        result = saved_measurement()
        return Comparison(result.setting, result.learned, result.sentence)
    parts, records = [], {}
    for run in pair:
        config, run_records = run.config(), records_of(run)
        learned = TrainedModel.of(config, run_records)
        records[learned.model] = (run, run_records)
        parts.append(
            PairedRun(
                run,
                run.status(),
                learned,
                run_records[-1].step if run_records else 0,
                run_records[-1].trained if run_records else 0.0,
            )
        )
    return Comparison(
        Controls.of(pair[1].config()),
        tuple(part.learned for part in parts),
        sentence(records),
        tuple(parts),
    )
