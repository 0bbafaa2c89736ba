"""What stands above a page: a lesson round it, or the tour, which opens the next page with its controls set.

A lesson is a teacher's text and questions beside one page or several, and some of their controls hidden. It is in the link
(`?lesson=`, after a dot the page), and what was answered too (`?lesson-code=`); of answers, nothing is stored on the server.
"""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import streamlit as st

from dashboard.draw.formats import plain
from dashboard.fields.link import (
    AWAITED,
    BOUND,
    KEEP,
    Awaited,
    has_changed,
    one_of,
    take_link,
    write_link,
)
from dashboard.fields.reset import BUILT, forget_page, request_reset
from dashboard.navigation import step_of
from dashboard.server.session import SessionValue
from dashboard.server.streamlit_internals import labels_drawn, script_run
from dashboard.ui import guide
from dashboard.ui.lessons import (
    HELP,
    MAX_ANSWER,
    MAX_LINK,
    MAX_NAME,
    Code,
    Lesson,
    LessonError,
    Result,
    clean_name,
    decode,
    make_code,
    part_at,
    part_of,
    read_code,
)

# by page, the label of each control, by key
CONTROLS = SessionValue[dict[str, dict[str, str]]]({}, "lesson:controls")
DRAFT = SessionValue[tuple[str, ...]]((), "lesson:draft")  # the pages that the draft is about
PART, MAKE = "lessons:part", "Make a lesson"  # the draft's place in the link of Lessons


def controls_of(page: str) -> dict[str, str] | None:
    """The label of each control of a page, by key; two with the same label also say their key. None: not opened yet."""
    labels = CONTROLS.value.get(page)
    return labels and {
        key: label if list(labels.values()).count(label) == 1 else f"{label} ({key})"
        for key, label in labels.items()
    }


def note_draft(*pages: str) -> None:
    DRAFT.value = pages


def draft_bar(page: str) -> None:
    with st.container():  # also when it is empty, so that nothing below moves to another place
        if page not in DRAFT.value:
            return
        _way_back(
            "lesson:drafted",
            "**Your draft of a lesson** is about this page. Its list of controls to hide is filled now.",
            step_of("lessons").page(),
            "Back to the draft",
            ":material/edit:",
            {PART: MAKE},
        ).button(
            "Close",
            key="lesson:draft:close",
            type="tertiary",
            on_click=note_draft,
            help="The draft stays under Lessons → Make a lesson.",
        )


def _way_back(
    key: str, words: str, page: Any, label: str, icon: str, query: dict[str, Any]
) -> st.delta_generator.DeltaGenerator:
    """A line that says something and leads to another page; in its row there is room for a button."""
    row = st.container(
        horizontal=True, vertical_alignment="center", border=True, gap="small", key=key
    )
    row.markdown(f":small[{words}]", width="stretch")
    row.page_link(page, label=label, icon=icon, query_params=query)
    return row


CODE = "lesson-code"  # the link's parameter of what was answered
NAME = "lesson:name"
TEXT_WIDTH = 860  # px
ERRORS = SessionValue[dict[str, str]]({}, "lesson:errors")  # of answers, by the key of the field


def teacher_markdown(text: str) -> str:
    """A teacher's Markdown, of which nothing is fetched from another host. HTML is not run.

    An image begins with `![`, which stands nowhere in the result; a diagram, which may hold images, is shown as its
    source; a `:help[…]`, whose words would be read as Markdown once more, is no directive.
    """
    text = re.sub(
        r"(`{3,}|~{3,})([^\n\r]*)",
        lambda fence: (
            fence[1]
            + ("" if "mermaid" in unescape(fence[2].replace("\\", "")).lower() else fence[2])
        ),
        text,
    )
    return re.sub(r"(?<!:):+(?=help\[)", "", re.sub(r"(?<!!)!+(?=\[)", "", text))


