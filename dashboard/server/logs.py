"""The log of the pages: when a person asks for it, every line of Streamlit's and ours is an event of core.event_log."""

import hashlib
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit import config, logger

from core import event_log
from core.files import disk_refused, sentence_of
from dashboard.draw.formats import plain
from dashboard.server.streamlit_internals import script_run

SALT = secrets.token_bytes(16)  # a session's name in the log means nothing after a restart


def start() -> None:
    if style := event_log.style():
        config.set_option("logger.messageFormat", "%(message)s")
        config.set_option("logger.enableRich", False)
        event_log.install(style, _context)
        logger.update_formatter()


def unify() -> None:
    """Write no prefix before lines: uvicorn, which has begun by now, and other libraries have formats of their own."""
    if event_log.style():
        loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
        for handler in {handler for one in (logging.root, *loggers) for handler in one.handlers}:
            handler.setFormatter(None)
        logging.getLogger(
            "uvicorn.access"
        ).handlers.clear()  # requests are logged by the guard, which knows the pages


@contextmanager
def page_run(page: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        event_log.log("page", page=page, ms=round((time.perf_counter() - begin) * 1000))


def on_script_error(error: Exception) -> bool:
    """What a page shows in place of a traceback: what the system refused, or the error's reference in the log."""
    if disk_refused(error):
        st.error(plain(sentence_of(error)))
        return True
    if not event_log.style():
        return False
    st.error(
        f"This page met an error of the lab. The log has it under the reference {event_log.reference(error)}."
    )
    return True


def _context() -> dict[str, event_log.Value]:
    run = script_run()
    if run is None:
        return {}
    info = run.pages_manager.get_pages().get(run.page_script_hash)
    page = info.get("url_pathname", "") if info else ""
    return {
        "session": hashlib.blake2b(run.session_id.encode(), key=SALT, digest_size=4).hexdigest(),
        **({"page": page} if page else {}),
    }
