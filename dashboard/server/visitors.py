"""The visitors of a public copy and of any lab: who asks, what one may hold, and which requests the server refuses.

A person is the id in the browser's cookie, which the server sets. The id is stored nowhere: what a person makes lies in a
folder named by a hash of it (people.py). A browser without cookies, as in a page of another site, is another person in
each session, and has a new one after a lost connection. The address is that of the connection, or what a proxy says that
uvicorn's FORWARDED_ALLOW_IPS names: none by default.

A page elsewhere can point a name of its own at this computer, and would then be one site with the lab (DNS rebinding).
So a lab that is no public copy answers only names that were set, `localhost` and addresses, which nobody can point
elsewhere; Streamlit's `server.allowedHosts` says which names.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config, runtime

from core.event_log import log
from core.files import hosted, runs_folder, set_person
from core.memory import pauses
from core.settings import settings
from dashboard.draw.formats import byte_size
from dashboard.navigation import STEPS
from dashboard.server.streamlit_internals import script_run

COOKIE, PERSON = "attention_lab_person", "person:key"
PERSON_HEADER = (
    "x-attention-lab-person"  # of a connection; what a browser sends under this name is dropped
)
ID = re.compile(r"[0-9a-f]{32}")  # of a person, and of their folder
VISIT_SECONDS = 60.0  # between two notes of one person's visits

_visits: dict[
    str, tuple[float, str]
] = {}  # when and from which address each was here last, in memory alone
_owners: dict[str, str] = {}  # of each session, the person or, without a cookie, the address
_lock = threading.Lock()


MB = 1_000_000
VARIABLE = "ATTENTION_LAB_HOSTED_LIMITS"
# Each limit, for a machine with 1 GB, and its meaning; ATTENTION_LAB_HOSTED_LIMITS, such as steps=500 hours=12, sets
# others.
LIMITS = {
    "steps": (2_000, "steps of a run"),
    "seconds": (
        120,
        "seconds of a run; a claim, a corpus or a fine-tuning run may continue after them",
    ),
    "under_way": (20, "runs of a person that wait or train"),
    "runs": (40, "runs that are kept for a person; the oldest without a name go first"),
    "megabytes": (200, "MB of disk for a person's runs, reports and data"),
    "upload_megabytes": (5, "MB of one uploaded file"),
    "unpacked_megabytes": (20, "MB of an uploaded run, unpacked"),
    "uploads": (20, "uploaded files of a person in an hour"),
    "held_megabytes": (25, "MB of uploaded files that the memory holds for one open page"),
    "message_megabytes": (
        2,
        "MB of one message of a browser, with all that its page has been given",
    ),
    "address_under_way": (200, "runs of all people of one address that wait or train"),
    "address_megabytes": (1_000, "MB of disk for all people of one address"),
    "address_uploads": (200, "uploaded files of all people of one address in an hour"),
    "address_held_megabytes": (150, "MB of uploaded files that the memory holds for one address"),
    "address_sessions": (80, "open pages of all people of one address"),
    "sessions": (300, "open pages of everybody"),
    "queue": (300, "runs of everybody that wait"),
    "server_megabytes": (4_000, "MB of disk for everybody"),
    "downloads": (1, "models that are downloaded at one time"),
    "hours": (
        24,
        "hours after the last visit and the last run, after which a person's things are deleted",
    ),
}


def limits() -> dict[str, int]:
    """The limits as they are set; ValueError names one that is no whole number, or that there is not."""
    values = {name: value for name, (value, _) in LIMITS.items()}
    for name, text in settings().hosted_limits.items():
        if name not in LIMITS:
            raise ValueError(f"{VARIABLE} has {', '.join(LIMITS)}, but no {name!r:.60}.")
        if not text.isdecimal():
            raise ValueError(f"{VARIABLE}: {name} = {text!r:.60} is no whole number.")
        values[name] = int(text)
    return values


def at_most(name: str, value: int) -> int:
    """A limit by its name, where it is less than `value`, which holds elsewhere."""
    return min(value, limits()[name]) if hosted() else value


def new_cookie(sent: str, path: str, secure: bool) -> str:
    """The header that gives a browser its id, 128 random bits; "" for one that sent a valid id, and elsewhere."""
    if not hosted() or ID.fullmatch(sent):
        return ""
    return (
        f"{COOKIE}={secrets.token_hex(16)}; Path={path}; Max-Age={30 * 86_400}; HttpOnly; SameSite=Lax"
        f"{'; Secure' if secure else ''}"
    )


def me() -> str:
    """The name of the folder of the person whose page asks; "" outside of any page."""
    return (
        "" if script_run() is None else str(st.session_state.setdefault(PERSON, key_of(cookie())))
    )


def key_of(name: str) -> str:
    """The name of the folder of the person with this cookie; of a new person where it is not one that we gave."""
    name = name if ID.fullmatch(name) else secrets.token_hex(16)
    return hashlib.sha256(name.encode()).hexdigest()[:32]


set_person(me)
pauses.append(lambda: script_run() and st.session_state.get(PERSON))  # Streamlit ends a run here


def cookie() -> str:
    """The person's id, by which they are known after a reload, too; "" without one."""
    value = str(st.context.cookies.get(COOKIE, ""))
    return value if ID.fullmatch(value) else ""


