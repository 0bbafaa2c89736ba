"""What the server adds to its answers over HTTP, and which requests it refuses: by host, metrics, pages, uploads.

A page elsewhere can point a name of its own at this computer, and would then be one site with the lab (DNS rebinding).
So a lab that is no public copy answers only names that were set, `localhost` and addresses, which nobody can point
elsewhere; Streamlit's `server.allowedHosts` says which names. What one visitor may hold is in visitors.py.
"""

import asyncio
import hmac
import logging
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from core.event_log import log
from core.files import hosted
from core.settings import settings
from dashboard.navigation import STEPS
from dashboard.server import visitors

# Vega compiles its expressions and Streamlit its style sheets while they run, and a component's script is a blob: code
# of the page itself stays allowed, code, pictures and connections of any other host do not.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; "
    "font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; frame-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # a link holds what a reader typed
    "Permissions-Policy": ", ".join(
        f"{name}=()"
        for name in (
            "camera",
            "microphone",
            "geolocation",
            "payment",
            "usb",
            "serial",
            "midi",
            "display-capture",
        )
    ),
}
PATHS = {*(step.key for step in STEPS), "health", "static", "media", "component"}
PAGES = {f"/{'' if step.default else step.key}" for step in STEPS}
CORE_PATHS = {"health", "host-config", "metrics", "upload_file", "bidi-components"}
FILES = {"/static", "/media", "/component", "/_stcore/bidi-components"}  # hundreds a visit
METHODS = {"GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE"}
PROBES = (
    "/_stcore/health",
    "/health",
)  # a probe asks by an address, not by the name that readers use
METRICS = "/_stcore/metrics"
UNKNOWN_NAME = (
    "This lab does not answer under this name. Open it as localhost or by its address, or start it with "
    "--server.allowedHosts and the name."
)
BEFORE_A_PAGE = "/_stcore/host-config"  # a browser asks for it before it connects, and shows the answer's sentence
UPLOAD = "/_stcore/upload_file"


def frames() -> str:
    """Who may show the lab in a frame: `ATTENTION_LAB_FRAMES`, addresses with spaces between, or none; any if not set.

    Raises ValueError where it holds what would end the directive.
    """
    text = settings().frames
    if not text.isprintable() or set(text) & set(",;'\""):
        raise ValueError(
            f"ATTENTION_LAB_FRAMES takes addresses with spaces between, or none, but is {text!r}."
        )
    if text == "none":
        return "'none'"
    return f"'self' {text}" if text else ""


