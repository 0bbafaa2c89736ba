"""The switch of a public copy, ATTENTION_LAB_HOSTED, and what it closes when the server starts."""

import os
import sys
import threading
from contextlib import suppress
from functools import cache

import streamlit as st
from streamlit import config

HOSTED = "ATTENTION_LAB_HOSTED"  # core.files has it too, but core loads the plug-ins, which a public copy must not

NO_SERVER = (
    "ATTENTION_LAB_HOSTED needs the lab's own server, which keeps visitors apart: start it by `streamlit run` "
    "with streamlit_app.py or dashboard/cloud.py."
)


@cache
def begin_hosting() -> None:
    """Take the switch and its limits from Streamlit's secrets, too, and on a public copy keep tracebacks from readers.

    To be called before core is imported, which loads plug-ins. A public copy without the server of
    streamlit_app.py is refused. ValueError for a limit that is no number.
    """
    with suppress(FileNotFoundError):  # no file of secrets
        for name, value in st.secrets.items():
            if str(name).startswith(HOSTED):  # where core and the workers find it
                os.environ.setdefault(str(name), str(value))
    from core.files import hosted
    from core.settings import check_names, settings
    from dashboard.server.visitors import PERSON_HEADER, limits, raise_file_limit

    check_names()
    settings()

    raise_file_limit()
    if hosted():
        if "streamlit_app" not in sys.modules:  # which makes the cookie, the guard and the routes
            st.error(NO_SERVER)
            st.stop()
        from dashboard.server.limits import watch

        # Streamlit holds each session to the person of the header that the guard writes at every connection: a browser
        # that lost its connection asks for its session by the session's id, which is no secret of one person.
        config.set_option(
            "server.trustedUserHeaders",
            {
                **config.get_option("server.trustedUserHeaders"),
                PERSON_HEADER: "attention_lab_person",
            },
        )
        # by which the server stops reading
        config.set_option("server.maxUploadSize", limits()["upload_megabytes"])
        config.set_option("client.showErrorDetails", "none")
        threading.Thread(target=watch, daemon=True, name="forgetting").start()
