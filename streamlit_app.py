"""The dashboard as a server, which a bare `streamlit run` finds here; its script is dashboard/app.py."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware

from dashboard.server.hosting import begin_hosting

begin_hosting()  # before an import of core, which loads plug-ins

from core.event_log import log  # noqa: E402
from core.runs.store import begin_copying  # noqa: E402
from dashboard.server import health  # noqa: E402
from dashboard.server.streamlit_internals import register_metrics  # noqa: E402
from dashboard.server.visitors import HTTPGuard, base_path  # noqa: E402


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """What surrounds the life of the server."""
    # Caches want a runtime. Two threads that import parts of core at one time meet modules that are half imported.
    from dashboard.server import queue

    health.unify_log()
    register_metrics(health.FAMILIES)
    # Start the runs that an earlier server left waiting, and find those of its workers, before anybody comes.
    threading.Thread(target=queue.tick, daemon=True, name="queue").start()
    log("start")
    yield
    log("end")


begin_copying()
health.start_log()
health.begin()
SERVER: dict[str, Any] = dict(
    script_path=Path(__file__).resolve().parent / "dashboard" / "app.py",
    routes=[health.route(base_path())],
    middleware=[Middleware(HTTPGuard, base=base_path())],
    lifespan=lifespan,
    on_script_error=health.on_script_error,
)
app = st.App(**SERVER)
