"""The page Start here: five sentences and two pictures, which need no model; then the dictionary, the path, the doors.

What is imported here is light, so that the first sentences are there before torch is loaded for the dictionary.
"""

from __future__ import annotations

import streamlit as st

from dashboard.draw.page_views import translation_view
from dashboard.navigation import step_of
from dashboard.runtime.link_values import BOUND
from dashboard.runtime.visits import sync_visits
from dashboard.ui import tour
from dashboard.views.start import example, text
from dashboard.views.start.charts import thumbnail
from dashboard.views.start.controls import PAGE, forward_old_link, key
from dashboard.widgets.panels import caption, details, fact, next_page, paragraph, theme, title

SENTENCE_WIDTH = 860  # px
WORD = key("word")  # the picked output word, in the session and in the link
FORMULA = {"m": ("score=scaled_dot", "position=formula(formula='score - 0.5*abs(i-j)')")}


def page() -> None:
    """Draw the page from top to bottom; what stands above the dictionary does not wait for torch."""
    forward_old_link()
    title("Start here", text.LEAD)
    data, visited = example.load(), sync_visits()
    if st.button(
        f"Take the tour of {len(tour.STOPS)} pages",
        icon=":material/tour:",
        type="primary",
        key=key("tour"),
        help="Each page of the path with one sentence. It sets the page's controls; Skip ends it.",
    ):
        tour.start()
    paragraph(
        "\n".join(f"{number}. {each}" for number, each in enumerate(text.SENTENCES, 1)),
        width=SENTENCE_WIDTH,
    )
    item = _pictures(data)
    from dashboard.views.start.dictionary import dictionary  # loads torch

    dictionary(data, item)
    # The six stops; a tick at each page that was opened
    st.subheader("The path: six stops, half an hour to an hour")
    done = sum(all(page in visited for page in stop.pages) for stop in text.PATH_STOPS)
    st.caption(
        f"{done} of {len(text.PATH_STOPS)} stops visited, without the tour. Bookmark this page to "
        "keep them."
    )
    with st.grid(6, min_column_width=240, gap="medium"):
        for number, stop in enumerate(text.PATH_STOPS, 1):
            with st.container(gap="small"):
                st.html(thumbnail(stop.pages[0], data["thumbnails"], theme()))
                paragraph(f"**{number}. {stop.name}.** {stop.sentence}")
                for page in stop.pages:
                    step, seen = step_of(page), page in visited
                    st.page_link(
                        step.path,
                        label=f"{step.title}{' (visited)' if seen else ''}",
                        icon=":material/check_circle:" if seen else step.icon,
                    )
    details("The addresses of these pages, to copy", _links, key("links"))
    # For readers who come with something else in mind
    st.subheader("Other doors")
    with st.grid(3, min_column_width=240, gap="medium"):
        with st.container(gap="small"):
            st.markdown("**I have a model.** See every head of a Hugging Face model.")
            st.page_link(
                step_of("pretrained").path,
                label="Open Pretrained models",
                icon=step_of("pretrained").icon,
            )
        with st.container(gap="small"):
            st.markdown("**I invent mechanisms.** Type a formula for the score and compare.")
            st.page_link(
                step_of("compare").path,
                label="Open Side by side",
                icon=step_of("compare").icon,
                query_params=FORMULA,
            )
        with st.container(gap="small"):
            st.markdown(
                "**I teach.** Put your text and questions round a page. Five lessons are ready."
            )
            st.page_link(
                step_of("lessons").path, label="Open Lessons", icon=step_of("lessons").icon
            )
    next_page(PAGE)


def _pictures(data: dict) -> dict:
    """The translator's two pictures; returns the picked example."""
    examples = {" ".join(item["source"]): item for item in data["translations"]}
    first = next(iter(examples))
    sentence = (
        st.segmented_control(
            "Example",
            list(examples),
            default=first,
            required=True,
            key=key("sentence"),
            wrap=True,
            help="What the translator reads: an English number.",
            **BOUND,
        )
        or first
    )
    item = examples[sentence]
    translation_view(
        item["source"],
        item["target"],
        item["weights"],
        key=key("translation"),
        picked=_picked(item["weights"]),
        on_pick=_pick,
    )
    fact(text.mean_strongest(item["weights"]))
    caption(text.source_line(data))
    return item


def _picked(weights: list[list[float]]) -> int:
    """The output word of the link or the session; where there is none, the first that attends beyond the next one."""
    count, strongest = len(weights), [row.index(max(row)) for row in weights]
    linked = st.query_params.get(WORD)
    if linked is not None and linked in map(str, range(count)):
        st.session_state[WORD] = int(linked)
    elif st.session_state.get(WORD, count) < count:
        st.query_params[WORD] = str(st.session_state[WORD])
    else:
        st.query_params.pop(WORD, None)
        return next((at for at in range(count - 1) if strongest[at] > strongest[at + 1]), 0)
    return st.session_state[WORD]


def _pick(word: int) -> None:
    st.session_state[WORD] = word
    st.query_params[WORD] = str(word)


def _links() -> None:
    """The addresses of the path's pages, to copy."""
    base = (st.context.url or "").split("?")[0].rstrip("/")
    st.code(
        "\n".join(f"{base}/{page}" for stop in text.PATH_STOPS for page in stop.pages),
        language=None,
    )
