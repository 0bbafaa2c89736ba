import uuid

import pytest
import torch

from core.runs.archive import pack
from core.runs.store import Copier, _copiers, _open, copier
from tests.training.small import Packed, trained


@pytest.fixture(scope="session")
def packed(tmp_path_factory) -> bytes:
    torch.set_num_threads(1)
    return Packed(pack(trained(tmp_path_factory.mktemp("made"))))


def s3(monkeypatch):
    """A bucket of an S3-compatible server on loopback, and what stops the server."""
    from moto.server import ThreadedMotoServer  # a second to import
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()  # those of another test's server
    _open.cache_clear()
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    bucket = f"lab-{uuid.uuid4().hex}"
    _open(f"s3://{bucket}/runs", "x").files.mkdir(bucket)
    return f"s3://{bucket}/runs", server.stop


@pytest.fixture
def memory(monkeypatch):
    address = f"memory://{uuid.uuid4().hex}/lab"
    monkeypatch.setenv("ATTENTION_LAB_STORE", address)
    _copiers.clear()
    return address


@pytest.fixture(params=["memory", "local", "s3"])
def url(request, memory, tmp_path, monkeypatch):
    bucket, stop = s3(monkeypatch) if request.param == "s3" else ("", lambda: None)
    address = {"memory": memory, "local": f"file://{tmp_path}/store", "s3": bucket}[request.param]
    monkeypatch.setenv("ATTENTION_LAB_STORE", address)
    yield address
    stop()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Becomes the server of that name, with a runs folder of its own."""

    def become(name: str) -> Copier:
        monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / name))
        monkeypatch.setenv("ATTENTION_LAB_STORE_NAME", name)
        now = copier()
        assert now is not None
        return now

    return become
