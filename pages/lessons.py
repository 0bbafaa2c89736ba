"""Lessons: pages with a text and questions beside them, to work through, to make, and to hand in."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

import segno
import streamlit as st

import dashboard.page as lab
from core.files import hosted, sentence_of

key = "lessons:{}".format  # a widget's key, which is also its name in the link
PARTS = ("Work through", lab.page_bars.MAKE, "See results")


class Controls(lab.Fields, page="lessons"):
    part = lab.Segmented(
        "Part",
        options=PARTS,
        help="Open a lesson, make one of your own, or read the codes that students hand in.",
        also={"wrap": True, "label_visibility": "collapsed"},
    )
    title = lab.Text(
        "Title",
        help="What students see beside the page.",
        also={"max_chars": lab.lessons.MAX_TITLE},
    )
    pages = lab.Number[int](
        "Pages",
        1,
        1,
        lab.lessons.MAX_PARTS,
        help="Pages of the lab through which students step inside this one lesson, each with its text and questions.",
    )
    link = lab.Text(
        "Link of your lesson",
        help="Needed for a lesson of your own. The lessons of the lab are known.",
        also={"bind": None},
    )
    codes = lab.Text(  # names stay in the session: they are in no link
        "Codes, one on each line",
        lines=True,
        help="The lines that students handed in: name, then code.",
        also={
            "bind": None,
            "height": 200,
            "max_chars": 100 * lab.handed_in.MAX_LINES,
            "placeholder": "Ada Lovelace 2E7C-…",
        },
    )


class HideField(lab.MultiSelect[str]):
    """The names of controls to hide, in the link with commas between them."""

    def take_link(self, key: str, start: list[str], controls: lab.Fields) -> None:
        if len(linked := st.query_params.get_all(key)) > 1:  # an older link of a draft
            st.query_params[key] = ",".join(linked)
        lab.link_value(key, start, names_in, ",".join)


def names_in(text: str) -> list[str]:
    return [name for name in text.split(",") if name][: lab.lessons.MAX_HIDE]


class PartFields(lab.Fields, page="lessons"):
    """The fields of one page of a lesson, whose names begin with `part`; `page` is the one that its link opens."""

    part: str
    page: str
    page_link = lab.Text(
        "Link of the page",
        key=lambda c: f"{c.part}page_link",
        help="Set a page up in another tab, press Copy link beside its title, and paste the link here. All "
        "settings of the page come with it.",
        also={"placeholder": "https://…/masks?masks:tokens=…"},
    )
    text = lab.Text(
        "Text beside the page",
        key=lambda c: f"{c.part}text",
        lines=True,
        help="Markdown with formulas between dollar signs. HTML is shown as text; an image becomes a link.",
        also={"max_chars": lab.lessons.MAX_LESSON_TEXT, "height": 160},
    )
    hide = HideField(
        "Controls to hide",
        lambda c: lab.page_bars.controls_of(c.page) or {},
        key=lambda c: f"{c.part}hide",
        hidden=True,
        typed=True,
        max_options=lab.lessons.MAX_HIDE,
        help="The controls of the page, by their labels. One that the page does not show now is not listed: "
        "type its name in the link of the page, such as masks:tokens.",
        also={"placeholder": "None"},
    )
    hide_guide = lab.Toggle(
        "Hide the page's own questions and moves",
        key=lambda c: f"{c.part}hide_guide",
        help="Many pages ask to predict first, and offer moves under Try this. Students then see your questions "
        "alone.",
    )
    count = lab.Number[int](
        "Questions",
        1,
        0,
        lab.lessons.MAX_QUESTIONS,
        key=lambda c: f"{c.part}count",
        help="How many questions stand beside the page.",
        also={"width": 160},
    )


MORE = {"text": " Several right answers: one on each line.", "numbers": ""}  # of the other types:
SAME = " An answer is right where it gives the same values."


class Pick(lab.Select[str | None]):
    """A list of which nothing is picked at first."""

    def start(self, controls: lab.Fields) -> None:
        return None


class QuestionFields(lab.Fields, page="lessons"):
    """The fields of one question, whose names begin with `name`."""

    name: str
    text = lab.Text(
        lambda c: f"Question {c.name.rpartition('q')[2]}",
        key=lambda c: c.name,
        lines=True,
        help="The question in Markdown.",
        also={"max_chars": lab.lessons.MAX_TEXT, "height": 80},
    )
    kind = lab.Select(
        "Type of answer",
        lab.lessons.TYPES,
        key=lambda c: f"{c.name}:type",
        help="What students give: one of your options, numbers, a short text, or a formula.",
    )
    options = lab.Text(
        "Options",
        key=lambda c: f"{c.name}:options",
        lines=True,
        help=f"Two to {lab.lessons.MAX_OPTIONS} options, one on each line. Then pick the right one.",
        also={"height": 80},
    )
    tolerance = lab.Number(
        "Tolerance",
        0.01,
        0.0,
        1e6,
        0.01,
        key=lambda c: f"{c.name}:tolerance",
        help="How far an answer may be from the right number.",
        also={"format": "%g"},
    )
    answer = lab.Text(
        "Right answer",
        key=lambda c: f"{c.name}:answer",
        lines=True,
        help=lambda c: lab.lessons.HELP[c.kind] + MORE.get(c.kind, SAME),
        also={"max_chars": lab.lessons.MAX_ANSWER, "height": 80},
    )
    option = Pick(
        "Right option",
        lambda c: c.choices,
        key=lambda c: f"{c.name}:answer",
        help="Type the options first.",
        also=lambda c: {"placeholder": "Pick one of your options", "disabled": not c.choices},
    )
    hint = lab.Text(
        "Hint after a wrong answer",
        key=lambda c: f"{c.name}:hint",
        help="It may stay empty.",
        also={"max_chars": lab.lessons.MAX_HINT},
    )

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.options.splitlines() if line.strip())


def address(lesson: str) -> str:
    """The link of a lesson, with the address under which other computers reach this page."""
    url = (st.context.url or "").partition("?")[0].rpartition("/")[0]
    return f"{url.replace(own_host(), network_host(), 1) if own_host() else url}/lessons?lesson={lesson}"


def own_host() -> str:
    """The host of this page where it is one that names this computer from itself alone; else nothing."""
    host = urlsplit(st.context.url or "").hostname or ""
    with suppress(ValueError):
        return host if ip_address(host).is_loopback and ":" not in host else ""
    return host if host == "localhost" else ""


def network_host() -> str:
    """This machine's address in its network, or localhost where it is in none; nothing is sent."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.connect(("10.255.255.255", 1))
        return str(link.getsockname()[0])
    return "localhost"


