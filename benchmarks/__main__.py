"""`make bench`: all benchmarks of speed as a Markdown table, or those named; "tasks" measures what is learned."""

from __future__ import annotations

import importlib
import sys

from benchmarks.timing import HEAD

NAMES = ("training", "fused", "kernels", "normalizers", "extraction", "slider", "pages", "first_point")
LEARNING = "tasks"  # takes many minutes, and tells of other things than speed


def main(names: list[str]) -> None:
    shown = ""
    for name in names or NAMES:
        if name not in (*NAMES, LEARNING):
            sys.exit(f"There is no benchmark {name}; take {', '.join((*NAMES, LEARNING))}.")
        module = importlib.import_module(f"benchmarks.{name}")
        head = getattr(module, "HEAD", HEAD)
        if head != shown:
            print(head)
            shown = head
        for row in module.rows():
            print(row.markdown(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
