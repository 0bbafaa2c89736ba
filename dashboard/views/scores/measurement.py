"""The saved times of the page Scores; `make scores` measures them again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch

from core.attention import AXES, Choice
from dashboard.runtime.racing import machine
from dashboard.views.scores.compute import Timing, timings

SAVED = Path(__file__).with_name("times.json")
ROUNDS, SECONDS = 400, 20.0  # more than the page takes, for times that a busy moment does not move


@dataclass(frozen=True)
class Measurement:
    """The time and memory of each score's training step by its key, the day, and the machine."""

    times: dict[str, Timing]
    date: str
    machine: str

    def of(self, choices: tuple[Choice, ...]) -> tuple[Timing | None, ...]:
        """The times of these scores; None for one that came after the measurement, such as a plug-in's."""
        return tuple(self.times.get(choice.key) for choice in choices)


def load() -> Measurement:
    data = json.loads(SAVED.read_text("utf-8"))
    return Measurement(
        {key: Timing(**time) for key, time in data["times"].items()}, data["date"], data["machine"]
    )


def main() -> None:
    """Measure every score of the axis, one thread, and save it."""
    torch.set_num_threads(1)
    choices = tuple(Choice(item.key) for item in AXES["score"])
    measured = timings(choices, 0, ROUNDS, SECONDS)
    data = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "times": {choice.key: asdict(time) for choice, time in zip(choices, measured, strict=True)},
    }
    SAVED.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
