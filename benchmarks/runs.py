"""10,000 runs: their list, a search, the Runs page's script and the queue, beside a scan of every folder."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from benchmarks.timing import Row, median_ratio, rounds
from core.files import runs_folder
from core.models import ModelConfig
from core.runs.folder import FILE, unfinished
from core.runs.runs import list_runs
from core.runs.store import Copier, Store, store
from core.tasks import TaskConfig
from core.training.config import RunConfig
from dashboard.server import queue
from dashboard.ui.runs import load_board, summarize, summary_of

COUNT, BUDGET = 10_000, 0.5  # runs, seconds
SCAN = "a scan of every folder"


@contextmanager
def many_runs(count: int) -> Iterator[None]:
    """A folder of small ended runs of 20 configs, and two that wait."""
    task = TaskConfig.of("reverse", length=6, vocab=12)
    model = ModelConfig.transformer(d_model=8, num_heads=2, layers=1, d_ff=16, position="learned")
    configs = [
        RunConfig(
            task,
            model,
            steps=4,
            batch_size=8,
            record_every=2,
            held_out=11,
            num_examples=2,
            seed=seed,
        ).to_json()
        for seed in range(20)
    ]
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("ATTENTION_LAB_RUNS")
        os.environ["ATTENTION_LAB_RUNS"] = folder
        try:
            for number in range(count):
                path = Path(folder) / f"20260101-{number // 4096:06d}-{number % 4096:06x}"
                (path / "checkpoints").mkdir(parents=True)
                made = {"config": configs[number % 20], "created": 1.7e9 + number}
                (path / "run.json").write_text(json.dumps(made), encoding="utf-8")
                lines = [
                    {
                        "step": step,
                        "loss": 2 / (1 + step),
                        "sequence_accuracy": number / count,
                        "held_out": 11,
                        "train_seconds": 1.0,
                    }
                    for step in (0, 2, 4)
                ]
                text = "".join(json.dumps(line) + "\n" for line in lines)
                (path / "metrics.jsonl").write_text(text, encoding="utf-8")
                state = "finished" if number < count - 2 else "queued"
                status = {"state": state, "at": 1.7e9, "pid": None}
                (path / "status.json").write_text(json.dumps(status), encoding="utf-8")
            yield
        finally:
            os.environ.pop("ATTENTION_LAB_RUNS")
            if before is not None:
                os.environ["ATTENTION_LAB_RUNS"] = before


def rows() -> list[Row]:
    with many_runs(COUNT):
        first = _seconds(_board)
        started = time.perf_counter()
        while load_board("", ()).unread:
            pass
        again = first + time.perf_counter() - started
        lists = [
            _row("list of all runs", _board, _summaries),
            _row("search in all runs", lambda: load_board("reverse seed 7", ()), _summaries),
            _row("the runs that wait or train", lambda: unfinished(runs_folder()), _statuses),
            _row("the order of the queue", queue.queue, _statuses),
        ]
        for run in queue.queue()[0]:
            run.set_status("stopped")  # else the page would start them
        return [
            *lists,
            _page(runs_folder()),
            *_copies(),
            Row(
                "first list without an index",
                "the budget",
                f"{first:.2f} s",
                "–",
                float("nan"),
                "stated",
            ),
            Row(
                "index read anew, all of it",
                "the budget",
                f"{again:.1f} s",
                "–",
                float("nan"),
                "stated",
            ),
            Row(
                "size of the index",
                "the budget",
                f"{(runs_folder() / FILE).stat().st_size / 1e6:.1f} MB",
                "–",
                float("nan"),
                "stated",
            ),
        ]


def _board() -> object:
    return list(map(summary_of, load_board("", ()).ids[:50]))


def _summaries() -> object:
    return [summarize(run) for run in list_runs()]


def _statuses() -> object:
    return [run for run in list_runs() if run.status().state == "queued"]


def _page(folder: Path) -> Row:
    """The page's script, beside the same page without any run of one's own."""
    app = AppTest.from_file(
        str(Path(__file__).parents[1] / "dashboard" / "app.py"), default_timeout=60
    ).run()
    app._page_hash = calc_hash("runs")  # switch_page finds no page that is a function

    def show(root: Path) -> None:
        os.environ["ATTENTION_LAB_RUNS"] = str(root)
        app.run()

    taken = rounds({"ours": lambda: show(folder), "theirs": lambda: show(folder / "none")}, 5)
    os.environ["ATTENTION_LAB_RUNS"] = str(folder)
    mine, other = statistics.median(taken["ours"]), statistics.median(taken["theirs"])
    return Row(
        f"{COUNT:,} runs: script of the Runs page",
        "the examples alone",
        f"{mine:.3f} s",
        f"{other:.3f} s",
        median_ratio(taken["ours"], taken["theirs"]),
        "stated",
    )


def _copies() -> list[Row]:
    """Copying to a store in memory, so without a network: all runs, then passes in which one or none has changed."""
    os.environ["ATTENTION_LAB_STORE"] = "memory://benchmark/lab"
    try:
        now = Copier(cast(Store, store()), runs_folder())
        every = _seconds(now.step)
        none = statistics.median(_seconds(now.step) for _ in range(3))
        list_runs(latest=1)[0].update_metadata(name="changed")
        one = _seconds(now.step)
    finally:
        os.environ.pop("ATTENTION_LAB_STORE")
    return [
        Row(f"{COUNT:,} runs: {what}", "–", f"{taken:.2f} s", "–", float("nan"), "stated")
        for what, taken in (
            ("all copied to a store in memory", every),
            ("a pass without a change", none),
            ("a pass in which one was renamed", one),
        )
    ]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _row(what: str, ours: Callable[[], object], theirs: Callable[[], object]) -> Row:
    taken = rounds({"ours": ours, "theirs": theirs}, 3, clock=time.perf_counter)
    mine, other = statistics.median(taken["ours"]), statistics.median(taken["theirs"])
    return Row(
        f"{COUNT:,} runs: {what}",
        SCAN,
        f"{mine:.3f} s",
        f"{other:.2f} s",
        median_ratio(taken["ours"], taken["theirs"]),
        f"≤ {BUDGET} s",
    )
