"""What a page draws and computes: its pictures and scripts for Export; the browser components, and every page's buttons.

    draw("mask_board", "mb", data, key="masks:board", on_cells_change=take)

Each component is a folder beside this file with an entry module ``main.js`` and a ``style.css``; ``lib`` is what they
share. Streamlit mounts inline text, in which imports do not resolve, so the ES modules are joined into one script: each
imported module becomes a function that returns its exports, and only import and export lines are rewritten.
"""

import functools
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field as DataclassField, dataclass, field, fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

import numpy as np
import streamlit as st

from dashboard.draw.figures import for_browser
from dashboard.draw.formats import spoken
from dashboard.draw.pictures import Picture

# What a page computes as Python: cells of words and code, as a script and as a notebook, and values as their source.


NOTEBOOK = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Cell:
    """Words, and the code that they introduce; `draw` draws what the code computed, in a notebook alone.

    `picture` is the key of the page's picture that `draw` draws: a notebook opens with it. `results` has the page's own
    numbers by the expression that gives them again after the code.
    """

    text: str
    code: str
    draw: str = ""
    picture: str = ""
    results: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """Cells, and what they compute together, beside what each does."""

    cells: tuple[Cell, ...]
    together: Mapping[str, Any] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, np.ndarray]:
        """The page's own numbers by the expression that gives them again."""
        parts = (*(cell.results for cell in self.cells), self.together)
        return {name: np.asarray(value) for part in parts for name, value in part.items()}

    def text(self, source: str) -> str:
        """One Python file: the words as comments, `source` (page, model, text, day) in its first line.

        What a reader typed may be in `source`: a line break in it must not end the comment.
        """
        about, start = self._start()
        head = "\n".join(
            "# " + "".join(sign if sign.isprintable() else " " for sign in line)
            for line in (source, *about)
        )
        parts = (
            "".join(f"# {line}".rstrip() + "\n" for line in cell.text.splitlines())
            + cell.code.strip()
            for cell in self.cells
            if cell.code
        )
        return "\n\n".join([head, start, *parts]) + "\n"

    def notebook(self, source: str, drawings: Mapping[str, str] | None = None) -> str:
        """A notebook (nbformat 4.5) of the same cells; `drawings` are SVGs by the key of the picture."""
        about, start = self._start()
        cells = [
            _markdown("source", "\n\n".join([source, *about])),
            _code_cell("start", start),
        ]
        for number, cell in enumerate(self.cells):
            drawing = (drawings or {}).get(cell.picture)
            cells += [
                _markdown(f"text-{number}", cell.text),
                *([_code_cell(f"code-{number}", cell.code.strip())] if cell.code else []),
                *([_code_cell(f"draw-{number}", cell.draw.strip(), drawing)] if cell.draw else []),
            ]
        return json.dumps(
            {"nbformat": 4, "nbformat_minor": 5, "metadata": NOTEBOOK, "cells": cells},
            ensure_ascii=False,
            indent=1,
        )

    def _start(self) -> tuple[list[str], str]:
        """Sentences about what this needs, and the code that imports or checks it, so that it runs in any folder."""
        from core.provenance import lab_commit, lab_version, needed_plugins

        code = "\n".join(f"{cell.code}\n{cell.draw}" for cell in self.cells)
        needed, commit = needed_plugins(code), lab_commit()
        made_at = f" (commit {commit})" if commit else ""
        about = [
            f"Needs Attention Lab {lab_version()}{made_at}: its folder on "
            "PYTHONPATH, or installed. Runs in any folder."
        ]
        lines = ["import attention_lab  # so that core and dashboard are found"]
        lines += ["from core.files import lab_path"] if "lab_path(" in code else []
        if needed:
            about.append(
                f"Needs the plug-ins {', '.join(needed)}, in the folder that ATTENTION_LAB_PLUGINS names."
            )
            listed = "".join(f"    {name!r}: {digest!r},\n" for name, digest in needed.items())
            lines += [
                "from core.provenance import require_plugins",
                f"\nrequire_plugins({{  # SHA-256\n{listed}}})",
            ]
        return about, "\n".join(lines)


def join(scripts: Iterable[Script]) -> Script:
    parts = list(scripts)
    return Script(
        tuple(cell for part in parts for cell in part.cells),
        {name: value for part in parts for name, value in part.together.items()},
    )


def _markdown(key: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": key, "metadata": {}, "source": text}


def _code_cell(key: str, code: str, drawing: str | None = None) -> dict[str, Any]:
    output = {"output_type": "display_data", "metadata": {}, "data": {"image/svg+xml": drawing}}
    return {
        "cell_type": "code",
        "id": key,
        "metadata": {},
        "execution_count": None,
        "source": code,
        "outputs": [output] if drawing else [],
    }


LINE_WIDTH = 100  # columns of a line of code
SIZES = ("d_model", "num_heads")  # fields that are always written: a reader wants to see them
Arguments = list[tuple[str, Any]]  # a name ("" for an argument by its place) and a value


def source_of(value: Any, indent: int = 0) -> str:
    """The Python of a number, text, list, tuple or config; a call that is too long takes a line for each argument."""
    if is_dataclass(value) and not isinstance(value, type):
        name, arguments = _call(value)
        return _wrapped(
            f"{name}(", [(f"{key}=" if key else "", one) for key, one in arguments], ")", indent
        )
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return _wrapped(ends[0], [("", item) for item in value], ends[1], indent)
    if isinstance(value, dict):
        return _wrapped("{", [(f"{key!r}: ", item) for key, item in value.items()], "}", indent)
    if isinstance(value, PurePath):
        return repr(str(value))
    return repr(value.item() if isinstance(value, np.generic) else value)


def attention_import(code: str) -> str:
    names = [
        name
        for name in ("Attention", "AttentionConfig", "Choice", "attend")
        if re.search(rf"\b{name}\b", code)
    ]
    return f"from core.attention import {', '.join(names)}"


def _wrapped(start: str, parts: Arguments, end: str, indent: int) -> str:
    """One line where it fits, else a line for each part that is a call, and short parts after each other."""
    line = start + ", ".join(key + source_of(one) for key, one in parts) + end
    if len(line) + indent <= LINE_WIDTH and "\n" not in line:
        return line
    inner, lines = indent + 4, [""]
    for part in (f"{key}{source_of(one, indent + 4)}, " for key, one in parts):
        if lines[-1] and (len(lines[-1]) + len(part) + inner > LINE_WIDTH or "(" in start[1:]):
            lines.append("")
        lines[-1] += part
    body = "".join(f"\n{' ' * inner}{part.rstrip()}" for part in lines)
    return f"{start}{body}\n{' ' * indent}{end.lstrip(',')}"


def _call(value: Any) -> tuple[str, Arguments]:
    name = type(value).__name__
    if hasattr(type(value), "of") and hasattr(value, "params"):  # a Choice or a TaskConfig
        return f"{name}.of", [
            ("", value.key),
            *(("", part) for part in getattr(value, "parts", ())),
            *_changed_params(value),
        ] + ([("seed", value.seed)] if getattr(value, "seed", 0) else [])
    return name, [
        (item.name, _as_key(getattr(value, item.name)))
        for item in fields(value)
        if item.init and (item.name in SIZES or not _is_default(item, getattr(value, item.name)))
    ]


def _as_key(value: Any) -> Any:
    """A choice with nothing but defaults as its key, which a config completes."""
    return (
        value.key
        if type(value).__name__ == "Choice" and not value.parts and not _changed_params(value)
        else value
    )


def _is_default(item: DataclassField, value: Any) -> bool:
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    if default is MISSING or type(default) is not type(value):
        return False
    return bool(_as_key(default) == _as_key(value))


def _changed_params(value: Any) -> Arguments:
    """The parameters of a choice or a task that are not the defaults of every entry of that key."""
    from core.attention import AXES
    from core.tasks import TASKS

    every: list[Iterable[Any]] = [*AXES.values(), TASKS]
    defaults = [
        {param.key: param.default for param in entry.params}
        for entries in every
        for entry in entries
        if entry.key == value.key
    ]
    return [
        (key, one)
        for key, one in value.params
        if not defaults or any(each.get(key) != one for each in defaults if key in each)
    ]


# What the page that is drawn has noted for Export. A picture is made when Export opens: a rerun does not pay for it.


# its folder, the class of its root, and its data
Component: TypeAlias = tuple[str, str, Mapping[str, Any]]


@dataclass
class PageNotes:
    """How the pictures of the page are made, in the order in which they were drawn, and what they are all of.

    `drawn` is what each component of the browser was given, so that a file can draw it again; `scripts` make what the
    page computes as Python, by its parts; `fact` is the page's measured sentence, the one that was drawn last.
    """

    about: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Callable[[], Picture]] = field(default_factory=dict)
    drawn: dict[str, Component] = field(default_factory=dict)
    scripts: dict[str, Callable[[], Script]] = field(default_factory=dict)
    fact: str = ""


NOTES = "page_pictures"  # the session's key of them


def notes() -> PageNotes:
    return st.session_state.setdefault(NOTES, PageNotes())


def begin(keeps_about: bool = False) -> None:
    """Forget the pictures of the run before; a fragment that draws all of the page's keeps what they are of."""
    st.session_state[NOTES] = PageNotes(notes().about if keeps_about else {})


def add(key: str, make: Callable[[], Picture]) -> None:
    """Note how a picture is made; one of the same key, drawn again, takes its place."""
    notes().pictures[key] = make


def describe(**about: str) -> None:
    notes().about.update(about)


def add_script(make: Callable[[], Script], part: str = "") -> None:
    """Note how the page's script is made, from the controls and the result that are drawn.

    A page of several fragments, each of which runs alone, notes one for each part.
    """
    notes().scripts[part] = make


# The ES modules of a component joined into one script.


IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.M)
OTHER_LINES = re.compile(r"^(?:import\b|export\b(?! default\b)).*", re.M)


def bundle(entry: Path) -> str:
    """The entry module as a script without imports, after the modules that it needs.

    ValueError for import cycles, imports of names that are not exported, and any form other than ``import { a, b } from
    "./c.js";`` and ``export`` before a function, const or class.
    """
    modules: dict[Path, str] = {}
    body = _join(entry.resolve(), modules, {}, ())
    return "\n".join([*modules.values(), f"// {entry.parent.name}/{entry.name}", body])


def bundle_all(entries: Mapping[str, Path]) -> str:
    """An expression: an object with the default export of each entry by its name, and each module once."""
    modules: dict[Path, str] = {}
    exports: dict[Path, list[str]] = {}
    parts = ",\n".join(
        f"{name}: (() => {{\n{body.replace('export default ', 'return ')}}})()"
        for name, body in {
            name: _join(entry.resolve(), modules, exports, ()) for name, entry in entries.items()
        }.items()
    )
    return "\n".join(["(() => {", *modules.values(), "return {", parts, "};\n})()"])


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

    def constant(line: re.Match[str]) -> str:
        at = list(modules).index((file.parent / line[2]).resolve())
        return f"const {{{line[1].replace(' as ', ': ')}}} = __module{at};\n"

    body = IMPORT.sub(constant, EXPORT.sub("", text))
    if other_form := OTHER_LINES.search(body):
        raise ValueError(f"{file.name}: cannot join the line {other_form.group()!r}")
    return body


# What the browser components share: how a component is mounted, its modules joined, its palette and its styles.


COMPONENTS = Path(__file__).parent
# What holds the code in the browser: a promise, and what fulfils it, by whichever comes first.
STORE = """(globalThis.attentionLab ??= (() => {
  let open;
  const parts = new Promise((done) => { open = done; });
  return { parts, open };
})())"""


def draw(
    name: str,
    root: str,
    data: dict[str, Any],
    *,
    key: str,
    width: int | Literal["stretch"] = "stretch",
    height: int | Literal["content"] = "content",
    exported: bool = True,
    **callbacks: Callable[[], None],
) -> None:
    """Mount component ``name`` in an element of class ``root`` with its data and, under "palette", the palette.

    Where it is ``exported``, its data is held for the HTML file of the page. Its code is that of `ship_code`, where
    this session has it.
    """
    # a screen reader says its fact and its label
    data = {**data, **{name: spoken(data[name]) for name in ("fact", "label") if name in data}}
    if exported:
        notes().drawn[key] = name, root, data
    _component(name, root, store("components").get("shipped", False))(
        key=key, data=data | {"palette": for_browser()}, width=width, height=height, **callbacks
    )


