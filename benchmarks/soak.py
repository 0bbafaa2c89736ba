"""A server in use for long: ten readers at a low rate, who leave after some minutes and come back as new sessions.

`python -m benchmarks.soak MINUTES` writes one row a minute. `server` and `workers` are memory without what is shared,
`cached` is the part of the server's that its bounded caches count. The folder of runs is bounded by `MAX_RUNS` runs, so
that the bound is reached within the time.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load import THINK, Times, browse, learn
from benchmarks.memory import MB, RunningServer, running_server
from benchmarks.processes import descendants
from benchmarks.reader import PageError, reading

READERS = 10  # of whom the first trains
STAY, AWAY = 300.0, 10.0  # seconds of a session, and until the reader comes back
MAX_RUNS = 50
HEAD = (
    "| minute | server | cached | workers | processes | threads | open files | sessions | runs | their bytes "
    "| moves | errors |\n" + "| --- " * 12 + "|"
)


async def reader(server: RunningServer, number: int, times: Times, until: float) -> None:
    """One session after the other; the readers come and leave in turn."""
    await asyncio.sleep(2 * THINK * number / READERS)
    stay = STAY * (number + 1) / READERS  # of the first session alone
    while (left := until - time.monotonic()) > 0:
        end = time.monotonic() + min(stay, left)
        try:
            async with reading(server.url) as one:
                await (
                    browse(one, number, times, 2 * THINK, end) if number else learn(one, times, end)
                )
                times.errors += one.errors
        except (PageError, OSError) as error:
            times.errors.append(str(error))
        await asyncio.sleep(AWAY)
        stay = STAY


def row(minute: int, server: RunningServer, times: Times) -> str:
    held = server.held()
    runs = [run for run in server.runs.iterdir() if (run / "run.json").exists()]
    size = sum(size_of(path) for path in server.runs.rglob("*"))
    return (
        f"| {minute} | {held.server / MB:,.0f} MB | {server.cached() / MB:,.0f} MB | {held.workers / MB:,.0f} MB "
        f"| {len(descendants(server.pid))} | {server.threads()} | {server.open_files()} "
        f"| {server.metrics()['active_sessions']:.0f} | {len(runs)} | {size / MB:.1f} MB | {len(times.moves)} "
        f"| {len(times.errors)} |"
    )


def size_of(path: Path) -> int:
    """Bytes; 0 for what was deleted meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def soak(server: RunningServer, minutes: int) -> None:
    times, begin = Times(), time.monotonic()
    readers = [
        asyncio.create_task(reader(server, number, times, begin + 60 * minutes))
        for number in range(READERS)
    ]
    print(HEAD)
    for minute in range(minutes + 1):
        await asyncio.sleep(max(0.0, begin + 60 * minute - time.monotonic()))
        print(await asyncio.to_thread(row, minute, server, times), flush=True)
    await asyncio.gather(*readers)
    for error in dict.fromkeys(times.errors):
        print(f"error: {error}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("minutes", type=int)
    minutes = parser.parse_args(arguments).minutes
    with running_server({"ATTENTION_LAB_LIMITS": f"max_runs={MAX_RUNS}"}) as server:
        asyncio.run(soak(server, minutes))


if __name__ == "__main__":
    main()
