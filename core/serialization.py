"""Configs and records are dataclasses: msgspec reads them and checks them against the types of their fields.

A type says all that may stand in a field: `Annotated[int, Meta(ge=1, le=8)]`, `Literal["adam", "sgd"]`, `tuple[float, ...]`.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import inspect

from core.entries import ConfigError, check_fields, quote

T = TypeVar("T")
LARGEST = 1e300  # sums of such numbers stay finite
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Finite = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
REFUSALS = (msgspec.ValidationError, UnicodeEncodeError)  # the latter of half a character
# What files, links and plug-ins of before call a field: of a run's config, of a fine-tuning run's, of a run's records and
# their buckets.
OLD_NAMES = {
    "config": {"seconds": "max_seconds", "trained": "max_train_seconds", "watch": "num_examples"},
    "finetune": {"watch": "logged_example", "seconds": "max_seconds"},
    "record": {
        "letters": "token_accuracy",
        "exact": "sequence_accuracy",
        "trained": "train_seconds",
    },
}
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def renamed(data: Mapping[str, T], of: str) -> dict[str, T]:
    """An object of a file with today's names for those of before; `of` is a key of OLD_NAMES."""
    return {OLD_NAMES[of].get(name, name): value for name, value in data.items()}


def read(data: object, kind: type[T], name: str) -> T:
    """The dataclass in a dict of plain JSON values.

    ConfigError, which calls it `name` ("A run"), for what is no object, an unknown or a missing field, and a value that
    its field's type does not allow. Values that are instances of their type already are taken as they are.
    """
    needed = [
        field.name
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING
    ]
    values = check_fields(kind, data, name, needed)
    try:
        return msgspec.convert(values, kind)
    except REFUSALS:  # by itself, each field can be named in its sentence
        return kind(**{field: convert(value, kind, field) for field, value in values.items()})


def check_types(config: Any, owner: str = "") -> None:
    """ConfigError for a field of a dataclass whose value its type does not allow; for `__post_init__`."""
    kind: Any = type(config)
    for field in field_types(kind):
        value = getattr(config, field)
        plain = float(value) if isinstance(value, float) else value  # a NumPy float64 is one too
        convert(plain, kind, field, owner)


def convert(value: object, kind: type, field: str, owner: str = "") -> Any:
    """A plain value as the type of a dataclass's field; ConfigError names the field and what would fit."""
    try:
        return msgspec.convert(value, field_types(kind)[field])
    except REFUSALS as error:
        if isinstance(error.__cause__, ConfigError):  # of a dataclass within
            raise error.__cause__ from None
        place, info = field, inspect.type_info(field_types(kind)[field])
        for step in _STEP.finditer(str(error).partition("at `$")[2]):  # "$.rows[2]": where in it
            members = info.types if isinstance(info, inspect.UnionType) else (info,)
            if isinstance(value, Mapping) and step[1] in value:
                known = [member for member in members if isinstance(member, inspect.DataclassType)]
                info = next(one.type for one in known[0].fields if one.encode_name == step[1])
                value = value[step[1]]
            elif isinstance(value, list | tuple) and step[2]:
                item = int(step[2])
                info = next(
                    one.item_types[item] if isinstance(one, inspect.TupleType) else one.item_type
                    for one in members
                    if isinstance(one, inspect.ListType | inspect.VarTupleType | inspect.TupleType)
                )
                value = value[item]
            else:  # within a table, whose keys msgspec does not tell
                break
            place += step[0]
        raise ConfigError(
            f"{owner}{place} = {quote(value)}; expected {expectation(info)}."
        ) from None


@lru_cache
def field_types(kind: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields, with their bounds."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def bounds(kind: type) -> dict[str, tuple[float, float]]:
    """Lowest and highest value of those fields of a dataclass that have both."""
    types = {field: inspect.type_info(hint) for field, hint in field_types(kind).items()}
    return {
        field: (info.ge, info.le)
        for field, info in types.items()
        if isinstance(info, inspect.IntType | inspect.FloatType)
        and info.ge is not None
        and info.le is not None
    }


def expectation(info: inspect.Type) -> str:
    """What a type allows, in words."""
    match info:
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "none"
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case inspect.IntType() | inspect.FloatType():
            number = "a whole number" if isinstance(info, inspect.IntType) else "a number"
            ends = [
                (f" {word} {limit:,}")
                for word, limit in (
                    ("from", info.ge),
                    ("above", info.gt),
                    ("to", info.le),
                    ("below", info.lt),
                )
                if limit is not None
            ]
            return number + "".join(ends)
        case inspect.StrType():
            most = info.max_length
            return "a text" if most is None else f"a text of at most {most:,} characters"
        case inspect.ListType() | inspect.VarTupleType():
            if isinstance(info.item_type, inspect.AnyType):
                return "a list"
            return f"a list, each {expectation(info.item_type)}"
        case inspect.TupleType():
            return f"a list of {', '.join(map(expectation, info.item_types))}"
        case inspect.UnionType():
            return " or ".join(map(expectation, info.types))
        case inspect.DataclassType():
            return f"an object of {', '.join(field.name for field in info.fields)}"
        case inspect.DictType():
            return f"an object, each of its values {expectation(info.value_type)}"
        case _:
            return "another kind of value"
