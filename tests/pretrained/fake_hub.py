"""A hub of our own on this computer: it answers as huggingface.co does, and can be made to fail in each of its ways."""

import hashlib
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.tiny_models import save

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STEP = 4096


def stored(file: str, data: bytes) -> dict[str, object]:
    large = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
    return {"lfs": large} if file.endswith((".safetensors", ".bin")) else {}


@dataclass
class Repo:
    """One model there: its files, and how it misbehaves. `stated` overrides a file's size in the listing."""

    files: dict[str, bytes]
    stated: dict[str, int | None] = field(default_factory=dict)
    gated: bool = False
    token: str | None = None
    revisions: tuple[str, ...] = ("main",)
    parameters: dict[str, int] | None = None
    swapped: dict[str, bytes] = field(default_factory=dict)
    breaks_at: int | None = None
    seconds_a_step: float = 0.0
    status: int | None = None
    elsewhere: str | None = None

    def listing(self, name: str) -> dict[str, object]:
        siblings = [
            {"rfilename": file, "size": self.stated.get(file, len(data)), **stored(file, data)}
            for file, data in self.files.items()
        ]
        more = (
            {"safetensors": {"parameters": self.parameters, "total": 1}} if self.parameters else {}
        )
        return dict(id=name, sha=COMMIT, siblings=siblings, tags=[], private=False, **more)


class Hub(ThreadingHTTPServer):
    """The server; `requests` is every path it was asked for, `tokens` what it was told of who asks."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Repo]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.repos = repos
        self.requests: list[str] = []
        self.tokens: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    """Model info, and files of one commit."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        asks = self.headers.get("authorization")
        self.server.requests.append(path)
        self.server.tokens.append(asks)
        parts = re.fullmatch(r"api/models/(.+?)(?:/revision/(.+))?|(.+?)/resolve/(\w+)/(.+)", path)
        assert parts is not None
        info, revision, name, commit, file = parts.groups()
        repo = self.server.repos.get(info or name)
        if info and repo is None:
            self._send(401, error_message="Invalid username or password.")
        elif info and repo.status is not None:
            self._send(repo.status)
        elif info and revision not in (None, *repo.revisions, COMMIT):
            self._send(404, error_code="RevisionNotFound")
        elif info:
            self._send(200, json.dumps(repo.listing(info)).encode())
        elif repo is None or commit != COMMIT or file not in repo.files:
            self._send(404, error_code="EntryNotFound")
        elif repo.gated and asks != f"Bearer {repo.token}":
            self._send(401, error_code="GatedRepo")
        elif repo.elsewhere:
            self._send(302, location=f"{repo.elsewhere}/{path}")
        else:
            self._file(repo, repo.swapped.get(file, repo.files[file]))

    def _file(self, repo: Repo, data: bytes) -> None:
        start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(data) - start))
        self.end_headers()
        for at in range(start, len(data), STEP):
            if repo.breaks_at is not None and at >= repo.breaks_at:
                repo.breaks_at = None
                self.close_connection = True
                return
            time.sleep(repo.seconds_a_step)
            self.wfile.write(data[at : at + STEP])

    def _send(self, status: int, body: bytes = b"{}", location: str = "", **errors: str) -> None:
        self.send_response(status)
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        headers |= {"location": location} if location else {}
        headers |= {f"x-{key}".replace("_", "-"): value for key, value in errors.items()}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(repos: dict[str, Repo]) -> Iterator[Hub]:
    hub = Hub(repos)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


@cache
def bert_files() -> dict[str, bytes]:
    """The files of a folder with a tiny BERT of 2 layers and 3 heads."""
    with tempfile.TemporaryDirectory() as name:
        return {path.name: path.read_bytes() for path in save("bert_encoder", Path(name)).iterdir()}


def online(hub: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send everything that is asked of the hub to this address, and keep what comes under `home`."""
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
