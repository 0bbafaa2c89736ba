"""How many visitors and files a server takes."""

import pytest

from dashboard.server import visitors


@pytest.mark.parametrize(
    ("before", "most", "after"),
    [
        ((256, -1), 10_240, 10_240),
        ((1_024, 1_048_576), 65_536, 65_536),
        ((1_024, 4_096), 65_536, 4_096),
        ((100_000, 100_000), 100_000, 100_000),
        ((1_024, 2_048), 1_024, 1_024),
    ],
)
def test_the_limit_of_open_files_is_raised_to_what_the_system_allows(
    monkeypatch, before, most, after
):
    now = [before]

    def set_limit(_, limits):
        if limits[0] > most:
            raise ValueError("not allowed to raise maximum limit")
        now[0] = limits

    monkeypatch.setattr("resource.getrlimit", lambda _: now[0])
    monkeypatch.setattr("resource.setrlimit", set_limit)
    visitors.raise_file_limit()
    assert now[0] == (after, before[1])
