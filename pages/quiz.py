"""Quiz: eight questions about the path, with numbers drawn anew; the end of the tour, and what each stop showed."""

import secrets

import streamlit as st

import dashboard.page as lab
from core.studies.questions import Drawn, left_out, quiz

key = "quiz:{}".format  # of a widget
COUNT, OPTIONS, MAX_SEED, WIDTH = 8, 4, 999, 900
MAX_SHORT = 10  # characters of options of which a phone shows two in a row, also with a sign
NEXT = ("compare", "pretrained", "train")  # the pages that are offered after eight right answers


class Controls(lab.Fields, page="quiz"):
    seed = lab.LinkedValue(0)
    answers = lab.LinkedValue("")  # the picked option of each answered question, a digit each
    without = lab.LinkedValue(COUNT)  # the question that is left out


def given(text: str) -> str:
    """The picked options of a link, a digit for each answered question."""
    if len(text) > COUNT or not set(text) <= set("0123"):
        raise ValueError(f"expected at most {COUNT} digits from 0 to {OPTIONS - 1}")
    return text


def page() -> None:
    over = "The tour is over. " if lab.page_bars.OVER.value else ""
    lab.title(
        "Quiz",
        f"{over}Eight questions about the path, with new numbers each time: not those of its pages.",
    )
    answer_questions()


def new_seed() -> int:
    return secrets.randbelow(MAX_SEED + 1)


@lab.fragment
def answer_questions() -> None:
    if not Controls.seed.is_set:
        # A link with answers and no seed was written when the first seed was always 0.
        Controls.seed.value = 0 if Controls.answers.in_link else new_seed()
    seed = Controls.seed.linked(lab.between(0, MAX_SEED, int), Controls.seed.value, always=True)
    answers = Controls.answers.linked(given)
    at = len(answers)  # the question that is open; COUNT for the result
    if not answers:
        Controls.without.value = left_out(lab.visited_pages())
    without = Controls.without.linked(lab.between(0, COUNT, int))
    drawn = lab.cached(quiz, seed, without)
    # side by side on a wide screen
    with st.container(horizontal=True, gap="large"):
        with st.container(width=lab.room(WIDTH)):
            # The question that was answered stays above the open one, so that a press is enough for each.
            for index in range(max(0, at - 1), min(at + 1, COUNT)):
                answer_question(drawn[index], seed, answers, index)
            if at == COUNT:
                result(drawn, answers)
        with st.container(width=lab.room(WIDTH)):
            if answers:
                count = len(answers) - len(wrong_answers(drawn, answers))
                st.markdown(f"**{count} of {len(answers)} right**")
            st.html(path(drawn, answers, at))


def answer_question(question: Drawn, seed: int, answers: str, at: int) -> None:
    answered = at < len(answers)
    lab.paragraph(f"## {at + 1} of {COUNT}. {question.text}", width=720)
    if question.maps is not None:
        weights, rows, columns = question.maps
        lab.multiples(
            [lab.Tile(f"Head {head}", "", each) for head, each in enumerate(weights)],
            rows,
            columns,
            key=key(f"maps:{at}"),
            reads=lab.READS["cross" if question.page == "train" else "self"],
        )
    own = int(answers[at]) if answered else None
    in_a_row = 2 if max(map(len, question.options)) <= MAX_SHORT else 1  # a button does not wrap
    grid = st.grid(in_a_row, min_column_width=140, width=lab.room(720))
    for option in range(OPTIONS):
        with grid:
            st.button(
                marked(question, option, own),
                key=key(f"{seed}:{at}:{option}"),
                width="stretch",
                disabled=answered,
                on_click=begin,
                args=(seed, f"{answers}{option}"),
            )
    if answered:
        verdict = ":green[**Right.**]" if own == question.answer else ":orange[**Not right.**]"
        with st.container(key=key("verdict")):
            lab.paragraph(f"{verdict} {question.why}")
        # between the options and the next question, as the one before has left the page
        st.html(
            f"<script>/* {at} */document.querySelector('.st-key-quiz-verdict').scrollIntoView({{block: 'center'}})</script>",
            unsafe_allow_javascript=True,
        )


def path(drawn: tuple[Drawn, ...], answers: str, at: int) -> str:
    """The questions by their pages; of those that are answered what became of them, and the right answer: HTML."""
    cells = []
    for index, question in enumerate(drawn):
        sign = right = ""
        if index < len(answers):
            right = question.options[question.answer]
            sign = " ✓" if int(answers[index]) == question.answer else " ✕"
        cells.append((lab.step_of(question.page).title, sign, right))
    return lab.html("quiz", "path", cells, at, lab.Ink.of(lab.theme()).pick)


def marked(question: Drawn, option: int, own: int | None) -> str:
    """An option; once one is picked, the right one and one's own say so."""
    text = question.options[option]
    if own is None or option not in (own, question.answer):
        return text
    sign, colour = ("✓", "green") if option == question.answer else ("✕", "orange")
    text = f"{text} · yours" if option == own else text
    return f":{colour}[**{sign} {text}**]"


def begin(seed: int, answers: str) -> None:
    Controls.seed.value, Controls.answers.value = seed, answers


def wrong_answers(drawn: tuple[Drawn, ...], answers: str) -> list[Drawn]:
    return [
        question
        for question, answer in zip(drawn, answers, strict=False)
        if int(answer) != question.answer
    ]


def result(drawn: tuple[Drawn, ...], answers: str) -> None:
    wrong = wrong_answers(drawn, answers)
    praise = "" if wrong else ": you can follow attention by hand"
    lab.fact(f"**{COUNT - len(wrong)} of {COUNT}** answers are right{praise}.")
    st.markdown("**What to see again**" if wrong else "**What to do next**")
    for name in () if wrong else NEXT:
        step = lab.step_of(name)
        st.page_link(step.page(), label=step.invite, icon=step.icon)
    for question in wrong:
        step = lab.step_of(question.page)
        st.page_link(step.page(), label=step.title, icon=step.icon)
        lab.caption(
            f"{question.text} **{lab.plain(question.options[question.answer])}**. {question.why}"
        )
    st.button(
        "New numbers",
        key=key("again"),
        icon=":material/shuffle:",
        on_click=begin,
        args=(new_seed(), ""),
    )
    lab.details("What each stop of the path showed", recap, lab.page_bars.RECAP.key)
    lab.page_bars.next_page("quiz")


def recap() -> None:
    visited = [stop.page for stop in lab.page_bars.STOPS if stop.page in lab.visited_pages()]
    lab.caption(f"{len(visited)} of {len(lab.page_bars.STOPS)} pages opened.")
    for stop in lab.page_bars.STOPS:
        step = lab.step_of(stop.page)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.page_link(
                step.page(),
                label=f"✓ {step.title}" if stop.page in visited else step.title,
                icon=step.icon,
                width=240,
                query_params=dict(stop.query),
            )
            lab.paragraph(stop.showed)
