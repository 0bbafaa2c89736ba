"""The start of a run reaches the browser together with its first picture.

Streamlit 1.67 sends it at once, and the browser then renders every element of the page, to mark it as old, while the
picture waits its turn. Messages that arrive together are rendered once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import cache, wraps
from weakref import WeakKeyDictionary

import streamlit.runtime.runtime
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession

MOST = 0.04  # seconds for which the start of a run waits
TICK = 0.002  # seconds between two times that the server looks for messages to send; Streamlit's own are 0.005
EARLY = 0.001  # seconds by which a timer may fire too soon
PICTURES = ("bidi_component", "vega_lite_chart")
UNSEEN = re.compile(r"<style.*</style>|<div[^>]*></div>", re.DOTALL)  # what an st.html may hold that is no picture

_ends: WeakKeyDictionary[AppSession, float] = WeakKeyDictionary()  # until when the start of a session's run waits


@cache
def send_with_picture() -> None:
    """Let every session of this process hold the start of a run back until its first picture, or for MOST seconds.

    The picture then leaves within a TICK. Streamlit has no public way to do so.
    """
    vars(streamlit.runtime.runtime).update(MESSAGE_FLUSH_INTERVAL_SECS=TICK)
    flush = AppSession.flush_browser_queue

    @wraps(flush)
    def flush_with_picture(session: AppSession) -> list[ForwardMsg]:
        wake = session._message_enqueued_callback
        if wake is not None and waits(session._browser_queue._queue):
            loop = asyncio.get_running_loop()
            if session not in _ends:
                _ends[session] = loop.time() + MOST
                loop.call_at(_ends[session], wake)
            if loop.time() < _ends[session] - EARLY:
                return []
        _ends.pop(session, None)
        return flush(session)

    AppSession.flush_browser_queue = flush_with_picture  # type: ignore[method-assign, assignment]


def waits(messages: Iterable[ForwardMsg]) -> bool:
    """Whether the messages have the start of a run, but neither a picture nor its end."""
    started = False
    for message in messages:
        kind = message.WhichOneof("type")
        if kind in ("script_finished", "ref_hash"):  # the latter is an element that the browser has
            return False
        if kind == "delta" and _is_picture(message.delta.new_element):
            return False
        started = started or kind == "new_session"
    return started


def _is_picture(element: Element) -> bool:
    kind = element.WhichOneof("type")
    return kind in PICTURES or (kind == "html" and UNSEEN.fullmatch(element.html.body) is None)
