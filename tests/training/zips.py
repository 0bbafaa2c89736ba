"""A small run that has really trained, as a zip, and zips made of its parts."""

import io
import zipfile
from pathlib import Path

import pytest

from core.runs.archive import unpack
from core.runs.runs import Run, create_run
from core.training import prepare, train
from tests.training.small import small_run


class Packed(bytes):
    def __repr__(self) -> str:
        return f"a zip of {len(self)} bytes"


def trained(root: Path, **changes) -> Run:
    config = small_run(**changes)
    run, session = (
        create_run(config, root, name="tiny", parent={"run": "other", "step": 2}),
        prepare(config),
    )
    for _, record in zip(
        range(3), train(config, session), strict=False
    ):  # the final one takes a second
        run.append(record)
        run.save_checkpoint(session, config)
    run.set_status("finished", "Finished.")
    return run


def parts(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        return {name.split("/", 1)[1]: file.read(name) for name in file.namelist()}


def zipped(parts: dict[str, bytes], top: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(top + name, data)
    return out.getvalue()


def refused(data: bytes, root: Path, words: str) -> None:
    """Refused with these words, and nothing is left of it."""
    with pytest.raises(ValueError, match=words):
        unpack(data, root)
    assert list(root.iterdir()) == []