class HTTPGuard:
    """ASGI middleware: refuses unknown hosts, strangers who ask for metrics, and what is more than a visitor may hold;
    adds the headers to every answer."""

    def __init__(self, app: ASGIApp, base: str = "") -> None:
        self.app, self.base = app, base
        allowed = frames()
        policy = f"{POLICY}; frame-ancestors {allowed}" if allowed else POLICY
        self.headers = {**HEADERS, "Content-Security-Policy": policy}
        self._tasks: set[asyncio.Task[None]] = set()  # else a task that nobody holds may vanish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # Let a public copy's server take small messages only; Streamlit's own limit is that of its answers, too.
            # Neither Streamlit nor ASGI has a public way to do so: these are uvicorn's settings, which starts it.
            server: Any = getattr(getattr(receive, "__self__", None), "config", None)
            if hosted() and hasattr(server, "ws_max_size"):
                server.ws_max_size = min(
                    server.ws_max_size, visitors.limits()["message_megabytes"] * visitors.MB
                )
        if scope["type"] != "http":
            await (self._open_page if scope["type"] == "websocket" else self.app)(
                scope, receive, send
            )
            return
        begin, exact = time.perf_counter(), scope["path"].removeprefix(self.base)
        path = known_path(exact)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if (status := message["status"]) >= 400 or path not in FILES and path not in PROBES:
                    log(
                        "request",
                        method=scope["method"] if scope["method"] in METHODS else "other",
                        path=path,
                        status=status,
                        ms=round((time.perf_counter() - begin) * 1000),
                    )
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
                if scope["method"] == "GET" and message["status"] < 400 and path in PAGES:
                    # Give a browser that asks for a page its id, on a public copy.
                    sent = HTTPConnection(scope).cookies.get(visitors.COOKIE, "")
                    if cookie := visitors.new_cookie(
                        sent, self.base or "/", scope["scheme"] == "https"
                    ):
                        headers.append("Set-Cookie", cookie)
                        headers["Cache-Control"] = "no-store"  # nobody else gets this page
            await send(message)

        stores = hosted() and path == UPLOAD and scope["method"] in ("PUT", "DELETE")
        answer: ASGIApp = self._upload if stores else self.app
        headers = Headers(scope=scope)
        if exact not in PROBES and not _answers_to(headers.get("host")):
            answer = PlainTextResponse(UNKNOWN_NAME, 421)
        elif exact == METRICS and not _may_read_metrics(scope, headers):
            answer = PlainTextResponse(
                "Metrics need a token here (ATTENTION_LAB_METRICS_TOKEN).", 403
            )
        elif exact == BEFORE_A_PAGE and (problem := visitors.no_room(_address(scope))):
            answer = JSONResponse(
                problem, 503
            )  # of another type the browser shows the status alone
        await answer(scope, receive, send_with_headers)

    async def _open_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        address, headers = _address(scope), Headers(scope=scope)
        known = _answers_to(headers.get("host"))
        if problem := visitors.no_room(address) if known else UNKNOWN_NAME:
            await PlainTextResponse(problem, 503 if known else 421)(scope, receive, send)
            return
        if hosted():
            forwarded = headers.get("x-forwarded-for", "")
            if forwarded and (scope.get("client") or ("",))[0] not in forwarded:
                # all its readers are one address
                log("untrusted_proxy", logging.WARNING, setting="FORWARDED_ALLOW_IPS")
            person = visitors.key_of(
                HTTPConnection(scope).cookies.get(visitors.COOKIE, "")
            ).encode()
            others = [
                pair
                for pair in scope["headers"]
                if pair[0].lower() != visitors.PERSON_HEADER.encode()
            ]
            scope = {**scope, "headers": [*others, (visitors.PERSON_HEADER.encode(), person)]}
        visitors.open_pages[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            visitors.open_pages[address] -= 1
            if not visitors.open_pages[address]:
                del visitors.open_pages[address]

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        session, _, file = scope["path"].removeprefix(f"{self.base}{UPLOAD}/").partition("/")
        length = Headers(scope=scope).get("content-length", "")
        largest = visitors.limits()["upload_megabytes"] * visitors.MB
        size = int(length) if length.isdecimal() else largest
        upload = visitors.Upload(session, file, _address(scope), size, dict(scope))
        if scope["method"] == "PUT":
            if visitors.too_much(upload):
                await self._free(room_is_needed=True)
            if problem := visitors.too_much(upload):
                await PlainTextResponse(problem, 429)(scope, receive, send)
                return
            visitors.uploads.append(upload)
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            stored = status < 400
            visitors.uploads[:] = [
                one
                for one in visitors.uploads
                if (one is not upload or stored)
                and not (
                    stored and one is not upload and (one.session, one.file) == (session, file)
                )
            ]
        upload.at = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.call_later(visitors.UNTAKEN, lambda: self._tasks.add(loop.create_task(self._free())))

    async def _free(self, room_is_needed: bool = False) -> None:
        """Delete uploaded files that no page took, as their browser would."""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            pass

        self._tasks = {task for task in self._tasks if not task.done()}
        for upload in [one for one in visitors.uploads if one.may_go(room_is_needed)]:
            visitors.uploads.remove(upload)
            await self.app({**upload.scope, "method": "DELETE"}, receive, send)


def _address(scope: Scope) -> str:
    return visitors.network((scope.get("client") or ("",))[0])


def known_path(path: str) -> str:
    """The part of an address that this server chose, for the log: whoever asks writes the rest."""
    first, _, rest = path.strip("/").partition("/")
    if first == "_stcore":
        second = rest.partition("/")[0]
        return f"/_stcore/{second if second in CORE_PATHS else 'other'}"
    return f"/{first}" if first in PATHS or not first else "/other"


def _may_read_metrics(scope: Scope, headers: Headers) -> bool:
    """A public copy answers its own machine and whoever has the token; a proxy there passes other addresses on."""
    token = settings().metrics_token
    if not token and not hosted():
        return True
    sent, whole = headers.get("authorization", "").encode(), f"Bearer {token}".encode()
    if token and hmac.compare_digest(sent, whole):
        return True
    return visitors.is_local((scope.get("client") or ("unknown",))[0], headers)


def _answers_to(host: str | None) -> bool:
    """Whether the lab answers a request that calls it by this name."""
    allowed = [
        name.strip().lower().rstrip(".") for name in config.get_option("server.allowedHosts")
    ]
    if hosted() and not allowed:
        return True
    with suppress(ValueError):
        parts = urlsplit(f"//{host or ''}")
        name, _ = (parts.hostname or "").rstrip("."), parts.port  # which must be a number
        if parts.netloc != host or "@" in parts.netloc:
            return False
        if allowed:
            return bool(name) and any(
                pattern in ("*", name) or pattern.startswith("*.") and name.endswith(pattern[1:])
                for pattern in allowed
            )  # as Streamlit has it
        return name in ("localhost", config.get_option("server.address")) or bool(ip_address(name))
    return False


def base_path() -> str:
    """What stands before every address: /name where `server.baseUrlPath` is name, else nothing."""
    return "/".join(["", *filter(None, config.get_option("server.baseUrlPath").split("/"))])
