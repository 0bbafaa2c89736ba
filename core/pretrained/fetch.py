"""Bytes from the hub: one file at a time, never more than the hub has stated, and its failures in words."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.pretrained.base import PretrainedError, first_line

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
    with into.open("wb") as out, hub_errors(repo, commit, token):
        for left in reversed(range(TRIES)):
            try:
                for chunk in _stream(repo, commit, file.name, token, out.tell()):
                    if out.tell() + len(chunk) > file.size:
                        raise PretrainedError(
                            f"The hub sent more than the {file.size:,} bytes that it stated for "
                            f"{file.name}, so the file is not saved."
                        )
                    step(len(chunk))
                    digest.update(chunk)
                    out.write(chunk)
                break
            except (httpx2.TransportError, TimeoutError):
                if not left:
                    raise
        short = out.tell() < file.size
    if short or (file.sha256 and digest.hexdigest() != file.sha256):
        raise PretrainedError(
            f"{file.name} of {repo} arrived incomplete or changed, so it is not saved; try again."
        )


def fetch_small(repo: str, commit: str, name: str, most: int, token: str | None) -> bytes:
    """A file of at most `most` bytes, in memory."""
    data = b""
    with hub_errors(repo, commit, token):
        for chunk in _stream(repo, commit, name, token):
            data += chunk
            if len(data) > most:
                raise PretrainedError(
                    f"{name} of {repo} is larger than {most:,} bytes, so it is not read."
                )
    return data


def _stream(
    repo: str, commit: str, name: str, token: str | None, start: int = 0
) -> Iterator[bytes]:
    """The bytes of a file of one commit, from `start` on."""
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


@contextmanager
def hub_errors(repo: str, revision: str, token: str | None) -> Iterator[None]:
    """The hub's and the network's failures as sentences."""
    import httpx2
    from huggingface_hub import errors

    secret = "Put a token of an account that may read it into .streamlit/secrets.toml as HF_TOKEN."
    if token:
        secret = "The account of the HF_TOKEN in Streamlit's secrets has no permission."
    missing = (
        f"The hub has no model {repo} that is open to you. Check the spelling of owner and name. If it is "
        f"private: {secret[0].lower()}{secret[1:]}"
    )
    try:
        yield
    except errors.GatedRepoError as error:
        raise PretrainedError(
            f"{repo} is gated: its owner asks readers to accept terms at huggingface.co/{repo}. "
            f"{secret}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise PretrainedError(
            f"{repo} has no revision {revision}; leave it out for the newest one."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise PretrainedError(missing) from error
    except errors.OfflineModeIsEnabled as error:
        raise PretrainedError(
            "HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, or take a model on this "
            "computer."
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status == 401 and not token:
            raise PretrainedError(missing) from error
        why = {401: f"refuses the token. {secret}", 403: f"forbids it. {secret}",
               429: "got too many requests; wait a few minutes and try again."}  # fmt: skip
        raise PretrainedError(
            f"The hub answers {status} for {repo}: it "
            f"{why.get(status, 'has a problem of its own; try again later.')}"
        ) from error
    except (httpx2.TimeoutException, TimeoutError) as error:
        raise PretrainedError(
            f"The hub gives no answer within {SECONDS:.0f} s. Check the network and try again, or "
            "take a model on this computer."
        ) from error
    except httpx2.TransportError as error:
        raise PretrainedError(
            "The hub cannot be reached: there is no network, or it is blocked. Take a model on this "
            "computer, or a folder."
        ) from error
    except (OSError, ValueError) as error:
        raise PretrainedError(f"{repo} cannot be downloaded: {first_line(error)}") from error
