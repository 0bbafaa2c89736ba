"""The measurement that the page shows before anyone presses: `make measured` makes it anew."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from dashboard.charts.numbers import percent
from dashboard.runtime.racing import Race
from dashboard.views.efficient.state import ENTRIES, Asked, Result

FILE = Path(__file__).with_name("example.json")
LONGEST = 8192


def load() -> Result:
    """All kernels, every key seen, forward, as measured by the command above."""
    return Result.from_json(json.loads(FILE.read_text("utf-8")))


def main() -> None:
    torch.set_num_threads(1)
    race = Race(Asked.of(ENTRIES, LONGEST), time.process_time)
    while race.alive:
        race.look()
        race.wait(1.0)
        print(percent(race.fraction), flush=True)
    if race.error:
        raise SystemExit(race.error)
    FILE.write_text(json.dumps(race.result().to_json(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
