"""What pages show of a cluster: its state, and where a run is or was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.cluster import spool
from core.cluster.settings import address
from core.cluster.spool import ClusterState
from core.files import hosted


def cluster_state() -> ClusterState | None:
    """What the cluster has and has free; None where runs stay on this machine, and on a public copy."""
    if not address() or hosted():
        return None
    spool.ensure_bridge()
    return spool.load_state()


def node_text(metadata: Mapping[str, Any]) -> str:
    """On which nodes of a cluster a run of this run.json was, in order; empty for one of this machine."""
    names = [] if hosted() else spool.node_names(metadata)
    nodes = [name for index, name in enumerate(names) if name not in names[index - 1 : index]]
    return f"on node {', then '.join(nodes)}" if nodes else ""
