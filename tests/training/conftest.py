import pytest
import torch

from core.training.archive import pack
from tests.training.zips import Packed, trained


@pytest.fixture(scope="session")
def packed(tmp_path_factory) -> bytes:
    """A small run that has really trained, as a zip."""
    torch.set_num_threads(1)
    return Packed(pack(trained(tmp_path_factory.mktemp("made"))))
