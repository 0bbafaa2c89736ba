"""`make bench`: benchmarks of speed as Markdown tables, or those named; what takes minutes runs by name alone.

`--device cuda` runs those that compute alone, without a page, on a graphics card.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from benchmarks.timing import HEAD
from core.attention.cost import CPU, devices

NAMES = (
    "training",
    "fused",
    "kernels",
    "normalizers",
    "extraction",
    "slider",
    "pages",
    "first_point",
    "decoding",
)
# What is learned, for many minutes; beside BertViz, which npm's scripts are for; every page, opened six times; and
# every head, patched and measured; lists of 10,000 runs; a training that is watched; a foreign module that is read; and
# servers, with their memory and with thirty readers.
BY_NAME = (
    *("tasks", "bertviz", "layout", "interpret", "runs", "watching", "memory", "load"),
    "module_reading",
)


ON_DEVICE = ("training", "fused", "kernels", "normalizers")  # whose rows take a device


def chosen(names: Sequence[str], device: str) -> Sequence[str]:
    """The benchmarks to run; SystemExit for one that there is not, or not on that device."""
    able = (*NAMES, *BY_NAME) if device == CPU else ON_DEVICE
    if wrong := [name for name in names if name not in able]:
        sys.exit(f"There is no benchmark {wrong[0]} on device {device}; take {', '.join(able)}.")
    if device not in devices():
        sys.exit(f"device = {device} is not on this machine; take {', '.join(devices())}.")
    return names or (NAMES if device == CPU else ON_DEVICE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join((*NAMES, *BY_NAME)))
    parser.add_argument("--device", default=CPU, help="cpu or cuda")
    given = parser.parse_args(arguments)
    shown = ""
    for name in chosen(given.names, given.device):
        module = importlib.import_module(f"benchmarks.{name}")
        head = getattr(module, "HEAD", HEAD)
        if head != shown:
            print(head)
            shown = head
        for row in module.rows(device=given.device) if name in ON_DEVICE else module.rows():
            print(row.markdown(), flush=True)


if __name__ == "__main__":
    main()
