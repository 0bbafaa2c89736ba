"""Questions: what learners ask about attention, answered with numbers computed on the page."""

from functools import partial

import streamlit as st

import dashboard.page as lab
from dashboard.draw import questions as draw

TABLE = "import pandas as pd\n\npd.DataFrame(rows)"  # the table in a notebook


class Controls(lab.Fields, page="questions"):
    question = lab.Select(
        "Question",
        {key: answer.question for key, answer in draw.ANSWERS.items()},
        help="What learners ask about attention.",
        radio=True,
    )


def page() -> None:
    lab.title("Questions", "What learners ask, most answered with numbers.")
    explore()


@lab.fragment
def explore() -> None:
    left, right = st.columns([1.4, 1], gap="large")
    selected = draw.ANSWERS[Controls.draw(into=right).question]
    with left:
        answer(selected)


def answer(selected: draw.Answer) -> None:
    lab.paragraph(f"**{selected.question}** {selected.text}")
    if selected.study is not None:
        rows = lab.cached(selected.study)
        lab.table(
            list(selected.columns),
            [[write(row) for write in selected.columns.values()] for row in rows],
            caption=selected.question,
            markers=False,
        )
        lab.fact(selected.sentence(rows))
        lab.as_python(rows=rows, draw={f"table:{selected.question}": TABLE})
    with st.container(horizontal=True):
        for page_key, label in selected.pages:
            step = lab.step_of(page_key)
            is_first = page_key == selected.pages[0][0]
            st.page_link(
                step.page(),
                label=label,
                icon=step.icon,
                query_params=dict(selected.query) if is_first else {},
                help=step.title,
            )
    if selected.study is not None:
        lab.details("Code", partial(lab.source_panel, selected.study), "questions:source")