def draw_question(name: str) -> None:
    """Draw the fields of one question, by its type."""
    left, right = st.columns([2, 1])
    fields = QuestionFields.draw("text", into=left, name=name).draw_more("kind", into=right)
    left, right = st.columns([2, 1])
    if fields.kind == "numbers":
        fields.draw_more("tolerance", into=right)
    if fields.kind == "choice":
        fields.draw_more("options", into=left).draw_more("option", into=right)
    else:
        fields.draw_more("answer", into=left)
    fields.draw_more("hint", into=lab.HERE)


def uploaded(label: str, types: Sequence[str], name: str, help: str) -> str:
    """A field for a file; its text, empty where there is none or a limit is reached."""
    file = st.file_uploader(label, types, key=key(name), max_upload_size=1, help=help)
    if file is None:
        return ""
    try:
        lab.limits.admit_upload(file)
    except lab.limits.LimitReached as error:
        st.warning(lab.plain(str(error)))
        return ""
    return file.getvalue().decode("utf-8-sig", "replace")


def uploaded_lesson(label: str, name: str) -> lab.lessons.Lesson | None:
    """A field for the file of a lesson; the lesson, or a sentence where the file holds none."""
    text = uploaded(
        label, ["json"], name, "A lesson may be handed out as a small JSON file instead of a link."
    )
    try:
        return lab.lessons.from_json(text[: lab.lessons.MAX_FILE + 1]) if text else None
    except lab.lessons.LessonError as error:
        st.warning(lab.plain(str(error)))
        return None


