"""What the server adds to its answers over HTTP, and which requests it refuses: headers, hosts, metrics.

Streamlit checks `server.allowedHosts` where a session begins; here each request is held to it.
"""

from __future__ import annotations

import hmac
import os
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from core.event_log import log
from core.files import hosted
from dashboard.navigation import STEPS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Vega compiles its expressions and Streamlit its style sheets while they run, and a component's script is a blob: code
# of the page itself stays allowed, code, pictures and connections of any other host do not.
POLICY = ("default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
          "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; "
          "font-src 'self' data:; "
          "connect-src 'self' data: blob:; worker-src 'self' blob:; frame-src 'self' data: blob:; object-src 'none'; "
          "base-uri 'self'; form-action 'self'")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # a link holds what a reader typed
    "Permissions-Policy": ", ".join(f"{name}=()" for name in (
        "camera", "microphone", "geolocation", "payment", "usb", "serial", "midi", "display-capture")),
}
PATHS = {*(step.key for step in STEPS), "health", "static", "media", "component"}
CORE_PATHS = {"health", "host-config", "metrics", "upload_file", "bidi-components"}
FILES = {"/static", "/media", "/component", "/_stcore/bidi-components"}  # hundreds a visit
METHODS = {"GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE"}
PROBES = ("/_stcore/health", "/health")  # a probe asks by an address, not by the name that readers use
METRICS = "/_stcore/metrics"


def frames() -> str:
    """Who may show the lab in a frame: `ATTENTION_LAB_FRAMES`, addresses with spaces between, or none; any if not set.

    Raises ValueError where it holds what would end the directive.
    """
    text = os.environ.get("ATTENTION_LAB_FRAMES", "").strip()
    if not text.isprintable() or set(text) & set(",;'\""):
        raise ValueError(f"ATTENTION_LAB_FRAMES takes addresses with spaces between, or none, but is {text!r}.")
    if text == "none":
        return "'none'"
    return f"'self' {text}" if text else ""


class HTTPGuard:
    """ASGI middleware: refuses unknown hosts and strangers who ask for metrics; adds the headers to every answer."""

    def __init__(self, app: ASGIApp, base: str = "") -> None:
        self.app, self.base = app, base
        allowed = frames()
        policy = f"{POLICY}; frame-ancestors {allowed}" if allowed else POLICY
        self.headers = {**HEADERS, "Content-Security-Policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        begin, path = time.perf_counter(), known_path(scope["path"].removeprefix(self.base))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if (status := message["status"]) >= 400 or path not in FILES and path not in PROBES:
                    milliseconds = round((time.perf_counter() - begin) * 1000)
                    method = scope["method"] if scope["method"] in METHODS else "other"
                    log("request", method=method, path=path, status=status, ms=milliseconds)
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers, path = Headers(scope=scope), scope["path"].removeprefix(self.base)
        if path not in PROBES and not is_host_allowed(headers.get("host")):
            return PlainTextResponse("This server does not answer under this name (server.allowedHosts).", 421)
        if path == METRICS and not _may_read_metrics(scope, headers):
            return PlainTextResponse("Metrics need a token here (ATTENTION_LAB_METRICS_TOKEN).", 403)
        return None


def known_path(path: str) -> str:
    """The part of an address that this server chose, for the log: whoever asks writes the rest."""
    first, _, rest = path.strip("/").partition("/")
    if first == "_stcore":
        second = rest.partition("/")[0]
        return f"/_stcore/{second if second in CORE_PATHS else 'other'}"
    return f"/{first}" if first in PATHS or not first else "/other"


def _may_read_metrics(scope: Scope, headers: Headers) -> bool:
    """A public copy answers its own machine and whoever has the token; a proxy there passes other addresses on."""
    token = os.environ.get("ATTENTION_LAB_METRICS_TOKEN", "")
    if not token and not hosted():
        return True
    if token and hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {token}".encode()):
        return True
    passed_on = any(name in headers for name in ("x-forwarded-for", "forwarded", "x-real-ip"))
    return not passed_on and _is_loopback((scope.get("client") or ("",))[0])


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
