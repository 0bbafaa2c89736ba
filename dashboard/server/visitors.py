"""The visitors of a public copy: whose page asks, and what one may hold of the server: open pages, uploaded files.

A person is the id in the browser's cookie, which the server sets. The id is stored nowhere: what a person makes lies in a
folder named by a hash of it (people.py). A browser without cookies, as in a page of another site, is another person in
each session, and has a new one after a lost connection. The address is that of the connection, or what a trusted proxy
says (uvicorn's FORWARDED_ALLOW_IPS).
"""

import hashlib
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

import streamlit as st
from starlette.types import Scope
from streamlit import runtime

from core.files import hosted, runs_folder, set_person
from core.settings import settings
from dashboard.draw.formats import byte_size
from dashboard.server.streamlit_internals import script_run

COOKIE, PERSON = "attention_lab_person", "person:key"
PERSON_HEADER = (
    "x-attention-lab-person"  # of a connection; what a browser sends under this name is dropped
)
ID = re.compile(r"[0-9a-f]{32}")  # of a person, and of their folder
COOKIE_SECONDS = 30 * 86_400
VISIT_SECONDS = 60.0  # between two notes of one person's visits
MAX_VISITS = 10_000

_visits: dict[
    str, tuple[float, str]
] = {}  # when and from which address each was here last, in memory alone
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
        f"{COOKIE}={secrets.token_hex(16)}; Path={path}; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax"
        f"{'; Secure' if secure else ''}"
    )


def me() -> str:
    """The name of the folder of the person whose page asks; "" outside of any page."""
    if script_run() is None:
        return ""
    return str(st.session_state.setdefault(PERSON, key_of(cookie())))


def key_of(name: str) -> str:
    """The name of the folder of the person with this cookie; of a new person where it is not one that we gave."""
    name = name if ID.fullmatch(name) else secrets.token_hex(16)
    return hashlib.sha256(name.encode()).hexdigest()[:32]


set_person(me)


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


def note_visit() -> None:
    """Note that the person was here, by which their folder lasts, and from which address."""
    if not hosted() or not (key := me()):
        return
    address, now = network(st.context.ip_address or "this computer"), time.monotonic()
    with _lock:
        before, _ = _visits.pop(key, (-VISIT_SECONDS, ""))  # the latest stand last
        recent = now - before < VISIT_SECONDS
        _visits[key] = before if recent else now, address
        while len(_visits) > MAX_VISITS:
            del _visits[next(iter(_visits))]
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
SPARE_FILES = 128  # open files that are left to runs, models and requests
MAX_FILES = (
    65_536,
    10_240,
)  # open files, where the system allows as many; macOS refuses the first
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
            allowed = most if hard == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
            return


def no_room(address: str) -> str:
    """Why one more page cannot be opened from an address; "" where it can."""
    if sys.platform != "win32" and DESCRIPTORS.is_dir():
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if 0 <= most < len(os.listdir(DESCRIPTORS)) + SPARE_FILES:  # RLIM_INFINITY is −1
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
