"""Start here: attention in five sentences, two moving pictures, a dictionary, and the path through the lab."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

import dashboard.page as lab
from core.studies import start as study
from dashboard.draw import start as draw

PAGE, LIMIT = "start", 99.0
ABOUT = (
    "The English number that the translator reads. Weights: cross-attention, layer {layer}, head {head}, of the "
    "lab's own number translator, {date}. \\<eos> marks the end of a sentence."
)


key = "start:{}".format  # a widget's key, which is also its name in the link


def _number(label: str, default: float, help: str) -> lab.Number[float]:
    return lab.Number(
        label, default, low=-LIMIT, high=LIMIT, step=0.5, help=help, also={"format": "%g"}
    )


class Controls(lab.Fields, page=PAGE):
    sentence = lab.Segmented(
        "Translate",
        study.SENTENCES,
        hidden=True,  # the link has its words, the button its digits
        help=lambda _: ABOUT.format(**study.load()),
    )
    q1, q2 = (
        _number(f"Query, {at}", usual, "The vector that is compared with every key: two numbers.")
        for at, usual in enumerate(study.QUERY, 1)
    )
    kA1, kA2, kB1, kB2, kC1, kC2 = (
        _number(f"Key {name}, {at}", usual, "What the query is compared with: two numbers.")
        for name, vector in zip(draw.NAMES, study.KEYS, strict=True)
        for at, usual in enumerate(vector, 1)
    )
    vA, vB, vC = (
        _number(f"Value {name}", usual, "What the look-up returns: one number.")
        for name, usual in zip(draw.NAMES, study.VALUES, strict=True)
    )
    word = lab.LinkedValue(0)  # the picked output word
    # what is typed into the boxes of the doors, which lead to other pages
    model = lab.Text(
        "Its name, folder or .py file",
        key="door:model:text",
        help="The model's name on the Hugging Face hub, owner/name; a folder of this computer; or a Python file "
        "with build(), which returns your nn.Module, and INPUTS",
        also=lab.UNBOUND,
    )
    formula = lab.Text(
        "A formula for the score",
        "score - 0.5*abs(i-j)",
        key="door:formula:text",
        help="i is the place of the query, j that of the key; it is compared with the plain dot product",
        also=lab.UNBOUND,
    )

    @property
    def query(self) -> tuple[float, ...]:
        return self.q1, self.q2

    @property
    def vectors(self) -> tuple[tuple[float, ...], ...]:
        return (self.kA1, self.kA2), (self.kB1, self.kB2), (self.kC1, self.kC2)

    @property
    def values(self) -> tuple[float, ...]:
        return self.vA, self.vB, self.vC


SENTENCES = (
    "An encoder reads; a decoder translates.",
    "**One vector** loses long sentences.",
    "**Attention** takes from every word.",
    "A **key** that fits the **query** gets more **weight**.",
    "The output adds all **values**, each times its weight.",
)

# The pages of the path in order, each with its sentence.
PATH_STOPS = (
    ("why", "Which translator fails at long sentences?"),
    ("one_query", "One word, number by number."),
    ("heads", "Heads take from different words."),
    ("positions", "Positions tell word order."),
    ("masks", "A mask hides later words."),
    ("transformer", "A model, part by part."),
    ("train", "Watch attention form."),
)


def moves(controls: Any, result: study.Lookup) -> tuple[lab.Move, ...]:
    """What to try with the numbers of now: another query, and what it does to them."""
    keys, values = controls.vectors, controls.values
    larger = 10 * max(map(abs, controls.query)) <= LIMIT
    other = tuple(one * 10 if larger else one / 10 for one in controls.query)
    return (
        lab.Move(
            f"Ask for key {draw.NAMES[-1]}",
            Controls.state(q1=controls.kC1, q2=controls.kC2),
            draw.equal_text(study.look_up(keys[-1], keys, values)),
        ),
        lab.Move(
            f"{'Ten times' if larger else 'A tenth of'} the query",
            Controls.state(q1=other[0], q2=other[1]),
            draw.scaled_text(result, study.look_up(other, keys, values), larger),
        ),
        lab.Move(
            "Ask for nothing",
            Controls.state(q1=0.0, q2=0.0),
            "all scores are 0, so all weights are equal, and the output is the mean of the values.",
        ),
    )


ROWS = [("q1", "q2"), *((f"k{name}1", f"k{name}2", f"v{name}") for name in draw.NAMES)]


@lab.fragment
def dictionary(data: Mapping[str, Any], item: Mapping[str, Any]) -> None:
    st.markdown("## A soft dictionary")
    left, right = st.columns([0.42, 0.58], gap="large")
    controls = Controls()
    with left, st.container(gap="small"):
        for row in ROWS:
            controls = controls.draw_more(*row, into=st.grid(3, min_column_width=90))
    with right, lab.picture(PAGE):
        query, keys, values = controls.query, controls.vectors, controls.values
        result = lab.cached(study.look_up, query, keys, values)
        st.html(draw.lookup_table(keys, values, result, lab.theme()))
        st.markdown(draw.hard_text(query, values, result))
        st.markdown(draw.soft_text(values, result))
        lab.caption(draw.product_text(query, keys[-1], result))
        lab.as_python(lookup=result, also=[draw.translator_cell(data, item)])
    lab.try_this(PAGE, moves(controls, result))


def page() -> None:
    """Draw the page from top to bottom; what stands above the dictionary does not wait for torch."""
    old = {
        name: st.query_params.get_all(name)
        for name in st.query_params
        if name.startswith("why:") or name == "runs"
    }
    if old:
        st.switch_page(lab.step_of("why").page(), query_params=old)
    lab.title(
        "Start here",
        "Attention decides how much each word takes from every other.",
    )
    data, visited = study.load(), lab.visited_pages()
    item = _example(data)
    with st.container(horizontal=True, gap="small"):  # one below the other but on a wide screen
        with st.container(width=1500):
            lab.translation_view(
                item["source"],
                item["target"],
                item["weights"],
                key=key("translation"),
                picked=_picked(item["weights"]),
                on_pick=Controls.word.set,
            )
        _introduction(item)
    dictionary(data, item)
    # The path; a tick at each page that was opened
    done = sum(name in visited for name, _ in PATH_STOPS)
    st.markdown(
        f"## The path: {done} of {len(PATH_STOPS)} pages visited",
        help="A cookie keeps the count in this browser.",
    )
    with st.grid(len(PATH_STOPS), min_column_width=160, gap="medium"):
        for number, (name, sentence) in enumerate(PATH_STOPS, 1):
            with st.container(gap="xsmall"):
                st.html(draw.thumbnail(name, data["thumbnails"], lab.theme()))
                step, seen = lab.step_of(name), name in visited
                st.page_link(
                    step.page(),
                    label=f"**{number}. {step.title.split(',')[0]}**",
                    icon=":material/check_circle:" if seen else step.icon,
                )
                lab.paragraph(f"{sentence} (visited)" if seen else sentence)
    lab.details("Your own model, formula, class", _doors, key("doors"))


def _example(data: dict[str, Any]) -> dict[str, Any]:
    """The tour's button, in a phone's first screen too, and the examples, of which it returns the picked one."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        if st.button(
            "Take the tour",
            icon=":material/tour:",
            type="primary",
            key=key("tour"),
            help=f"The {len(lab.page_bars.STOPS)} pages of the path, each with one sentence. It sets their controls; End "
            "tour ends it.",
        ):
            lab.page_bars.open_stop(0)
        words = Controls.draw("sentence", into=lab.HERE).sentence
    return next(each for each in data["translations"] if " ".join(each["source"]) == words)


