"""What one visitor may hold of the server: open pages, and uploaded files that wait in its memory.

The address is that of the connection, or what a trusted proxy says (uvicorn's FORWARDED_ALLOW_IPS).
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamlit import runtime

from core.files import hosted

if TYPE_CHECKING:
    from starlette.types import Scope

DESCRIPTORS = Path("/dev/fd")  # on Linux and macOS
SPARE_FILES = 128  # open files that are left to runs, models and requests
MOST_FILES = (
    65_536,
    10_240,
)  # open files, where the system allows as many; macOS refuses the first
UNTAKEN = 120.0  # seconds in which a page takes a file that was uploaded

open_pages: Counter[str] = Counter()  # connected sessions by address


def raise_file_limit() -> None:
    """Let this process open as many files as it may, up to MOST_FILES; does nothing on Windows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in MOST_FILES:
        with suppress(ValueError, OSError):
            allowed = most if hard == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
            return


def no_room(address: str) -> str:
    """Why one more page cannot be opened from an address; "" where it can."""
    if _few_files():
        return "This server has as many open pages as it can serve. Try again in a few minutes."
    if hosted():
        from dashboard.runtime.limits import limits  # with all of core.training

        now = limits()
        if open_pages.total() >= now.sessions:
            return f"This copy has {now.sessions} pages open, as many as it serves. Try again in a few minutes."
        if open_pages[address] >= now.address_sessions:
            return (
                f"Your network has {now.address_sessions} pages open here, as many as it may. Close some, then try "
                "again."
            )
    return ""


def _few_files() -> bool:
    if sys.platform == "win32" or not DESCRIPTORS.is_dir():
        return False
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most != resource.RLIM_INFINITY and len(os.listdir(DESCRIPTORS)) + SPARE_FILES > most


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
    from dashboard.draw.formats import byte_size
    from dashboard.runtime.limits import MB, limits

    now = limits()
    for owner, most_bytes, most_files, name in (
        ("session", now.held_megabytes, now.uploads, "page"),
        ("address", now.address_held_megabytes, now.address_uploads, "network"),
    ):
        sizes = [one.size for one in uploads if getattr(one, owner) == getattr(upload, owner)]
        if sum(sizes) + upload.size > most_bytes * MB or len(sizes) >= most_files:
            return (
                f"The server holds as many uploaded files of your {name} as it may: {byte_size(most_bytes * MB)}, "
                f"{most_files} files. Remove some, or reload the page."
            )
    return ""


def take(file: str) -> None:
    """Note that a page reads an uploaded file, which then stays as long as the page is open."""
    for upload in list(uploads):
        upload.taken = upload.taken or upload.file == file
