"""What a page draws: its pictures for Export; the browser components, and the buttons that every page has.

    draw("mask_board", "mb", data, key="masks:board", on_cells_change=take)

Each component is a folder beside this file with an entry module ``main.js`` and a ``style.css``; ``lib`` is what they
share. Streamlit mounts inline text, in which imports do not resolve, so the ES modules are joined into one script: each
imported module becomes a function that returns its exports, and only import and export lines are rewritten.
"""

import functools
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import streamlit as st

from dashboard.draw.formats import spoken
from dashboard.draw.page_exports import Script
from dashboard.draw.palette import for_browser
from dashboard.draw.pictures import Picture

# What the page that is drawn has noted for Export. A picture is made when Export opens: a rerun does not pay for it.


Component: TypeAlias = tuple[
    str, str, Mapping[str, Any]
]  # its folder, the class of its root, and its data


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


def notes() -> PageNotes:
    return st.session_state.setdefault("page_pictures", PageNotes())


def begin(keeps_about: bool = False) -> None:
    """Forget the pictures of the run before; a fragment that draws all of the page's keeps what they are of."""
    st.session_state["page_pictures"] = PageNotes(notes().about if keeps_about else {})


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
OTHER = re.compile(r"^(?:import\b|export\b(?! default\b)).*", re.M)


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
    bodies = {name: _join(entry.resolve(), modules, exports, ()) for name, entry in entries.items()}
    parts = ",\n".join(
        f"{name}: (() => {{\n{body.replace('export default ', 'return ')}}})()"
        for name, body in bodies.items()
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
    if other_form := OTHER.search(body):
        raise ValueError(f"{file.name}: cannot join the line {other_form.group()!r}")
    return body


# What the browser components share: how a component is mounted, its modules joined, its palette and its styles.


COMPONENTS = Path(__file__).parent
HEARD = ("fact", "label")  # what a screen reader says of a component
SHIPPED = "components:shipped"  # whether this session's browser has the code of all components
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
    data = {**data, **{name: spoken(data[name]) for name in HEARD if name in data}}
    if exported:
        notes().drawn[key] = name, root, data
    _component(name, root, st.session_state.get(SHIPPED, False))(
        key=key, data=data | {"palette": for_browser()}, width=width, height=height, **callbacks
    )


def ship_code() -> None:
    """Bring the code of all components to the browser, once a session: Streamlit sends it with every mount otherwise.

    A message of a picture then has its data alone, 50 to 100 kB less. Draws an element without any size in sight.
    """
    _code()(key="components_code", data={}, height=1)
    st.session_state[SHIPPED] = True


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
        f"attention_lab.{'shipped_' * shipped}{name}",
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
    request_key = f"{key}:request"
    request = st.session_state.pop(request_key, None) or {}
    _, make = formats.get(request.get("name", ""), ("", None))
    data = {
        "buttons": [{"name": label, "type": TYPES[kind]} for label, (kind, _) in formats.items()],
        "answer": {"turn": request["turn"], "bytes": b64encode(make()).decode()} if make else None,
    }

    def note() -> None:
        st.session_state[request_key] = dict(st.session_state[key].get("ask") or {})

    draw("copy_buttons", "cb", data, key=key, exported=False, on_ask_change=note)


COPY_LINK = "Copy link"
WIDTH, WIDE, HEIGHT = (
    284,
    390,
    28,
)  # px, with that label and a longer one: nothing moves when the browser fills them


def page_actions(
    *,
    key: str,
    presenting: bool,
    theme: str,
    on_present: Callable[[], None],
    on_export: Callable[[], None],
    on_reset: Callable[[], None],
    cookie: str | None = None,
    label: str = COPY_LINK,
) -> None:
    """Draw "Present", "Export" and "Reset", which call back, and the button `label` that copies the link, which the
    browser does alone.

    A `cookie` (NAME=VALUE) is stored for a year, one without a value is deleted. The page runs again once the browser's
    theme is another than `theme`, which Python draws with.
    """
    draw(
        "page_actions",
        "pa",
        {"presenting": presenting, "theme": theme, "cookie": cookie, "label": label},
        key=key,
        width=WIDTH if label == COPY_LINK else WIDE,
        height=HEIGHT,
        exported=False,
        on_present_change=on_present,
        on_export_change=on_export,
        on_reset_change=on_reset,
        on_theme_change=lambda: None,
    )
