"""What the search field in the sidebar finds: pages, choices of the six axes, terms, claims, model cards and models.

The first page imports no torch, so that what is found is kept in search.json; `make search` writes it.
"""

import json
from functools import cache
from pathlib import Path

import streamlit as st

from core.entries import Entry
from dashboard.navigation import STEPS, step_of

FILE = Path(__file__).with_name("search.json")
PICKED, COUNT = "search:picked", "search:count"
Hit = tuple[
    str, str, dict[str, str]
]  # what stands in the list, the page, and values of its widgets
OTHER_NAMES = {
    "additive": "Bahdanau",
    "general": "Luong",
    "multi_query": "MQA",
    "grouped_query": "GQA",
    "shaw": "relative positions",
    "local": "sliding window",
    "causal_local": "sliding window",
    "global_window": "Longformer",
    "sink": "GPT-OSS",
    "fused": "FlashAttention",
    "ssd": "Mamba-2",
    "retention": "RetNet",
    "gated_delta": "Gated DeltaNet",
    "gla": "GLA",
    "delta": "DeltaNet",
    "kda": "Kimi Linear",
    "lightning": "DeepSeek sparse",
    "cache": "KV cache",
    "train": "upload your own text",
    "pretrained": "MiniLM, BERT",
    "lessons": "for a class",
}  # by which a reader may look for a choice or a page


def collect() -> list[Hit]:
    from core.attention import AXES
    from core.claims.catalogue import CLAIMS
    from core.models.cards import CARDS
    from core.pretrained import MINILM, lab_models
    from dashboard.draw.glossary import TERMS

    return [
        *(
            (f"{step.title}{_also(step.key)} · {step.invite.rstrip('.')}", step.key, {})
            for step in STEPS
        ),
        *(
            (
                _label(item, axis),
                "mechanisms",
                {"mechanisms:axis": axis, f"mechanisms:{axis}": item.key},
            )
            for axis, entries in AXES.items()
            for item in entries
            if item.key != "none"
        ),
        *((f"{term.name} · term", "glossary", {"glossary:find": term.name}) for term in TERMS),
        *((f"{claim.name} · claim", "claims", {"claims:claim": claim.key}) for claim in CLAIMS),
        *((f"{one.name} · model card", "cards", {"cards:model": one.key}) for one in CARDS),
        *(
            (f"{name} · model", "pretrained", {"inside:model": name})
            for name in (MINILM, *lab_models())
        ),
    ]


def _label(item: Entry, axis: str) -> str:
    return f"{item.name}{_also(item.key)} · {axis} · {item.paper} {item.year}"


def _also(key: str) -> str:
    return f" ({OTHER_NAMES[key]})" if key in OTHER_NAMES else ""


@cache
def hits() -> dict[str, Hit]:
    """What can be found, by what stands in the list."""
    return {hit[0]: hit for hit in json.loads(FILE.read_text("utf-8"))}


def search_field(current: str) -> None:
    """Draw the field, which filters as a person types; opens what was picked in the run before.

    The page that opens draws its widgets with the values of what was picked.
    """
    if label := st.session_state.get(PICKED):
        _, page, values = hits()[label]
        if page != current:
            st.switch_page(step_of(page).page(), query_params={})
        del st.session_state[PICKED]
        st.session_state.update(values)
    count = st.session_state.setdefault(COUNT, 0)  # a new field after each pick: it is empty
    st.selectbox(
        "Search the lab",
        list(hits()),
        index=None,
        key=f"search:{count}",
        placeholder="Search",
        label_visibility="collapsed",
        icon=":material/search:",
        filter_mode="contains",
        on_change=_note,
        args=(count,),
    )


def _note(count: int) -> None:
    st.session_state[PICKED] = st.session_state[f"search:{count}"]
    st.session_state[COUNT] = count + 1


if __name__ == "__main__":
    FILE.write_text(
        "[\n" + ",\n".join(json.dumps(hit, ensure_ascii=False) for hit in collect()) + "\n]\n",
        "utf-8",
    )
