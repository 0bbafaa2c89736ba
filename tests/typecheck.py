"""The checker that tests/every_test.py puts on every function of core with a shape in its annotations.

Shapes alone are checked, and each combination of them once per function. Other hints are left to mypy: a config made
from a link or a file must be free to refuse a value in its own words.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib.machinery import SourceFileLoader
from typing import Any, get_args

import jaxtyping
import numpy as np
import torch
from beartype import BeartypeConf
from beartype.door import is_bearable
from jaxtyping import AbstractArray, _import_hook, install_import_hook, jaxtyped

CONF = BeartypeConf(is_pep484_tower=True)
ARRAYS, SEQUENCES = (torch.Tensor, np.ndarray), (tuple, list)


def _evaluate(hint: Any, names: dict[str, Any]) -> Any:
    """The annotation itself, or its text where it cannot be evaluated (yet)."""
    try:
        return eval(hint, names) if isinstance(hint, str) else hint
    except Exception:
        return hint


def _has_shapes(hint: Any) -> bool:
    return (
        inspect.isclass(hint)
        and issubclass(hint, AbstractArray)
        or any(map(_has_shapes, get_args(hint)))
    )


def _form(value: Any) -> Any:
    """What the check of a value depends on: types, shapes and dtypes."""
    kind = type(value)
    if issubclass(kind, ARRAYS):
        return value.shape, value.dtype
    if issubclass(kind, SEQUENCES):
        return kind, *map(_form, value)
    if issubclass(kind, dict):
        return tuple((key, _form(item)) for key, item in value.items())
    return kind


def _check(function: Callable, hints: dict[str, Any], values: list[tuple[str, Any]]) -> None:
    with jaxtyped("context"):
        for name, value in values:
            if not is_bearable(value, hints[name], conf=CONF):
                beside = {other: _form(another) for other, another in values}
                raise AssertionError(
                    f"{function.__module__}.{function.__qualname__}: {name} is {_form(value)}, "
                    f"not {function.__annotations__[name]}, beside {beside}"
                )


def checked(function: Callable) -> Callable:
    """The function with a check of its arguments before each call and of its result after it."""
    parameters = inspect.signature(function).parameters.values()
    names = [
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    rest = next((each.name for each in parameters if each.kind == each.VAR_POSITIONAL), None)
    passed: set = set()

    @functools.cache
    # at the first call, when its module is whole
    def hints() -> tuple[dict[str, Any], list[tuple[int, str]]]:
        """The hints with shapes, and the places of the arguments that have one."""
        evaluated = {
            name: _evaluate(hint, function.__globals__)
            for name, hint in function.__annotations__.items()
            if name != "return" or not inspect.isgeneratorfunction(function)
        }
        shaped = {name: hint for name, hint in evaluated.items() if _has_shapes(hint)}
        return shaped, [(place, name) for place, name in enumerate(names) if name in shaped]

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        shaped, places = hints()
        if not shaped:
            return function(*args, **named)
        values = [(name, args[place]) for place, name in places if place < len(args)]
        values += [(name, value) for name, value in named.items() if name in shaped]
        if rest in shaped:
            values += [(rest, value) for value in args[len(names) :]]
        form: Any = tuple([(name, _form(value)) for name, value in values])
        if form not in passed:
            _check(function, shaped, values)
            passed.add(form)
        result = function(*args, **named)
        if "return" in shaped:
            form = form, _form(result)
            if form not in passed:
                _check(function, shaped, [*values, ("return", result)])
                passed.add(form)
        return result

    return call


def _decorate(item: Any) -> Any:
    """The class or function as the import hook finds it, checked where a shape may stand in its annotations."""
    if inspect.isclass(item):  # a dataclass's fields are the arguments of its __init__
        if is_dataclass(item) and "__init__" in vars(item):
            item.__init__ = _decorate(item.__init__)  # type: ignore[method-assign,misc]
        return item
    hints = [_evaluate(hint, item.__globals__) for hint in item.__annotations__.values()]
    return (
        checked(item) if any(isinstance(hint, str) or _has_shapes(hint) for hint in hints) else item
    )


class Loader(_import_hook._JaxtypingLoader):
    """jaxtyping's loader with a cache of its own, whoever asks for the code: runpy asks for it past `exec_module`."""

    # jaxtyping's changes the cache of all modules meanwhile
    exec_module = SourceFileLoader.exec_module

    @staticmethod
    def _checked_path(path: str) -> str:
        return path.removesuffix(".pyc") + ".checked.pyc" if path.endswith(".pyc") else path

    def get_data(self, path: str) -> bytes:
        return super().get_data(self._checked_path(path))

    def set_data(self, path: str, data: Any, **options: Any) -> None:
        super().set_data(self._checked_path(path), data, **options)


def install() -> None:
    """Check the shapes of every call in core; must run before core is first imported."""
    _import_hook._JaxtypingLoader = Loader  # type: ignore[misc]
    jaxtyping.jaxtyped = lambda typechecker: _decorate  # type: ignore[assignment]
    install_import_hook("core", "tests.typecheck.checked")