def ask(lesson: Lesson, at: int) -> None:
    """The questions of one page of a lesson; after those of the last one, what a student hands in."""
    results = _results(lesson)
    for index, question in enumerate(
        lesson.parts[at].questions, sum(len(part.questions) for part in lesson.parts[:at])
    ):
        st.markdown(
            f"**Question {index + 1}.** {teacher_markdown(question.text)}", width=TEXT_WIDTH
        )
        key = f"lesson:{lesson.id}:answer:{index}"
        with (
            st.form(f"lesson:{lesson.id}:form:{index}", border=False),
            st.container(horizontal=True, vertical_alignment="bottom", gap="small"),
        ):
            shared: dict[str, Any] = {"key": key, "help": HELP[question.type] or None, **KEEP}
            if question.type == "choice":
                st.radio("Your choice", question.options, index=None, format_func=plain, **shared)
            elif len(question.offsets) > 1:
                st.text_area("Your numbers", max_chars=MAX_ANSWER, height=90, width=420, **shared)
            else:
                st.text_input(
                    {"numbers": "Your number", "text": "Your answer"}.get(
                        question.type, "Your formula"
                    ),
                    max_chars=MAX_ANSWER,
                    width=420,
                    **shared,
                )
            st.form_submit_button(
                "Check", key=f"{key}:check", on_click=_check, args=(lesson, index, key)
            )
        right, tries = results[index].right, results[index].tries
        if error := ERRORS.value.get(key):
            st.markdown(f":orange[{plain(error)}]")
        elif right:
            count = "1 try" if tries == 1 else f"{tries} tries"
            st.markdown(f":green[**Right**], after {count}.")
        elif tries:
            st.markdown(f":orange[**Not yet.**] {teacher_markdown(question.hint)}")
    if at < len(lesson.more) or not results:
        return
    st.markdown(
        f"**To hand in.** Right answers: {sum(result.right for result in results)} of {len(results)}."
    )
    if name := clean_name(
        st.text_input(
            "Your name",
            key=NAME,
            max_chars=MAX_NAME,
            width=420,
            **BOUND,
            help="It goes into the line below and the address of this page.",
        )
        or ""
    ):
        st.code(f"{name} {_code(lesson, results, name)}", language=None, wrap_lines=True)
        st.caption(
            "Copy this line and give it to your teacher. Nothing is stored on the server; the address of this "
            "page holds your progress."
        )


def _check(lesson: Lesson, index: int, key: str) -> None:
    """Check an answer and note the try; one that cannot be read, or comes after the right one, is no try."""
    results = _results(lesson)
    before = results[index]
    question = lesson.all_questions[index]
    answer = str(SessionValue[Any]("", key).value or "")
    ERRORS.value = {**ERRORS.value, key: ""}
    try:
        right = question.check(answer)
        if before.right and not right:
            raise LessonError("This answer is not right; your right one counts.")
    except LessonError as error:
        ERRORS.value = {**ERRORS.value, key: str(error)}
        return
    if not before.right:
        pick = 0 if right or question.type != "choice" else 1 << question.options.index(answer)
        results[index] = Result(right, before.tries + 1, before.wrong | pick)
        _stored(lesson).value = results


def _stored(lesson: Lesson) -> SessionValue[list[Result]]:
    return SessionValue([], f"lesson:{lesson.id}:results")


def _results(lesson: Lesson) -> list[Result]:
    stored = _stored(lesson)
    if not stored.value:
        results = [Result(False, 0)] * len(lesson.all_questions)
        with suppress(LessonError):
            code = read_code(st.query_params.get(CODE, ""))
            if code.lesson == lesson.id and not code.name and len(code.results) == len(results):
                results = list(code.results)
        stored.value = results
    elif any(result.tries for result in stored.value):
        write_short(CODE, _code(lesson, stored.value))
    return list(stored.value)


def _code(lesson: Lesson, results: Sequence[Result], name: str = "") -> str:
    return make_code(Code(name, lesson.id, tuple(results), datetime.date.today()))


def write_short(name: str, text: str) -> None:
    if len(text) <= MAX_LINK:
        write_link(name, text)


LINK = "lesson"  # its parameter of the link
ACTIVE = SessionValue[str | None](None, "lesson:active")  # the lesson, as in the link

# On a wide window the text and the questions stand beside the page, as the list of pages does otherwise; the questions
# stay while the page scrolls. On a phone the text stands above the page, the questions below.
BESIDE = """@media (min-width: 1100px) {
.st-key-lesson-page { display: grid; grid-template: auto 1fr / 320px minmax(0, 1fr); gap: 16px 32px }
.st-key-lesson-page > :has(> .st-key-lesson-body) { grid-area: 1 / 2 / 3 / 3 }
.st-key-lesson-page > :has(> .st-key-lesson-questions) { position: sticky; top: 64px; align-self: start;
  max-height: calc(100vh - 80px); overflow-y: auto }}"""


