"""The only uses of what Streamlit keeps to itself; everything else is its public API.

Made for the Streamlit that constraints.txt pins. `tests/dashboard/test_health.py` fails on another minor
version, so that each is looked at again: is there a public way now?
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

MADE_FOR = "1.67"  # major and minor version

Values = Mapping[tuple[str, str], float] | float  # one, or by a label's name and value
Family = tuple[str, str, str, Callable[[], Values]]  # gauge or counter, unit, help, measure


def script_run() -> Any:
    """The run of a page's script in this thread: `ScriptRunContext`; None outside of any.

    Streamlit's own guide to threads names it, and says that it may change without notice. There is no public way to ask
    whether a page asks, of which session it is, whether a fragment runs alone, and whether the browser went back. Whose
    folder is asked for depends on it on a public copy, so that a Streamlit without it must fail at once.
    """
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    return get_script_run_ctx(suppress_warning=True)


def register_metrics(families: Mapping[str, Family]) -> None:
    """Add families to Streamlit's own at /_stcore/metrics."""
    from streamlit.runtime import get_instance

    get_instance().stats_mgr.register_provider(metrics_provider(families))


def metrics_provider(families: Mapping[str, Family]) -> Any:
    """What Streamlit's manager of metrics asks for the values of these families."""

    def get_stats(names: Sequence[str] | None = None) -> Mapping[str, Sequence[Any]]:
        return {
            name: _stats(name, *family)
            for name, family in families.items()
            if names is None or name in names
        }

    return SimpleNamespace(stats_families=list(families), get_stats=get_stats)


def _stats(name: str, kind: str, unit: str, text: str, measure: Callable[[], Values]) -> list[Any]:
    from streamlit.runtime.stats import CounterStat, GaugeStat

    make, values = CounterStat if kind == "counter" else GaugeStat, measure()
    return [
        make(name, int(value), dict([label]) if label else None, unit, text)
        for label, value in (values.items() if isinstance(values, Mapping) else [(None, values)])
    ]


CONTROLS = {
    "button_group",
    "checkbox",
    "color_picker",
    "date_input",
    "file_uploader",
    "multiselect",
    "number_input",
    "radio",
    "selectbox",
    "slider",
    "text_area",
    "text_input",
    "time_input",
}  # what a reader can change


@contextmanager
def labels_drawn() -> Iterator[dict[str, str]]:
    """Collect the label of each control that is drawn inside, by its key: those that a lesson may hide.

    They are read from what the page sends to the browser; no public call names the widgets of a page. Of a Streamlit
    that sends otherwise, a lesson offers none.
    """
    labels: dict[str, str] = {}
    context = script_run()
    send = getattr(context, "_enqueue", None)
    if context is None or send is None:
        yield labels
        return

    def note(message: Any) -> None:
        element = message.delta.new_element
        kind = element.WhichOneof("type")
        if kind in CONTROLS:
            control = getattr(element, kind)
            key = control.id.split("-", 2)[-1]  # $$ID-hash-key, where the key may be None
            if key != "None" and control.label.strip():
                labels[key] = control.label.strip()
        send(message)

    context._enqueue = note
    try:
        yield labels
    finally:
        context._enqueue = send
