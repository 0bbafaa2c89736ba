"""`make mutate`: breaks lines of core at random and counts how many `make quick` and all tests catch.

A copy of the tree holds every mutant behind a switch. `benchmarks.mutation_plugin` runs each test with all of them
off, then with each mutant that the test reaches and that nothing has caught yet. A test that fails runs again in its
own process, on a tree with that mutant alone; only that counts. What imports alone reach, and nothing has caught, is
tried by `make quick`, the snapshots and the tests that mirror its module. Browser tests are left out.

    python -m benchmarks.mutate --count 60 --seed 0
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
)
PARALLEL = ("-n", "2", "--dist", "worksteal")
MAX_SECONDS = 600
SUITES = {"quick": ("@tests/quick.txt",), "whole": ("tests", "--ignore=tests/browser")}
# A file, its line and what the mutant writes there, where no test could tell it from the original, with the reason.
with (ROOT / "benchmarks" / "equivalent_mutants.csv").open(encoding="utf-8", newline="") as file:
    EQUIVALENT = {(row["path"], row["line"], row["after"]) for row in csv.DictReader(file)}

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.MatMult: ast.Mult,
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
MASKS = {
    "tril": "triu",
    "triu": "tril",
    "any": "all",
    "all": "any",
    "amax": "amin",
    "amin": "amax",
    "min": "max",
    "max": "min",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "cumsum": "cumprod",
    "sin": "cos",
    "cos": "sin",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one expression: where it stands, what it was and what it becomes."""

    path: str
    start: tuple[int, int]
    end: tuple[int, int]
    before: str
    after: str
    line: str  # the whole line, stripped

    def __str__(self) -> str:
        return f"{self.path}:{self.start[0]}  {self.before}  ->  {self.after}"

    @property
    def is_valid(self) -> bool:
        """Whether the broken source still parses: a pattern of `match` takes no expression."""
        try:
            ast.parse(self.apply((ROOT / self.path).read_text("utf-8")))
        except SyntaxError:
            return False
        return True

    def overlaps(self, other: Mutant) -> bool:
        """Whether one lies in the other, so that not both can have a switch."""
        return self.path == other.path and self.start < other.end and other.start < self.end

    def apply(self, source: str) -> str:
        """The source with this one expression replaced; columns count bytes, as ast's do."""
        lines = source.encode().splitlines(keepends=True)
        first, last = self.start[0] - 1, self.end[0] - 1
        rest = lines[last][self.end[1] :]
        lines[first : last + 1] = [
            lines[first][: self.start[1]] + f"({self.after})".encode() + rest
        ]
        return b"".join(lines).decode()


def changed(node: ast.AST) -> ast.expr | None:
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
    """Every node of a function's body that a test can show: no entry's bounds, no default, no annotation, no text that
    is formatted, no `strict` of a zip, which only asserts."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from inside(statement)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.FunctionDef | ast.ClassDef):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from inside(child)


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a file."""
    result, source = [], path.read_text("utf-8")
    lines = source.splitlines()
    for node in code(ast.parse(source)):
        if isinstance(node, ast.expr) and (other := changed(node)) is not None:
            end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
            result.append(
                Mutant(
                    str(path.relative_to(ROOT)),
                    (node.lineno, node.col_offset),
                    end,
                    ast.unparse(node),
                    ast.unparse(other),
                    lines[node.lineno - 1].strip(),
                )
            )
    return result


def sample(count: int, seed: int) -> list[Mutant]:
    """That many mutants of core, each of another line, in an order that the seed determines."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted((ROOT / "core").rglob("*.py")):
        for mutant in mutants(path):
            if (mutant.path, mutant.line, mutant.after) not in EQUIVALENT:
                lines.setdefault((mutant.path, mutant.start[0]), []).append(mutant)
    choose = random.Random(seed)
    chosen: list[Mutant] = []
    for line in choose.sample(sorted(lines), len(lines)):
        mutant = choose.choice(lines[line])
        if mutant.is_valid and not any(map(mutant.overlaps, chosen)):
            chosen.append(mutant)
        if len(chosen) == count:
            break
    return chosen


def copy(folder: Path) -> Path:
    """A copy of the tree without what is built."""
    ignored = shutil.ignore_patterns(".venv", ".git", "node_modules", ".hypothesis", "*.pyc")
    return shutil.copytree(ROOT, folder, ignore=ignored)


def add_switches(tree: Path, chosen: list[Mutant]) -> None:
    """Put every mutant into the tree, behind its number."""
    shutil.copy(ROOT / "benchmarks" / "mutation_switch.py", tree / "core")
    for number, mutant in sorted(enumerate(chosen), key=lambda pair: pair[1].start, reverse=True):
        condition = f'__import__("core.mutation_switch").mutation_switch.on({number})'
        switch = f"({mutant.after}) if {condition} else ({mutant.before})"
        file = tree / mutant.path
        file.write_text(replace(mutant, after=switch).apply(file.read_text("utf-8")), "utf-8")


def mirrors(path: str) -> list[str]:
    """The snapshots, and the tests that mirror a module: those in folders of the names of its packages."""
    folders = [
        Path("tests") / part for part in Path(path).parts if (ROOT / "tests" / part).is_dir()
    ]
    return ["tests/test_snapshots.py", "tests/pages/test_snapshots.py", *map(str, folders)]


def catches(tree: Path, mutant: Mutant, *tests: str) -> bool:
    """Whether one of the tests fails on the tree with this mutant alone, in processes of their own."""
    file = tree / mutant.path
    source = file.read_text("utf-8")
    file.write_text(mutant.apply(source), "utf-8")
    try:
        command = [*PYTEST, "-x", *tests]
        run = subprocess.run(command, cwd=tree, capture_output=True, timeout=MAX_SECONDS)
        return run.returncode in (1, 2)  # 2: a module of tests cannot be imported
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(source, "utf-8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=60, help="how many lines are broken")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    arguments = options.parse_args()
    chosen = sample(arguments.count, arguments.seed)
    if arguments.list:
        print(*chosen, sep="\n")
        return
    caught: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        plain, switched = copy(Path(folder) / "plain"), copy(Path(folder) / "switched")
        results, imported = Path(folder) / "caught", Path(folder) / "imported"
        results.mkdir()
        imported.mkdir()
        add_switches(switched, chosen)
        for suite, tests in SUITES.items():
            environment = {
                **os.environ,
                "MUTANTS_CAUGHT": str(results),
                "MUTANTS_IMPORTED": str(imported),
            }
            subprocess.run(
                [*PYTEST, *PARALLEL, "-p", "benchmarks.mutation_plugin", *tests],
                cwd=switched,
                env=environment,
            )
            for file in sorted(results.iterdir()):
                number = int(file.name)
                if number in caught:
                    continue
                if catches(plain, chosen[number], file.read_text("utf-8")):
                    caught[number] = suite
                else:
                    file.unlink()  # not confirmed: still to be caught
        for number in {int(file.name) for file in imported.iterdir()} - caught.keys():
            if catches(plain, chosen[number], *SUITES["quick"], *mirrors(chosen[number].path)):
                caught[number] = "whole"  # by which of them is not told
        for number, mutant in enumerate(chosen):
            print(f"{caught.get(number, 'SURVIVES'):8}  {mutant}")
    quick = list(caught.values()).count("quick")
    print(
        f"{len(chosen)} mutants: {quick} caught by make quick, {len(caught)} by all tests but the browser's"
    )


if __name__ == "__main__":
    main()
