"""Whose page asks on a public copy: the person of the id in the browser's cookie, which the server sets.

The id is stored nowhere: what a person makes lies in a folder named by a hash of it (people.py). A browser without
cookies, as in a page of another site, is another person in each session, and has a new one after a lost connection.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
import time
from contextlib import suppress
from ipaddress import ip_address, ip_network

import streamlit as st
from streamlit import config
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core.files import hosted, runs_folder, set_person

COOKIE, PERSON = "attention_lab_person", "person:key"
PERSON_HEADER = (
    "x-attention-lab-person"  # of a connection; what a browser sends under this name is dropped
)
ID = re.compile(r"[0-9a-f]{32}")  # of a person, and of their folder
COOKIE_SECONDS = 30 * 86_400
VISIT_SECONDS = 60.0  # between two notes of one person's visits
MOST_VISITS = 10_000

_visits: dict[
    str, tuple[float, str]
] = {}  # when and from which address each was here last, in memory alone
_lock = threading.Lock()


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
    if get_script_run_ctx(suppress_warning=True) is None:
        return ""
    if PERSON not in st.session_state:
        st.session_state[PERSON] = key_of(_cookie())
    return str(st.session_state[PERSON])


def key_of(cookie: str) -> str:
    """The name of the folder of the person with this cookie; of a new person where it is not one that we gave."""
    name = cookie if ID.fullmatch(cookie) else secrets.token_hex(16)
    return hashlib.sha256(name.encode()).hexdigest()[:32]


set_person(me)


def has_cookie() -> bool:
    """Whether the person is known by a cookie, and so after a reload, too."""
    return bool(_cookie())


def _cookie() -> str:
    value = str(st.context.cookies.get(COOKIE, ""))
    return value if ID.fullmatch(value) else ""


def bind_sessions() -> None:
    """Let Streamlit hold each session to the person of PERSON_HEADER, which the guard writes at every connection.

    A browser that lost its connection asks for its session by the session's id, which is no secret of one person.
    """
    config.set_option(
        "server.trustedUserHeaders",
        {**config.get_option("server.trustedUserHeaders"), PERSON_HEADER: "attention_lab_person"},
    )


def network(address: str) -> str:
    """The address, or of IPv6 the network of 64 bits, which is what one household or one server has."""
    with suppress(ValueError):
        if ip_address(address).version == 6:
            return str(ip_network((address, 64), strict=False))
    return address


def note_visit() -> None:
    """Note that the person was here, by which their folder lasts, and from which address."""
    if not hosted() or not (key := me()):
        return
    address, now = network(st.context.ip_address or "this computer"), time.monotonic()
    with _lock:
        before, _ = _visits.get(key, (-VISIT_SECONDS, ""))
        recent = now - before < VISIT_SECONDS
        _visits.pop(key, None)  # the latest stand last
        _visits[key] = before if recent else now, address
        while len(_visits) > MOST_VISITS:
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
    """Forget when and from where a person was here."""
    with _lock:
        _visits.pop(key, None)
