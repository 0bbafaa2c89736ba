"""What one visitor tries against a real public copy: uploads, unfinished messages, open pages. Each loop is bounded."""

import http.client
import json
import re
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks.memory import RunningServer, running_server
from dashboard.server.visitors import COOKIE, PERSON_HEADER, key_of
from tests.cases import PATIENCE, wait_for

MB = 1_000_000
LIMITS = {
    "HELD_MEGABYTES": 3,
    "ADDRESS_HELD_MEGABYTES": 4,
    "MESSAGE_MEGABYTES": 1,
    "ADDRESS_SESSIONS": 6,
    "SESSIONS": 9,
    "UPLOADS": 8,
    "UPLOAD_MEGABYTES": 2,
}
PROXY = "127.0.0.9"  # it is believed; all other addresses of the loopback are readers
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs Linux's addresses 127.0.0.x"
)


@pytest.fixture(scope="module")
def copy() -> Iterator[RunningServer]:
    limits = " ".join(f"{name.lower()}={most}" for name, most in LIMITS.items())
    with running_server(
        {
            "ATTENTION_LAB_HOSTED": "1",
            "ATTENTION_LAB_HOSTED_LIMITS": limits,
            "FORWARDED_ALLOW_IPS": f"{PROXY}/32",
        }
    ) as server:
        yield server


