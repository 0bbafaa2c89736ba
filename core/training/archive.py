"""A run as one zip, written for anyone and read from anyone.

The zip holds run.json, status.json, metrics.jsonl, frames/, checkpoints/ and data/, alone or within one folder. Names
and sizes are checked before unpacking, unpacking stops at the declared size, and every file is checked in a draft
folder before it becomes a run. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from core.entries import quote
from core.files import disk_refused, sentence_of
from core.run_folder import ENDED
from core.tasks import data_store
from core.training import validate
from core.training.fields import count
from core.training.machine import valid
from core.training.run_storage import LONGEST_NAME, draft_folder, new_run
from core.training.runs import Run, runs_folder

MOST_ZIPPED = 100_000_000  # bytes
MOST_UNPACKED = 256_000_000
MOST_FILES = 5_000
MOST_TEXT = 500  # characters of a status message
CHUNK = 1 << 20
NAMES = re.compile(
    r"(?:[^/\\\0]{1,100}/)?((?:run|status)\.json|metrics\.jsonl"
    r"|(?:frames|checkpoints)/[0-9]{6}\.safetensors|data/[0-9a-f]{64}\.txt)"
)
FOLDERS = re.compile(r"(?:[^/\\\0]{1,100}/)?(?:frames/|checkpoints/|data/)?")
FLAT = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def pack(run: Run) -> bytes:
    """The run as a zip, with its last checkpoint, the one that counts, and as many others as fit.

    ValueError when its config cannot be read, or the rest alone is larger than `unpack` accepts.
    """
    out, name = io.BytesIO(), run.id
    metadata = {
        key: value
        for key, value in run.metadata().items()
        if key in ("name", "created", "parent", "machines")
    }
    status = run.status()
    texts = {
        "run.json": json.dumps({"config": run.config().to_json(), **metadata}, indent=1).encode(),
        "status.json": json.dumps({"state": status.state, "message": status.message}).encode(),
        "metrics.jsonl": b"".join(
            json.dumps(r.to_json(), ensure_ascii=False).encode() + b"\n" for r in run.records()
        ),
    }
    steps = run.checkpoint_steps()[::-1]
    first = {*steps[:1], *([run.default_step()] if steps else [])}
    files = [
        *map(run.checkpoint_path, first),
        *map(run.frame_path, run.frame_steps()),
        *(run.path / data_store.IN_RUN).glob("*.txt"),
    ]
    room = (
        MOST_UNPACKED - sum(map(len, texts.values())) - sum(path.stat().st_size for path in files)
    )
    if room < 0 or len(files) + len(texts) > MOST_FILES:
        raise ValueError(
            f"This run is larger than {MOST_UNPACKED // 1_000_000} MB or {MOST_FILES:,} files, the limit "
            "of a zip."
        )
    for path in (run.checkpoint_path(step) for step in steps if step not in first):
        room -= path.stat().st_size
        files += [path] * (room >= 0)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for key, data in texts.items():
            file.writestr(f"{name}/{key}", data)
        for path in files:
            file.write(path, f"{name}/{path.parent.name}/{path.name}")
    return out.getvalue()


def unpack(data: bytes | BinaryIO, root: Path | None = None, most: int | None = None) -> Run:
    """A new run from a zip, of at most `most` bytes unpacked; ValueError for anything that is not a run."""
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    if stream.seek(0, io.SEEK_END) > MOST_ZIPPED:
        raise ValueError(f"The file is larger than {MOST_ZIPPED // 1_000_000} MB.")
    with draft_folder(root) as folder:
        try:
            with zipfile.ZipFile(stream) as file:
                for info, name in members(file, most):
                    _write(file, info, folder / name)
        except (
            zipfile.BadZipFile,
            zlib.error,
            RuntimeError,
            NotImplementedError,
            EOFError,
            OSError,
        ) as error:
            trouble = "" if disk_refused(error) else "The zip cannot be read: "
            raise ValueError(f"{trouble}{sentence_of(error)}") from error
        return _adopt(Run(folder), root)


def members(file: zipfile.ZipFile, most: int | None = None) -> list[tuple[zipfile.ZipInfo, str]]:
    """The members of a zip with their names in the run's folder; ValueError for a name that no run has."""
    infos: dict[str, zipfile.ZipInfo] = {}
    tops = set()
    for info in file.infolist():
        match = NAMES.fullmatch(info.filename)
        if match is None:
            if FOLDERS.fullmatch(info.filename):
                continue
            raise ValueError(f"The zip holds {quote(info.filename)}, which is not a file of a run.")
        name = match[1]
        tops.add(info.filename.removesuffix(name))
        if name in infos or len(tops) > 1:
            raise ValueError(f"The zip holds {name} more than once; a zip holds one run.")
        if info.flag_bits & 1 or info.compress_type not in FLAT:
            raise ValueError(f"{name} is encrypted, or packed in a way other than deflate.")
        infos[name] = info
    if len(infos) > MOST_FILES:
        raise ValueError(f"The zip holds {len(infos):,} files; at most {MOST_FILES:,} are allowed.")
    total = sum(info.file_size for info in infos.values())
    if total > (most := MOST_UNPACKED if most is None else most):
        raise ValueError(
            f"Unpacked it would have {total / 1e6:,.0f} MB; at most {most // 1_000_000} MB "
            "are allowed."
        )
    if missing := {"run.json", "metrics.jsonl"} - infos.keys():
        raise ValueError(f"The zip has no {sorted(missing)[0]}, so it is not a run.")
    return [(info, name) for name, info in infos.items()]


def _write(file: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """Unpack one file, up to its declared size."""
    path.parent.mkdir(exist_ok=True)
    left = info.file_size
    with file.open(info) as packed, path.open("wb") as out:
        while part := packed.read(CHUNK):
            left -= len(part)
            if left < 0:
                raise ValueError(f"{info.filename} unpacks to more than the zip states.")
            out.write(part)


def _adopt(draft: Run, root: Path | None) -> Run:
    """Check every file of the draft and copy the valid data into a new run."""
    data_store.note(draft.path, verify=True)
    config, metadata = validate.config(draft.path / "run.json")
    records = validate.records(draft.path / "metrics.jsonl")
    validate.frames(draft, config)
    validate.checkpoints(draft, config)
    status = draft.status()
    ended = (
        (status.state, status.message[:MOST_TEXT])
        if status.state in ENDED
        else ("stopped", "It was still training when it was copied.")
    )
    with new_run(config, root, uploaded=time.time(), **_valid_metadata(metadata)) as run:
        for path in [
            *map(draft.frame_path, draft.frame_steps()),
            *map(draft.checkpoint_path, draft.checkpoint_steps()),
        ]:
            path.rename(run.path / path.parent.name / path.name)
        for record in records:
            run.append(record)
        run.set_status(*ended)
    return Run((root or runs_folder()) / run.id)


def _valid_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """The valid values beside the config in a run.json."""
    result: dict[str, Any] = {}
    if isinstance(metadata.get("name"), str):
        result["name"] = metadata["name"][:LONGEST_NAME]
    parent = metadata.get("parent")
    if (
        isinstance(parent, dict)
        and isinstance(parent.get("run"), str)
        and count(parent.get("step"))
    ):
        result["parent"] = {"run": parent["run"][:LONGEST_NAME], "step": parent["step"]}
    if machines := valid(metadata.get("machines")):
        result["machines"] = machines
    return result
