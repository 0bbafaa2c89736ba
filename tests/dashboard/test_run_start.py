"""The start of a run waits in the server for the run's first picture, and no longer than it may."""

import asyncio
import inspect
from typing import cast

import streamlit.runtime.runtime
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

from dashboard.runtime.run_start import MOST, TICK, send_with_picture, waits
from tests.cases import each


class Session:
    """What of a session is asked for."""

    def __init__(self) -> None:
        self.woken = 0
        self._browser_queue = ForwardMsgQueue()

    def _message_enqueued_callback(self) -> None:
        self.woken += 1

    def flush(self) -> int:
        """How many messages leave."""
        return len(AppSession.flush_browser_queue(cast(AppSession, self)))


def message(kind: str, element: str = "", body: str = "") -> ForwardMsg:
    result = ForwardMsg()
    if element:
        result.delta.new_element.html.body = body
        getattr(result.delta.new_element, element).SetInParent()
        result.metadata.delta_path[:] = [0, hash(element) % 1000]
    else:
        getattr(result, kind).SetInParent() if kind == "new_session" else setattr(result, kind, 0)
    return result


START, END = ("new_session",), ("script_finished",)
WIDGET, CHART = ("delta", "slider"), ("delta", "vega_lite_chart")


@each("kinds, held", [((), False), ((START,), True), ((START, WIDGET), True), ((START, WIDGET, CHART), False),
                      ((START, END), False), ((WIDGET,), False), ((START, ("delta", "html")), False),
                      ((START, ("delta", "html", "<style>p {}</style>")), True),
                      ((START, ("delta", "html", '<div id="picture"></div>')), True),
                      ((START, ("delta", "html", "<div>a word</div>")), False),
                      ((START, ("delta", "bidi_component")), False)])
def test_a_start_waits_without_a_picture(kinds, held):
    assert waits([message(*kind) for kind in kinds]) == held


async def flushed(kinds, seconds: float) -> tuple[int, int, int]:
    """How many messages leave at once, after so many seconds, and how often the server was woken."""
    send_with_picture()
    session = Session()
    for kind in kinds:
        session._browser_queue.enqueue(message(*kind))
    now = session.flush()
    await asyncio.sleep(seconds)
    return now, session.flush(), session.woken


@each("kinds, seconds, counts", [((START, CHART), 0, (2, 0, 0)), ((START, WIDGET), 0, (0, 0, 0)),
                                 ((START, WIDGET), 2 * MOST, (0, 2, 1)), ((WIDGET,), 0, (1, 0, 0))])
def test_what_is_held_leaves_after_a_moment(kinds, seconds, counts):
    assert asyncio.run(flushed(kinds, seconds)) == counts


def test_the_server_looks_for_messages_at_each_tick():
    send_with_picture()
    loop = inspect.getclosurevars(streamlit.runtime.runtime.Runtime._loop_coroutine).globals
    assert loop["MESSAGE_FLUSH_INTERVAL_SECS"] == TICK