@contextmanager
def lesson_around(page: str) -> Iterator[None]:
    text = _current(page)
    lesson = None if text is None else part_of(text)
    guide.LEFT_OUT.value = None if lesson is None else lesson.hide_guide
    draft_bar(page)
    with labels_drawn() as labels:
        if text is None:
            yield
        else:
            with _beside(text, page):
                yield
    drawn = {
        key: label
        for key, label in labels.items()
        if not key.startswith(("lesson:", "tour:")) and not key.endswith(":predict")
    }
    CONTROLS.value = {**CONTROLS.value, page: drawn}
    if lesson is not None and (context := script_run()) is not None:
        keys = context.shared.widget_user_keys_this_run.snapshot()
        if missing := [name for name in lesson.hide if name not in keys]:
            st.caption(
                f"The lesson hides controls that this page does not show now: {plain(', '.join(missing))}."
            )


def _beside(text: str, page: str) -> st.delta_generator.DeltaGenerator:
    """Draw a page of a lesson, which is written as in a link, but for the page itself, whose place it returns."""
    lesson, at = decode(text), part_at(text)
    part = lesson.parts[at]
    keys = ",".join(f".st-key-{re.sub(r'[^a-zA-Z0-9_-]', '-', name)}" for name in part.hide)
    hidden = f"{keys}{{display:none!important}}" if keys else ""
    st.html(f"<style>{BESIDE}{hidden}</style>")
    whole = st.container(key="lesson:page")
    with whole.container(border=True, gap="small", key="lesson:text"):
        st.markdown(f"**Lesson: {plain(lesson.title)}**")
        st.markdown(teacher_markdown(part.text), width=TEXT_WIDTH)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if lesson.more:
                st.markdown(f":small[Page {at + 1} of {len(lesson.parts)}]", width="stretch")
            st.button(
                "End the lesson",
                key="lesson:end",
                type="tertiary",
                on_click=_end,
                help="The page stays open, with all its controls.",
            )
    body = whole.container(key="lesson:body")
    if not lesson.more and not lesson.questions:
        return body
    with whole.container(border=True, gap="small", key="lesson:questions"):
        ask(lesson, at)
        if lesson.more:
            with st.container(horizontal=True, gap="small"):
                _step("Back", text, at - 1, page)
                _step("Next page", text, at + 1, page)
    return body


def _step(label: str, text: str, at: int, page: str) -> None:
    """A button that opens another page of a lesson with its controls set; one about this same page begins again."""
    if not st.button(
        label, key=f"lesson:{label}", disabled=not (0 <= at < len(decode(text).parts))
    ):
        return
    text = f"{text.partition('.')[0]}.{at + 1}"
    if part_of(text).page != page:
        start_lesson(text)
    ACTIVE.value = text
    request_reset()
    st.rerun()


def begin_again(page: str) -> Mapping[str, Any]:
    """Forget what was said of answers; returns the parameters with which the page's lesson or stop of the tour begins."""
    ERRORS.pop()
    text = ACTIVE.value
    if in_lesson(page) and text is not None:
        return _query(text)
    at = TOUR_AT.value
    return STOPS[at].query if at >= 0 and STOPS[at].page == page else {}


def in_lesson(page: str) -> bool:
    text = st.query_params.get(LINK, ACTIVE.value)
    with suppress(LessonError):
        return text is not None and part_of(text).page == page
    return False


def start_lesson(text: str) -> None:
    """Open the page of a lesson, which is written as in a link, with its controls set."""
    lesson = part_of(text)
    ACTIVE.value = text
    forget_page(lesson.page, lesson.parameters)
    st.switch_page(step_of(lesson.page).page(), query_params=_query(text))


def _query(text: str) -> dict[str, Any]:
    return {**part_of(text).parameters, **({LINK: text} if len(text) <= MAX_LINK else {})}


def _current(page: str) -> str | None:
    """The lesson of the link or the session, as in a link, where it is about this page; a link of another opens its page."""
    linked = LINK in st.query_params
    text = st.query_params[LINK] if linked else ACTIVE.value
    if text is None:
        return None
    try:
        if len(text) > MAX_LINK and linked:
            raise LessonError(
                f"This link is too long for a lesson: at most {MAX_LINK:,} characters are read."
            )
        lesson = part_of(text)
    except LessonError as error:
        st.warning(plain(str(error)), icon=":material/assignment:")
        return None
    if lesson.page != page:
        if linked:
            start_lesson(text)
        # On another page: a line that leads back to the lesson, or ends it
        step = step_of(lesson.page)
        _way_back(
            "lesson:bar",
            f"**Lesson: {plain(lesson.title)}.** It is about another page.",
            step.page(),
            f"Back to {step.title}",
            step.icon,
            _query(text),
        ).button("End the lesson", key="lesson:end", type="tertiary", on_click=_end)
        return None
    if not linked:
        write_short(LINK, text)
    ACTIVE.value = text
    return text


