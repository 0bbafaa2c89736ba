"""Make a claim of a sweep: which value is better than which, by how much, as a file that works as a plug-in."""

from __future__ import annotations

import streamlit as st

from core.attention import ConfigError
from core.claims.sweep_claim import MEASURES, SweepClaim
from dashboard.views.sweeps import text
from dashboard.views.sweeps.compute import SweepData
from dashboard.views.sweeps.units import SHARES
from dashboard.widgets.panels import caption, field_error, paragraph, plain
from dashboard.widgets.params import KEEP


def draw_claim(data: SweepData) -> None:
    """Draw the two values, the measure, the bound and the download."""
    paragraph("A claim is a rule that is written before a run. This one compares two values of the sweep from seeds "
              "that it did not have. Put the file into the folder of `ATTENTION_LAB_PLUGINS`; the page Claims then "
              "has it, with its run and its verdict.")
    measures, names = [name for name in data.measures() if name in MEASURES], data.names
    if not measures:
        caption("This sweep has no measure that two models could be compared by.")
        return
    with st.grid(4, min_column_width=140):
        first = _value("This value is better", names, 0, "first")
        second = _value("than this one", names, 1, "second")
        measure = st.selectbox("in", measures, key="sweeps:claim:measure", **KEEP,
                               format_func=lambda name: text.measure_name(name, data),
                               help="The number that is compared at the end of training.")
        percent = measure in SHARES
        bound = st.number_input("by more than" + (" (points)" if percent else ""), 0.0, None, 0.0,
                                key=f"sweeps:claim:bound:{percent}", **KEEP,
                                help="Write it before you run the claim: the interval of the difference must lie "
                                     "above it.")
    try:
        claim = SweepClaim(data.config, first, second, measure, bound / 100 if percent else bound)
    except ConfigError as error:
        field_error(error)
        return
    caption(f"“{plain(claim.statement)}”")
    st.download_button("Download the claim", claim.file, f"{claim.key}.py", "text/x-python",
                       icon=":material/download:", on_click="ignore", key="sweeps:claim:file")


def _value(label: str, names: list[str], start: int, key: str) -> int:
    value = st.selectbox(label, range(len(names)), start, key=f"sweeps:claim:{key}:{len(names)}",
                         format_func=lambda index: names[index], help="A value of the sweep.", **KEEP)
    return int(value)
