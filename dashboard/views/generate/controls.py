"""The controls of the search: a strategy with its settings in one row, the rest in a popover."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.models.decoding import SearchSettings
from core.pretrained import ModelInputs
from dashboard.ui.decoding import STRATEGIES, sample_count, strategy_settings
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.models import ModelRef

MOST = 128  # new tokens at most
STRATEGY_HELP = (
    "Greedy takes the most likely token at each step, Beam continues several outputs at once, Sampling "
    "draws each token at random."
)
SHARES = {
    "Greedy": [1.0],
    "Beam": [1.0, 1.0, 1.8],
    "Sampling": [1.0, 1.0, 1.0, 0.8],
}  # widths: settings, then More
PENALTY = (
    "Length penalty",
    1.0,
    "Outputs are ranked by log-probability / length^penalty: 0 favours short outputs, "
    "larger values favour long ones.",
)


key = "generate:{}".format  # a widget's key, which is also its name in the link


@dataclass(frozen=True)
class Controls:
    """The model, its inputs, and the settings of the search."""

    ref: ModelRef
    inputs: ModelInputs
    settings: SearchSettings


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the settings of the search in a row."""
    way, others = st.columns([1.3, 2.85], vertical_alignment="bottom")
    strategy = way.segmented_control(
        "Strategy",
        list(STRATEGIES),
        default="Greedy",
        required=True,
        key=key("strategy"),
        **BOUND,
        help=STRATEGY_HELP,
    )
    *cells, rest = others.columns(SHARES[strategy], vertical_alignment="bottom")
    settings = strategy_settings(strategy, cells, key, max_width=8, penalty=PENALTY)
    with rest.popover("More", icon=":material/tune:"):
        settings["longest"] = st.slider(
            "New tokens at most",
            1,
            MOST,
            20,
            key=key("longest"),
            **BOUND,
            help="The model stops here, or earlier where it ends its text.",
        )
        settings["no_repeat"] = st.number_input(
            "No n-gram twice, n",
            0,
            5,
            0,
            key=key("no_repeat"),
            **BOUND,
            help="The same n tokens in a row are not written again, including those of the prompt; 0 allows "
            "everything.",
        )
        if strategy == "Sampling":
            settings |= sample_count(20, 5, key)
    return Controls(choice.ref, choice.inputs, SearchSettings(STRATEGIES[strategy], **settings))