def _end() -> None:
    ACTIVE.pop()
    for name in (LINK, CODE):
        st.query_params.pop(name, None)


TOUR_SENTENCE = "The cat chased a mouse"
TOUR_LINK = "tour"  # the stop in the link
OVER = SessionValue(False, "tour:over")  # whether the tour has led to the quiz
RECAP = SessionValue(False, "quiz:recap")  # whether the panel of what each stop showed is open
TOUR_AT = SessionValue(-1, "tour:at")  # the stop; -1 while no tour runs
# the session's values of the stop's page before the tour set them; None where it set none
TOUR_BEFORE = SessionValue[dict[str, Any] | None](None, "tour:before")

# Task and buttons share a line; on a phone, where the page is long, the bar is low, Back and End are icons (their names are
# still heard), of Next: Heads the first word is shown, and it stays at the bottom of the window.
TOUR_STYLE = """<style>.st-key-tour-bar { flex-wrap: nowrap; > :first-child { flex: 1; min-width: 0 } }
.st-key-tour-next strong { font-weight: inherit }
@media (min-width: 641px) {
:is(.st-key-tour-back, .st-key-tour-skip) span:has(> [data-testid=stIconMaterial]) { display: none } }
@media (max-width: 640px) {
.st-key-tour-bar { padding: 4px 4px 4px 8px; gap: 4px; p { font-size: 13px; line-height: 16px }
  button { width: 40px; min-height: 40px; padding: 0;
    [data-testid=stMarkdownContainer] { position: absolute; width: 1px; height: 1px; overflow: hidden } } }
.st-key-tour-next button { width: auto; padding: 0 8px;
  [data-testid=stMarkdownContainer] { position: static; width: auto; height: auto }
  p { font-size: 0; strong { font-size: 14px } } span:has(> [data-testid=stIconMaterial]) { display: none } } }
@media (max-width: 640px) and (min-height: 600px) {
[data-testid=stLayoutWrapper]:has(> .st-key-tour-bar) { position: sticky; bottom: 0; z-index: 11; order: 1;
  background: light-dark(#fff, #12151b); border-radius: 6px } }</style>"""


@dataclass(frozen=True)
class Stop:
    """A page, the query parameters that set its controls, a sentence about what is seen, and one for the recap."""

    page: str
    sentence: str
    showed: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    # the session's keys of what it asks for or speaks of, where that is no prediction, and their values before
    awaits: Awaited = ()

    def says(self) -> str:
        """What the bar says: once what it asks for is done, what the stop showed."""
        done = has_changed(self.awaits)
        AWAITED.value = self.awaits, done
        asks = self.sentence.startswith("**Predict")
        return self.showed if done or (asks and guide.answered(self.page)) else self.sentence


STOPS = (
    Stop(
        "why",
        "**Predict first**: which translator fails at long sentences?",
        "One vector forgets long sentences; attention reads every word again.",
    ),
    Stop(
        "one_query",
        "Go to step 5 and turn **Temperature**; **cat** gets its output at step 6.",
        "A query is compared with every key; the softmax makes weights of the scores.",
        {"one:start": "simple", "one:tokens": TOUR_SENTENCE, "one:query": "cat"},
        (("one:temperature", 1.0), ("one:start", "simple")),
    ),
    Stop(
        "heads",
        "In L3·H1 “it” takes from “animal”. Press **H2** of **layer 0**: what does it take from there?",
        "Each head follows its own relation: L3·H1 the noun of “it”, L0·H2 the word before.",
        {"heads:start": "minilm", "heads:pin": "10.2"},  # it, animal: also at other layers
        (("heads:pressed:now", None), ("heads:start", "minilm")),
    ),
    Stop(
        "positions",
        "Press **Shuffle again**: do the outputs of the words change?",
        "Without positions, attention does not see the order of words.",
        {
            "positions:position": "Sinusoidal · 2017",
            "positions:idea": "Shuffle the words",
            "positions:tokens": TOUR_SENTENCE,
        },
        (("positions:order", 1),),
    ),
    Stop(
        "masks",
        "Press a ✕ or a ✓, and watch that row of weights.",
        "A causal mask hides the words that come later.",
        {"masks:tokens": TOUR_SENTENCE},
        (("masks:first", "causal"), ("masks:join", "alone")),
    ),
    Stop(
        "transformer",
        "How does the model find the next word? **Next step** leads to it, up to the output.",
        "A Transformer stacks attention and feed-forward; a head with a large weight need not matter to the answer.",
    ),
    Stop(
        "train",
        "This model learned to reverse letters. Press **Train** to watch one learn.",
        "Training forms the weights: a map that was even at first shows what the task needs.",
        awaits=(("train:drawn", "example_run"),),
    ),
)


