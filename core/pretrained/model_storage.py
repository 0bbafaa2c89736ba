"""Models on disk: the folder of downloads, with a size limit, and the user's own folders."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path

from core.memory import free_bytes
from core.pretrained.base import PretrainedError
from core.pretrained.model_files import folder_weights, read_config, refuse_config

MOST_BYTES = 3_000_000_000
MARGIN = 300_000_000
STALE_SECONDS = 6 * 3600.0


def storage_folder() -> Path:
    """The folder of downloaded models, in HF_HOME; models of other programs beside it are never touched."""
    home = (
        os.environ.get("HF_HOME")
        or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    )
    return Path(home).expanduser() / "attention-lab"


def storage_limit() -> int:
    """The size limit of the folder in bytes, from ATTENTION_LAB_MODELS_MB or 3 GB."""
    return int(float(os.environ.get("ATTENTION_LAB_MODELS_MB") or MOST_BYTES / 1e6) * 1e6)


def model_folder(repo: str, commit: str) -> Path:
    """The folder of one commit of one model, whether it exists or not."""
    return storage_folder() / repo.replace("/", "--") / commit


def repo_of(folder: Path) -> str:
    """The model's name of a download's folder."""
    return folder.parent.name.replace("--", "/")


def downloaded_commits(repo: str) -> tuple[str, ...]:
    """The downloaded commits of a model, most recently used first."""
    folders = [path for path in _folders() if path.parent.name == repo.replace("/", "--")]
    return tuple(path.name for path in sorted(folders, key=_used, reverse=True))


def make_room(need: int) -> None:
    """Delete the least recently used models until `need` more bytes fit; PretrainedError when they cannot."""
    most = storage_limit()
    if need > most:
        raise PretrainedError(
            f"The model has {format_bytes(need)} and the folder for downloads holds at most "
            f"{format_bytes(most)}; set ATTENTION_LAB_MODELS_MB higher, or take a smaller model."
        )
    storage_folder().mkdir(parents=True, exist_ok=True)
    for part in storage_folder().glob("*/*.part"):
        if time.time() - _used(part) > STALE_SECONDS:  # its process has ended
            shutil.rmtree(part, ignore_errors=True)
    folders = sorted(_folders(), key=_used)
    sizes = [
        sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for folder in folders
    ]
    while folders and sum(sizes) + need > most:
        shutil.rmtree(folders.pop(0), ignore_errors=True)
        sizes.pop(0)
    free = shutil.disk_usage(storage_folder()).free
    if free < need + MARGIN:
        raise PretrainedError(
            f"There is no room for {format_bytes(need)}: the disk of {storage_folder()} has "
            f"{format_bytes(free)} free, of which {format_bytes(MARGIN)} must stay free. Free some "
            "space, or take a smaller model."
        )


def _folders() -> list[Path]:
    return [
        path for path in storage_folder().glob("*/*") if path.is_dir() and path.suffix != ".part"
    ]


def _used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def free_memory() -> int | None:
    """The free memory in bytes; None where the system does not report it."""
    free = free_bytes()
    return None if math.isinf(free) else int(free)


def check_folder(text: str, limit: int) -> Path:
    """The resolved path of a user's folder with a model in it; PretrainedError says what it lacks.

    `limit` is the most bytes of weights that are opened.
    """
    folder = Path(text.strip()).expanduser()
    try:
        if not text.strip() or "\0" in text or not folder.is_dir():
            raise PretrainedError(
                f"There is no folder {text.strip() or '(empty)'} on the computer that runs this "
                "page; write the path of one that holds config.json and model.safetensors."
            )
        folder = folder.resolve()
        if not (folder / "config.json").is_file():
            raise PretrainedError(
                f"The folder {folder} has no config.json, so it holds no model. Write the path of "
                "one that holds config.json and model.safetensors."
            )
        weights = folder_weights(folder, folder.name)
        refuse_config(read_config(folder / "config.json", folder.name), folder.name)
        total = sum(file.stat().st_size for file in weights)
    except OSError as error:
        raise PretrainedError(
            f"The folder {text.strip()} cannot be read: {error.strerror}."
        ) from error
    if total > limit:
        raise PretrainedError(
            f"{folder.name} has {format_bytes(total)} of weights; this page opens models of at most "
            f"{format_bytes(limit)}. Take a smaller one."
        )
    return folder


def format_bytes(count: int) -> str:
    """A size as text in kB, MB or GB (powers of ten, as the hub counts)."""
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB")):
        if count >= unit:
            return (
                f"{count / unit:,.1f} {name}"
                if count < 10 * unit
                else f"{count / unit:,.0f} {name}"
            )
    return f"{count / 1000:,.0f} kB"
