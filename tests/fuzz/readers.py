"""What the pages, the workers and the shell read of folders and files, and how these are put wrong."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from core.entries import ConfigError
from core.runs.folder import ENDED, UNDER_WAY
from core.runs.runs import Run
from core.runs.sweeps import Sweep, create_sweep, sweep_comparisons
from core.studies.sweeps import load_sweep
from core.training.sweeps import SweepConfig
from dashboard.draw.pictures import size_of
from dashboard.ui.reports import Report
from dashboard.ui.run_data import summarize
from pages import report as report_compute, sweeps
from tests.damage import damaged, damaged_bytes
from tests.training.small import small_run

NAMES = (
    "0x1",
    "1abc",
    "000001x",
    "1",
    "0000001",
    "-00001",
    "99999999999999999999",
    "000003",
    *("１", "²") * (sys.getfilesystemencoding() != "ascii"),
)
LONGEST_MESSAGE = 900


def spoil_run(run: Run, rng: random.Random) -> None:
    """Change one to three things in a run's folder."""
    for _ in range(rng.randint(1, 3)):
        file = run.path / rng.choice(
            (
                "run.json",
                "status.json",
                "status.json",
                "metrics.jsonl",
                "stop",
                "frames",
                "checkpoints",
            )
        )
        if file.is_dir():
            name = file / f"{rng.choice(NAMES)}.safetensors"
            inside = sorted(path for path in file.iterdir() if path.is_file())
            how = rng.randrange(4)
            if how == 0 and not name.exists():
                name.mkdir()
            elif how == 1 and not name.is_dir():
                name.write_bytes(damaged_bytes(b"\x08\0\0\0\0\0\0\0{}      ", rng))
            elif inside:
                chosen = rng.choice(inside)
                chosen.write_bytes(damaged_bytes(chosen.read_bytes()[:4000], rng))
        elif file.name == "stop" or rng.random() < 0.3 or not file.exists():
            file.write_bytes(damaged_bytes(file.read_bytes() if file.exists() else b"pause", rng))
        elif file.suffix == ".jsonl":
            text = file.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if line.startswith("{")]
            file.write_text("".join(_changed(line, rng) + "\n" for line in lines), encoding="utf-8")
        else:
            file.write_text(
                _changed(file.read_text(errors="replace", encoding="utf-8"), rng), encoding="utf-8"
            )


def _changed(text: str, rng: random.Random) -> str:
    try:
        return json.dumps(damaged(json.loads(text), rng))
    except (ValueError, IndexError, RecursionError):
        return text


def read_everything(run: Run) -> None:
    """What the pages read of a folder."""
    status = run.status()
    assert (
        status.state in (*UNDER_WAY, *ENDED)
        and status.message.encode() is not None
        and 0 <= status.at < 1e11
    )
    assert status.pid is None or status.pid > 1
    assert run.stop_request() in ("", "stop", "pause") and run.stop_age() >= 0 and run.name.encode()
    for step in run.frame_steps():
        assert all(maps.ndim == 4 for maps in run.frame(step).values())
    line = summarize(run)
    assert (
        len(line.trouble) <= LONGEST_MESSAGE
        and (line.name + line.parent + line.sweep + line.trouble).encode()
    )
    assert line.loss is None or isinstance(line.loss, float | int)
    for record in run.records():
        json.dumps(record.to_json()).encode()
    for step in run.checkpoint_steps():
        try:
            run.model(step)
        except ValueError as error:
            assert len(str(error)) <= LONGEST_MESSAGE


def sweep_with_outcomes(path) -> tuple[Sweep, dict]:
    """A sweep of two values and two seeds whose runs have all ended, and its file's content."""
    config = SweepConfig(small_run(), "score", ("dot", "general"), (0, 1))
    sweep = create_sweep(config, path)
    outcome = {
        "state": "finished",
        "message": "",
        "steps": [0, 4],
        "train_seconds": [0.0, 1.5],
        "held_out": 20,
        "even": 0.1,
        "elapsed": 2.0,
        "measures": {"sequence_accuracy": [None, 0.5], "loss": [2.0, 1.0], "expected": [0.2, 0.4]},
    }
    data = sweep.data() | {
        "outcomes": {f"{place}:{seed}": outcome for place, seed in config.cells},
        "runs": {
            f"{place}:{seed}": f"20261120-12000{place}-00000{seed}" for place, seed in config.cells
        },
    }
    return sweep, data


def use_sweep(sweep: Sweep) -> None:
    """What the page and the shell do with a sweep's file."""
    shown = load_sweep(sweep)
    if isinstance(shown, str):
        assert len(shown) <= LONGEST_MESSAGE
        shown.encode()
    else:
        for measure in shown.measures():
            "".join(
                [sweeps.fact_text(shown, measure), sweeps.caption_text(shown, "train_seconds")]
            ).encode()
            sweeps.pairs(shown, measure)
            sweep_comparisons(shown.config, shown.outcomes, measure)
            for place in range(len(shown.names)):
                shown.line(place, measure, "train_seconds"), shown.line(place, measure, "steps")
        (
            sweeps.table_text(shown),
            sweeps.failures(shown),
            sweeps.progress(shown, 2),
            sweeps.numbers_csv(shown),
        )
        [sweeps.run_line(shown, cell, outcome) for cell, outcome in shown.outcomes.items()]
        sweep.missing()
    try:
        sweeps.stop(sweep)
    except ConfigError as error:
        assert len(str(error)) <= LONGEST_MESSAGE


NUMBERS = (0, -1, 3, 10**5, 2**31, 2**40, 10**9, 0.5, None, "x", [1])


def spoil_model(folder: Path, rng: random.Random) -> None:
    """Change one file of a model: its config, its tokenizer, its settings, or the header of its weights."""
    file = rng.choice(
        [folder / "config.json", *sorted(folder.glob("*.json")), folder / "model.safetensors"]
    )
    data = file.read_bytes()
    if file.suffix == ".json":
        content = json.loads(data)
        sizes = [key for key, value in content.items() if isinstance(value, int)]
        if file.name == "config.json" and rng.random() < 0.5:
            content[rng.choice(sizes)] = rng.choice(NUMBERS)
        else:
            content = damaged(content, rng, rng.choice((1, 2)))
        file.write_text(json.dumps(content), "utf-8")
    else:
        length = int.from_bytes(data[:8], "little")
        header = json.dumps(damaged(json.loads(data[8 : 8 + length]), rng)).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


def draw_report(report: Report) -> None:
    """What the page draws of a report."""
    for view in report.views:
        "".join((view.title, view.sentence, view.note, view.source)).encode()
        [[str(value) for value in row] for row in view.rows]
        if view.svg:
            size_of(report_compute.on_paper(view.svg))
