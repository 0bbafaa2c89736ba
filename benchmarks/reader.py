"""A reader without a browser: opens pages and moves controls over Streamlit's WebSocket, as its frontend does.

The messages are Streamlit's own protocol buffers, which its package brings: BackMsg asks for a rerun, ForwardMsg
answers with what changed on the page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.widget_values import WIDGETS, next_state

PICTURES = ("bidi_component", "vega_lite_chart", "imgs", "html", "table", "dataframe")
ENDS = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
MAX_SECONDS = 60.0  # of one page or move
LARGEST = 200 << 20  # bytes of a message


class PageError(Exception):
    """A page showed an exception, was not found or did not answer in time."""


@dataclass(frozen=True)
class Answer:
    """Seconds from the request to the first changed picture, or else to the end, and to the end of the run."""

    picture: float
    finished: float


@dataclass
class Widget:
    """A control on the page: the name of its element's type, the element itself, its fragment's id, and the run's."""

    sort: str
    element: Any
    fragment: str
    run: str


@dataclass
class _Request:
    """What was requested: a full run, or a fragment's where `fragment` names it; `runs` began after it."""

    fragment: str
    at: float = field(default_factory=time.perf_counter)
    runs: set[str] = field(default_factory=set)
    picture: float | None = None
    done: asyncio.Future[float] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Reader:
    """One session of a server; `errors` are the exceptions that pages showed."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.errors: list[str] = []
        self.bytes = 0
        self._cached: dict[str, Delta] = {}  # elements that the server refers to by hash alone
        self._request: _Request | None = None
        self._page, self._query = "", ""
        # the page that the server runs: its path, and its name in the protocol
        self._shown, self._hash = ("", "")
        self._current = ""  # the run whose elements arrive
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._clear()

    def _clear(self) -> None:
        self._hashes: dict[tuple[int, ...], str] = {}  # of what stands at each place of the page
        self._places: dict[tuple[int, ...], Widget] = {}
        self._states: dict[str, WidgetState] = {}

    def widgets(self) -> list[Widget]:
        """The controls that stand on the page, top to bottom."""
        return [self._places[place] for place in sorted(self._places)]

    def find(self, sort: str, name: str = "") -> Widget:
        """The first enabled control of an element type whose label begins with `name`; PageError without one."""
        for widget in self.widgets():
            if (
                widget.sort == sort
                and not widget.element.disabled
                and widget.element.label.startswith(name)
            ):
                return widget
        raise PageError(f"{self._page or 'start'} has no {sort} {name}")

    async def open(self, page: str, query: str = "") -> Answer:
        """Open a page by its path ("" for the first), with a query string."""
        self._clear()
        self._stop_polls()
        self._page, self._query, self._hash = page, query, ""
        return await self._run(BackMsg())

    async def move(self, widget: Widget) -> Answer:
        """Move a control to its next value, as a reader does who drags, types or presses."""
        state = next_state(widget.sort, widget.element, self._states.get(widget.element.id))
        message = BackMsg()
        if not state.trigger_value:
            self._states[state.id] = state
        else:
            message.rerun_script.widget_states.widgets.append(state)
        return await self._run(message, widget.fragment)

    async def _run(self, message: BackMsg, fragment: str = "") -> Answer:
        self._request = request = _Request(fragment)
        await self._send(message, fragment)
        try:
            finished = await asyncio.wait_for(request.done, MAX_SECONDS)
        except TimeoutError:
            raise PageError(
                f"{self._page or 'start'} did not answer in {MAX_SECONDS:.0f} s"
            ) from None
        finally:
            self._request = None
        return Answer(request.picture or finished, finished)

    async def _send(self, message: BackMsg, fragment: str, poll: bool = False) -> None:
        state = message.rerun_script
        state.query_string, state.fragment_id, state.is_auto_rerun = self._query, fragment, poll
        state.page_script_hash, state.page_name = self._hash, "" if self._hash else self._page
        state.widget_states.widgets.extend(self._states.values())
        state.cached_message_hashes.extend(self._cached)
        state.context_info.timezone, state.context_info.locale = "UTC", "en"
        await self._socket.send(message.SerializeToString())

    async def listen(self) -> None:
        """Take every message until the socket closes."""
        async for data in self._socket:
            self.bytes += len(data)
            message = ForwardMsg.FromString(data)  # type: ignore[arg-type]
            kind = message.WhichOneof("type")
            if kind in ("delta", "ref_hash"):
                self._element(message)
            elif kind == "script_finished":
                self._finish(message)
            elif kind == "new_session":
                self._begin(message)
            elif kind == "navigation":
                pages = {
                    page.page_script_hash: page.url_pathname
                    for page in message.navigation.app_pages
                }
                self._hash = message.navigation.page_script_hash
                self._shown = pages[self._hash]
            elif kind == "auto_rerun":
                self._poll(message.auto_rerun.fragment_id, message.auto_rerun.interval)
            elif kind == "stop_auto_rerun":
                self._stop_polls()
            elif kind == "page_not_found":
                self.errors.append(f"{self._page}: page not found")
        if self._request is not None:
            self._request.done.set_exception(PageError("the server closed the connection"))

    def _begin(self, message: ForwardMsg) -> None:
        if not message.metadata.run.fragment_ids:
            self._stop_polls()
        self._current = message.metadata.run.script_run_id
        if self._request is not None:
            self._request.runs.add(self._current)

    def _element(self, message: ForwardMsg) -> None:
        key = message.ref_hash or message.hash
        delta = self._cached[key] if message.ref_hash else message.delta
        if message.metadata.cacheable:
            self._cached[key] = delta
        place = tuple(message.metadata.delta_path)
        changed, self._hashes[place] = self._hashes.get(place) != key, key
        if delta.WhichOneof("type") != "new_element":
            return
        sort = delta.new_element.WhichOneof("type")
        self._places.pop(place, None)
        if sort in WIDGETS:
            self._places[place] = Widget(
                sort, getattr(delta.new_element, sort), delta.fragment_id, self._current
            )
        if sort == "exception":
            self.errors.append(
                f"{self._page or 'start'}: {delta.new_element.exception.message[:200]}"
            )
        request = self._request
        if (
            request is not None
            and request.picture is None
            and changed
            and sort in PICTURES
            and place[0] == 0
        ):
            request.picture = time.perf_counter() - request.at

    def _finish(self, message: ForwardMsg) -> None:
        request, status, run = self._request, message.script_finished, message.metadata.run
        if status in ENDS:  # what the run did not draw again is no longer there
            self._places = {
                place: widget
                for place, widget in self._places.items()
                if widget.run == run.script_run_id
                or (run.fragment_ids and widget.fragment not in run.fragment_ids)
            }
        if request is None or request.done.done() or run.script_run_id not in request.runs:
            return
        whole = status == ForwardMsg.FINISHED_SUCCESSFULLY and self._shown == self._page
        if whole or (request.fragment and status == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY):
            request.done.set_result(time.perf_counter() - request.at)
        elif status == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
            request.done.set_exception(
                PageError(f"{self._page or 'start'}: the script does not compile")
            )

    def _poll(self, fragment: str, seconds: float) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                await self._send(BackMsg(), fragment, poll=True)

        if fragment not in self._polls:
            self._polls[fragment] = asyncio.create_task(repeat())

    def _stop_polls(self) -> None:
        for task in self._polls.values():
            task.cancel()
        self._polls.clear()


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Reader]:
    """A new session of the server at this address; it leaves at the end."""
    address = url.replace("http", "ws", 1) + "/_stcore/stream"
    async with connect(
        address,
        subprotocols=["streamlit"],  # type: ignore[list-item]
        max_size=LARGEST,
        open_timeout=60,
        compression=None,
        ping_timeout=None,
        proxy=None,
    ) as socket:
        reader = Reader(socket)
        listener = asyncio.create_task(reader.listen())
        try:
            yield reader
        finally:
            reader._stop_polls()
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener
