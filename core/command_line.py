"""What the commands of a shell share: their settings, and mistakes that end in one sentence."""

import json
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core.entries import ConfigError
from core.pretrained.base import PretrainedError
from core.runs import store
from core.tasks.reading import decode_text

Pairs = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        default_factory=list,
        show_default=False,
        help="a setting; give it once for each",
    ),
]
Encoding = Annotated[
    Literal["utf-8", "cp1252"], typer.Option(help="encoding of that file; cp1252 is Windows-1252")
]


def new_app(doc: str) -> typer.Typer:
    """An app without commands yet; its help is the text as it stands."""
    return typer.Typer(
        help=doc.replace("\n\n", "\n\n\b\n"),
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )


def run(app: typer.Typer, arguments: Sequence[str] | None = None, lists: Sequence[str] = ()) -> int:
    """What a command ends with: 0, 1 after a sentence on what is wrong, 2 for words that it does not know.

    `lists` are options that take several values: `--seeds 0 1 2`.
    """
    for stream in (sys.stdout, sys.stderr):
        # a terminal that knows no √ gets its escape, not a traceback
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        words = sys.argv[1:] if arguments is None else arguments
        sys.exit(app(args=spread(words, lists)))  # which ends by itself
    except SystemExit as end:
        return int(end.code or 0)
    except (ConfigError, PretrainedError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if trouble := store.copy_now():
            print(trouble, file=sys.stderr)


def spread(arguments: Sequence[str], lists: Sequence[str]) -> list[str]:
    """The words with the option before each of its values: `--seeds 0 --seeds 1`."""
    words: list[str] = []
    option = None
    for word in arguments:
        if word.startswith("--"):
            option = word if word in lists else None
        elif option and words[-1] != option:
            words.append(option)
        words.append(word)
    return words


def settings(written: Sequence[str], texts: Sequence[str] = ()) -> dict[str, Any]:
    """The values of NAME=VALUE pairs: as JSON where they are that, else, and for `texts`, as they stand."""
    pairs = [pair.partition("=") for pair in written]
    if wrong := [pair for pair, sign, _ in pairs if not sign]:
        raise ConfigError(f"--set {wrong[0]}: write NAME=VALUE.")
    return {name: text if name in texts else value_of(text) for name, _, text in pairs}


def value_of(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def given(**options: object) -> Mapping[str, object]:
    """The options that were written."""
    return {name: value for name, value in options.items() if value is not None}


def text_of(file: Path | None, encoding: str = "utf-8") -> dict[str, str]:
    """A file as the setting `data`; none without a file."""
    return {} if file is None else {"data": decode_text(file.read_bytes(), encoding)}
