"""What tests of stores look at: the files of a run, and its lease."""

import json
import time

from core.runs.folder import RunFolder
from core.runs.store import Store
from core.runs.store_sync import Copier


def files(run: RunFolder) -> dict[str, bytes]:
    return {
        str(path.relative_to(run.path)): path.read_bytes()
        for path in run.path.rglob("*.*")
        if not path.name.startswith(".") and path.is_file()
    }


def held_by(copies: Copier, run: RunFolder) -> str:
    lease = copies.place.lease(run.id)
    return lease.server if lease and lease.until > time.time() else ""


def expire(place: Store, name: str) -> None:
    """Let the lease run out, as if its server had died a minute ago."""
    lease = place.lease(name)
    assert lease is not None
    place.write(
        f"leases/{name}/{lease.number}.json",
        json.dumps({"server": lease.server, "until": time.time() - 1}).encode(),
    )