def ask(
    server: RunningServer,
    method: str,
    path: str,
    body: bytes | None = None,
    address: str = "127.0.0.1",
    **headers: str,
) -> tuple[int, str, list[str]]:
    connection = http.client.HTTPConnection(
        "127.0.0.1",
        int(server.url.rpartition(":")[2]),
        timeout=PATIENCE,
        source_address=(address, 0),
    )
    with closing(connection):
        connection.request(
            method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        return answer.status, text, answer.headers.get_all("Set-Cookie") or []


@contextmanager
def open_page(
    server: RunningServer, address: str = "127.0.0.1", again: str = "", **headers: str
) -> Iterator[ClientConnection]:
    """A connection of a page, which asks for the session `again`, if any, as a browser does that lost its own."""
    protocols = [*map(Subprotocol, ["streamlit", "none", again] if again else ["streamlit"])]
    with connect(
        f"{server.url.replace('http', 'ws', 1)}/_stcore/stream",
        subprotocols=protocols,
        open_timeout=PATIENCE,
        source_address=(address, 0),
        additional_headers=headers,
        ping_interval=None,
        max_size=None,
        close_timeout=1,
        proxy=None,
    ) as connection:
        yield connection


def session_of(connection: ClientConnection) -> str:
    message = BackMsg()
    message.rerun_script.query_string = ""
    connection.send(message.SerializeToString())
    while True:
        answer = ForwardMsg.FromString(connection.recv(timeout=PATIENCE))
        if answer.WhichOneof("type") == "new_session":
            session = str(answer.new_session.initialize.session_id)
        elif answer.WhichOneof("type") == "script_finished":  # so its uploaders are drawn
            return session


def upload(
    server: RunningServer,
    session: str,
    name: str,
    size: int,
    address: str = "127.0.0.1",
    cookie: str = "",
    method: str = "PUT",
) -> tuple[int, str]:
    paths = ("/_stcore/host-config", "/_stcore/health")
    cookies = " ".join(cookie for path in paths for cookie in ask(server, "GET", path)[2])
    token = re.findall(r"_streamlit_xsrf=([^;]+)", cookies)[0]
    body = (
        b'--zz\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        + bytes(size)
        + b"\r\n--zz--\r\n"
    )
    return ask(
        server,
        method,
        f"/_stcore/upload_file/{session}/{name}",
        body,
        address,
        X_Xsrftoken=token,
        Cookie=f"_streamlit_xsrf={token}; {cookie}",
        Content_Type="multipart/form-data; boundary=zz",
    )[:2]


def uploaded_bytes(server: RunningServer) -> float:
    return sum(value for name, value in server.metrics().items() if "UploadedFileManager" in name)


@pytest.mark.first
def test_uploads_stay_bounded(copy):
    with open_page(copy) as first, open_page(copy) as second:
        pages = [session_of(first), session_of(second)]
        answers = [
            upload(copy, page, f"{page[:8]}-{number}", MB) for page in pages for number in range(8)
        ]
        assert [status for status, _ in answers].count(204) == 3, (
            "2 of the first page, 1 of the address for the second"
        )
        refused = [text for status, text in answers if status != 204]
        assert {status for status, _ in answers} == {204, 429} and "of your page" in refused[0]
        assert "of your network" in refused[-1] and 2.9 * MB < uploaded_bytes(copy) < 4 * MB
        small = [upload(copy, pages[0], f"small-{number}", 10)[0] for number in range(20)]
        assert small.count(204) == LIMITS["UPLOADS"] - 2, "files are counted, too"
        assert upload(copy, pages[0], "large", 3 * MB)[0] in (413, 429)
    assert wait_for(
        lambda: (
            not any(
                value
                for name, value in copy.metrics().items()
                if name.startswith("active_sessions")
            )
        )
    )
    with open_page(copy) as third:  # what closed pages held goes where room is needed
        assert [
            upload(copy, session_of(third), f"again-{number}", MB)[0] for number in range(2)
        ] == [204] * 2


@pytest.mark.parametrize(
    ("owner", "connected"),
    [
        (f"{COOKIE}={'a' * 32}", True),
        (f"{COOKIE}={'a' * 32}", False),
        ("", True),
        (f"{COOKIE}=short", False),
    ],
)
def test_session_goes_on_with_cookie_that_began_it_alone(owner, connected, copy):
    thief = {"Cookie": f"{COOKIE}={'b' * 32}", PERSON_HEADER: key_of("a" * 32)}
    with ExitStack() as stack:
        first = stack.enter_context(open_page(copy, Cookie=owner))
        session = session_of(first)
        if not connected:
            first.close()
        for cookies in (thief, {"Cookie": ""}, {"Cookie": f"{COOKIE}="}):
            with open_page(copy, again=session, **cookies) as other:
                assert session_of(other) != session
        if connected:
            assert session_of(first) == session, "and its own page noticed nothing"
        with open_page(copy, again=session, Cookie=owner) as again:
            assert (session_of(again) == session) == owner.endswith("a"), (
                "who has no cookie begins anew"
            )


ANNA, BEN = (f"{COOKIE}={letter * 32}" for letter in "ab")


@pytest.mark.parametrize(
    ("owner", "others"),
    [
        (ANNA, [(BEN, "127.0.0.1"), ("", "127.0.0.1"), (f"{COOKIE}=short", "127.0.0.1")]),
        ("", [(ANNA, "127.0.0.1"), ("", "127.0.0.2")]),
    ],
    ids=["of a person", "without a cookie"],
)
def test_a_file_is_deleted_by_its_person_alone(owner, others, copy):
    with open_page(copy, Cookie=owner) as page:
        session = session_of(page)
        assert upload(copy, session, "file", 10, cookie=owner)[0] == 204
        before = uploaded_bytes(copy)
        for cookie, address in others:
            for method in ("PUT", "DELETE"):
                status, text = upload(copy, session, "file", 999, address, cookie, method)
                assert status == 403 and "of another person" in text
                assert upload(copy, session, "new", 9, address, cookie, method)[0] == 403
        assert uploaded_bytes(copy) == before
        assert upload(copy, "nobody", "file", 10, cookie=owner)[0] == 403
        assert upload(copy, session, "file", 10, cookie=owner, method="DELETE")[0] == 204


def test_unfinished_messages_are_refused_by_their_length(copy):
    # A frame says its length first: one of 190 MB is over before it is sent. One of many parts is counted, too.
    port, before = int(copy.url.rpartition(":")[2]), copy.held().server

    def ended(raw: socket.socket, parts: bool, first: bool) -> bool:
        """Whether half a megabyte more ends the connection, or is answered with its end, for 1009."""
        size = MB // 2 if parts else 190 * MB
        # The first of a message has its kind, the last is never sent.
        header = bytes([2 if first else 0, 0xFF]) + struct.pack("!Q", size) + bytes(4)
        raw.settimeout(60)
        try:
            raw.sendall(header * (parts or first) + bytes(MB // 2))
            raw.settimeout(0.02)
            data = raw.recv(4096)
            return data == b"" or (b"\x88" in data and b"\x03\xf1" in data)
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    for parts in (False, True) * 4:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw:
            raw.sendall(
                f"GET /_stcore/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: streamlit\r\n\r\n".encode()
            )
            assert b"101" in raw.recv(4096).split(b"\r\n")[0]
            assert any(ended(raw, parts, number == 0) for number in range(40)), "20 MB were taken"
    assert copy.held().server - before < 60 * MB


def test_open_pages_of_an_address_are_bounded(copy):
    with ExitStack() as stack:
        for _ in range(LIMITS["ADDRESS_SESSIONS"]):
            stack.enter_context(open_page(copy))
        with pytest.raises(InvalidStatus) as refused, open_page(copy):
            pass
        assert (
            refused.value.response.status_code == 503
            and b"Your network has" in refused.value.response.body
        )
        status, text, _ = ask(copy, "GET", "/_stcore/host-config")
        assert status == 503 and json.loads(text).startswith("Your network has 6 pages open")
        assert ask(copy, "GET", "/_stcore/health")[0] == 200, "a probe is no reader"
        for number in range(LIMITS["SESSIONS"] - LIMITS["ADDRESS_SESSIONS"]):
            stack.enter_context(open_page(copy, f"127.0.0.{number + 2}"))
        status, text, _ = ask(copy, "GET", "/_stcore/host-config", address="127.0.0.8")
        assert status == 503 and json.loads(text).startswith("This copy has 9 pages open")
    assert wait_for(lambda: ask(copy, "GET", "/_stcore/host-config")[0] == 200), "room again"


def test_a_proxy_that_is_named_is_believed_and_nobody_else(copy):

    forwarded: dict[str, Any] = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "203.0.113.7"}
    log = Path(f"/proc/{copy.pid}/fd/2").resolve()

    def secure(address: str) -> bool:
        cookies = ask(copy, "GET", "/", address=address, **forwarded)[2]
        (cookie,) = (one for one in cookies if one.startswith(COOKIE))
        return "Secure" in cookie

    def complaints() -> int:
        return log.read_text(encoding="utf-8").count("untrusted_proxy")

    assert secure(PROXY) and not secure("127.0.0.1") and not complaints()
    example = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes.yaml"
    assert "{name: FORWARDED_ALLOW_IPS," in example.read_text("utf-8")
    with open_page(copy, PROXY, **{"X-Forwarded-For": "203.0.113.7"}):
        assert not complaints()
    with open_page(copy, **{"X-Forwarded-For": "203.0.113.7"}):
        assert wait_for(lambda: complaints() == 1), "or whoever set it up would not notice"
    with ExitStack() as stack:
        for _ in range(LIMITS["ADDRESS_SESSIONS"]):
            stack.enter_context(open_page(copy, PROXY, **{"X-Forwarded-For": "203.0.113.7"}))
        for address, one, status in (
            (PROXY, "203.0.113.7", 503),
            (PROXY, "203.0.113.8", 200),
            ("127.0.0.1", "203.0.113.7", 200),
        ):
            assert (
                ask(copy, "GET", "/_stcore/host-config", address=address, X_Forwarded_For=one)[0]
                == status
            )


@pytest.mark.first
def test_no_header_is_believed_until_a_proxy_is_named(monkeypatch):
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    settings = {
        "ATTENTION_LAB_HOSTED": "1",
        "ATTENTION_LAB_HOSTED_LIMITS": "address_sessions=2",
    }
    with running_server(settings) as server, ExitStack() as stack:
        for number in range(2):
            stack.enter_context(open_page(server, **{"X-Forwarded-For": f"6.6.6.{number}"}))
        status, text, _ = ask(server, "GET", "/_stcore/host-config", X_Forwarded_For="6.6.6.6")
        assert status == 503 and "Your network has 2 pages open" in text
        cookies = ask(server, "GET", "/", X_Forwarded_Proto="https")[2]
        assert not any("Secure" in one for one in cookies if one.startswith(COOKIE))


def test_a_server_that_runs_out_of_open_files_refuses_pages():
    with (
        running_server({"ATTENTION_LAB_HOSTED": "", "ATTENTION_LAB_LOG": "json"}) as server,
        ExitStack() as stack,
    ):
        log = Path(f"/proc/{server.pid}/fd/2").resolve()
        session_of(stack.enter_context(open_page(server)))
        assert uploaded_bytes(server) == 0, "the metrics answer"
        assert not re.search("Traceback|ImportError|AttributeError", log.read_text("utf-8"))
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert soft == max(usual, min(hard, 65_536)), "raised at the start"
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (server.open_files() + 140, hard))
        texts = []
        for _ in range(30):
            try:
                session_of(stack.enter_context(open_page(server)))
            except InvalidStatus as error:
                texts.append(error.response.body.decode().partition(".")[0])
        assert 0 < len(texts) < 29
        assert set(texts) == {"This server has as many open pages as it can serve"}
        for path in ("/_stcore/health", "/health"):
            assert ask(server, "GET", path)[0] == 200
        assert log.stat().st_size < MB, "and the log stays small"