def store(name: str) -> dict[str, Any]:
    """What this session remembers of a component, or of those that share a name; it may be changed."""
    return st.session_state.setdefault(name, {})


def sent(key: str, name: str) -> Any:
    """What the browser has sent last from a component or figure under this name; for its callback."""
    return st.session_state.get(key, {}).get(name)


def ship_code() -> None:
    """Bring the code of all components to the browser, once a session: Streamlit sends it with every mount otherwise.

    A message of a picture then has its data alone, 50 to 100 kB less. Draws an element without any size in sight.
    """
    _code()(key="components_code", data={}, height=1)
    store("components")["shipped"] = True


@functools.cache
def _code() -> Any:
    entries = {file.parent.name: file for file in sorted(COMPONENTS.glob("*/main.js"))}
    return st.components.v2.component(
        "attention_lab.code",
        html="<i hidden></i>",
        js=(
            f"{STORE}.open({bundle_all(entries)});\n"
            "export default ({ parentElement }) => parentElement.getRootNode().host?.setAttribute('data-drawn', '');\n"
        ),
    )


@functools.cache
def _component(name: str, root: str, shipped: bool) -> Any:
    return st.components.v2.component(
        f"attention_lab.shipped_{name}" if shipped else f"attention_lab.{name}",
        html=f'<div class="view {root}"></div>\n',
        css=css_of(name),
        js=(
            f"const part = (await {STORE}.parts).{name};\nexport default part;\n"
            if shipped
            else bundle(COMPONENTS / name / "main.js")
        ),
    )


def css_of(name: str) -> str:
    return "\n".join(
        (folder / "style.css").read_text("utf-8")
        for folder in (COMPONENTS / "lib", COMPONENTS / name)
    )


# Buttons that copy a picture or its numbers to the clipboard; what is copied is made when a button is pressed.


TYPES = {"png": "image/png", "text": "text/plain"}


def copy_buttons(formats: Mapping[str, tuple[str, Callable[[], bytes]]], *, key: str) -> None:
    """Draw a button for each name: its type of TYPES, and what makes the bytes.

    A press asks Python, which answers in the next run; the browser waits for the answer with the clipboard open.
    """
    own = store(f"{key}:view")
    request = own.pop("request", {})
    _, make = formats.get(request.get("name", ""), ("", None))
    data = {
        "buttons": [{"name": label, "type": TYPES[kind]} for label, (kind, _) in formats.items()],
        "answer": {"turn": request["turn"], "bytes": b64encode(make()).decode()} if make else None,
    }

    def note() -> None:
        own["request"] = dict(sent(key, "ask") or {})

    draw("copy_buttons", "cb", data, key=key, exported=False, on_ask_change=note)


COPY_LINK = "Copy link"
# px, with that label and a longer one: nothing moves when the browser fills them
WIDTH, WIDE, HEIGHT = 284, 390, 28


def page_actions(
    *,
    key: str,
    presenting: bool,
    theme: str,
    on_present: Callable[[], None],
    on_export: Callable[[], None],
    on_reset: Callable[[], None],
    cookies: Sequence[str] = (),
    label: str = COPY_LINK,
) -> None:
    """Draw "Present", "Export" and "Reset", which call back, and the button `label` that copies the link, which the
    browser does alone.

    Each of `cookies` (NAME=VALUE) is stored for a year, one without a value is deleted. The page runs again once the
    browser's theme is another than `theme`, which Python draws with.
    """
    draw(
        "page_actions",
        "pa",
        {"presenting": presenting, "theme": theme, "cookies": cookies, "label": label},
        key=key,
        width=WIDTH if label == COPY_LINK else WIDE,
        height=HEIGHT,
        exported=False,
        on_present_change=on_present,
        on_export_change=on_export,
        on_reset_change=on_reset,
        on_theme_change=lambda: None,
    )
