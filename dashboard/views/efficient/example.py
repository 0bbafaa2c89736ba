"""The stored measurement that the page shows at first; `make measured` writes it again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from dashboard.draw.formats import percent
from dashboard.views.efficient.compute import Result, start_race
from dashboard.views.efficient.controls import ENTRIES, Controls

FILE = Path(__file__).with_name("example.json")
LONGEST = 8192


def load() -> Result:
    """All kernels, no mask, forward, as `make measured` wrote them."""
    return Result.from_json(json.loads(FILE.read_text("utf-8")))


def main() -> None:
    """Measure on one thread in processor time, and write the file."""
    torch.set_num_threads(1)
    controls = Controls.of(ENTRIES, LONGEST)
    race = start_race(controls, time.process_time)
    while race.alive:
        race.poll()
        race.wait(1.0)
        print(percent(race.fraction), flush=True)
    if race.error:
        raise SystemExit(race.error)
    FILE.write_text(json.dumps(Result.of_race(controls, race).to_json(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
