"""Where each way of decoding comes from, and the search as it just ran."""

from __future__ import annotations

import streamlit as st

from core.decoding import beam_steps, sample_steps
from dashboard.views.decode.compute import BEAM, GREEDY, SAMPLING
from dashboard.widgets.panels import source_panel

PAPERS = {
    GREEDY: ("Sutskever et al. 2014", "https://arxiv.org/abs/1409.3215", "Greedy decoding takes the likeliest token at "
             "each step and never looks back."),
    BEAM: ("Wu et al. 2016, section 7", "https://arxiv.org/abs/1609.08144", "Beam search keeps the best beginnings; "
           "dividing by a power of the length takes back what long outputs lose."),
    SAMPLING: ("Holtzman et al. 2020", "https://arxiv.org/abs/1904.09751", "Drawing from the fewest tokens that hold "
               "probability p (top-p, nucleus) leaves out the unreliable tail; top-k is Fan et al. 2018."),
}


def sources(strategy: str, key: str) -> None:
    """The expander with the paper and the code; its body runs only while it is open."""
    shown = st.expander("Paper and the search that just ran", on_change="rerun", key=key)
    if shown.open:
        paper, url, meaning = PAPERS[strategy]
        with shown:
            st.markdown(f"**{strategy}** — {meaning} [{paper}]({url})")
            source_panel(sample_steps if strategy == SAMPLING else beam_steps)
