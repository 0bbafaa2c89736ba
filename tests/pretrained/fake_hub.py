"""A hub of our own in this process: it answers as huggingface.co does, and can be made to fail in each of its ways."""

import hashlib
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import httpx2
import pytest
from huggingface_hub.utils import _http, set_client_factory

from tests.tiny_models import save

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STEP = 4096
HUB, STORAGE = "http://hub.test", "http://storage.test"


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
            {
                "rfilename": file,
                "size": self.stated.get(file, len(data)),
                "lfs": {
                    "size": len(data),
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "pointerSize": 134,
                }
                if file.endswith((".safetensors", ".bin"))
                else None,
            }
            for file, data in self.files.items()
        ]
        counted = {"safetensors": {"parameters": self.parameters, "total": 1}}
        return dict(id=name, sha=COMMIT, siblings=siblings, tags=[], private=False) | (
            counted if self.parameters else {}
        )


@dataclass
class Hub:
    """`requests` is every path it was asked for, `tokens` what each host was told of who asks, `fails` its error."""

    repos: dict[str, Repo]
    requests: list[str] = field(default_factory=list)
    tokens: dict[str, list[str | None]] = field(default_factory=dict)
    fails: Exception | None = None

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Model info, and files of one commit."""
        if self.fails is not None:
            raise self.fails
        path, asks = request.url.path.strip("/"), request.headers.get("authorization")
        self.requests.append(path)
        self.tokens.setdefault(request.url.host, []).append(asks)
        parts = re.fullmatch(r"api/models/(.+?)(?:/revision/(.+))?|(.+?)/resolve/(\w+)/(.+)", path)
        assert parts is not None
        info, revision, name, commit, file = parts.groups()
        repo = self.repos.get(info or name)
        if info and repo is None:
            return refuse(401, error_message="Invalid username or password.")
        if info and repo.status is not None:
            return refuse(repo.status)
        if info and revision not in (None, *repo.revisions, COMMIT):
            return refuse(404, error_code="RevisionNotFound")
        if info:
            return httpx2.Response(200, json=repo.listing(info))
        if repo is None or commit != COMMIT or file not in repo.files:
            return refuse(404, error_code="EntryNotFound")
        if f"http://{request.url.host}" != STORAGE:
            if repo.gated and asks != f"Bearer {repo.token}":
                return refuse(401, error_code="GatedRepo")
            if repo.elsewhere:
                return httpx2.Response(302, headers={"location": f"{repo.elsewhere}/{path}"})
        start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        data = repo.swapped.get(file, repo.files[file])
        return httpx2.Response(206 if start else 200, content=steps(repo, data, start))


def refuse(status: int, **errors: str) -> httpx2.Response:
    headers = {f"x-{key}".replace("_", "-"): value for key, value in errors.items()}
    return httpx2.Response(status, json={}, headers=headers)


def steps(repo: Repo, data: bytes, start: int) -> Iterator[bytes]:
    for at in range(start, len(data), STEP):
        if repo.breaks_at is not None and at >= repo.breaks_at:
            repo.breaks_at = None
            raise httpx2.RemoteProtocolError("peer closed the connection")
        time.sleep(repo.seconds_a_step)
        yield data[at : at + STEP]


@contextmanager
def serving(repos: dict[str, Repo], home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Everything that is asked of the hub is answered here, and what comes of it is kept under `home`."""
    hub = Hub(repos)
    monkeypatch.setenv("HF_ENDPOINT", HUB)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hooks = {"request": [_http.hf_request_event_hook]}
    set_client_factory(
        lambda: httpx2.Client(transport=httpx2.MockTransport(hub.answer), event_hooks=hooks)
    )
    yield hub
    set_client_factory(_http.default_client_factory)


@cache
def bert_files() -> dict[str, bytes]:
    """The files of a folder with a tiny BERT of 2 layers and 3 heads."""
    with tempfile.TemporaryDirectory() as name:
        return {path.name: path.read_bytes() for path in save("bert_encoder", Path(name)).iterdir()}
