"""Return the memory of work that is done, and of sessions that have left, while the server has little else to do.

Streamlit forgets a session two minutes after its browser left (`server.disconnectedSessionTTL`), but only once another
browser leaves: the last of a class would stay. Python frees the parts of a session that refer to each other in a full
collection alone, which a server of many lasting objects seldom makes. glibc holds freed memory for the next call.
"""

from __future__ import annotations

import gc
import threading
import time
from functools import cache
from typing import Any

from streamlit import runtime
from streamlit.runtime.websocket_session_manager import WebsocketSessionManager

from core.memory import give_back, share_arenas
from dashboard.runtime.warm_up import IDLE, at_start, wait_until_idle

REST = 15.0  # seconds between two looks


@cache
def begin() -> None:
    """Import what the first page needs, and return memory from then on, in a thread of its own.

    What these libraries hold is left out of full collections, of which each would spend 0.1 s on it.
    """
    share_arenas()
    at_start()
    gc.collect()
    gc.freeze()
    threading.Thread(target=_watch, daemon=True, name="idle_memory").start()


def _watch() -> None:
    last = time.process_time()
    while True:
        time.sleep(REST)
        if not runtime.exists():  # a page ran in a test
            continue
        wait_until_idle()
        if left := forget_sessions():
            gc.collect()
        if left or time.process_time() - last > IDLE:
            give_back()
            last = time.process_time()


def forget_sessions() -> int:
    """Forget the sessions whose browsers left longer ago than Streamlit holds them for; the number of them.

    What they uploaded goes at once: a reference to a session may stay. Streamlit has no public way to do so.
    """
    manager = getattr(runtime.get_instance(), "_session_mgr", None) if runtime.exists() else None
    if not isinstance(manager, WebsocketSessionManager):
        return 0  # a page runs in a test
    storage: Any = manager._session_storage
    with manager._storage_lock:
        left = [info.session for _, info in storage._cache.expire()]
    for session in left:
        session.shutdown()
    return len(left)