def network(address: str) -> str:
    """The address, or of IPv6 the network of 64 bits, which is what one household or one server has."""
    with suppress(ValueError):
        if ip_address(address).version == 6:
            return str(ip_network((address, 64), strict=False))
    return address


def is_local(address: str | None, headers: Container[str]) -> bool:
    """Whether a request comes from this computer, and no proxy passed it on; the address None counts as its own."""
    passed_on = any(name in headers for name in ("X-Forwarded-For", "Forwarded", "X-Real-Ip"))
    with suppress(ValueError):
        ip = ip_address(address or "127.0.0.1")
        return not passed_on and bool((getattr(ip, "ipv4_mapped", None) or ip).is_loopback)
    return False


def _owner(cookie: str, address: str) -> str:
    """Whose a session is, and a request for it: the person of a cookie of ours, else whoever is at the address."""
    return key_of(cookie) if ID.fullmatch(cookie) else address


def note_visit() -> None:
    """Note that the person was here, by which their folder lasts, from which address, and in which session."""
    if not hosted() or not (key := me()):
        return
    address, now = network(st.context.ip_address or "127.0.0.1"), time.monotonic()
    with _lock:
        before, _ = _visits.pop(key, (-VISIT_SECONDS, ""))  # the latest stand last
        recent = now - before < VISIT_SECONDS
        _visits[key] = before if recent else now, address
        _owners.pop(session := getattr(script_run(), "session_id", ""), None)
        _owners[session] = _owner(cookie(), address)
        for table in (_visits, _owners):
            while len(table) > 10_000:
                del table[next(iter(table))]
    if not recent:
        with suppress(OSError):  # nothing was made yet
            os.utime(runs_folder())


def neighbours() -> set[str]:
    """The keys of all people at the address of the person who asks, who is one of them."""
    key = me()
    with _lock:
        address = _visits.get(key, (0.0, ""))[1]
        return {key, *(other for other, (_, its) in _visits.items() if address and its == address)}


def forget_person(key: str) -> None:
    with _lock:
        _visits.pop(key, None)


DESCRIPTORS = Path("/dev/fd")  # on Linux and macOS
# open files, where the system allows as many; macOS refuses the first
MAX_FILES = 65_536, 10_240
UNTAKEN = 120.0  # seconds in which a page takes a file that was uploaded

open_pages: Counter[str] = Counter()  # connected sessions by address


