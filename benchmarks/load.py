"""A class of readers on one server: 1, 10 and 30 sessions over Streamlit's own protocol, a sixth of them training.

Each session opens pages and moves a control of each, every five seconds with thirty readers. Told are the seconds from
a control's message to the changed picture, errors, memory and processor time, and what is given back after they left.
`python -m benchmarks.load --json FILE` writes the figures to a file, too.

`python -m benchmarks.load arrive` is a class that arrives instead: thirty within a minute on a server that has just
started, where nobody opened a page yet, while another process keeps one core busy. `--write` puts its table into
docs/scaling.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.memory import MB, RunningServer, errors, open_all, running_server
from benchmarks.pages import PAGES, Moved
from benchmarks.processes import descendants
from benchmarks.reader import Answer, PageError, Reader, reading

SESSIONS = (1, 10, 30, 30)  # the second class of thirty shows what is free for those who come next
SORTS = {
    "slider": "slider",
    "number": "number_input",
    "list": "selectbox",
    "pills": "button_group",
    "switch": "checkbox",
    "text": "text_input",
    "area": "text_area",
    "button": "button",
}
MOVES = 3  # of the control of a page, before the next page
THINK, ALONE = 5.0, 0.5  # seconds between two moves of a reader, and of one who is alone
SECONDS = 60.0  # of a level
GIVEN_BACK = 180.0  # seconds in which what sessions held has to be free again
LEARNER_OF = 6  # one of so many sessions trains
CLASS, ARRIVAL = 30, 60.0  # readers, and seconds in which they come
# seconds in which a move is answered, and the share of moves of which that is asked
IN_TIME, GOAL = (1.0, 0.95)
SCALING, BEFORE = (
    Path(__file__).resolve().parents[1] / "docs" / "scaling.md",
    "### Servers beside each other\n",
)
ARRIVES = "### A class that arrives\n"


@dataclass
class Times:
    """Seconds of what was answered, and what went wrong."""

    moves: list[Answer] = field(default_factory=list)
    pages: list[Answer] = field(default_factory=list)
    runs: int = 0
    errors: list[str] = field(default_factory=list)
    move_cpu: float = 0.0
    page_cpu: float = 0.0


@dataclass(frozen=True)
class Level:
    """What a number of sessions met and cost: seconds, bytes, and processor seconds of the server alone."""

    sessions: int
    training: int
    moves: int
    pages: int
    errors: int
    move_median: float
    move_p95: float
    page_median: float
    server_cpu: float  # of one core
    session_bytes: float
    left_bytes: float
    cached_bytes: float  # of it, what the bounded caches count
    blocks: float  # of Python's objects that were added while the sessions were open
    blocks_left: float  # and that are there after they left
    threads_left: int
    processes_left: int

    def markdown(self) -> str:
        median, late, page = (
            f"{1000 * one:.0f} ms" for one in (self.move_median, self.move_p95, self.page_median)
        )
        return (
            f"| {self.sessions} | {self.training} | {self.moves} | {self.pages} | {self.errors} "
            f"| {median} | {late} | {page} "
            f"| {100 * self.server_cpu:.0f} % | {self.session_bytes / MB:.1f} MB | {self.left_bytes / MB:.0f} MB "
            f"| {self.cached_bytes / MB:.0f} MB | {self.blocks / 1000:.0f}, {self.blocks_left / 1000:.0f} "
            f"| {self.threads_left} | {self.processes_left} |"
        )


HEAD = (
    "| sessions | training | moves | pages | errors | control to picture, median | p95 | page, median "
    "| server, of a core | memory a session | still held after | of it in caches "
    "| thousand Python objects more: with them, after | threads left | processes left |\n"
    + "| --- " * 15
    + "|"
)


@dataclass(frozen=True)
class Arrival:
    """What a class that arrives met: seconds, and the server's share of one core."""

    readers: int
    pages: int
    moves: int
    errors: int
    page_median: float
    page_p95: float
    move_median: float
    move_p95: float
    in_time: float  # share of the moves that were answered in IN_TIME
    server_cpu: float

    def markdown(self) -> str:
        seconds = (self.page_median, self.page_p95, self.move_median, self.move_p95)
        return (
            f"| {self.readers} | {self.pages} | {self.moves} | {self.errors} | "
            + " | ".join(f"{one:.2f} s" for one in seconds)
            + f" | {100 * self.in_time:.1f} % | {100 * self.server_cpu:.0f} % |"
        )


