"""Messages leave at once on sockets that were made without naming TCP, as Streamlit makes its own."""

import os
import socket

import pytest

from dashboard.runtime import visitors
from dashboard.runtime.sockets import DESCRIPTORS, send_at_once


def waits(connection: socket.socket) -> bool:
    """Whether Nagle's algorithm holds small messages back."""
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="this system does not list its open files")
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_connection_of_before_and_one_of_later_send_at_once_and_other_files_stay_open(family, address, tmp_path):
    with socket.socket(family) as server, open(tmp_path / "file", "w", encoding="utf-8") as file:
        server.bind((address, 0))
        server.listen()
        with socket.create_connection(server.getsockname()[:2]) as client, server.accept()[0] as early:
            assert waits(early)
            assert waits(client)
            before = os.listdir(DESCRIPTORS)
            assert send_at_once.__wrapped__() >= 3
            assert os.listdir(DESCRIPTORS) == before, "no file is left open twice"
            assert not waits(early)
            early.sendall(b"kept")
            assert client.recv(4) == b"kept"
        with socket.create_connection(server.getsockname()[:2]), server.accept()[0] as later:
            assert not waits(later)
        assert file.write("open") == 4


@pytest.mark.parametrize(("before", "most", "after"), [
    ((256, -1), 10_240, 10_240), ((1_024, 1_048_576), 65_536, 65_536), ((1_024, 4_096), 65_536, 4_096),
    ((100_000, 100_000), 100_000, 100_000), ((1_024, 2_048), 1_024, 1_024)])
def test_the_limit_of_open_files_is_raised_to_what_the_system_allows(monkeypatch, before, most, after):
    now = [before]

    def set_limit(_, limits):
        if limits[0] > most:
            raise ValueError("not allowed to raise maximum limit")
        now[0] = limits

    monkeypatch.setattr("resource.getrlimit", lambda _: now[0])
    monkeypatch.setattr("resource.setrlimit", set_limit)
    visitors.raise_file_limit()
    assert now[0] == (after, before[1])
