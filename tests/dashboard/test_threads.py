"""One thread for small work: set while it runs, put back whatever happens."""

import pytest
import torch

from dashboard.ui.models import USUAL, one_thread


def test_small_work_runs_on_one_thread_and_the_rest_gets_its_threads_back():
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == USUAL
    with one_thread(small=False):
        assert torch.get_num_threads() == USUAL


def test_an_error_puts_them_back_too():
    with pytest.raises(ValueError, match="broken"), one_thread():
        raise ValueError("broken")
    assert torch.get_num_threads() == USUAL
