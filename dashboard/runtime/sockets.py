"""The server's connections: each message leaves at once.

Streamlit 1.67 makes its socket without naming TCP, so that asyncio does not switch Nagle's algorithm off (it does for
sockets that name it). A rerun's answer is several small messages; under Nagle each waits until the browser has
acknowledged the one before: a round trip, and up to 40 ms where the acknowledgement is delayed (RFC 1122, 4.2.3.2).
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

DESCRIPTORS = Path("/dev/fd")  # on Linux and macOS; elsewhere the server stays as Streamlit makes it


@cache
def send_at_once() -> int:
    """Switch Nagle's algorithm off on this process's TCP sockets, once; returns on how many.

    A connection that a listening socket accepts later inherits it.
    """
    numbers = [int(name) for name in os.listdir(DESCRIPTORS)] if DESCRIPTORS.is_dir() else []
    return sum(map(_send_at_once, numbers))


def _send_at_once(descriptor: int) -> bool:
    with suppress(OSError):  # one that was closed since
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            connection = socket.socket(fileno=descriptor)
            try:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return True
            finally:
                connection.detach()  # it stays its owner's
    return False
