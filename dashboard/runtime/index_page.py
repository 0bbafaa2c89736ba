"""The page that a browser loads first: Streamlit's own, with what hides elements that would still move, and preloads.

Streamlit draws an empty page, then the sidebar, which moves all of it, then element after element; each one's code and
each font is fetched when first needed. A style of the page's script would come after all that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamlit import config
from streamlit.file_util import get_static_dir

from dashboard.draw.components import COMPONENTS, bundle
from dashboard.navigation import STEPS
from dashboard.runtime.person import COOKIE, new_cookie

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

SIDEBAR_STYLE = """<style>@keyframes wait { from, to { visibility: hidden } }
[data-testid=stAppViewContainer]:not(:has(> [data-testid=stSidebar])) { animation: wait 5s }
</style>"""
MODULES = (
    "BidiComponent",
    "Html",
    "rehype-raw",
    "rehype-katex",
)  # the code of what each page begins with
FONTS = ("SourceSerifVariable-Roman", "MaterialSymbols-Rounded")  # of titles and icons


def index_page(embedded: bool) -> str:
    """Streamlit's index.html with the script and the style; an embedded page has no sidebar to wait for."""
    script = bundle(COMPONENTS / "lib" / "index_page.js")
    head = "".join(_preloads()) + f"<script>{script}</script>" + ("" if embedded else SIDEBAR_STYLE)
    return (
        (Path(get_static_dir()) / "index.html")
        .read_text("utf-8")
        .replace("</head>", f"{head}</head>", 1)
    )


def _preloads() -> Iterator[str]:
    """Links to files of this version of Streamlit, whose names end in a hash; those that it lacks are left out."""
    static = Path(get_static_dir()) / "static"
    for name in MODULES:
        for file in static.glob(f"js/{name}.*.js"):
            yield f'<link rel="modulepreload" crossorigin href="./static/js/{file.name}">'
    for name in FONTS:
        for file in static.glob(f"media/{name}.*woff2"):
            yield f'<link rel="preload" as="font" type="font/woff2" crossorigin href="./static/media/{file.name}">'


def base_path() -> str:
    """What stands before every address: /name where `server.baseUrlPath` is name, else nothing."""
    return "/".join(["", *filter(None, config.get_option("server.baseUrlPath").split("/"))])


def routes() -> list[Route]:
    """The addresses of all pages, for `st.App`."""
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    pages = {embedded: index_page(embedded) for embedded in (False, True)}

    async def answer(request: Request) -> HTMLResponse:
        embedded = request.query_params.get("embed", "").lower() == "true"
        page = HTMLResponse(pages[embedded], headers={"Cache-Control": "no-cache"})
        if cookie := new_cookie(
            request.cookies.get(COOKIE, ""), base_path() or "/", request.url.scheme == "https"
        ):
            page.headers.update(
                {"Set-Cookie": cookie, "Cache-Control": "no-store"}
            )  # nobody else gets this page
        return page

    return [Route(f"{base_path()}/{'' if step.default else step.key}", answer) for step in STEPS]