def part_names() -> list[str]:
    """What begins the names of the fields of each page: nothing for the first."""
    return ["", *(f"p{number}:" for number in range(2, Controls.read("pages").pages + 1))]


def read_lesson() -> lab.lessons.Lesson:
    """The lesson of the fields; LessonError names the first field that does not fit."""
    if not Controls.read("title").title.strip():
        raise lab.lessons.LessonError("Give the lesson a title.")
    parts = []
    for number, part in enumerate(part_names(), 1):
        try:
            parts.append(read_part(part))
        except lab.lessons.LessonError as error:
            raise lab.lessons.LessonError(
                f"Page {number}: {error}" if number > 1 else str(error)
            ) from error
    return replace(parts[0], more=tuple(parts[1:]))


def read_part(part: str) -> lab.lessons.Lesson:
    fields = PartFields.read(part=part)
    if not fields.page_link.strip():
        raise lab.lessons.LessonError("Paste the link of a page.")
    page, parameters = lab.lessons.parse_link(fields.page_link)
    questions = []
    for number in range(1, 1 + fields.count):
        question = QuestionFields.read(name=f"{part}q{number}")
        try:
            questions.append(
                lab.lessons.make_question(
                    question.kind,
                    question.text,
                    question.answer,
                    options=question.choices,
                    hint=question.hint,
                    tolerance=question.tolerance,
                )
            )
        except lab.lessons.LessonError as error:
            raise lab.lessons.LessonError(f"Question {number}: {error}") from error
    names = {label: name for name, label in (lab.page_bars.controls_of(page) or {}).items()}
    return lab.lessons.Lesson(
        Controls.read("title").title.strip(),
        fields.text.strip(),
        page,
        lab.lessons.page_query(parameters),
        tuple(dict.fromkeys(names.get(name, name) for name in fields.hide)),
        tuple(questions),
        fields.hide_guide,
    )


def draw_part(part: str) -> str:
    """Draw the fields of one page of the lesson; returns which page of the lab it is, nothing where none was given."""
    fields = PartFields.draw("page_link", "text", into=lab.HERE, part=part)
    page, parameters = "", dict[str, list[str]]()
    with suppress(lab.lessons.LessonError):  # none was pasted
        page, parameters = lab.lessons.parse_link(fields.page_link or "-")
    fields = fields.draw_more("hide", into=lab.HERE, page=page)
    if page and lab.page_bars.controls_of(page) is None:  # the page was not opened yet
        step = lab.step_of(page)
        st.page_link(
            step.page(),
            label=f"Open {step.title} to list its controls; a line there leads back to this draft",
            icon=step.icon,
            query_params=lab.lessons.page_query(parameters),
        )
    fields = fields.draw_more("hide_guide", "count", into=lab.HERE)
    for number in range(1, 1 + fields.count):
        with st.container(border=True, gap="small"):
            draw_question(f"{part}q{number}")
    return page


