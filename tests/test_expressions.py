"""Every regular expression of the lab takes time in proportion to what it reads.

They are found in the source, with the methods that the code calls on them. Each reads texts made from its own alphabet,
on which an expression that tries each start or each split again takes quadratic time or worse.
"""

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from re import _constants as codes, _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
METHODS = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
CALLED = re.compile(rf"re\.(compile|{'|'.join(METHODS)})")
NAMED = re.compile(rf"(re\.compile\(.*\)|(\w+\.)*[A-Z_]+)\.({'|'.join(METHODS)})", re.DOTALL)
USES = re.compile(rf"\b(re|[A-Z_]+)\.(compile|{'|'.join(METHODS)})\b")
FLAGS = re.compile(r"re\.[A-Z]+( \| re\.[A-Z]+)*")
GLOSSARY = "f\"(?<![\\\\w·-])(?:{'|'.join(map(re.escape, names))})(?![\\\\w·-])\""
GRAMMAR = "''.join([*parts, re.escape(self.text[at:])])"
# Patterns of local values, by module and source, with Python that gives those that they stand for.
LOCAL = {
    ("core.provenance", 'f"""[\'\\\\"]{key}[\'\\\\"]"""'): "['key']",
    ("core.tasks.translation", "part"): r"[r'\d+', r'[^\W\d_]+']",
    ("core.tasks.grammar", GRAMMAR): ("[form.pattern.pattern for form in FORMS]"),
    ("core.interpret.corpus", r"'\\n\\s*\\n' if split == 'paragraphs' else '\\n'"): (
        r"['\n\\s*\n', '\n']"
    ),
    ("core.interpret.lens", "rule"): "[rule for rule, _ in SUBSTITUTES]",
    ("core.pretrained.attention_recorder", "rule"): "[rule for rule, _ in SUBSTITUTES]",
    ("core.pretrained.load", "part"): r"[r'model\.layers\.61.*', r'mtp.*', 'position_ids']",
    ("core.pretrained.model_inputs", r"f'{one}(\\b|_)'"): r"[rf'{one}(\b|_)' for one in KINDS]",
    ("core.pretrained.model_inputs", r"f'{kind}_\\d+_{side}'"): r"[r'self_\d+_keys']",
    ("dashboard.draw.picture_files", "between"): r"[r'[^\w]+', r'\W+']",
    ("dashboard.draw.glossary", GLOSSARY): "[_pattern()[0].pattern]",
    ("dashboard.draw.components.__init__", r"f'\\b{name}\\b'"): r"[r'\bAttention\b']",
    ("dashboard.export.recorded", r"f'\\b{one.__name__}\\b'"): r"[r'\bAttention\b']",
    ("core.studies.compare", "re.sub('[0-9]+', '[0-9]{1,6}', re.escape(example))"): (
        "[re.sub('[0-9]+', '[0-9]{1,6}', re.escape(example)) for example in NUMBERS.values()]"
    ),
    ("dashboard.draw.transformer", "pattern"): "list(KINDS)",
}
# Of those that a function returns, with what its callers call.
RETURNED = {GLOSSARY: "finditer", GRAMMAR: "match"}


def written(source: str) -> str:
    """The source as this Python writes it, whose quotation marks differ from another's."""
    return ast.unparse(ast.parse(source, mode="eval").body)


LOCAL = {(module, written(source)): given for (module, source), given in LOCAL.items()}
RETURNED = {written(source): method for source, method in RETURNED.items()}


class Expression(NamedTuple):
    place: str
    pattern: str | bytes
    flags: int
    method: str


def evaluated(node: ast.AST, names: dict[str, Any]) -> Any:
    try:
        return eval(ast.unparse(node), names)
    except (NameError, AttributeError):  # of a local value
        return None


def expressions() -> tuple[set[Expression], list[str]]:
    """The expressions in the source, and the patterns of local values that LOCAL lacks."""
    found, unknown = set[Expression](), list[str]()
    compiled: dict[tuple[str | bytes, int], str] = {}  # and where
    used = set[tuple[str | bytes, int, str]]()
    for path in sorted(
        path for part in ("core", "dashboard", "pages") for path in (ROOT / part).rglob("*.py")
    ):
        key = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        code = path.read_text(encoding="utf-8")
        if not USES.search(code):  # scripts that begin the app are not imported
            continue
        names = vars(importlib.import_module(key.removesuffix(".__init__")))
        for node in ast.walk(ast.parse(code)):
            text = ast.unparse(node)
            if isinstance(node, ast.Attribute) and NAMED.fullmatch(text):
                if isinstance(one := evaluated(node.value, names), re.Pattern):
                    used.add((one.pattern, one.flags, node.attr))
            elif isinstance(node, ast.Call) and CALLED.fullmatch(ast.unparse(node.func)):
                method = ast.unparse(node.func).rpartition(".")[2]
                place, pattern = f"{key}:{node.lineno}", evaluated(node.args[0], names)
                given = map(ast.unparse, [*node.args[1:], *(word.value for word in node.keywords)])
                flags = sum(eval(one, {"re": re}) for one in given if FLAGS.fullmatch(one))
                source, patterns = ast.unparse(node.args[0]), [pattern]
                if pattern is None:
                    patterns = eval(LOCAL.get((key, source), "[]"), names)
                    unknown += [] if patterns else [f"{place}: {source}"]
                for one in patterns:
                    one = one if isinstance(one, re.Pattern) else re.compile(one, flags)
                    if source in RETURNED:
                        found.add(Expression(place, one.pattern, one.flags, RETURNED[source]))
                    elif method == "compile":
                        compiled[one.pattern, one.flags] = place
                    else:
                        found.add(Expression(place, one.pattern, one.flags, method))
    for (pattern, flags), place in compiled.items():
        methods = {method for *one, method in used if one == [pattern, flags]} or {"search"}
        found |= {Expression(place, pattern, flags, method) for method in methods}
    return found, unknown


