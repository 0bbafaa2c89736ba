"""Models of the Hugging Face hub: checked by their config and file list first, then downloaded.

Only the config, the tokenizer and safetensors of one commit are downloaded, none longer than the hub has stated, and
checked by the hub's checksum where there is one. No code from a repository is ever run.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from core.files import text_of
from core.pretrained import model_storage
from core.pretrained.base import Pretrained, PretrainedError
from core.pretrained.fetch import SECONDS, File, endpoint, fetch_file, fetch_small, hub_errors
from core.pretrained.load import load_folder
from core.pretrained.model_files import (
    BESIDE,
    MOST_CONFIG,
    parse_config,
    refuse_config,
    weight_files,
)
from core.pretrained.model_storage import format_bytes

MOST_BYTES = 600_000_000
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
REVISION = re.compile(r"[\w./-]{1,200}")
COMMIT = re.compile(r"[0-9a-f]{40}")


class DownloadStopped(Exception):
    """The user stopped the download; its partial files are deleted."""


@dataclass(frozen=True)
class DownloadPlan:
    """What a download would fetch: one commit of one model. `memory` is what its weights take in fp32, in bytes."""

    repo: str
    commit: str
    family: str
    files: tuple[File, ...]
    memory: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> Path:
        return model_storage.model_folder(self.repo, self.commit)

    @property
    def is_downloaded(self) -> bool:
        """Whether all its files are on this computer."""
        return self.folder.is_dir()


def parse(text: str) -> tuple[str, str]:
    """owner/name, owner/name@revision or the address of the model's page → (repo, revision).

    PretrainedError when it can be no model's name.
    """
    text = text_of(text)
    named = re.sub(
        r"^(https?://)?(www\.)?(huggingface\.co|hf\.co)/", "", unquote(text.strip())
    ).rstrip("/")
    named = re.sub(r"/(tree|blob|resolve)/", "@", named, count=1)
    repo, _, revision = named.partition("@")
    if not NAME.fullmatch(repo) or ".." in repo or "--" in repo:
        message = (
            f"“{text.strip()[:80]}” is not the name of a model on the hub"
            if text.strip()
            else "No model is named yet"
        )
        raise PretrainedError(
            f"{message}; write owner/name, such as distilbert/distilgpt2, or name@revision."
        )
    if revision and (not REVISION.fullmatch(revision) or ".." in revision):
        raise PretrainedError(
            f"“{revision[:80]}” is not the name of a revision; write a branch, a tag or a commit."
        )
    return repo, revision or "main"


def most_bytes() -> int:
    """The most bytes that one model may have, by ATTENTION_LAB_MODEL_MB or 600 MB."""
    return int(float(os.environ.get("ATTENTION_LAB_MODEL_MB") or MOST_BYTES / 1e6) * 1e6)


def plan(repo: str, revision: str = "main", *, token: str | None = None) -> DownloadPlan:
    """The download plan of a model, pinned to a commit, from its file list and config alone.

    PretrainedError when it cannot be opened, or is larger than `most_bytes`.
    """
    from huggingface_hub import HfApi

    with hub_errors(repo, revision, token):
        info = HfApi(endpoint=endpoint(), token=token or False).model_info(
            repo, revision=revision, files_metadata=True, timeout=SECONDS
        )
    listed = {item.rfilename: item for item in info.siblings or ()}
    weights = weight_files(listed, repo)
    commit = str(info.sha or "")
    if not COMMIT.fullmatch(commit):
        raise PretrainedError(f"The hub states no commit for {repo}, so its version is not known.")
    needed = [item for name, item in listed.items() if name in weights or BESIDE.fullmatch(name)]
    if unknown := [item.rfilename for item in needed if item.size is None]:
        raise PretrainedError(
            f"The hub does not state the size of {unknown[0]} of {repo}, so it is not downloaded."
        )
    files = tuple(
        File(item.rfilename, int(item.size or 0), item.lfs.sha256 if item.lfs else None)
        for item in needed
    )
    config = parse_config(fetch_small(repo, commit, "config.json", MOST_CONFIG, token), repo)
    refuse_config(config, repo)
    plan = DownloadPlan(
        repo, commit, str(config["model_type"]), files, _memory(info, config, files)
    )
    _refuse_size(plan, most_bytes())
    return plan


def _memory(info: Any, config: dict[str, Any], files: tuple[File, ...]) -> int:
    """Bytes of the weights in fp32: 4 a parameter, where the hub counts them, or by the type that the config names."""
    counted = getattr(info.safetensors, "parameters", None)
    if counted:
        return 4 * sum(int(count) for count in counted.values())
    stored = sum(file.size for file in files if file.name.endswith(".safetensors"))
    kind = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return stored * (2 if kind.endswith("float16") else 1)


def _refuse_size(plan: DownloadPlan, limit: int) -> None:
    """PretrainedError for more than `limit` to fetch, or more than 4 × that, or than there is, to hold in memory."""
    if plan.size > limit:
        raise PretrainedError(
            f"{plan.repo} is {format_bytes(plan.size)}; this page downloads at most "
            f"{format_bytes(limit)}. Take a smaller one, such as one with distil, tiny, mini or "
            "small in its name."
        )
    free = model_storage.free_memory()
    if plan.memory > 4 * limit or (free is not None and plan.memory > free):
        room = min(4 * limit, 4 * limit if free is None else free)
        raise PretrainedError(
            f"{plan.repo} needs {format_bytes(plan.memory)} of memory in fp32, and "
            f"{format_bytes(room)} is free. Take a smaller model."
        )


def download(plan: DownloadPlan, *, token: str | None = None, progress: Callable[[int], None] = lambda done: None,
             stopped: Callable[[], bool] = lambda: False) -> Path:  # fmt: skip
    """Download a plan into its folder, completely or not at all; returns the folder.

    `progress` gets the bytes so far. DownloadStopped once `stopped()` is true; PretrainedError when the hub fails.
    """
    folder = plan.folder
    if plan.is_downloaded:
        os.utime(folder)  # as the most recently used
        return folder
    model_storage.make_room(plan.size)
    part = folder.with_name(f"{plan.commit}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir(parents=True)
    done = 0

    def step(count: int) -> None:
        nonlocal done
        if stopped():
            raise DownloadStopped(plan.repo)
        done += count
        progress(done)

    try:
        for file in plan.files:
            step(0)
            fetch_file(plan.repo, plan.commit, file, part / file.name, token, step)
        if not folder.is_dir():
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def open_model(repo: str, revision: str = "main") -> Pretrained:
    """A model of the hub, downloaded first where it is not on this computer; PretrainedError as in `plan`."""
    if not model_storage.model_folder(repo, revision).is_dir():
        ahead = plan(repo, revision)
        download(ahead)
        revision = ahead.commit
    return load(repo, revision)


def load(repo: str, commit: str) -> Pretrained:
    """A downloaded model; PretrainedError when it is no longer there."""
    folder = model_storage.model_folder(repo, commit)
    if not folder.is_dir():
        raise PretrainedError(f"{repo} is no longer on this computer; look it up again to load it.")
    os.utime(folder)  # as the most recently used
    return load_folder(folder, repo)
