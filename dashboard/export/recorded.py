"""*As Python*: the calls that the page made, written as a script that makes them again.

    effect = lab.cached(study.mask_effect, controls.mask, controls.tokens)
    lab.as_python(effect=effect)

A result is looked up among the recorded calls by identity, and so is an argument that is itself a result. The words of a
cell are the first sentence of the function's docstring; a map that the page draws is drawn from the result that has it.
A part of a result, such as reading.trace, is written as such.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from core.attention import AttentionConfig, Choice
from core.runs.runs import Run
from core.runs.sweeps import Sweep
from dashboard.draw.components import LINE_WIDTH, Cell, Script, add_script, notes, source_of
from dashboard.draw.pictures import MapsPicture, Picture
from dashboard.server.calls import Call, NotRecorded, recorded_calls
from dashboard.server.session import CURRENT

PUBLIC = ("core.attention", "core.models", "core.tasks", "core.training", "core.pretrained")
LISTED = str | int | float | Choice | AttentionConfig  # an argument that differs from call to call
PLAIN = str | int | float | bool | None  # whose identity says nothing
CONFIGS = {  # the classes of which a script may have a literal
    "AttentionConfig",
    "Choice",
    "Comparison",
    "ModelConfig",
    "RunConfig",
    "SearchSettings",
    "Source",
    "Subject",
    "TaskConfig",
}
SHORT = 24  # characters of an argument that stands in its call, where another call has it too
MAX_DEPTH, MAX_ITEMS = 3, 12  # of the numbers in a result: fields of fields, and items of a list


def as_python(
    part: str = "", draw: Mapping[str, str] | None = None, also: Sequence[Cell] = (), **results: Any
) -> None:
    """Note the recorded calls of these results, by the names that they get, as the page's script.

    `draw` has code for pictures that are no maps, by their keys, also of some that may not be drawn; `also` are cells
    written by hand, after the others. A page of several fragments, each of which runs alone, notes one for each `part`.
    """
    page = CURRENT.value or ""
    # a private function is the server's own
    calls = [one for one in recorded_calls()[::-1] if not one.function.__name__.startswith("_")]
    add_script(partial(_script, calls, results, draw or {}, also, notes().pictures, page), part)


def _script(
    calls: Sequence[Call],
    results: Mapping[str, Any],
    draw: Mapping[str, str],
    also: Sequence[Cell],
    pictures: Mapping[str, Callable[[], Picture]],
    page: str = "",
) -> Script:
    writer = _Writer(calls, page)
    cells = [writer.cell(name, result) for name, result in results.items()]
    parts = {
        expression: np.asarray(one) if isinstance(one, list) else one
        for name, result in results.items()
        for expression, one in leaves(name, result)
    }
    numbers = {name: one for name, one in parts.items() if not isinstance(one, tuple)}
    by_hand = {*draw, *(cell.picture for cell in also)}
    maps = {key: make for key, make in pictures.items() if key not in by_hand}
    drawn = _maps(parts, maps) | {key: code for key, code in draw.items() if key in pictures}
    return Script((*writer.first, *_with_pictures(cells, drawn), *also), numbers)


def _with_pictures(cells: Sequence[Cell], drawn: Mapping[str, str]) -> Iterator[Cell]:
    """The cells, the last of them with the first picture, and a cell for each further one."""
    first, *more = drawn.items() or [("", "")]
    yield from cells[:-1]
    yield Cell(cells[-1].text, cells[-1].code, first[1], first[0])
    for picture, code in more:
        yield Cell("The same, drawn.", "", code, picture)


def _maps(
    numbers: Mapping[str, Any], pictures: Mapping[str, Callable[[], Picture]]
) -> dict[str, str]:
    """Code that draws each picture of maps on the page, of which every map is in a result."""
    codes = {}
    for key, make in pictures.items():
        picture = make()
        if not isinstance(picture, MapsPicture):
            continue
        where = {one.name: _find(np.asarray(one.values), numbers) for one in picture.maps}
        lines = {(one.rows, one.columns) for one in picture.maps}
        if all(where.values()) and len(lines) == 1:
            tokens = ", ".join(_find(one, numbers) or source_of(list(one)) for one in lines.pop())
            maps = ", ".join(f"{name!r}: {place}" for name, place in where.items())
            codes[key] = f"from dashboard.show import show_maps\n\nshow_maps({{{maps}}}, {tokens})"
    return codes


def _find(value: Any, numbers: Mapping[str, Any]) -> str:
    """The expression of the result that has these numbers, whole or as a part; "" for none."""
    for name, one in numbers.items():
        if isinstance(value, tuple) or isinstance(one, tuple):
            if type(value) is type(one) and value == one:
                return name
        elif one.ndim >= value.ndim and one.shape[one.ndim - value.ndim :] == value.shape:
            for index in np.ndindex(one.shape[: one.ndim - value.ndim]):
                if np.allclose(one[index], value, rtol=1e-5, atol=1e-7, equal_nan=True):
                    return f"{name}[{', '.join(map(str, index))}]" if index else name
    return ""


def leaves(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The numbers in a result, by the expressions that give them: arrays and lists; and texts that name rows."""
    from core.interpret.trace import to_numpy  # with torch, which Start does not need

    if isinstance(value, bool | int | float | np.generic | np.ndarray) or hasattr(value, "detach"):
        array = to_numpy(value)
        if array.dtype.kind in "fiub":
            yield name, array
    elif isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value):
        yield name, tuple(value)
    elif (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(one, float | int) for one in value)
    ):
        yield name, list(value)
    elif isinstance(value, list | tuple) and any(one is None for one in value):
        return  # numbers with gaps
    elif depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            value = {key: one for key, one in value.items() if isinstance(key, str | int | None)}
        most = None if is_dataclass(value) or not depth else MAX_ITEMS
        for suffix, one in parts_of(value)[:most]:
            yield from leaves(name + suffix, one, depth + 1)


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """The fields and the items of a value, each with what follows the value's name."""
    if is_dataclass(value):
        return [(f".{one.name}", getattr(value, one.name)) for one in fields(value)]
    if hasattr(value, "_fields"):
        return [(f".{one}", getattr(value, one)) for one in value._fields]
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", one) for key, one in value.items()]
    return (
        [(f"[{at}]", one) for at, one in enumerate(value)]
        if isinstance(value, list | tuple)
        else []
    )


