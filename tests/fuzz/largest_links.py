"""Opens pages with the numbers of their links at their largest, alone and in pairs, as on a machine with 1 GB.

`python -m tests.fuzz.largest_links PAGES ALONE PAIRS` opens all at once, then so many alone and so many pairs, and
prints a line of JSON for each link. It is a process of its own, since the peak of its memory is what is measured.
"""

import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

MEGABYTES = 1_000
LADDER = (10**12, 10**9, 10**6, 10**5, 10**4, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2)
LONG = " ".join(f"word{place}" for place in range(700))
Link = dict[str, str]
Reader = Callable[[str], Any]


def largest_choices() -> dict[str, list[str]]:
    """For each axis the choices that have numbers, each number at its largest."""
    from core.attention import AXES

    return {
        axis: [
            f"{entry.key}({', '.join(f'{p.key}={p.high:g}' for p in numbers)})"
            for entry in entries
            if (numbers := [p for p in entry.params if p.high is not None and not p.choices])
        ]
        for axis, entries in AXES.items()
    }


def numbers_of(
    app: Any, readers: dict[str, Reader], choices: dict[str, list[str]]
) -> dict[str, list[str]]:
    """By the name of each value of a page's link its largest texts: of controls in sight, and of all readers."""
    texts_of: dict[str, list[str]] = {}
    for kind in ("slider", "number_input"):
        for widget in app.get(kind):
            if widget.key and widget.max is not None:
                texts_of[widget.key] = [f"{widget.max:.12g}"]
    for kind in ("select_slider", "selectbox"):
        for widget in app.get(kind):
            options = [str(option) for option in widget.options]
            if widget.key and options and options[-1].replace(".", "").isdigit():
                # with another number more may fit
                texts_of[widget.key] = [options[-1], "512", "64"]
    for kind in ("text_input", "text_area"):
        for widget in app.get(kind):
            if widget.key and " " in str(widget.value):
                texts_of[widget.key] = [LONG]
    for name, read in readers.items():
        axis = name.rpartition(":")[2]
        if axis in choices and name not in texts_of:
            texts_of[name] = choices[axis]
        for value in LADDER:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                read(str(value))
                texts_of.setdefault(name, [str(value)])
                break
    return texts_of


def links_of(
    numbers: dict[str, list[str]], alone: int, pairs: int, rng: random.Random
) -> Iterator[Link]:
    """All numbers at once, so many alone, and so many pairs."""
    texts = [(name, text) for name, options in numbers.items() for text in options]
    both = [pair for pair in itertools.combinations(texts, 2) if pair[0][0] != pair[1][0]]
    yield {name: options[0] for name, options in numbers.items()}
    yield from ({name: text} for name, text in rng.sample(texts, min(alone, len(texts))))
    yield from map(dict, rng.sample(both, min(pairs, len(both))))


def main(pages: list[str], alone: int, pairs: int) -> None:
    os.environ["ATTENTION_LAB_RUNS"] = tempfile.mkdtemp()
    os.environ["ATTENTION_LAB_LIMITS"] = f"server_mb={MEGABYTES}"
    from dashboard.fields import link as links
    from tests import apps
    from tests.fuzz.test_doors import peak, reset_peak
    from tests.pages.app import app_at

    apps.install()
    choices, whole = largest_choices(), links.take_link
    readers: dict[str, links.Reader] = {}

    def take(key: str, read: links.Reader, *, name: str | None = None) -> None:
        readers[name or key] = read
        whole(key, read, name=name)

    for page in pages:
        readers.clear()
        with patch.object(links, "take_link", take):
            app = app_at(page).run()
        for link in links_of(numbers_of(app, readers, choices), alone, pairs, random.Random(page)):
            before, begin = reset_peak(), time.process_time()
            app = app_at(page)
            app.default_timeout = 300
            for name, text in link.items():
                app.query_params[name] = text
            app.run()
            with open("/proc/self/status", encoding="utf-8") as status:
                files = next(int(line.split()[1]) for line in status if line.startswith("RssFile"))
            row = {
                "page": page,
                "link": {name: text[:60] for name, text in link.items()},
                "before": before // 10**6,
                "peak": (peak() - 1024 * files) // 10**6,  # what the system cannot take back
                "seconds": round(time.process_time() - begin, 2),
                "exceptions": [one.value[:300] for one in app.exception],
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]))