def example(tree: Any) -> str:
    """A text that a parsed pattern matches."""
    return "".join(next((one for one in parts(node) if one), "") for node in tree)


def parts(node: Any) -> Iterator[str]:
    """Texts that one node of a parsed pattern matches: the signs of a set, the alternatives of a branch."""
    code, value = node
    match code:
        case codes.LITERAL:
            yield chr(value)
        case codes.NOT_LITERAL:
            yield "x" if value != ord("x") else "y"
        case codes.ANY:
            yield "x"
        case codes.IN:
            yield from members(value)
        case codes.BRANCH:
            yield from map(example, value[1])
        case codes.SUBPATTERN:
            yield example(value[3])
        case codes.ATOMIC_GROUP:
            yield example(value)
        case codes.MAX_REPEAT | codes.MIN_REPEAT | codes.POSSESSIVE_REPEAT:
            yield from (one * max(1, min(value[0], 50)) for one in parts_of(value[2]))


def parts_of(tree: Any) -> Iterator[str]:
    yield from parts(tree[0]) if len(tree) == 1 else [example(tree)]


def pieces(tree: Any, before: str = "") -> Iterator[str]:
    """What a text that is slow to read may be made of: signs, what stands before a repeated part, and this with it."""
    for node in tree:
        inside = list[Any]()
        match node:
            case (codes.MAX_REPEAT | codes.MIN_REPEAT | codes.POSSESSIVE_REPEAT, (*_, body)):
                inside = [body]
                yield before
                yield from (before + one for one in parts(node))
            case (codes.BRANCH, (_, alternatives)):
                inside = alternatives
            case (codes.SUBPATTERN | codes.ASSERT | codes.ASSERT_NOT, (*_, body)):
                inside = [body]
            case (codes.ATOMIC_GROUP, body):
                inside = [body]
        for body in inside:
            yield from pieces(body, before)
        yield from parts(node)
        before += next(parts(node), "")
    yield before


SIGNS = {
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_NOT_DIGIT: "x",
    codes.CATEGORY_SPACE: " \n",
    codes.CATEGORY_NOT_SPACE: "x",
    codes.CATEGORY_WORD: "a1",
    codes.CATEGORY_NOT_WORD: "-",
}


def members(parts: Any) -> Iterator[str]:
    """A few signs of a set."""
    for code, value in parts:
        match code:
            case codes.LITERAL:
                yield chr(value)
            case codes.RANGE:
                yield chr(value[0])
            case codes.CATEGORY:
                yield from SIGNS[value]
            case codes.NEGATE:
                yield "x"


def hostile(pattern: str | bytes, flags: int) -> Iterator[tuple[str, str, str]]:
    """A beginning, a part to repeat and an end, from the alphabet of the pattern."""
    texts = [one for one in dict.fromkeys(pieces(parser.parse(pattern, flags))) if one]
    signs = [one for one in texts if len(one) == 1][:8]
    words = [one for one in texts if len(one) > 1][:16]
    signs = list(dict.fromkeys([*signs, "1", "a", " ", "("]))
    for part, end in product([*signs, *words], ["", "\0", *signs]):
        yield "", part, end
    for first, second in product([*signs, *words], signs):
        if first != second:
            yield "", first + second, "\0"
            yield first, second, "\0"
            yield "", first, second + first
            yield first, second, first + second


SIZES = (20, 64, 512, 4_096)
SLOW = 0.001  # seconds; what takes less is not measured well


def seconds(call: Callable[[Any], object], given: str | bytes, times: int = 1) -> float:
    """The least of several measurements, in seconds of this thread."""
    best = float("inf")
    for _ in range(times):
        start = time.thread_time()
        call(given)
        best = min(best, time.thread_time() - start)
    return best


def slow_text(expression: Expression) -> str:
    """A text that takes more than three times as long when it is twice as long, or ""."""
    compiled = re.compile(expression.pattern, expression.flags)
    method = getattr(compiled, expression.method)
    calls: dict[str, Callable[[Any], object]] = {
        "sub": lambda text: compiled.sub(text[:0], text),
        "finditer": lambda text: list(compiled.finditer(text)),
    }
    call = calls.get(expression.method, method)
    is_bytes = isinstance(expression.pattern, bytes)

    def grows(head: str, part: str, end: str, size: int, times: int = 3) -> bool:
        texts = [head + part * (length // len(part)) + end for length in (size, size // 2)]
        whole, half = (text.encode() if is_bytes else text for text in texts)
        return seconds(call, whole) > SLOW and seconds(call, whole, times) > max(
            SLOW, 3 * seconds(call, half, times)
        )

    for text in hostile(expression.pattern, expression.flags):
        for size in SIZES:
            # again with twice as much, since another process may have slowed the first
            if grows(*text, size) and (size < SIZES[-1] or grows(*text, 2 * size, 9)):
                head, part, end = text
                return f"{head!r} + {part!r} * {size // len(part):,} + {end!r}"
    return ""


@pytest.mark.first
def test_expressions_take_time_in_proportion():
    found, unknown = expressions()
    assert len(found) > 100 and not unknown, "\n".join(unknown)
    once = {one[1:]: one for one in sorted(found, key=str)}.values()  # in whatever places
    slow = [(one, text) for one in once if (text := slow_text(one))]
    assert not slow, "\n".join(f"{one.place} {one.method} of {text}" for one, text in slow)
