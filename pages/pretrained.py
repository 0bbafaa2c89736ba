"""Every head of a pretrained model on the reader's sentence: the grid, one head, and what it measures."""

import streamlit as st

from core import analysis
from core.pretrained import PretrainedError
from dashboard import reading
from dashboard.attention_view import attention_view
from dashboard.cache import cached, shared
from dashboard.panels import fact, next_page, source_panel, title
from dashboard.permalink import read_pair, write_pair

EXAMPLE = "The animal didn't cross the street because it was too tired."
SHOWS = {"both": "Matrix and lines", "matrix": "Matrix", "lines": "Lines"}
SCALES = {"unit": "0 to 1", "largest": "Largest of this map", "p99.5": "99.5th percentile"}

title("Inside a pretrained model",
      "Every head of a Hugging Face model, on your sentence. Pick a head to read it, a word to follow it.")
left, right = st.columns([1, 2])
left.selectbox("Model", ["all-MiniLM-L6-v2"], help="A real 6-layer, 12-head BERT, kept in a package: no download.")
text = right.text_input("Sentence", EXAMPLE, key="pretrained:text", bind="query-params",
                        persist_state="session", help="At most 20,000 characters and 512 tokens are read.") or ""
try:
    with st.spinner("Loading the model, 91 MB, first time only"), st.skeleton(height=420):
        found = shared(reading.read_embedded, text)
except PretrainedError as error:
    st.info(str(error), icon=":material/edit:")
    next_page("pretrained")
    st.stop()
if found.cut:
    st.warning(found.cut, icon=":material/content_cut:")
ordinary = not all(found.special)
with_special = st.session_state.get("pretrained:special", True) or not ordinary
trace = found.trace if with_special else shared(reading.without_special, text)
special = found.special if with_special else (False,) * len(trace.map(0).keys)

asked, bad_head = read_pair("head", trace.shape)
pin, bad_pin = read_pair("pin", (len(special), len(special)))
for sentence in filter(None, (bad_head, bad_pin)):
    st.warning(sentence)
layer, head = asked or (3, 1)
roles = cached(reading.roles_of, text)
left, right = st.columns([1.05, 1], gap="large")
with left:
    picked = attention_view(trace, key="pretrained:grid", layout="grid", layer=layer, head=head, roles=roles,
                            link="pretrained", fact=f"{trace.shape[0]} layers of {trace.shape[1]} heads")
item = trace.map(picked.layer)
row = reading.telling_row(item, picked.head, special)
view = attention_view(
    trace, key="pretrained:head", layer=picked.layer, head=picked.head, pin=pin, query=row, link="pretrained",
    show=st.session_state.get("pretrained:show") or "both", scale=st.session_state.get("pretrained:scale") or "unit",
    fact=f"Head L{picked.layer}·H{picked.head}; the picked row is {item.queries[row]}")
write_pair("head", (view.layer, view.head) if asked or (view.layer, view.head) != (3, 1) else None)
write_pair("pin", view.pin)
with right:
    fact(reading.head_fact(trace, view.layer, view.head, *(view.pin or (row, None))))
    reading.role_table(roles, trace.shape[0] * trace.shape[1])
with st.container(horizontal=True, vertical_alignment="center"):
    st.segmented_control("Show", list(SHOWS), default="both", format_func=SHOWS.get, key="pretrained:show",
                         label_visibility="collapsed", required=True)
    with st.popover("Colour scale", icon=":material/palette:"):
        st.radio("Full colour stands for", list(SCALES), format_func=SCALES.get, key="pretrained:scale")
    reading.export_popover(trace, view.layer, view.head)
    st.toggle("Special tokens", True, key="pretrained:special", disabled=not ordinary)
fact(reading.previous_fact(found.trace))
st.caption(reading.conditions(found, with_special))
with st.expander("Where these numbers come from"):
    st.markdown("Each map is what the model itself computed for this sentence, in fp32, before dropout. "
                "The roles are measured on it by these functions:")
    source_panel(analysis.previous_token)
    source_panel(analysis.breadth)
next_page("pretrained")
