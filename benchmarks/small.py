"""A class on a machine of 1 GB: thirty readers of a public copy at once, three of whom train.

`python -m benchmarks.small --seconds 600` tells each ten seconds what the server and its workers hold, and at the end how
often the system ended a process, what pages waited for memory, and the seconds of moves. It makes a control group,
which needs root on Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.load import THINK, Times, browse, learn
from benchmarks.memory import MB, RunningServer, running_server
from benchmarks.reader import PageError, reading

READERS, LEARNERS, LIMIT = 30, 3, 1_000_000_000
GROUPS = Path("/sys/fs/cgroup")
STEP = 10.0  # seconds


@contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """A control group of that many bytes; what is started in the block's first step belongs to it."""
    old = GROUPS / "memory" / "memory.limit_in_bytes"
    home = GROUPS / "memory" if old.exists() else GROUPS
    group = home / f"attention-lab-{os.getpid()}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if old.exists() else "memory.max")).write_text(
        str(limit), encoding="utf-8"
    )
    try:
        yield group
    finally:
        with suppress(OSError):  # a process that ends late holds it
            group.rmdir()


def count(group: Path, *names: str) -> int:
    """The number in the first of these files that there is, or after `oom_kill` in it."""
    text = next(
        (group / name).read_text(encoding="utf-8") for name in names if (group / name).exists()
    )
    return int(text.partition("oom_kill ")[2].split()[0] if "oom_kill " in text else text)


async def read(server: RunningServer, number: int, times: Times, until: float) -> None:
    """One reader until the class ends, who comes again after a connection that was refused or lost."""
    await asyncio.sleep(number / 2)
    while time.monotonic() < until:
        try:
            async with reading(server.url) as reader:
                await (
                    learn(reader, times, until)
                    if number < LEARNERS
                    else browse(reader, number, times, THINK, until)
                )
                times.errors += reader.errors
                return
        except (PageError, OSError) as error:
            times.errors.append(str(error))
            await asyncio.sleep(STEP)


async def hold(server: RunningServer, group: Path, seconds: float) -> Times:
    times, begin = Times(), time.monotonic()
    work = [
        asyncio.create_task(read(server, number, times, begin + seconds))
        for number in range(READERS)
    ]
    while time.monotonic() < begin + seconds:
        await asyncio.sleep(STEP)
        used = count(group, "memory.usage_in_bytes", "memory.current") / MB
        kills = count(group, "memory.oom_control", "memory.events")
        print(f"{time.monotonic() - begin:.0f} s: {used:,.0f} MB, {kills} killed", flush=True)
    await asyncio.gather(*work)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.small", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds = parser.parse_args().seconds
    with control_group(LIMIT) as group:
        home = group.parent
        # what it starts comes with it
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
        with running_server({"ATTENTION_LAB_HOSTED": "1"}) as server:
            (home / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
            times = asyncio.run(hold(server, group, seconds))
            kills = count(group, "memory.oom_control", "memory.events")
            log = (server.runs.parent / "server.log").read_text(encoding="utf-8")
            states = [
                json.loads(file.read_text(encoding="utf-8"))["state"]
                for file in server.runs.glob("people/*/*/status.json")
            ]
    moves = sorted(answer.picture for answer in times.moves)
    print(
        f"{len(times.pages)} pages, of which {log.count('page_refused')} waited for memory; {len(moves)} moves, "
        f"median {statistics.median(moves):.2f} s, 95 % {moves[int(0.95 * (len(moves) - 1))]:.2f} s; "
        f"runs { ({state: states.count(state) for state in sorted(set(states))}) }; {kills} killed; "
        f"{len(times.errors)} errors {list(dict.fromkeys(times.errors))[:5]}"
    )


if __name__ == "__main__":
    main()
