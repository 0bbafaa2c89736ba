"""The checker that tests/conftest.py puts on every call in core: annotated shapes and dtypes, and nothing else.

Other hints are left to mypy: a config made from a link or a file must be free to refuse a value in its own words.
"""

from inspect import isclass
from typing import get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def _speaks_of_shapes(hint) -> bool:
    return isclass(hint) and issubclass(hint, AbstractArray) or any(map(_speaks_of_shapes, get_args(hint)))


def checked(function):
    kept = {name: hint for name, hint in function.__annotations__.items() if _speaks_of_shapes(hint)}
    function.__annotations__ = {name: kept.get(name, object) for name in function.__annotations__}
    return _beartype(function) if kept else function