def is_spelled(value: Any) -> bool:
    """Whether a script may have a value as a literal: a plain one, a config or a choice, or several of these."""
    if type(value) in (dict, list, tuple, frozenset):  # not a named tuple
        return all(map(is_spelled, value.values() if isinstance(value, dict) else value))
    return isinstance(value, PLAIN | np.generic) or type(value).__name__ in CONFIGS


def is_result(value: Any) -> bool:
    """Whether a value is one that only a call makes, and no source can spell."""
    is_object = is_dataclass(value) and type(value).__eq__ is object.__eq__
    return isinstance(value, np.ndarray) or hasattr(value, "detach") or is_object


def same_call(one: Call, other: Call) -> bool:
    return (
        one.function is other.function
        and len(one.args) == len(other.args)
        and all(
            a is b or not is_result(a) and not is_result(b) and bool(a == b)
            for a, b in zip(one.args, other.args, strict=True)
        )
    )


def all_parts(value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """The parts of a value, and of these."""
    for suffix, one in parts_of(value):
        yield suffix, one
        if depth > 1:
            yield from ((suffix + more, part) for more, part in all_parts(one, depth - 1))


@dataclass
class _Writer:
    """Calls as code: each result under a name, what several calls have under the name of the parameter."""

    calls: Sequence[Call]  # the last first: of two with one result, that which says most
    page: str
    written: list[tuple[Call, str]] = field(default_factory=list)  # and the names of their results
    names: dict[int, str] = field(default_factory=dict)  # of results, by identity
    texts: dict[str, str] = field(default_factory=dict)  # of arguments, by their source
    first: list[Cell] = field(default_factory=list)  # of models
    models: dict[Any, str] = field(default_factory=dict)
    loops: dict[str, tuple[str, str]] = field(default_factory=dict)  # of lists: item, items
    # of the cell that is written
    imports: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def cell(self, name: str, result: Any) -> Cell:
        self.imports, self.lines, self.words = set(), [], []
        self._write(name, result)
        block = import_module("dashboard.ui.models").import_block(self.imports)
        text = " ".join(dict.fromkeys(self.words)) or f"The value {name}."
        if name in self.loops:
            item, items = self.loops[name]
            self.lines.append(f"for {item}, each in zip({items}, {name}):")
            self.lines.append(f"    print({', '.join([item, *_shown('each', result[0])])})")
        elif parts := _shown(name, result):
            self.lines.append(f"print({name!r}, {', '.join(parts)})")
        return Cell(text, f"{block}\n\n" + "\n".join(self.lines) + "\n")

    def _write(self, name: str, result: Any) -> None:
        call, known = self._call_of(result), self.names.get(id(result), "")
        if call is not None and not known:
            known = next((name for one, name in self.written if same_call(one, call)), "")
        if known:
            code = known
        elif call is not None and call.args and getattr(call.args[0], "source", "") == "array":
            self.first.append(import_module("dashboard.ui.models").model_cell(call.args[0]))
            code = "reading"
        elif call is not None:
            code = self._call(call)
            self.written.append((call, name))
        elif each := self._calls(name, result):
            code = each
        elif part := self._part(result):
            code = part
        else:
            code = self._value(result, name)
        if code != name:
            self.lines.append(f"{name} = {code}")
        self.names[id(result)] = name

    def _call_of(self, result: Any) -> Call | None:
        """The call that made a result: not one that only hands it on."""
        if isinstance(result, PLAIN):
            return None
        return next(
            (
                one
                for one in self.calls
                if one.result is result and not any(arg is result for arg in one.args)
            ),
            None,
        )

    def _part(self, value: Any) -> str:
        """The expression of a part of a recorded result; "" for what is none."""
        if isinstance(value, PLAIN):
            return ""
        for call in self.calls:
            if any(arg is value for arg in call.args) or call.result is value:
                continue
            for suffix, part in all_parts(call.result):
                if part is value and self._call_of(call.result) is not None:
                    if id(call.result) not in self.names:
                        variable = call.function.__name__.rpartition("_")[2]
                        if is_dataclass(call.result):
                            variable = re.findall("[A-Z][a-z]*", type(call.result).__name__)[-1]
                            variable = variable.lower()
                        self._write(self._free(variable), call.result)
                    return self.names[id(call.result)] + suffix
        return ""

    def _calls(self, name: str, results: Any) -> str:
        """A list of results of calls that differ in one argument alone, as one call for each; "" for another value."""
        made = [self._call_of(one) for one in results] if isinstance(results, list) else []
        calls = [call for call in made if call is not None]
        if (
            len(calls) < max(2, len(made))
            or len({(one.function, len(one.args)) for one in calls}) > 1
        ):
            return ""
        columns = list(zip(*(call.args for call in calls), strict=True))
        varied = [n for n, args in enumerate(columns) if any(arg != args[0] for arg in args)]
        if len(varied) != 1 or not all(isinstance(arg, LISTED) for arg in columns[varied[0]]):
            return ""
        (at,) = varied
        item, code = (
            list(inspect.signature(calls[0].function).parameters)[at],
            source_of([*columns[at]]),
        )
        if code not in self.texts:
            self.imports.update(import_of(one) for one in classes_in([*columns[at]]))
            self.texts[code] = self._free(f"{item}s")
            self.lines.append(f"{self.texts[code]} = {code}")
        self.loops[name] = item, self.texts[code]
        self.names |= {id(one): f"{name}[{index}]" for index, one in enumerate(results)}
        call = self._call(calls[0], {at: item})
        return f"[{call} for {item} in {self.texts[code]}]"

    def _call(
        self,
        call: Call,
        items: Mapping[int, str] = {},
    ) -> str:
        """The call; `items` are the variables of arguments, by their places."""
        self.imports.add(import_of(call.function))
        parameters = list(inspect.signature(call.function).parameters.values())
        written, positional = list[str](), True
        takes_more = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        for index, arg in enumerate(call.args):
            parameter = parameters[min(index, len(parameters) - 1)]
            if (
                index not in items
                and not takes_more
                and type(arg) is type(parameter.default)
                and arg == parameter.default
            ):
                positional = False
                continue
            text = items.get(index) or self._value(arg, parameter.name)
            if (
                positional
                and (index == 0 or text == parameter.name)
                or parameter.kind is parameter.VAR_POSITIONAL
            ):
                written.append(text)
            else:
                positional = False
                written.append(f"{parameter.name}={text}")
        self.words.append(first_sentence(call.function))
        return f"{call.function.__name__}({', '.join(written)})"

    def _value(self, value: Any, name: str) -> str:
        """The source of an argument: a variable where it has one, or gets one."""
        if isinstance(value, Call):
            made = next((one for one in self.calls if same_call(one, value)), value)
            if known := next((name for one, name in self.written if same_call(one, made)), ""):
                return known
            variable = self._free(name)
            self.lines.append(f"{variable} = {self._call(made)}")
            self.written.append((made, variable))
            if made.result is not None:  # the page has it, too
                self.names[id(made.result)] = variable
            return variable
        if type(value).__name__ == "ModelRef":
            return self._model(value)
        if isinstance(value, Run):
            self.imports.add("from core.runs.runs import open_run")
            return f"open_run({import_module('dashboard.ui.runs').run_code(value.path)})"
        if isinstance(value, Sweep):
            code = import_module("dashboard.ui.runs").run_code(value.path)
            if code == repr(value.id):
                self.imports.add("from core.runs.sweeps import find_sweep")
                return f"find_sweep({code})"
            self.imports |= {import_of(Sweep), "from pathlib import Path"}
            return f"Sweep(Path({code}))"
        if not isinstance(value, PLAIN) and id(value) in self.names:
            return self.names[id(value)]
        if self._call_of(value) is not None:
            self._write(self._free(name), value)
            return self.names[id(value)]
        if is_result(value) and (part := self._part(value)):
            return part
        if type(value).__name__ == "Question" and hasattr(value, "inputs"):
            models = import_module("dashboard.ui.models")
            self.imports.add("from core.interpret.evidence import Question")
            self._inputs(value.inputs)
            return models.question_code(value)
        if type(value).__name__ == "ModelInputs":
            return self._inputs(value)
        if type(value) in (dict, list, tuple) and not is_spelled(value):
            return self._items(value, name)
        if hasattr(value, "__name__"):  # a function
            self.imports.add(import_of(value))
            return value.__name__
        if not is_spelled(value):
            raise NotRecorded(
                f"{self.page}: no recorded call made {name}, of the class {type(value).__name__}. Make it by "
                "lab.cached, lab.shared or lab.computed, or pass on what it is made of."
            )
        text = source_of(value)
        if text in self.texts:
            return self.texts[text]
        self.imports.update(
            import_of(one) for one in classes_in(value) if re.search(rf"\b{one.__name__}\b", text)
        )
        uses = sum(
            source_of(arg) == text
            for call in self.calls
            for arg in call.args
            if type(arg) is type(value)
        )
        if len(text) <= SHORT or uses < 2 and len(text) < 60:
            return text
        self.texts[text] = self._free(name)
        self.lines.append(f"{self.texts[text]} = {text}")
        return self.texts[text]

    def _items(self, value: dict | list | tuple, name: str) -> str:
        """Several values in one line, or in a line each."""
        if isinstance(value, dict):
            names = [key if str(key).isidentifier() else name for key in value]
            written = map(self._value, value.values(), names)
            parts = [f"{key!r}: {one}" for key, one in zip(value, written, strict=True)]
        else:
            parts = [self._value(one, name) for one in value]
        start, end = {list: ("[", "]"), tuple: ("(", ",)")}.get(type(value), ("{", "}"))
        line = f"{start}{', '.join(parts)}{end}"
        lines = "\n".join([start, *(f"    {part}," for part in parts), end.lstrip(",")])
        return line if len(line) <= LINE_WIDTH else lines

    def _free(self, name: str) -> str:
        taken = {*self.names.values(), *self.texts.values(), *self.models.values()}
        taken |= {name for _, name in self.written}
        return next(
            one for one in (name, *(f"{name}_{n}" for n in range(2, 99))) if one not in taken
        )

    def _model(self, ref: Any) -> str:
        if ref not in self.models:
            self.models[ref] = name = self._free("model")
            self.first.append(import_module("dashboard.ui.models").model_cell(ref, name))
        return self.models[ref]

    def _inputs(self, inputs: Any) -> str:
        models = import_module("dashboard.ui.models")
        further, made = models.inputs_lines(next(iter(self.models)), inputs)
        if made not in self.texts:
            self.imports |= further
            self.texts[made] = self._free("inputs")
            self.lines.append(f"{self.texts[made]} = {made}")
        return self.texts[made]


def _shown(name: str, result: Any) -> list[str]:
    """What a cell prints of a result: its numbers, and the shapes of its arrays; no flags, and no ids beside numbers."""
    numbers = {
        one: value
        for one, value in leaves(name, result)
        if not isinstance(value, tuple) and np.asarray(value).dtype.kind in "fiu"
    }
    measured = {
        one: value
        for one, value in numbers.items()
        if np.asarray(value).dtype.kind == "f" or not np.ndim(value) and "[" not in one
    }
    parts = [
        f"{one}.shape" if isinstance(value, np.ndarray) and value.ndim else one
        for one, value in (measured if measured or is_dataclass(result) else numbers).items()
    ]
    return ([part for part in parts if "[" not in part] or parts)[:4]


def first_sentence(function: Callable[..., Any]) -> str:
    text = " ".join((inspect.getdoc(function) or function.__name__).split("\n\n")[0].split())
    return re.split(r"(?<=[.:;])\s", text)[0].rstrip(":;").rstrip(".") + "."


def import_of(thing: Any) -> str:
    """The line that imports a function or a class, from a package that has it rather than from its module."""
    parts = thing.__module__.split(".")
    packages = [*PUBLIC, *(".".join(parts[:count]) for count in range(2, len(parts)))]
    name = thing.__name__
    has = (one for one in packages if getattr(sys.modules.get(one), name, None) is thing)
    return f"from {next(has, thing.__module__)} import {name}"


def classes_in(value: Any) -> Iterator[type]:
    """The classes that the source of a value calls."""
    if is_dataclass(value):
        yield type(value)
    for _, one in parts_of(value):
        yield from classes_in(one)
