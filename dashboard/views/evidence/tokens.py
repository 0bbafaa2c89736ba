"""The third picture: which tokens the answer owes to, by every measure, and what it loses when each one is hidden."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.pretrained import PretrainedError
from core.pretrained.evidence import Baseline, hide_token
from core.ranks import kendall
from core.trace import AttentionMap, AttentionTrace
from dashboard.charts.numbers import signed
from dashboard.components.attention_view import Patches, attention_view
from dashboard.components.multiples import Tile, multiples
from dashboard.runtime.threads import one_thread
from dashboard.views.evidence.compute import SHORT, scores
from dashboard.views.evidence.controls import Controls
from dashboard.views.evidence.progress import measure_with_progress
from dashboard.views.evidence.text import MEANINGS, NAMES, tokens_fact
from dashboard.widgets.panels import fact, plain
from dashboard.widgets.table import table

LOST = "Measured"
Agreement = tuple[dict[str, float | None] | None, bool]


def section(controls: Controls, baseline: Baseline) -> Agreement:
    """Draw every measure as a row over the tokens, the measured one last.

    Returns how well each agrees with that one (None where not every token was hidden), and whether the weights put the
    same token first.
    """
    tokens = controls.reading.source.tokens
    st.markdown("**Which tokens the answer depends on**")
    try:
        with one_thread(len(tokens) <= SHORT):
            effects = measure_with_progress("tokens", controls.key, range(len(tokens)),
                                            lambda token: hide_token(baseline, token),
                               "tokens")
    except PretrainedError as error:
        st.caption(plain(str(error)))
        return None, False
    if len(effects) < len(tokens):
        return None, False
    lost = np.array([effects[token].change for token in range(len(tokens))])
    measures = scores(controls)
    agree = {name: kendall(one, np.abs(lost)) for name, one in measures.items()}
    _strip(controls, measures, lost)
    fact(tokens_fact(tokens, lost.tolist(), {name: int(one.argmax()) for name, one in measures.items()}, agree))
    rows = [[NAMES[name], MEANINGS[name], tokens[int(one.argmax())], _tau(agree[name])]
            for name, one in measures.items()]
    rows.append([LOST, "hidden from every head", tokens[int(np.abs(lost).argmax())], ""])
    table(["measure", "of", "puts first", "τ"], rows, caption="Measures of tokens against what was measured", left=3,
          markers=False)
    st.caption("τ: Kendall’s, between the order into which a measure puts the tokens and how much the answer changes "
               "when each is hidden; 1 is the same order, 0 none, −1 the reverse."
               + ("" if "flow" in measures else f" Flow from {len(tokens)} tokens takes too long, so it is left out."))
    return agree, int(measures["weights"].argmax()) == int(np.abs(lost).argmax())


def _strip(controls: Controls, measures: dict[str, np.ndarray], lost: np.ndarray) -> None:
    """Measures × tokens; of a picture, beside it the picture with the row that is looked at laid over its patches."""
    source, picture = controls.reading.source, controls.question.inputs.picture
    tokens, grid = source.tokens, source.grid
    named = [NAMES[name] for name in measures] + [LOST]
    values = np.stack([one / (one.max() or 1.0) for one in (*measures.values(), np.abs(lost))])
    if grid is not None and picture is not None:
        item = AttentionMap("cross", 0, values[None].astype(np.float32), tuple(named), tokens)
        patches = Patches(picture.numpy(), *grid, first=len(tokens) - grid[0] * grid[1])
        attention_view(AttentionTrace((item,), "measures"), key="evidence:patches", query=len(named) - 1,
                       patches=patches, title="Share of the largest", reads="measure (row) … patch (column)",
                       fact=f"{len(named)} measures of {len(tokens)} patches")
        return
    multiples([Tile("Share of the largest", "each row from 0 to its own largest", values)], named, tokens,
              key="evidence:strip", query=len(named) - 1, noun="share", reads="measure (row) … token (column)",
              fact=f"{len(named)} measures of {len(tokens)} tokens")


def _tau(value: float | None) -> str:
    return "–" if value is None else signed(value)