def make() -> None:
    st.markdown(
        "Students see a page of the lab with your text and questions beside it. Set the page up in another tab, paste "
        "its link here, and write the text and the questions: the link to hand out then stands below."
    )
    title_at, count_at = st.columns([4, 1])
    Controls.draw("title", into=title_at)
    Controls.draw("pages", into=count_at)
    names = part_names()
    places = (
        st.tabs([f"Page {at + 1}" for at in range(len(names))]) if names[1:] else [st.container()]
    )
    pages = []
    for place, part in zip(places, names, strict=True):
        with place:
            pages.append(draw_part(part))
    lab.page_bars.note_draft(*pages)
    try:
        lesson = read_lesson()
    except lab.lessons.LessonError as error:
        st.info(lab.plain(str(error)), icon=":material/edit:")
        return
    text = lab.lessons.encode(lesson)
    st.subheader("Hand it out")
    hand_out_short(lesson)
    if len(text) <= lab.lessons.MAX_LINK:
        link = address(text)
        st.code(link, language=None, wrap_lines=True)
        st.caption(
            f"The lesson takes {len(text):,} of at most {lab.lessons.MAX_LINK:,} characters of this link."
        )
        st.markdown("In a page of a course:")
        st.code(
            f'<iframe src="{link}&embed=true" width="100%" height="900"></iframe>',
            language="html",
            wrap_lines=True,
        )
    else:
        st.warning(
            f"The lesson takes {len(text):,} characters, and a link at most {lab.lessons.MAX_LINK:,}. Shorten it, or hand "
            "out the file."
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "Download the file",
            lab.lessons.to_json(lesson, indent=1),
            "lesson.json",
            "application/json",
            key=key("file"),
            icon=":material/download:",
            on_click="ignore",
            help="Students open it on this page, under Work through.",
        )
        if len(text) <= lab.lessons.MAX_LINK:
            st.page_link(
                lab.step_of("lessons").page(),
                label="Try it as a student",
                icon=":material/play_arrow:",
                query_params={"lesson": text},
            )
    st.caption(
        "The answers travel with the lesson as salted hashes: reading the link does not show them. A student who "
        "tries many answers by program can still find one, so neither the link nor a code is proof against "
        "cheating. The link of this page holds your draft with its answers: save it for yourself."
    )


def hand_out_short(lesson: lab.lessons.Lesson) -> None:
    """Draw the short link of a lesson and its QR code once it is stored, before a button that stores it."""
    known, place = lab.lessons.stored(lesson.id), st.empty()
    if known is None and place.button(
        "Make a short link and a QR code",
        key=key("store"),
        icon=":material/qr_code_2:",
        help="Stores the lesson on this server, for everybody who has the link. A changed lesson has another link.",
    ):
        try:
            lab.limits.check_disk(len(lab.lessons.to_json(lesson)))
            lab.lessons.store(lesson)
            place.empty()
            known = lesson
        except (lab.limits.LimitReached, OSError) as error:
            st.warning(lab.plain(sentence_of(error)))
    if known == lesson:
        link = address(lesson.id)
        with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
            picture = segno.make(link, micro=False).png_data_uri(scale=5)
            st.html(f'<img alt="QR code of the short link" src="{picture}">', width=200)
            with st.container(gap="small"):
                st.code(link, language=None, wrap_lines=True)
                st.caption(
                    "The short link works while this server has the lesson"
                    + (
                        f": until {lab.visitors.limits()['hours']} h after your last visit."
                        if hosted()
                        else "."
                    )
                    + " The long link needs no copy of the lesson on a server."
                )
    if host := own_host():
        sentences = [f"This page is open at {host}, which only this computer reaches."]
        if (there := network_host()) != "localhost":
            sentences.append(
                f"So the links name its address in the network, {there}. Open this page under another address, "
                "and they name that one."
            )
        if st.get_option("server.address") in ("localhost", "127.0.0.1"):
            sentences.append(
                "The lab answers others once it is started with `--server.address=0.0.0.0`."
            )
        st.info(" ".join(sentences), icon=":material/lan:")


