"""Whether the browser still shows what a fragment drew in the run before."""

from __future__ import annotations

from dashboard.server.streamlit_internals import script_run


def reruns_alone() -> bool:
    """Whether a fragment runs alone: the browser still shows all that it drew in the run before."""
    context = script_run()
    return context is not None and bool(context.fragment_ids_this_run)
