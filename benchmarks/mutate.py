"""`make mutate`: breaks lines of core at random, one at a time, and counts how many the tests catch.

Each mutant lives in a copy of the tree. `make quick` runs first; what it misses meets the tests that mirror the module,
then all tests without a browser. A mutant that no test could tell from the original is listed in EQUIVALENT.

    python -m benchmarks.mutate --count 60 --seed 0 [--only-quick] [--first 20]
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 1800
BESIDE = ("-n", "2", "--dist", "worksteal")
QUICK = (*BESIDE, "@tests/quick.txt")
ALL = (*BESIDE, "tests", "--ignore=tests/browser")
# A file and what the mutant makes of its line -> why no test could tell it from the original.
EQUIVALENT: dict[tuple[str, str], str] = {}

OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
             ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
               ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
MASKS = {"tril": "triu", "triu": "tril", "any": "all", "all": "any", "amax": "amin", "amin": "amax", "min": "max",
         "max": "min", "logical_and": "logical_or", "logical_or": "logical_and", "cumsum": "cumprod", "sin": "cos",
         "cos": "sin"}


@dataclass(frozen=True)
class Mutant:
    """One change of one expression: where it stands, what it was and what it becomes."""

    path: str
    start: tuple[int, int]
    end: tuple[int, int]
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.start[0]}  {self.before}  ->  {self.after}"

    def apply(self, source: str) -> str:
        """The source with this one expression replaced; columns count bytes, as ast's do."""
        lines = source.encode().splitlines(keepends=True)
        first, last = self.start[0] - 1, self.end[0] - 1
        rest = lines[last][self.end[1]:]
        lines[first:last + 1] = [lines[first][:self.start[1]] + f"({self.after})".encode() + rest]
        return b"".join(lines).decode()


def changed(node: ast.AST) -> ast.AST | None:
    """The node with one operator, comparison, constant, mask or condition turned, or None where there is nothing."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.Compare(left, [op], [right]) if type(op) in COMPARISONS:
            return ast.Compare(left, [COMPARISONS[type(op)]()], [right])
        case ast.BoolOp(op, values):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Invert() | ast.Not() | ast.USub(), operand):
            return operand
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            return ast.Constant(value + 1)
        case ast.Call(ast.Attribute(value, attr), args, keywords) if attr in MASKS:
            return ast.Call(ast.Attribute(value, MASKS[attr], ast.Load()), args, keywords)
    return None


def code(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function's body: no entry's bounds, no default, no annotation, no text that is formatted."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from inside(statement)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.FunctionDef | ast.ClassDef):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from inside(child)


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a file."""
    result = []
    for node in code(ast.parse(path.read_text("utf-8"))):
        if (other := changed(node)) is not None:
            result.append(Mutant(str(path.relative_to(ROOT)), (node.lineno, node.col_offset),
                                 (node.end_lineno, node.end_col_offset), ast.unparse(node), ast.unparse(other)))
    return result


def sample(count: int, seed: int) -> list[Mutant]:
    """That many mutants of core, each of another line, in an order that the seed determines."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted((ROOT / "core").rglob("*.py")):
        for mutant in mutants(path):
            if (mutant.path, mutant.after) not in EQUIVALENT:
                lines.setdefault((mutant.path, mutant.start[0]), []).append(mutant)
    choose = random.Random(seed)
    return [choose.choice(lines[line]) for line in choose.sample(sorted(lines), min(count, len(lines)))]


def nearest(mutant: Mutant) -> list[str]:
    """The tests most likely to catch it: those of its module, then those of its folder."""
    path = Path(mutant.path)
    words = [word for word in (path.stem.strip("_"), path.parent.name) if word not in ("init", "base", "core")]
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [str(f.relative_to(ROOT)) for word in words for f in files if word in f.stem and "browser" not in f.parts]
    folder = ROOT / "tests" / Path(*path.parts[1:2]).stem
    return [*dict.fromkeys([*named, *([str(folder.relative_to(ROOT))] if folder.is_dir() else [])])]


def fails(tree: Path, *arguments: str) -> bool:
    """Whether pytest finds a fault; a run that does not end has found one."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--durations=0", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode in (2, 3, 4, 5) and "rror" not in done.stdout:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode != 0


def caught_by(mutant: Mutant, tree: Path, only_quick: bool) -> str:
    """"quick", "whole" or "" for a mutant that survives."""
    file = tree / mutant.path
    source = file.read_text("utf-8")
    file.write_text(mutant.apply(source), "utf-8")
    try:
        if fails(tree, *QUICK):
            return "quick"
        if only_quick:
            return ""
        near = nearest(mutant)
        return "whole" if near and fails(tree, "-n", "2", *near) or fails(tree, *ALL) else ""
    finally:
        file.write_text(source, "utf-8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=60, help="how many lines are broken")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--first", type=int, default=0, help="leave out that many of them, to go on with a run")
    options.add_argument("--only-quick", action="store_true", help="run make quick alone")
    options.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    given = options.parse_args()
    chosen = sample(given.count, given.seed)[given.first:]
    if given.list:
        print(*chosen, sep="\n")
        return
    counts = {"quick": 0, "whole": 0, "": 0}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "lab"
        left = shutil.ignore_patterns(".venv", ".git", "node_modules", ".hypothesis", "*.pyc")
        shutil.copytree(ROOT, tree, ignore=left)
        if not given.first and (fails(tree, *QUICK) or not given.only_quick and fails(tree, *ALL)):
            sys.exit("The tests fail without any mutant: mend them first.")
        for number, mutant in enumerate(chosen, given.first + 1):
            start = time.monotonic()
            by = caught_by(mutant, tree, given.only_quick)
            counts[by] += 1
            print(f"{number:3}  {by or 'SURVIVES':8}  {time.monotonic() - start:5.0f} s  {mutant}", flush=True)
    caught = counts["quick"] + counts["whole"]
    print(f"{len(chosen)} mutants: {counts['quick']} caught by make quick, {caught} by all tests that ran")


if __name__ == "__main__":
    main()
