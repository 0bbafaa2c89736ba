"""What the browser components share: how a component is mounted, its modules joined, its palette and its styles.

    draw("mask_board", "mb", data, key="masks:board", on_cells_change=take)

Each component is a folder beside this one with an entry module ``main.js`` and a ``style.css``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from dashboard.components.lib.bundle import bundle, bundle_all
from dashboard.draw.formats import spoken
from dashboard.draw.palette import for_browser
from dashboard.runtime.page_pictures import add_drawn

COMPONENTS = Path(__file__).parents[1]
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
    data = {**data, **{field: spoken(data[field]) for field in HEARD if field in data}}
    if exported:
        add_drawn(key, name, root, data)
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
    html = f'<div class="view {root}"></div>\n'
    if shipped:
        return st.components.v2.component(
            f"attention_lab.shipped_{name}",
            html=html,
            css=css_of(name),
            js=(f"const part = (await {STORE}.parts).{name};\nexport default part;\n"),
        )
    return st.components.v2.component(
        f"attention_lab.{name}",
        html=html,
        css=css_of(name),
        js=bundle(COMPONENTS / name / "main.js"),
    )


def css_of(name: str) -> str:
    """The styles of a component, after the shared ones."""
    return "\n".join(
        (folder / "style.css").read_text("utf-8")
        for folder in (COMPONENTS / "lib", COMPONENTS / name)
    )
