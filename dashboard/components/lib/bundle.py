"""Join the ES modules of a component into one script: Streamlit mounts inline text, in which imports do not resolve.

Each imported module becomes a function that returns its exports. Only import and export lines are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.M)
OTHER = re.compile(r"^(?:import\b|export\b(?! default\b)).*", re.M)


def bundle(entry: Path) -> str:
    """The entry module as a script without imports, after the modules that it needs.

    ValueError for import cycles, imports of names that are not exported, and any form other than ``import { a, b } from
    "./c.js";`` and ``export`` before a function, const or class.
    """
    modules: dict[Path, str] = {}
    exports: dict[Path, list[str]] = {}
    body = _join(entry.resolve(), modules, exports, ())
    return "\n".join([*modules.values(), f"// {entry.parent.name}/{entry.name}", body])


def bundle_all(entries: Mapping[str, Path]) -> str:
    """An expression: an object with the default export of each entry by its name, and each module once."""
    modules: dict[Path, str] = {}
    exports: dict[Path, list[str]] = {}
    bodies = {name: _join(entry.resolve(), modules, exports, ()) for name, entry in entries.items()}
    parts = [
        f"{name}: (() => {{\n{body.replace('export default ', 'return ')}}})()"
        for name, body in bodies.items()
    ]
    return "\n".join(["(() => {", *modules.values(), "return {", ",\n".join(parts), "};\n})()"])


def _join(
    file: Path, modules: dict[Path, str], exports: dict[Path, list[str]], path: tuple[Path, ...]
) -> str:
    """The body of a module, its imports turned into constants; adds the modules that it needs."""
    if file in path:
        cycle = [*path[path.index(file) :], file]
        raise ValueError(f"modules import each other: {' → '.join(one.name for one in cycle)}")
    text = file.read_text("utf-8")
    for names, source in IMPORT.findall(text):
        other = (file.parent / source).resolve()
        if other not in modules:
            body = _join(other, modules, exports, (*path, file))
            if "\nexport default " in body:
                raise ValueError(f"{other.name} has a default export; only an entry may")
            head = f"const __module{len(modules)} = (() => {{ // {other.parent.name}/{other.name}"
            modules[other] = f"{head}\n{body}return {{ {', '.join(exports[other])} }};\n}})();"
        for missing in {name.split(" as ")[0].strip() for name in names.split(",")} - {
            *exports[other],
            "",
        }:
            raise ValueError(
                f"{file.name} imports {missing} from {other.name}, which does not export it"
            )
    exports[file] = EXPORT.findall(text)
    order = list(modules)
    body = IMPORT.sub(lambda match: _constant(match, file, order), EXPORT.sub("", text))
    if other_form := OTHER.search(body):
        raise ValueError(f"{file.name}: cannot join the line {other_form.group()!r}")
    return body


def _constant(line: re.Match[str], file: Path, order: list[Path]) -> str:
    names, source = line.groups()
    return f"const {{{names.replace(' as ', ': ')}}} = __module{order.index((file.parent / source).resolve())};\n"