def _introduction(item: Mapping[str, Any]) -> None:
    with st.container(width=560):
        lab.paragraph("\n".join(f"{number}. {each}" for number, each in enumerate(SENTENCES, 1)))
        weights = item["weights"][:-1]  # without the end mark
        lab.fact(
            f"On average, a German word takes **{100 * sum(map(max, weights)) / len(weights):.0f} %** from one English "
            f"word; evenly, {100 / len(item['source']):.0f} %."
        )


def _doors() -> None:
    models, mechanisms, lessons = st.columns(3, gap="medium")
    with models:
        name = _box(
            "model",
            "**I have a model.**",
            "See its heads",
            "Type its name first, as owner/name or my_model.py.",
        )
    if name:
        st.switch_page(lab.step_of("pretrained").page(), query_params={"inside:model": name})
    with mechanisms:
        formula = _box("formula", "**I invent mechanisms.**", "Compare it", "Type a formula first.")
    if formula:
        from core.attention import AttentionConfig, Choice, ConfigError  # with torch
        from core.attention.text import to_text

        try:
            typed = AttentionConfig(position=Choice.of("formula", formula=formula))
        except ConfigError as error:
            mechanisms.error(lab.plain(str(error)))
        else:
            st.switch_page(
                lab.step_of("compare").page(),
                query_params={"m": ("score=scaled_dot", to_text(typed, sizes=False))},
            )
    with lessons:
        st.markdown("**I teach.**")
        lab.paragraph("Put your text and questions round a page. Seven lessons are ready.")
        step = lab.step_of("lessons")
        st.page_link(step.page(), label=f"Open {step.title}", icon=step.icon)
        base = (st.context.url or "").split("?")[0].rstrip("/")
        st.code("\n".join(f"{base}/{page}" for page, _ in PATH_STOPS), language=None)


def _box(name: str, who: str, button: str, empty: str) -> str:
    """What was typed into the box of a door, once Enter or its button was pressed; says so where nothing was."""
    st.markdown(who)
    with st.form(key(f"door:{name}"), border=False):
        typed = Controls.draw(name, into=lab.HERE)[name].strip()
        pressed = st.form_submit_button(button)
        if pressed and not typed:
            st.info(empty)
        return typed if pressed else ""


def _picked(weights: list[list[float]]) -> int:
    """The output word of the link or the session; else the first that attends beyond the next one."""
    count, strongest = len(weights), [row.index(max(row)) for row in weights]
    first = next((at for at in range(count - 1) if strongest[at] > strongest[at + 1]), 0)
    picked = Controls.word.linked(lab.one_of(range(count)), first)
    return picked if picked < count else first
