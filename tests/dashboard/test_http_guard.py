"""The answers of the server carry headers; unknown hosts and strangers at the metrics are refused."""

import re
import time
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit import config

from dashboard.server import visitors
from dashboard.server.http_guard import UNKNOWN_NAME, HTTPGuard

TOKEN = "7f3d-token"


def client(base: str = "", address: str = "203.0.113.7") -> TestClient:
    """A server of one word at every address, and who asks it."""

    async def answer(_):
        return PlainTextResponse("here", headers={"Referrer-Policy": "origin"})

    app = Starlette(
        routes=[Route("/{path:path}", answer)], middleware=[Middleware(HTTPGuard, base=base)]
    )
    return TestClient(app, base_url="http://localhost", client=(address, 50000))


@pytest.fixture
def hosts(monkeypatch):
    """Sets `server.allowedHosts` and `server.address`."""

    def allow(*names: str, address: str = "localhost") -> None:
        monkeypatch.setattr(
            config,
            "get_option",
            {"server.allowedHosts": list(names), "server.address": address}.__getitem__,
        )

    return allow


def test_every_answer_carries_the_headers_and_one_of_its_own_stays():
    headers = client().get("/heads").headers
    assert (
        headers["X-Content-Type-Options"] == "nosniff"
        and "camera=()" in headers["Permissions-Policy"]
    )
    assert headers["Referrer-Policy"] == "origin", "the answer's own"
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'self'" and "frame-ancestors" not in policy
    assert not [
        host
        for sources in policy.values()
        for host in sources.split()
        if re.search(r"\*|//|\.", host)
    ]


