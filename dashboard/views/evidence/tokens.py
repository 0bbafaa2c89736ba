"""The third figure: the tokens by every measure, and what the answer loses when each one is hidden."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.interpret.evidence import Baseline, hide_token
from core.interpret.trace import AttentionMap, AttentionTrace
from core.pretrained import PretrainedError
from core.ranks import kendall
from dashboard.draw.attention_view import Patches, attention_view
from dashboard.draw.formats import signed
from dashboard.draw.multiples import Tile, multiples
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.runtime.threads import one_thread
from dashboard.ui.progress import measure_with_progress
from dashboard.ui.tables import table
from dashboard.views.evidence.compute import SHORT, WITHOUT_TOKENS, scores
from dashboard.views.evidence.controls import Controls
from dashboard.views.evidence.text import MEANINGS, NAMES, tokens_fact
from dashboard.widgets.panels import fact, plain

HIDDEN = "Measured"
Agreement = tuple[dict[str, float | None] | None, bool]


def section(controls: Controls, baseline: Baseline) -> Agreement:
    """Draw every measure as a row over the tokens, the measured changes last.

    Returns Kendall's τ of each measure with those (None where not every token was hidden), and whether the weights put
    the same token first.
    """
    tokens = controls.reading.source.tokens
    st.markdown("**Which tokens the answer depends on**")
    try:
        with one_thread(len(tokens) <= SHORT):
            effects = measure_with_progress(
                WITHOUT_TOKENS,
                controls.key,
                range(len(tokens)),
                lambda token: hide_token(baseline, token),
                "tokens",
            )
    except PretrainedError as error:
        st.caption(plain(str(error)))
        return None, False
    if len(effects) < len(tokens):
        return None, False
    changes = np.array([effects[token].change for token in range(len(tokens))])
    measures = scores(controls)
    agree = {name: kendall(values, np.abs(changes)) for name, values in measures.items()}
    first = {name: int(values.argmax()) for name, values in measures.items()}
    needed = int(np.abs(changes).argmax())
    _strip(controls, measures, changes)
    fact(tokens_fact(tokens, changes.tolist(), first, agree))
    rows = [
        [NAMES[name], MEANINGS[name], tokens[first[name]], "–" if tau is None else signed(tau)]
        for name, tau in agree.items()
    ]
    rows.append([HIDDEN, "the token hidden from every head", tokens[needed], ""])
    table(
        ["measure", "computed from", "ranks first", "τ"],
        rows,
        caption="Measures of tokens, compared with hiding each",
        left=3,
        markers=False,
    )
    st.caption(
        "Kendall’s τ compares the order of the tokens by a measure with their order by how much the answer "
        "changes when each is hidden: 1 is the same order, 0 no relation, −1 the reverse."
        + (
            ""
            if "flow" in measures
            else f" Flow from {len(tokens)} tokens takes too long, so it is left out."
        )
    )
    return agree, first["weights"] == needed


def _strip(controls: Controls, measures: dict[str, np.ndarray], changes: np.ndarray) -> None:
    """Draw measures × tokens; for a picture, the picture with the picked row over its patches."""
    tokens = controls.reading.source.tokens
    names = [*(NAMES[name] for name in measures), HIDDEN]
    values = np.stack([row / (row.max() or 1.0) for row in (*measures.values(), np.abs(changes))])
    patches = Patches.of(controls.question.inputs.picture, controls.reading.source)
    pin = read_linked("evidence", "strip", values.shape, (controls.ref, controls.question.inputs))
    if patches is not None:
        item = AttentionMap("cross", 0, values[None].astype(np.float32), tuple(names), tokens)
        picked = attention_view(
            AttentionTrace((item,), "measures"),
            key="evidence:patches",
            query=len(names) - 1,
            pin=pin,
            patches=patches,
            title="Share of the largest",
            reads="measure (row) … patch (column)",
            fact=f"{len(names)} measures of {len(tokens)} patches",
        ).pin
    else:
        picked = multiples(
            [Tile("Share of the largest", "each row from 0 to its largest value", values)],
            names,
            tokens,
            pin=pin,
            key="evidence:strip",
            query=len(names) - 1,
            noun="share",
            reads="measure (row) … token (column)",
            fact=f"{len(names)} measures of {len(tokens)} tokens",
        )
    write_linked("evidence", "strip", picked)
