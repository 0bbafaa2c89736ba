"""Models of the Hugging Face hub: checked by their config and file list first, then downloaded.

Only the config, the tokenizer and safetensors of one commit are downloaded, none longer than the hub has stated, and
checked by the hub's checksum where there is one. No code from a repository is ever run.
"""

import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from core.entries import Cost
from core.files import folder_bytes, hosted, modified, remove_tree, text_of
from core.memory import format_bytes
from core.pretrained.base import Pretrained, PretrainedError, first_line, refuse_too_much, reject_if
from core.pretrained.load import (
    ADAPTER,
    AUXILIARY,
    INDEX,
    MAX_AUXILIARY,
    MAX_CONFIG,
    folder_weights,
    load_folder,
    parse_config,
    read_config,
    weight_files,
)
from core.settings import limits, settings

# Bytes from the hub: one file at a time, never more than the hub has stated, and its failures in words.


SECONDS = 10.0
TRIES = 4


@dataclass(frozen=True)
class File:
    """A file of a repository: its name, its size in bytes, and its sha256 where the hub states one."""

    name: str
    size: int
    sha256: str | None


def endpoint() -> str:
    """The hub's address, or HF_ENDPOINT's."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def fetch_file(
    repo: str, commit: str, file: File, into: Path, token: str | None, step: Callable[[int], None]
) -> None:
    """One file, never longer than stated, taken up again where a connection broke off; checked by its sha256."""
    import httpx2

    digest = hashlib.sha256()
    with into.open("wb") as out, asking(repo, commit, token):
        for left in reversed(range(TRIES)):
            try:
                for chunk in _stream(repo, commit, file.name, token, out.tell()):
                    reject_if(
                        out.tell() + len(chunk) > file.size,
                        f"The hub sent more than the {file.size:,} bytes that it stated for "
                        f"{file.name}, so the file is not saved.",
                    )
                    step(len(chunk))
                    digest.update(chunk)
                    out.write(chunk)
                break
            except (httpx2.TransportError, TimeoutError):
                if not left:
                    raise
    reject_if(
        into.stat().st_size < file.size or file.sha256 not in (None, digest.hexdigest()),
        f"{file.name} of {repo} arrived incomplete or changed, so it is not saved; try again.",
    )


def _stream(
    repo: str, commit: str, name: str, token: str | None, start: int = 0
) -> Iterator[bytes]:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = build_hf_headers(token=token or False) | {"accept-encoding": "identity"}
    if start:
        headers["range"] = f"bytes={start}-"
    url = hf_hub_url(repo, name, revision=commit, endpoint=endpoint())
    with get_session().stream(
        "GET", url, headers=headers, timeout=SECONDS, follow_redirects=True
    ) as response:
        hf_raise_for_status(response)
        skip = start if response.status_code == 200 else 0
        for chunk in response.iter_bytes(1 << 18):
            if skip < len(chunk):
                yield chunk[skip:]
            skip = max(0, skip - len(chunk))


# What a public copy opens of the hub, unless ATTENTION_LAB_HOSTED_MODELS names others.
HOSTED_MODELS = (
    "distilbert/distilgpt2",
    "google-t5/t5-small",
    "google/vit-base-patch16-224",
    "distilbert/distilbert-base-uncased",
)


def allowed_models() -> tuple[str, ...]:
    return settings().hosted_models or HOSTED_MODELS


def is_allowed(repo: str) -> bool:
    return not hosted() or repo in allowed_models()


def refuse_model(repo: str, revision: str) -> None:
    """PretrainedError on a public copy for a model beyond the list, and for a revision that is not here or the main."""
    reject_if(
        not is_allowed(repo),
        f"This is a public copy, which opens these models of the hub: "
        f"{', '.join(allowed_models())}. Run the lab on your own computer for {repo}.",
    )
    reject_if(
        hosted()
        and revision not in ("", "main")
        and not (COMMIT.fullmatch(revision) and revision in downloaded_commits(repo)),
        f"This is a public copy, which opens the main revision of {repo} alone.",
    )


@contextmanager
def asking(repo: str, revision: str, token: str | None) -> Iterator[None]:
    """Whatever asks the hub does so in this block: PretrainedError for a model that a public copy does not open, before
    anything is sent, and for each way in which the hub fails."""
    import httpx2
    from huggingface_hub import errors

    refuse_model(repo, "")
    secret = (
        "The account of the HF_TOKEN in Streamlit's secrets has no permission."
        if token
        else "Put a token of an account that may read it into .streamlit/secrets.toml as HF_TOKEN."
    )
    missing = (
        f"The hub has no model {repo} that is open to you. Check the spelling of owner and name. If it is "
        f"private: {secret[0].lower()}{secret[1:]}"
    )
    try:
        yield
    except (errors.HfHubHTTPError, httpx2.TransportError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        why = {401: f"refuses the token. {secret}", 403: f"forbids it. {secret}",
               429: "got too many requests; wait a few minutes and try again."}  # fmt: skip
        answers = (
            f"The hub answers {status} for {repo}: it "
            f"{why.get(status, 'has a problem of its own; try again later.')}"
        )
        sentences: tuple[tuple[Any, str], ...] = (  # the first whose error it is
            (
                errors.GatedRepoError,
                f"{repo} is gated: its owner asks readers to accept terms at "
                f"huggingface.co/{repo}. {secret}",
            ),
            (
                errors.RevisionNotFoundError,
                f"{repo} has no revision {revision}; leave it out for the newest one.",
            ),
            (errors.RepositoryNotFoundError, missing),
            (
                errors.OfflineModeIsEnabled,
                "HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, or take a model on "
                "this computer.",
            ),
            (errors.HfHubHTTPError, missing if status == 401 and not token else answers),
            (
                (httpx2.TimeoutException, TimeoutError),
                f"The hub gives no answer within {SECONDS:.0f} s. Check the network and try again, "
                "or take a model on this computer.",
            ),
            (
                httpx2.TransportError,
                "The hub cannot be reached: there is no network, or it is blocked. Take a model on "
                "this computer, or a folder.",
            ),
            (Exception, f"{repo} cannot be downloaded: {first_line(error)}"),
        )
        raise PretrainedError(
            next(text for kind, text in sentences if isinstance(error, kind))
        ) from error


# Models on disk: the folder of downloads, with a size limit, and the user's own folders.


MARGIN = 300_000_000
STALE_SECONDS = 6 * 3600.0


def storage_folder() -> Path:
    """The folder of downloaded models, in HF_HOME; models of other programs beside it are never touched."""
    home = (
        os.environ.get("HF_HOME")
        or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    )
    return Path(home).expanduser() / "attention-lab"


def model_folder(repo: str, commit: str) -> Path:
    """The folder of one commit of one model, whether it exists or not."""
    return storage_folder() / repo.replace("/", "--") / commit


def repo_of(folder: Path) -> str:
    """The model's name of a download's folder."""
    return folder.parent.name.replace("--", "/")


def downloaded_commits(repo: str) -> tuple[str, ...]:
    """The downloaded commits of a model, most recently used first."""
    return tuple(
        path.name
        for path in sorted(
            [path for path in _folders() if path.parent.name == repo.replace("/", "--")],
            key=modified,
            reverse=True,
        )
    )


def make_room(need: int) -> None:
    """Delete the least recently used models until `need` more bytes fit; PretrainedError when they cannot."""
    max_size = int(limits().models_mb * 1e6)
    reject_if(
        need > max_size,
        f"The model has {format_bytes(need)} and the folder for downloads holds at most "
        f"{format_bytes(max_size)}; set models_mb in ATTENTION_LAB_LIMITS higher, or take a smaller model.",
    )
    storage_folder().mkdir(parents=True, exist_ok=True)
    for part in storage_folder().glob("*/*.part"):
        if time.time() - modified(part) > STALE_SECONDS:  # its process has ended
            remove_tree(part)
    sizes = {folder: folder_bytes(folder) for folder in sorted(_folders(), key=modified)}
    while sizes and sum(sizes.values()) + need > max_size:
        remove_tree(oldest := next(iter(sizes)))
        del sizes[oldest]
    free = shutil.disk_usage(storage_folder()).free
    reject_if(
        free < need + MARGIN,
        f"There is no room for {format_bytes(need)}: the disk of {storage_folder()} has "
        f"{format_bytes(free)} free, of which {format_bytes(MARGIN)} must stay free. Free some "
        "space, or take a smaller model.",
    )


def _folders() -> list[Path]:
    return [
        path for path in storage_folder().glob("*/*") if path.is_dir() and path.suffix != ".part"
    ]


def check_folder(text: str, limit: int) -> Path:
    """The resolved path of a user's folder with a model in it; PretrainedError says what it lacks.

    `limit` is the most bytes of weights that are opened.
    """
    folder = Path(text.strip()).expanduser()
    try:
        reject_if(
            not text.strip() or "\0" in text or not folder.is_dir(),
            f"There is no folder {text.strip() or '(empty)'} on the computer that runs this "
            "page; write the path of one that holds config.json and model.safetensors.",
        )
        folder = folder.resolve()
        if not (folder / "config.json").is_file():
            inner = sorted(each.parent.name for each in folder.glob("*/config.json"))
            instead = (
                "It holds an adapter to another model: put its files beside that model's, and "
                "write the path of that folder."
                if (folder / ADAPTER[0]).is_file()
                else f"Its folder {inner[0]} does: write the path of that."
                if inner
                else "Write the path of one that holds config.json and model.safetensors."
            )
            raise PretrainedError(
                f"The folder {folder} has no config.json, so it holds no model. {instead}"
            )
        weights = folder_weights(folder, folder.name)
        read_config(folder / "config.json", folder.name)
        total = sum(file.stat().st_size for file in weights)
    except OSError as error:
        raise PretrainedError(
            f"The folder {text.strip()} cannot be read: {error.strerror}."
        ) from error
    reject_if(
        total > limit,
        f"{folder.name} has {format_bytes(total)} of weights; this page opens models of at most "
        f"{format_bytes(limit)}. Take a smaller one.",
    )
    return folder


NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)

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
        return model_folder(self.repo, self.commit)

    @property
    def is_downloaded(self) -> bool:
        """Whether all its files are on this computer."""
        return self.folder.is_dir()


def parse(text: str) -> tuple[str, str]:
    """owner/name, owner/name@revision or the address of the model's page → (repo, revision).

    PretrainedError when it can be no model's name.
    """
    text = text_of(text).strip()
    named = re.sub(r"^(https?://)?(www\.)?(huggingface\.co|hf\.co)/", "", unquote(text)).rstrip("/")
    named = re.sub(r"/(tree|blob|resolve)/", "@", named, count=1)
    repo, _, revision = named.partition("@")
    what = (
        f"“{text[:80]}” is not the name of a model on the hub" if text else "No model is named yet"
    )
    reject_if(
        not NAME.fullmatch(repo) or ".." in repo or "--" in repo,
        f"{what}; write owner/name, such as distilbert/distilgpt2, or name@revision.",
    )
    reject_if(
        revision and (not re.fullmatch(r"[\w./-]{1,200}", revision) or ".." in revision),
        f"“{revision[:80]}” is not the name of a revision; write a branch, a tag or a commit.",
    )
    return repo, revision or "main"


def max_bytes() -> int:
    """The most bytes that one model may have, `model_mb` of ATTENTION_LAB_LIMITS."""
    return int(limits().model_mb * 1e6)


def config_bytes(repo: str, revision: str = "main", *, token: str | None = None) -> bytes:
    """The config.json of a model, and nothing else of it; PretrainedError where it cannot be read."""
    refuse_model(repo, revision)
    return _small_file(repo, revision, token)


def _small_file(
    repo: str, commit: str, token: str | None, file: str = "config.json", limit: int = MAX_CONFIG
) -> bytes:
    data = bytearray()
    with asking(repo, commit, token):
        for chunk in _stream(repo, commit, file, token):
            data += chunk
            reject_if(
                len(data) > limit,
                f"{file} of {repo} is larger than {limit:,} bytes, so it is not read.",
            )
    return bytes(data)


def plan(repo: str, revision: str = "main", *, token: str | None = None) -> DownloadPlan:
    """The download plan of a model, pinned to a commit, from its file list and config alone.

    PretrainedError when it cannot be opened, or is larger than `max_bytes`.
    """
    from huggingface_hub import HfApi

    refuse_model(repo, revision)
    with asking(repo, revision, token):
        info = HfApi(endpoint=endpoint(), token=token or False).model_info(
            repo, revision=revision, files_metadata=True, timeout=SECONDS
        )
    listed = {item.rfilename: item for item in info.siblings or ()}
    commit = str(info.sha or "")
    reject_if(
        not COMMIT.fullmatch(commit),
        f"The hub states no commit for {repo}, so its version is not known.",
    )
    weights = weight_files(
        listed,
        repo,
        lambda index: _small_file(repo, commit, token, index, MAX_AUXILIARY),
        f"For many older models the hub has one at revision refs/pr/1: try {repo}@refs/pr/1.",
    )
    if ADAPTER[0] in listed:  # merged into the weights when the model is loaded
        weights += ADAPTER[1:]
    needed = [
        item
        for name, item in listed.items()
        if name in weights or AUXILIARY.fullmatch(name) or INDEX.fullmatch(name)
    ]
    if unknown := [item.rfilename for item in needed if item.size is None]:
        raise PretrainedError(
            f"The hub does not state the size of {unknown[0]} of {repo}, so it is not downloaded."
        )
    files = tuple(
        File(item.rfilename, int(item.size or 0), item.lfs.sha256 if item.lfs else None)
        for item in needed
    )
    config = parse_config(_small_file(repo, commit, token), repo)
    # Bytes in fp32: 4 a parameter, where the hub counts them, or by the type that the config names.
    if counted := getattr(info.safetensors, "parameters", None):
        memory = 4 * sum(map(int, counted.values()))
    else:
        kind = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        stored = sum(file.size for file in files if file.name.endswith(".safetensors"))
        memory = stored * (2 if kind.endswith("float16") else 1)
    plan, limit = DownloadPlan(repo, commit, str(config["model_type"]), files, memory), max_bytes()
    reject_if(
        plan.size > limit,
        f"{repo} is {format_bytes(plan.size)}; this page downloads at most "
        f"{format_bytes(limit)}. Take a smaller one, such as one with distil, tiny, mini or "
        "small in its name.",
    )
    reject_if(
        memory > 4 * limit,
        f"{repo} needs {format_bytes(memory)} of memory in fp32; this page opens models of at most "
        f"{format_bytes(4 * limit)}. Take a smaller one.",
    )
    refuse_too_much(Cost(bytes=memory), f"{repo} in fp32", "Take a smaller model.")
    return plan


def download(plan: DownloadPlan, *, token: str | None = None, progress: Callable[[int], None] = lambda done: None,
             stopped: Callable[[], bool] = lambda: False) -> Path:  # fmt: skip
    """Download a plan into its folder, completely or not at all; returns the folder.

    `progress` gets the bytes so far. DownloadStopped once `stopped()` is true; PretrainedError when the hub fails.
    """
    folder = plan.folder
    if plan.is_downloaded:
        os.utime(folder)  # as the most recently used
        return folder
    make_room(plan.size)
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
            (part / file.name).parent.mkdir(parents=True, exist_ok=True)
            fetch_file(plan.repo, plan.commit, file, part / file.name, token, step)
        if not folder.is_dir():
            part.rename(folder)
    finally:
        remove_tree(part)
    return folder


def open_model(repo: str, revision: str = "main") -> Pretrained:
    """A model of the hub, downloaded first where it is not on this computer; PretrainedError as in `plan`."""
    if not model_folder(repo, revision).is_dir():
        ahead = plan(repo, revision)
        download(ahead)
        revision = ahead.commit
    return load(repo, revision)


def load(repo: str, commit: str) -> Pretrained:
    """A downloaded model; PretrainedError when it is no longer there."""
    folder = model_folder(repo, commit)
    reject_if(
        not folder.is_dir(), f"{repo} is no longer on this computer; look it up again to load it."
    )
    os.utime(folder)  # as the most recently used
    return load_folder(folder, repo)
