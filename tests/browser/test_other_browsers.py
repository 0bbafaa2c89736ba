"""Firefox and WebKit, where they are installed: pages are drawn, and a map answers the keyboard and the pointer."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import WebSocketException

from dashboard.navigation import step_of
from tests.browser.other_browsers import OPENERS, OtherBrowser, installed

PAGES = {
    key: f"{step_of(key).title} · Attention Lab"
    for key in ("start", "one_query", "pretrained", "inside_weight")
}
READY = """(() => {
  const app = document.querySelector("[data-testid=stApp]")?.dataset ?? {};
  const parts = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")];
  return app.testConnectionState === "CONNECTED" && app.testScriptState === "notRunning" && parts.length > 1
    && parts.every((part) => part.hasAttribute("data-drawn")) && !document.querySelector("[data-testid=stSkeleton]");
})()"""
EXCEPTION = 'document.querySelector("[data-testid=stException]")?.innerText ?? ""'
# The last attention view, and how many colors are on its lower canvas.
VIEW = (
    '[...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].map((host) => '
    'host.shadowRoot.querySelector(".av[data-ready]")).filter(Boolean).at(-1)'
)
COLORS = f"""(() => {{
  const canvas = {VIEW}.querySelector("canvas.base");
  const {{ data }} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}})()"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                not installed(name), reason=f"no {name} here: see .ci/browser"
            ),
        )
        for name in OPENERS
    ],
)
def other(request, tmp_path_factory) -> Iterator[OtherBrowser]:
    with ExitStack() as stack:
        try:
            browser = stack.enter_context(
                OPENERS[request.param](tmp_path_factory.mktemp(request.param))
            )
        except (
            OSError,
            RuntimeError,
            WebSocketException,
        ) as error:  # RuntimeError: it ended before its address
            pytest.skip(f"{request.param} does not start on this machine: {error}")
        yield browser


def test_pages_are_drawn_and_a_map_answers_keys_and_clicks(other, server):
    other.goto(server.url)
    for key, name in PAGES.items():
        link = (
            '([...document.querySelectorAll("[data-testid=stSidebar] [data-testid=stBidiComponentIsolated]")]'
            f'.map((host) => host.shadowRoot.querySelector("a[data-key={key}]")).find(Boolean) ?? '
            f"document.querySelector(\"[data-testid=stPageLink-NavLink][href*='{key}']\"))"
        )
        other.wait(f"!!{link}")  # it may be drawn after the page before is ready
        other.run(f"{link}.click()")
        other.wait(f"document.title === {name!r} && {READY}")
        assert other.run(EXCEPTION) == ""
        assert other.run("document.documentElement.scrollWidth <= innerWidth + 1")
    # it is drawn after the page is ready
    other.wait(f'!!{VIEW}?.querySelector("canvas.base")?.width')
    assert other.run(COLORS) > 20
    other.run(f'void {VIEW}.querySelector(".stage").focus()')
    other.press("Home", "ArrowDown", "ArrowRight", "ArrowRight")
    other.wait(f'{VIEW}.dataset.hover === "11,2"')
    other.wait(f'{VIEW}.querySelector(".live").textContent.startsWith("was to animal, 0.")')
    other.press("Enter")
    other.wait('location.search.includes("cell=11.2")')
    x, y = other.run(f"""(() => {{
      const [x, y, wide, high] = {VIEW}.dataset.map.split(",").map(Number);
      const canvas = {VIEW}.querySelector("canvas.over");
      canvas.scrollIntoView({{ block: "center" }});
      const {{ left, top }} = canvas.getBoundingClientRect();
      return [left + x + 2.5 * wide, top + y + 10.5 * high];
    }})()""")
    other.click(x, y)
    other.wait('location.search.includes("cell=10.2")')