ARRIVAL_HEAD = (
    "| readers | pages | moves | errors | page, median | page, p95 | control to picture, median | p95 "
    f"| moves under {IN_TIME:g} s | server, of a core |\n" + "| --- " * 10 + "|"
)


async def visit(
    reader: Reader, moved: Moved, times: Times, think: float, moves: int = MOVES
) -> None:
    """Open a page and move its control, where Streamlit draws it; a component's own is moved in the browser alone."""
    times.pages.append(
        await reader.open("" if moved.key == "start" else moved.key, moved.query.lstrip("?"))
    )
    for _ in range(moves):
        await asyncio.sleep(think)
        try:
            widget = reader.find(SORTS[moved.sort], moved.name or "")
        except PageError:
            return
        times.moves.append(await reader.move(widget))


async def browse(reader: Reader, number: int, times: Times, think: float, until: float) -> None:
    """Walk through the pages, each reader from another one on."""
    start = number * 7
    for place in range(10 * len(PAGES)):
        await visit(reader, PAGES[(start + place) % len(PAGES)], times, think)
        if time.monotonic() > until:
            return


async def learn(reader: Reader, times: Times, until: float) -> None:
    """Train runs on the Train page, one after the other, as long as the class lasts."""
    times.pages.append(await reader.open("train"))
    while time.monotonic() < until:
        if any(
            widget.sort == "button" and widget.element.label == "Train"
            for widget in reader.widgets()
        ):
            await reader.move(reader.find("button", "Train"))
            times.runs += 1
        await asyncio.sleep(1)  # a run that is under way has other buttons in its place


async def session(
    server: RunningServer, number: int, learners: int, times: Times, think: float, until: float
) -> None:
    async with reading(server.url) as reader:
        try:
            if number < learners:
                await learn(reader, times, until)
            else:
                await asyncio.sleep(think * number / 30)  # nobody comes at the same moment
                await browse(reader, number, times, think, until)
        except (PageError, OSError) as error:
            times.errors.append(str(error))
        times.errors += reader.errors


async def level(server: RunningServer, count: int) -> Level:
    """Hold so many sessions for a minute, and wait until what they held is free again."""
    times, learners = Times(), count // LEARNER_OF
    before, threads, processes = (
        server.held().server,
        server.threads(),
        len(descendants(server.pid)),
    )
    cached, blocks, cpu, at = server.cached(), server.blocks(), server.cpu(), time.monotonic()
    think = ALONE if count == 1 else THINK
    work = [
        asyncio.create_task(session(server, number, learners, times, think, at + SECONDS))
        for number in range(count)
    ]
    await asyncio.sleep(SECONDS)
    during, added, used = (
        server.held().server,
        server.blocks() - blocks,
        (server.cpu() - cpu) / (time.monotonic() - at),
    )
    await asyncio.gather(*work)
    await asyncio.sleep(GIVEN_BACK if count > 1 else 0)
    pictures = sorted(answer.picture for answer in times.moves)
    for error in dict.fromkeys(times.errors):
        print(f"  error: {error}", file=sys.stderr)
    return Level(
        count,
        learners,
        len(times.moves),
        len(times.pages),
        len(times.errors),
        statistics.median(pictures),
        pictures[int(0.95 * (len(pictures) - 1))],
        statistics.median(page.finished for page in times.pages),
        used,
        max(0, during - before) / count,
        max(0, server.held().server - before),
        server.cached() - cached,
        added,
        server.blocks() - blocks,
        max(0, server.threads() - threads),
        max(0, len(descendants(server.pid)) - processes),
    )


async def arrive(server: RunningServer, readers: int = CLASS) -> Arrival:
    """A class comes within ARRIVAL, and stays for SECONDS more; nothing was opened before."""
    times, cpu, begin = Times(), server.cpu(), time.monotonic()

    async def come(number: int) -> None:
        await asyncio.sleep(ARRIVAL * number / readers)
        try:
            async with reading(server.url) as reader:
                await browse(reader, number, times, THINK, begin + ARRIVAL + SECONDS)
                times.errors += reader.errors
        except (PageError, OSError) as error:
            times.errors.append(str(error))

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            await asyncio.gather(*map(come, range(readers)))
        finally:
            busy.kill()
    pages, moves = (
        sorted(seconds)
        for seconds in (
            [page.finished for page in times.pages],
            [move.picture for move in times.moves],
        )
    )
    for error in dict.fromkeys(times.errors):
        print(f"  error: {error}", file=sys.stderr)
    late = [seconds[int(0.95 * (len(seconds) - 1))] for seconds in (pages, moves)]
    return Arrival(
        readers,
        len(pages),
        len(moves),
        len(times.errors),
        statistics.median(pages),
        late[0],
        statistics.median(moves),
        late[1],
        sum(one < IN_TIME for one in moves) / len(moves),
        (server.cpu() - cpu) / (time.monotonic() - begin),
    )


