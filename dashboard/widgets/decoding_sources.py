"""The paper of each search strategy, and the source of the search that just ran."""

from __future__ import annotations

import streamlit as st

from core.decoding import Strategy, beam_steps, sample_steps
from dashboard.widgets.panels import source_panel

PAPERS: dict[Strategy, tuple[str, str, str, str]] = {  # name, paper, address, meaning
    "greedy": ("Greedy", "Sutskever et al. 2014", "https://arxiv.org/abs/1409.3215",
               "Greedy decoding takes the likeliest token at each step and never looks back."),
    "beam": ("Beam", "Wu et al. 2016, section 7", "https://arxiv.org/abs/1609.08144",
             "Beam search keeps the best beginnings; dividing by a power of the length takes back what long outputs "
             "lose."),
    "sampling": ("Sampling", "Holtzman et al. 2020", "https://arxiv.org/abs/1904.09751",
                 "Drawing from the fewest tokens that hold probability p (top-p, nucleus) leaves out the unreliable "
                 "tail; top-k is Fan et al. 2018."),
}


def sources(strategy: Strategy, key: str) -> None:
    """An expander with the paper and the code."""
    panel = st.expander("Paper and the search that just ran", on_change="rerun", key=key)
    if panel.open:
        name, paper, url, meaning = PAPERS[strategy]
        with panel:
            st.markdown(f"**{name}** — {meaning} [{paper}]({url})")
            source_panel(sample_steps if strategy == "sampling" else beam_steps)
