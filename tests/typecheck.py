"""The checker that tests/conftest.py puts on every function of core with a shape in its annotations.

Other hints are left to mypy: a config made from a link or a file must be free to refuse a value in its own words.
"""

from collections.abc import Callable
from inspect import isclass
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, install_import_hook

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def _has_shapes(hint: Any, names: dict[str, Any] | None = None) -> bool:
    """Whether a shape stands in the annotation; one that cannot be evaluated yet counts as if it had one."""
    if isinstance(hint, str):
        try:
            hint = eval(hint, names)
        except Exception:
            return True
    return isclass(hint) and issubclass(hint, AbstractArray) or any(map(_has_shapes, get_args(hint)))


def checked(function: Callable) -> Callable:
    """The function under beartype, with every annotation but its shapes taken off."""
    shapes = {name: hint for name, hint in function.__annotations__.items() if _has_shapes(hint)}
    function.__annotations__ = {name: shapes.get(name, object) for name in function.__annotations__}
    return _beartype(function) if shapes else function


def only_shapes(jaxtyped: Callable) -> Callable:
    """`jaxtyped` that returns a function without shapes as it is: the wrapper binds the arguments of every call."""

    def decorate(item: Any = None, *, typechecker: Callable | None = None) -> Any:
        if item is None:
            return lambda item: decorate(item, typechecker=typechecker)
        function = item.__init__ if isclass(item) else item  # a dataclass's fields are its __init__'s arguments
        hints = getattr(function, "__annotations__", {}).values()
        if not any(_has_shapes(hint, function.__globals__) for hint in hints):
            return item
        return jaxtyped(item, typechecker=typechecker)

    return decorate


def install() -> None:
    """Check the shapes of every call in core; must run before core is first imported."""
    jaxtyping.jaxtyped = only_shapes(jaxtyping.jaxtyped)
    install_import_hook("core", "tests.typecheck.checked")