@pytest.mark.parametrize(
    ("setting", "directive"),
    [
        ("none", "frame-ancestors 'none'"),
        (
            "https://course.example.org https://*.school.example",
            "frame-ancestors 'self' https://course.example.org",
        ),
    ],
)
def test_a_setting_names_who_may_show_the_lab_in_a_frame(setting, directive, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FRAMES", setting)
    assert directive in client().get("/").headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "setting", ["https://a.example; script-src *", "https://a.example, https://b.example", "a\nb"]
)
def test_a_setting_that_would_write_other_directives_stops_the_start(setting, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FRAMES", setting)
    with pytest.raises(ValueError, match="ATTENTION_LAB_FRAMES takes addresses"):
        client().get("/")


ONES_OWN = ["localhost", "localhost:8501", "127.0.0.1:8501", "[::1]:8501", "192.168.1.7:8501"]
FOREIGN = ["evil.example", "localhost.evil.example:8501", "127.0.0.1.evil.example", ""]
FOREIGN += ["[::1", "@", "a b"]


@pytest.mark.parametrize(
    ("allowed", "address", "answered", "refused"),
    [
        *(([], own, [*ONES_OWN, own], FOREIGN) for own in ("localhost", "0.0.0.0", "laptop.home")),
        (
            ["lab.example.org", "*.school.example"],
            "localhost",
            ["lab.example.org:8501", "one.school.example"],
            ["evil.example"],
        ),
        ("hosted", "localhost", ["anything.example"], []),  # it serves strangers anyway
    ],
)
def test_only_what_nobody_can_point_elsewhere_and_what_is_allowed_is_answered_but_probes_are(
    allowed, address, answered, refused, hosts, monkeypatch
):
    if allowed == "hosted":
        monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    hosts(*(allowed if isinstance(allowed, list) else ()), address=address)
    for name in answered:
        assert client().get("/heads", headers={"Host": name}).status_code == 200, name
    for name in refused:
        answer = client().get("/heads", headers={"Host": name})
        assert (answer.status_code, answer.text) == (421, UNKNOWN_NAME), name
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert client("/lab").get("/lab/_stcore/health", headers={"Host": name}).status_code == 200
        assert client().get("/health", headers={"Host": name}).status_code == 200


@pytest.mark.parametrize(
    ("address", "headers", "code"),
    [
        ("203.0.113.7", {}, 403),
        ("203.0.113.7", {"Authorization": "Bearer wrong"}, 403),
        ("203.0.113.7", {"Authorization": f"Bearer {TOKEN}"}, 200),
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        (
            "127.0.0.1",
            {"X-Forwarded-For": "203.0.113.7"},
            403,
        ),  # through a proxy on the same machine
        ("testclient", {}, 403),
    ],
)
def test_metrics_of_a_public_copy_need_a_token_or_the_same_machine(
    address, headers, code, monkeypatch
):
    monkeypatch.setenv("ATTENTION_LAB_METRICS_TOKEN", TOKEN)
    for base in ("", "/lab"):
        assert (
            client(base, address).get(f"{base}/_stcore/metrics", headers=headers).status_code
            == code
        )
    assert client(address=address).get("/heads", headers=headers).status_code == 200


def test_metrics_are_open_on_a_laptop_and_closed_in_hosted_mode(monkeypatch):
    monkeypatch.delenv("ATTENTION_LAB_METRICS_TOKEN", raising=False)
    for hosted, code in (("", 200), ("1", 403)):
        monkeypatch.setenv("ATTENTION_LAB_HOSTED", hosted)
        answer = client().get("/_stcore/metrics", headers={"Authorization": "Bearer "})
        assert answer.status_code == code


def test_a_file_that_no_page_took_is_deleted_and_one_that_a_page_took_stays(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr(visitors, "UNTAKEN", 0.2)
    monkeypatch.setattr(visitors, "uploads", [])
    stored: set[str] = set()

    async def store(request):
        (stored.add if request.method == "PUT" else stored.discard)(
            request.url.path.rpartition("/")[2]
        )
        return PlainTextResponse("", 204)

    route = Route("/lab/_stcore/upload_file/{session}/{file}", store, methods=["PUT", "DELETE"])
    app = Starlette(routes=[route], middleware=[Middleware(HTTPGuard, base="/lab")])
    with TestClient(app, client=("203.0.113.7", 1)) as browser:
        for name in ("read", "left", "removed"):
            assert (
                browser.put(f"/lab/_stcore/upload_file/s/{name}", content=b"12345").status_code
                == 204
            )
        assert [(one.session, one.file, one.size, one.address) for one in visitors.uploads][0] == (
            "s",
            "read",
            5,
            "203.0.113.7",
        )
        visitors.take("read")
        assert browser.delete("/lab/_stcore/upload_file/s/removed").status_code == 204
        assert [one.file for one in visitors.uploads] == ["read", "left"]
        end = time.monotonic() + 30
        while "left" in stored and time.monotonic() < end:
            browser.get("/lab/nothing")
        assert stored == {"read"} and [one.file for one in visitors.uploads] == ["read"]


def test_an_upload_that_fails_is_not_counted(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr(visitors, "uploads", [])
    assert (
        client().put("/_stcore/upload_file/s/f", content=b"1").status_code == 405
        and visitors.uploads == []
    )


def test_an_address_of_ipv6_is_its_network():
    assert (
        visitors.network("2001:db8:1:2:3::4")
        == visitors.network("2001:db8:1:2::9")
        != visitors.network("2001:db8:1:3::9")
    )
    assert (
        visitors.network("192.0.2.1") == "192.0.2.1"
        and visitors.network("this computer") == "this computer"
    )


def test_every_uploaded_file_is_counted_where_a_page_reads_it():
    """Each module with an uploader admits its files, or leaves that to the one that reads them."""
    root = Path(__file__).resolve().parents[2]
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in ("dashboard", "pages")
        for path in (root / folder).rglob("*.py")
    }
    uploader = re.compile(r"\.(file_uploader|chat_input|camera_input)\(")
    uploaders = {path for path, text in texts.items() if uploader.search(text)}
    assert len(uploaders) >= 5 and not [
        path for path in uploaders if "admit_upload(" not in texts[path]
    ]
