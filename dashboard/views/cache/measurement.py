"""The saved times of the page Cache and decoding; `make cache` measures them again."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path

import torch

from core.pretrained.hf_conversion import SEEDED, TRAINED
from core.studies.racing import machine
from dashboard.views.cache.decoding import MOST, Pair, Written, measure

SAVED = Path(__file__).with_name("times.json")
ROUNDS, DIGITS = 3, 6  # the fastest round of each step counts; decimals of a second


@dataclass(frozen=True)
class Measurement:
    """Both ways to write, by the model's name, the day, and the machine."""

    pairs: dict[str, Pair]
    date: str
    machine: str


def load() -> Measurement:
    data = json.loads(SAVED.read_text("utf-8"))
    pairs = {
        name: Pair(
            *(Written(*(tuple(each) for each in pair[way].values())) for way in ("cached", "whole"))
        )
        for name, pair in data["pairs"].items()
    }
    return Measurement(pairs, data["date"], data["machine"])


def fastest(rounds: list[Written]) -> Written:
    """The fastest round of each step."""
    seconds = [
        round(min(times), DIGITS) for times in zip(*(each.seconds for each in rounds), strict=True)
    ]
    return replace(rounds[0], seconds=tuple(seconds))


def main() -> None:
    """Measure both models on one thread, in processor time, and save it."""
    torch.set_num_threads(1)
    pairs = {}
    for name in (TRAINED, SEEDED):
        rounds = [measure(name, MOST, time.process_time, float("inf")) for _ in range(ROUNDS)]
        pairs[name] = asdict(
            Pair(
                fastest([each.cached for each in rounds]), fastest([each.whole for each in rounds])
            )
        )
    text = json.dumps({"date": date.today().isoformat(), "machine": machine(), "pairs": pairs})
    SAVED.write_text(text.replace(', "', ',\n "') + "\n", "utf-8")


if __name__ == "__main__":
    main()