def read() -> None:
    """Draw the fields and the tables."""
    lessons = known_lessons()
    typed = Controls.draw("codes", into=lab.HERE).codes
    lines = uploaded(
        "Or a file with a code on each line",
        ["txt", "csv"],
        "codes_file",
        "Its lines are read as those above.",
    )
    handed, errors = lab.handed_in.read_lines(f"{typed}\n{lines}", lessons)
    if handed:
        lab.table(
            ("name", "lesson", "right", "questions", "tries", "date"),
            [lab.handed_in.row_of(*one) for one in handed],
            caption="What students solved",
            left={0, 1, 3, 4},
            markers=False,
        )
        lab.table(
            ("question", "right", "wrong options that were picked"),
            lab.handed_in.by_question(handed),
            caption="What the class solved",
            left={0, 2},
            markers=False,
            wrap=True,
        )
        st.download_button(
            "CSV",
            lab.handed_in.class_csv(handed),
            "class.csv",
            "text/csv",
            key=key("csv"),
            icon=":material/download:",
            on_click="ignore",
            help="A row for each student and question.",
        )
    for sentence in errors:
        st.warning(lab.plain(sentence))
    st.caption(
        "The latest code of a student counts. The column tries has a number for each question: how many answers "
        f"the student checked, up to the right one. {lab.lessons.MAX_TRIES} means {lab.lessons.MAX_TRIES} or more; – "
        f"means that no answer "
        "was checked. A line is refused when its code was mistyped, belongs to another name, or to another lesson. "
        "A code is no proof against cheating. No code is stored on the server."
    )


def known_lessons() -> dict[str, lab.lessons.Lesson]:
    """The lessons by their ids: those that ship, the one of the form, and that of a link or a file."""
    lessons = [lab.lessons.decode(name) for name in lab.lessons.KEYS]
    link = Controls.draw("link", into=lab.HERE).link
    try:
        if link:
            lessons.append(
                lab.lessons.decode(lab.lessons.parse_link(link)[1].get("lesson", [""])[0])
            )
    except lab.lessons.LessonError as error:
        st.warning(lab.plain(str(error)))
    if (lesson := uploaded_lesson("Or its file", "known")) is not None:
        lessons.append(lesson)
    with suppress(lab.lessons.LessonError):  # the form is not complete
        lessons.append(read_lesson())
    return {lesson.id: lesson for lesson in lessons}


def page() -> None:
    lab.title(
        "Lessons",
        "Each lesson opens a page, asks questions beside it and checks your answers.",
        copy_link="Copy draft (with answers)",
    )
    parts()


@lab.fragment
def parts() -> None:
    if st.query_params.get(key("part")) == "Read codes":  # a link of before
        del st.query_params[key("part")]
        Controls.set(part=PARTS[2])
    part = Controls.draw("part", into=lab.HERE).part
    {PARTS[1]: make, PARTS[2]: read}.get(part, work)()


def minutes(lesson: lab.lessons.Lesson) -> int:
    """About how long it takes: 200 words a minute to read, and two minutes a question."""
    questions = lesson.all_questions
    words = " ".join([lesson.text, *(question.text for question in questions)]).split()
    return round(len(words) / 200 + 2 * len(questions))


def work() -> None:
    levels = list(dict.fromkeys(level for level, _ in lab.lessons.LEVELS_AND_GOALS.values()))
    columns = dict(zip(levels, st.columns([4, 5, 4], gap="small"), strict=True))
    for level, column in columns.items():
        column.markdown(f"**{level}**")
    for name, (level, goal) in lab.lessons.LEVELS_AND_GOALS.items():
        lesson = lab.lessons.decode(name)
        with columns[level].container(border=True, gap="small"):
            st.page_link(
                lab.step_of("lessons").page(),
                label=lab.plain(lesson.title),
                icon=lab.step_of(lesson.parts[0].page).icon,
                query_params={"lesson": name},
                help=lab.page_bars.teacher_markdown(lesson.text.partition("\n")[0]),
            )
            lab.caption(f"{goal}, {minutes(lesson)} min")
    with st.popover("File and links", icon=":material/folder_open:", key=key("links")):
        lesson_of_file = uploaded_lesson("Open the file of a lesson", "open")
        st.markdown("Links of these lessons")
        st.code("\n".join(address(name) for name in lab.lessons.KEYS), language=None)
        st.caption(
            "With &embed=true at its end, a link shows the lesson inside a page of a course."
        )
    if lesson_of_file is not None and st.button(
        f"Open {lab.plain(lesson_of_file.title)}", key=key("start"), icon=":material/play_arrow:"
    ):
        lab.page_bars.start_lesson(lab.lessons.encode(lesson_of_file))
