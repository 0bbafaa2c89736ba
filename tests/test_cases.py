"""The helpers of tests."""

import pytest

from tests import cases


def test_a_wait_lasts_as_long_as_something_moves(monkeypatch):
    monkeypatch.setattr(cases, "PATIENCE", 0.1)
    looks = iter(range(61))
    assert cases.wait_for(lambda: next(looks) == 60, lambda: next(looks)) is True
    pytest.raises(AssertionError, cases.wait_for, lambda: 0).match("nothing moved")