def raise_file_limit() -> None:
    """Let this process open as many files as it may, up to MAX_FILES; does nothing on Windows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in MAX_FILES:
        with suppress(ValueError, OSError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE,
                (max(soft, most if hard == resource.RLIM_INFINITY else min(hard, most)), hard),
            )
            return


def no_room(address: str) -> str:
    """Why one more page cannot be opened from an address; "" where it can."""
    if sys.platform != "win32" and DESCRIPTORS.is_dir():
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # 128 are left to runs, models and requests; RLIM_INFINITY is −1
        if 0 <= most < len(os.listdir(DESCRIPTORS)) + 128:
            return "This server has as many open pages as it can serve. Try again in a few minutes."
    if hosted():
        now = limits()
        if open_pages.total() >= now["sessions"]:
            return f"This copy has {now['sessions']} pages open, as many as it serves. Try again in a few minutes."
        if open_pages[address] >= now["address_sessions"]:
            return (
                f"Your network has {now['address_sessions']} pages open here, as many as it may. Close some, then try "
                "again."
            )
    return ""


@dataclass(eq=False)
class Upload:
    """A file that a browser sends or has sent: of which session and address, its bytes, and the request itself."""

    session: str
    file: str
    address: str
    size: int
    scope: Scope
    at: float = field(default_factory=time.monotonic)
    taken: bool = False

    def may_go(self, room_is_needed: bool) -> bool:
        """Whether no page took it in time, or, where room is needed, its page was closed."""
        if (
            room_is_needed
            and runtime.exists()
            and not runtime.get_instance().is_active_session(self.session)
        ):
            return True
        return not self.taken and time.monotonic() - self.at >= UNTAKEN


uploads: list[Upload] = []  # all that Streamlit holds in memory


def too_much(upload: Upload) -> str:
    """Why a file is not stored beside the others of its page and its address; "" where it is."""
    now = limits()
    for owner, max_bytes, max_files, name in (
        ("session", now["held_megabytes"], now["uploads"], "page"),
        ("address", now["address_held_megabytes"], now["address_uploads"], "network"),
    ):
        sizes = [one.size for one in uploads if getattr(one, owner) == getattr(upload, owner)]
        if sum(sizes) + upload.size > max_bytes * MB or len(sizes) >= max_files:
            return (
                f"The server holds as many uploaded files of your {name} as it may: {byte_size(max_bytes * MB)}, "
                f"{max_files} files. Remove some, or reload the page."
            )
    return ""


def take(file: str) -> None:
    """Note that a page reads an uploaded file, which then stays as long as the page is open."""
    for upload in list(uploads):
        upload.taken = upload.taken or upload.file == file


# What the server adds to its answers over HTTP, and which requests it refuses: by host, metrics, pages, uploads.


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
# a probe asks by an address, not by the name that readers use
PROBES = "/_stcore/health", "/health"
METRICS = "/_stcore/metrics"
UNKNOWN_NAME = (
    "This lab does not answer under this name. Open it as localhost or by its address, or start it with "
    "--server.allowedHosts and the name."
)
BEFORE_A_PAGE = "/_stcore/host-config"  # a browser asks for it before it connects, and shows the answer's sentence
UPLOAD = "/_stcore/upload_file"
USUAL_PROXIES = "127.0.0.1,::1"  # that uvicorn believes where none are named
NOT_YOURS = (
    "This page is of another person, or was closed. Reload yours, and choose the file again."
)


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
                server.ws_max_size = min(server.ws_max_size, limits()["message_megabytes"] * MB)
            # Whatever connects from this machine would be believed what it says of its address; nobody is, until named.
            if (
                getattr(server, "forwarded_allow_ips", "") == USUAL_PROXIES
                and "FORWARDED_ALLOW_IPS" not in os.environ
            ):
                server.loaded_app = getattr(server.loaded_app, "app", server.loaded_app)
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
                sent = HTTPConnection(scope).cookies.get(COOKIE, "")
                # Give a browser that asks for a page its id, on a public copy.
                if (
                    scope["method"] == "GET"
                    and message["status"] < 400
                    and path in PAGES
                    and (cookie := new_cookie(sent, self.base or "/", scope["scheme"] == "https"))
                ):
                    headers.append("Set-Cookie", cookie)
                    headers["Cache-Control"] = "no-store"  # nobody else gets this page
            await send(message)

        answer: ASGIApp = (
            self._upload
            if hosted() and path == UPLOAD and scope["method"] in ("PUT", "DELETE")
            else self.app
        )
        headers = Headers(scope=scope)
        if exact not in PROBES and not _answers_to(headers.get("host")):
            answer = PlainTextResponse(UNKNOWN_NAME, 421)
        elif exact == METRICS and not _may_read_metrics(scope, headers):
            answer = PlainTextResponse(
                "Metrics need a token here (ATTENTION_LAB_METRICS_TOKEN).", 403
            )
        elif exact == BEFORE_A_PAGE and (problem := no_room(_address(scope))):
            # of another type the browser shows the status alone
            answer = JSONResponse(problem, 503)
        await answer(scope, receive, send_with_headers)

    async def _open_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        address, headers = _address(scope), Headers(scope=scope)
        known = _answers_to(headers.get("host"))
        if problem := no_room(address) if known else UNKNOWN_NAME:
            await PlainTextResponse(problem, 503 if known else 421)(scope, receive, send)
            return
        if hosted():
            forwarded = headers.get("x-forwarded-for", "")
            if forwarded and (scope.get("client") or ("",))[0] not in forwarded:
                # all its readers are one address
                log("untrusted_proxy", logging.WARNING, setting="FORWARDED_ALLOW_IPS")
            others = [
                pair for pair in scope["headers"] if pair[0].lower() != PERSON_HEADER.encode()
            ]
            scope = {
                **scope,
                "headers": [
                    *others,
                    (
                        PERSON_HEADER.encode(),
                        key_of(HTTPConnection(scope).cookies.get(COOKIE, "")).encode(),
                    ),
                ],
            }
        open_pages[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            open_pages[address] -= 1
            if not open_pages[address]:
                del open_pages[address]

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        session, _, file = scope["path"].removeprefix(f"{self.base}{UPLOAD}/").partition("/")
        address, sent = _address(scope), HTTPConnection(scope).cookies.get(COOKIE, "")
        if _owners.get(session) != _owner(sent, address):
            await PlainTextResponse(NOT_YOURS, 403)(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        size = int(length) if length.isdecimal() else limits()["upload_megabytes"] * MB
        upload = Upload(session, file, address, size, dict(scope))
        if scope["method"] == "PUT":
            if too_much(upload):
                await self._free(room_is_needed=True)
            if problem := too_much(upload):
                await PlainTextResponse(problem, 429)(scope, receive, send)
                return
            uploads.append(upload)
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
            uploads[:] = [
                one
                for one in uploads
                if (one is not upload or stored)
                and not (
                    stored and one is not upload and (one.session, one.file) == (session, file)
                )
            ]
        upload.at = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.call_later(UNTAKEN, lambda: self._tasks.add(loop.create_task(self._free())))

    async def _free(self, room_is_needed: bool = False) -> None:
        """Delete uploaded files that no page took, as their browser would."""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            pass

        self._tasks = {task for task in self._tasks if not task.done()}
        for upload in [one for one in uploads if one.may_go(room_is_needed)]:
            uploads.remove(upload)
            await self.app({**upload.scope, "method": "DELETE"}, receive, send)


def _address(scope: Scope) -> str:
    return network((scope.get("client") or ("",))[0])


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
    return (
        bool(token)
        and hmac.compare_digest(sent, whole)
        or is_local((scope.get("client") or ("unknown",))[0], headers)
    )


def _answers_to(host: str | None) -> bool:
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