def with_arrival(text: str, arrival: Arrival, when: date) -> str:
    """docs/scaling.md with the table of a class that arrives, in place of an earlier one."""
    if ARRIVES in text:
        text = text[: text.index(ARRIVES)] + text[text.index(BEFORE) :]
    reached = "is reached" if arrival.in_time >= GOAL else "is not reached"
    command = f"`python -m benchmarks.load arrive` on {when.isoformat()}, two cores"
    section = (
        f"{ARRIVES}\n{command}: {arrival.readers} readers without a browser come within {ARRIVAL:.0f} s\nto a "
        "server that has just started, each from another page on, and move a control every "
        f"{THINK:.0f} s; another process keeps\none core busy. The goal, {100 * GOAL:.0f} % of the moves under "
        f"{IN_TIME:g} s, {reached}.\n\n{ARRIVAL_HEAD}\n{arrival.markdown()}\n\n"
    )
    return text.replace(BEFORE, section + BEFORE)


async def costs(server: RunningServer) -> Times:
    """Processor seconds of the server for a page and for a move, of a reader who is alone, each page once."""
    times = Times()
    async with reading(server.url) as reader:
        for moved in PAGES:
            cpu = server.cpu()
            times.pages.append(
                await reader.open(
                    "" if moved.key == "start" else moved.key, moved.query.lstrip("?")
                )
            )
            times.page_cpu += server.cpu() - cpu
            for _ in range(MOVES):
                try:
                    widget = reader.find(SORTS[moved.sort], moved.name or "")
                except PageError:
                    break
                cpu = server.cpu()
                times.moves.append(await reader.move(widget))
                times.move_cpu += server.cpu() - cpu
        errors(reader)
    return times


async def warm(server: RunningServer) -> None:
    """Open every page and move its control once, which loads libraries and models."""
    async with reading(server.url) as reader:
        await open_all(reader, server, False)
        for moved in PAGES:
            await visit(reader, moved, Times(), 0.0, 1)
        errors(reader)


async def levels(server: RunningServer, counts: Sequence[int]) -> tuple[list[Level], Times]:
    await warm(server)
    cost = await costs(server)
    return [await level(server, count) for count in counts], cost


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", nargs="?", choices=["levels", "arrive"], default="levels")
    parser.add_argument(
        "--write", action="store_true", help="put the table of arrive into docs/scaling.md"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures to this file, too"
    )
    parser.add_argument("--sessions", type=int, nargs="+", default=SESSIONS)
    given = parser.parse_args(arguments)
    if given.what == "arrive":
        with running_server({}) as server:
            arrival = asyncio.run(arrive(server))
        print(ARRIVAL_HEAD, arrival.markdown(), sep="\n")
        print(f"\nThe machine's load was {os.getloadavg()[0]:.1f}.")
        if given.json:
            given.json.write_text(json.dumps(asdict(arrival), indent=1) + "\n", encoding="utf-8")
        if given.write:
            text = with_arrival(SCALING.read_text(encoding="utf-8"), arrival, date.today())
            SCALING.write_text(text, encoding="utf-8")
        return
    with running_server({}) as server:
        results, cost = asyncio.run(levels(server, given.sessions))
    print(HEAD, *(one.markdown() for one in results), sep="\n")
    page_ms, move_ms = (
        1000 * total / len(times)
        for total, times in ((cost.page_cpu, cost.pages), (cost.move_cpu, cost.moves))
    )
    print(
        f"\nProcessor time of the server, one reader alone: {page_ms:.0f} ms a page, {move_ms:.0f} ms a move; the "
        f"machine's load was {os.getloadavg()[0]:.1f}."
    )
    if given.json:
        data = {
            "page_cpu_ms": page_ms,
            "move_cpu_ms": move_ms,
            "load_average": os.getloadavg()[0],
            "levels": [asdict(one) for one in results],
        }
        given.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def rows() -> Iterator[Level]:
    """One row a number of sessions."""
    with running_server({}) as server:
        yield from asyncio.run(levels(server, SESSIONS))[0]


if __name__ == "__main__":
    main()