def tour_runs() -> bool:
    """Whether the session is on the tour, also after a reload: the link holds the stop."""
    take_link(TOUR_AT.key, one_of(range(len(STOPS))), name=TOUR_LINK)
    return TOUR_AT.value >= 0


def open_stop(index: int) -> None:
    """Open a stop with its controls set, and all others of its page as they are at first; after the last one, the quiz."""
    if index == len(STOPS):
        _tour_end()
        RECAP.value = OVER.value = True
        st.switch_page(step_of("quiz").page(), query_params={})
    _put_back()
    stop = STOPS[index]
    TOUR_AT.value = index
    TOUR_BEFORE.value = forget_page(stop.page, stop.query)
    st.switch_page(step_of(stop.page).page(), query_params=dict(stop.query))


def tour_bar(page: str) -> None:
    AWAITED.forget()
    if not tour_runs():
        return
    at, last = TOUR_AT.value, len(STOPS) - 1
    # the page may also be opened by the sidebar or the Back button
    here = next((index for index, stop in enumerate(STOPS) if stop.page == page), at)
    if here != at:
        _put_back()
    at = TOUR_AT.value = here
    write_link(TOUR_LINK, str(at))
    onward = "Finish ends it." if at == last else "Next continues it."
    sentence = (
        STOPS[at].says()
        if STOPS[at].page == page
        else f"This page is not part of the tour. {onward}"
    )
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="tour:bar"):
        st.markdown(f":small[**Tour, {at + 1} of {last + 1}.** {sentence}]", width="stretch")
        if st.button(
            "Back",
            key="tour:back",
            icon=":material/arrow_back:",
            disabled=at == 0,
            help="The stop before this one",
        ):
            open_stop(at - 1)
        if st.button(
            "**Finish**"
            if at == last
            else f"**Next**: {step_of(STOPS[at + 1].page).title.partition(',')[0]}",
            key="tour:next",
            icon=":material/check:" if at == last else ":material/arrow_forward:",
            help="End the tour with a quiz" if at == last else "The next stop of the tour",
        ):
            open_stop(at + 1)
        if at < last:
            st.button(
                "End tour",
                key="tour:skip",
                icon=":material/close:",
                type="tertiary",
                help="This page stays open, with its controls",
                on_click=_tour_end,
                args=(page,),
            )
    st.html(TOUR_STYLE)


def next_page(page: str) -> None:
    """The link to the next page; on a stop of the tour to the next stop, with its controls set."""
    at = TOUR_AT.value
    if at < 0 or STOPS[at].page != page:
        guide.next_page(page)
        return
    step = step_of(STOPS[at + 1].page if at + 1 < len(STOPS) else "quiz")
    if st.button(
        f"Next: {step.invite}", key="tour:on", type="tertiary", icon=":material/arrow_forward:"
    ):
        open_stop(at + 1)


def _put_back() -> None:
    """Forget the controls that the stop which is left has set; the page gets those that it had before the tour."""
    before = TOUR_BEFORE.pop()
    if before is not None:
        stop = STOPS[TOUR_AT.value]
        forget_page(stop.page, stop.query)
        st.session_state.update(before)


def _tour_end(staying: str = "") -> None:
    """End the tour; the page on which the reader stays keeps the tour's controls if the reader had set none there."""
    if STOPS[TOUR_AT.value].page != staying:
        _put_back()
    elif (before := TOUR_BEFORE.pop() or {}).keys() - {BUILT}:
        request_reset(before)
    TOUR_AT.pop()
    write_link(TOUR_LINK, None)
