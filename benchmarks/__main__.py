"""`make bench`: benchmarks of speed as Markdown tables, or those named; what takes minutes runs by name alone."""

from __future__ import annotations

import importlib
import sys

from benchmarks.timing import HEAD

NAMES = ("training", "fused", "kernels", "normalizers", "extraction", "slider", "pages", "first_point")
BY_NAME = ("tasks", "bertviz")  # what is learned, for many minutes; and beside BertViz, which npm's scripts are for


def main(names: list[str]) -> None:
    shown = ""
    for name in names or NAMES:
        if name not in (*NAMES, *BY_NAME):
            sys.exit(f"There is no benchmark {name}; take {', '.join((*NAMES, *BY_NAME))}.")
        module = importlib.import_module(f"benchmarks.{name}")
        head = getattr(module, "HEAD", HEAD)
        if head != shown:
            print(head)
            shown = head
        for row in module.rows():
            print(row.markdown(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
