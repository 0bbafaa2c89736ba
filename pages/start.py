"""Start here: attention in five sentences, two moving pictures, a dictionary, and the path through the lab."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.studies import start

PAGE, NAMES, LIMIT = "start", "ABC", 99.0
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
        start.SENTENCES,
        hidden=True,  # the link has its words, the button its digits
        help=lambda _: ABOUT.format(**start.load()),
    )
    q1, q2 = (
        _number(f"Query, {at}", usual, "The vector that is compared with every key: two numbers.")
        for at, usual in enumerate(start.QUERY, 1)
    )
    kA1, kA2, kB1, kB2, kC1, kC2 = (
        _number(f"Key {name}, {at}", usual, "What the query is compared with: two numbers.")
        for name, vector in zip(NAMES, start.KEYS, strict=True)
        for at, usual in enumerate(vector, 1)
    )
    vA, vB, vC = (
        _number(f"Value {name}", usual, "What the look-up returns: one number.")
        for name, usual in zip(NAMES, start.VALUES, strict=True)
    )


WIDTH, HEIGHT, PAD = 144, 72, 6


def thumbnail(stop: str, data: dict[str, Any], theme: lab.Theme) -> str:
    (label, draw), ink = THUMBNAILS[stop], lab.Ink.of(theme)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'><rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="4" fill="none" '
        f'stroke="{ink.hairline}"/>{draw(data, ink, theme)}</svg>'
    )
    source = b64encode(
        svg.encode()
    ).decode()  # st.html takes an SVG out, but leaves an image of one
    return f'<img alt="{label}" width="{WIDTH}" height="{HEIGHT}" src="data:image/svg+xml;base64,{source}"/>'


def _curve(points: Iterable[Sequence[float]], colour: str, top: float = 1) -> str:
    xs, ys = zip(*points, strict=True)
    wide, high = (WIDTH - 2 * PAD) / max(xs), HEIGHT - 2 * PAD
    places = " ".join(
        f"{round(PAD + wide * x, 1)},{round(PAD + high * (1 - y / top), 1)}"
        for x, y in zip(xs, ys, strict=True)
    )
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _rect(x: float, y: float, wide: float, high: float, fill: str) -> str:
    x, y, wide, high = (round(one, 2) for one in (x, y, wide, high))
    return f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" fill="{fill}"/>'


def _one_query(data: dict, ink: lab.Ink, theme: lab.Theme) -> str:
    weights = data["one_query"]
    room, high = (WIDTH - 2 * PAD) / len(weights), HEIGHT - 2 * PAD
    return "".join(
        _rect(
            PAD + room * at + 6, PAD + high * (1 - weight), room - 12, high * weight, lab.BAR[theme]
        )
        for at, weight in enumerate(weights)
    )


def _heads(data: dict, ink: lab.Ink, theme: lab.Theme) -> str:
    maps = data["heads"]
    across = (len(maps) + 1) // 2
    size = min((HEIGHT - 3 * PAD) / 2, (WIDTH - (across + 1) * PAD) / across)
    left, top = (WIDTH - across * size - (across - 1) * PAD) / 2, (HEIGHT - 2 * size - PAD) / 2
    return "".join(
        _map(
            rows,
            left + (at % across) * (size + PAD),
            top + (at // across) * (size + PAD),
            size,
            theme,
        )
        for at, rows in enumerate(maps)
    )


def _transformer(data: dict, ink: lab.Ink, theme: lab.Theme) -> str:
    stacks = data["transformer"].values()
    each = (HEIGHT - 2 * PAD) / max(sum(stack.values()) for stack in stacks)  # px of a parameter
    return "".join(
        _rect(
            WIDTH / 2 + (column - 1) * 52 + 6,
            HEIGHT - PAD - each * top + 1,
            40,
            each * count - 2,
            ink.hairline if block == "feed_forward" else lab.BAR[theme],
        )
        for column, stack in enumerate(stacks)
        for (block, count), top in zip(stack.items(), accumulate(stack.values()), strict=True)
    )


def _map(rows: Iterable[Sequence[float]], x: float, y: float, size: float, theme: lab.Theme) -> str:
    cells = [list(row) for row in rows]
    high, wide = size / len(cells), size / len(cells[0])
    return "".join(
        _rect(x + j * wide, y + i * high, wide, high, lab.shade(value, theme))
        for i, row in enumerate(cells)
        for j, value in enumerate(row)
    )


THUMBNAILS: dict[str, tuple[str, Callable[[dict, lab.Ink, lab.Theme], str]]] = {
    "why": (
        "Exact translations by sentence length: one vector falls, attention falls less",
        lambda data, ink, theme: "".join(
            _curve(enumerate(data["why"][name]), colour)
            for name, colour in (("one_vector", ink.quiet), ("attention", lab.BAR[theme]))
        ),
    ),
    "one_query": ("The weights of the worked example, as bars", _one_query),
    "heads": ("The attention of six heads of MiniLM on one sentence", _heads),
    "positions": (
        "A sine and a cosine of eight positions",
        lambda data, ink, theme: "".join(
            _curve(
                enumerate((row[at] + 1) / 2 for row in data["order"]["sinusoids"]), lab.BAR[theme]
            )
            for at in (0, 1)
        ),
    ),
    "masks": (
        "The causal mask over eight positions",
        lambda data, ink, theme: _map(
            data["order"]["causal"], WIDTH / 2 - HEIGHT / 2 + PAD, PAD, HEIGHT - 2 * PAD, theme
        ),
    ),
    "transformer": (
        "Encoder and decoder of the example model, each block as high as its parameters",
        _transformer,
    ),
    "train": (
        "The validation loss of the example run",
        lambda data, ink, theme: _curve(
            data["train"], lab.BAR[theme], max(loss for _, loss in data["train"])
        ),
    ),
}


def lookup_table(rows: Sequence[tuple[str, str, str, float, str, bool]], theme: lab.Theme) -> str:
    """A row for each key: name and key, q · k, the score, the weight as a bar, the value, and whether it is equal."""
    ink = lab.Ink.of(theme)
    cell = f"border-bottom:1px solid {ink.hairline};padding:6px 8px 6px 0;text-align:left;font-weight:400"
    head = "".join(
        f'<th scope="col" style="{cell};color:{ink.quiet}{";padding-left:16px" * (name == "value")}">{name}'
        "</th>"
        for name in (("key", "q · k", "÷ √2", "weight", "value", "equal"))
    )
    body = ""
    for name, product, score, weight, value, equal in rows:
        bar = (
            f'<div style="display:flex;align-items:center;gap:6px"><div style="flex:1;min-width:24px">'
            f'<div style="width:{round(100 * weight, 1)}%;height:12px;background:{lab.BAR[theme]}"></div></div>'
            f"<span>{lab.share_text(weight)}</span></div>"
        )
        mark = f'<b style="color:{ink.pick}">yes</b>' if equal else "no"
        body += (
            f'<tr><th scope="row" style="{cell};white-space:nowrap">{name}</th><td style="{cell}">{product}</td>'
            f'<td style="{cell}">{score}</td><td style="{cell};width:40%">{bar}</td>'
            f'<td style="{cell};padding-left:16px">{value}</td><td style="{cell}">{mark}</td></tr>'
        )
    return (
        f'<table style="width:100%;border-collapse:collapse;font-size:14px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def script(
    data: Mapping[str, Any], item: Mapping[str, Any], typed: Sequence[Any], result: start.Lookup
) -> lab.Script:
    """`typed` are the query, the keys and the values."""
    layer, head = data["layer"], data["head"]
    return lab.Script(
        (
            lab.Cell(
                "The translator's weights: one head of its cross-attention, a row for each output word.",
                f"""
from core.pretrained import load_lab_model, read

trace = read(load_lab_model({data["model"]!r}), {" ".join(item["source"])!r}).trace.of("cross")
weights = trace.head({layer}, {head})  # (T, S)
print("mean of the largest weight of each output word:", weights.max(-1).mean())
""",
                f"""
from dashboard.show import show

show(trace, layer={layer}, head={head})
""",
                "start:translation",
            ),
            lab.Cell(
                "One query looks up three keys: the soft look-up of a dictionary.",
                f"""
import torch

from core.attention import attend

q = torch.tensor([[[{lab.source_of(typed[0])}]]])  # (B, H, T, D)
k = torch.tensor([[{lab.source_of(typed[1])}]])  # (B, H, S, D)
v = torch.tensor({lab.source_of(typed[2])}).reshape(1, 1, -1, 1)
steps = attend(q, k, v)  # softmax(q · k / √D) · v
print("weights", steps.weights.flatten().tolist(), "output", float(steps.out))
""",
            ),
        ),
        {
            "weights.round(4)": np.array(item["weights"]),
            "(q @ k.mT).flatten()": np.array(result.products),
            "steps.scores.flatten()": np.array(result.scores),
            "steps.weights.flatten()": np.array(result.weights),
            "float(steps.out)": np.array(result.output),
        },
    )


SENTENCES = (
    "An encoder reads a sentence; a decoder translates it.",
    "Without attention, **one vector** loses long sentences.",
    "With **attention**, each step reads every word.",
    "The better a word's **key** fits the **query**, the larger its **weight**.",
    "The output adds all **values**, each times its weight.",
)


# The pages of the path in order, each with its sentence.
PATH_STOPS = (
    ("why", "Which translator fails at long sentences? Predict, then see."),
    ("one_query", "Follow one word from its query to its output, number by number."),
    ("heads", "Several heads read the same sentence in different ways."),
    ("positions", "Positions give attention the order of words."),
    ("masks", "A mask hides later words."),
    ("transformer", "Open a whole model and see where attention is in it."),
    ("train", "Train a small model and watch its attention form."),
)


def vector_text(values: tuple[float, ...]) -> str:
    return f"[{', '.join(map(typed, values))}]"


def typed(value: float) -> str:
    """A number as the reader typed it: a whole one without decimals."""
    return lab.number(value) if value % 1 else f"{value:.0f}".replace("-", "−")


MOVES = (
    lab.Move(
        "Ask for exactly key C",
        {key("q1"): 1.0, key("q2"): 1.0},
        "the hard look-up now finds key C and returns its value alone. The soft one gives C the largest weight and "
        "still mixes in the others.",
    ),
    lab.Move(
        "Make the query ten times larger",
        {key("q1"): 10.0, key("q2"): 20.0},
        "the scores are ten times larger, and one weight is nearly 1: the soft look-up has become almost hard.",
    ),
    lab.Move(
        "Ask for nothing",
        {key("q1"): 0.0, key("q2"): 0.0},
        "all scores are 0, so all weights are equal, and the output is the mean of the values.",
    ),
)


@lab.fragment
def dictionary(data: Mapping[str, Any], item: Mapping[str, Any]) -> None:
    st.markdown("## A soft dictionary to edit")
    left, right = st.columns([0.42, 0.58], gap="large")
    with left, st.container(gap="small"):
        query, *pairs = (
            tuple(vars(Controls.draw(*row, into=st.grid(3, min_column_width=90))).values())
            for row in [["q1", "q2"], *([f"k{name}1", f"k{name}2", f"v{name}"] for name in NAMES)]
        )
    with right, lab.picture(PAGE):
        keys, values = tuple(pair[:2] for pair in pairs), tuple(pair[2] for pair in pairs)
        result = start.look_up(query, keys, values)
        lab.add_script(partial(script, data, item, (query, keys, values), result))
        st.html(
            lookup_table(
                [
                    (
                        f"{name} {vector_text(vector)}",
                        lab.number(product),
                        lab.number(score),
                        weight,
                        typed(value),
                        at == result.equal,
                    )
                    for at, (name, vector, product, score, weight, value) in enumerate(
                        zip(
                            NAMES,
                            keys,
                            result.products,
                            result.scores,
                            result.weights,
                            values,
                            strict=True,
                        )
                    )
                ],
                lab.theme(),
            )
        )
        lab.paragraph(
            "A dictionary returns the value of the key that is **equal** to the query. Attention returns **all** "
            "values, each times its weight."
        )
        query_text, equal = vector_text(query), result.equal
        st.markdown(
            f"**Hard look-up: nothing.** No key is equal to {query_text}."
            if equal is None
            else f"**Hard look-up: {typed(values[equal])}.** Key {NAMES[equal]} is equal to {query_text}, so its "
            "value is returned."
        )
        terms = " + ".join(
            f"{lab.number(round(weight, 4))} · {typed(value)}"
            for weight, value in zip(result.weights, values, strict=True)
        )
        st.markdown(f"**Soft look-up: {lab.number(result.output)}** ≈ {terms}")
        products = " + ".join(
            f"{typed(q)} · {typed(k)}" for q, k in zip(query, keys[-1], strict=True)
        )
        lab.caption(
            f"**q · k** multiplies number by number and adds: for key {NAMES[-1]}, {products} = "
            f"{lab.number(result.products[-1])}. **÷ √2**, for 2 numbers: without it, longer vectors have larger scores. "
            "**Softmax** turns these scores into the weights, which together are 1."
        )
    lab.try_this(PAGE, MOVES)


WORD = key("word")  # the picked output word, in the session and in the link


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
        "For each word, attention decides how much to take from every other word.",
    )
    data, visited = start.load(), lab.visited_pages()
    item = _example(data)
    with st.container(horizontal=True, gap="small"):  # one below the other but on a wide screen
        with st.container(width=1500):
            lab.translation_view(
                item["source"],
                item["target"],
                item["weights"],
                key=key("translation"),
                picked=_picked(item["weights"]),
                on_pick=partial(st.session_state.__setitem__, WORD),
            )
        _introduction(item)
    dictionary(data, item)
    # The path; a tick at each page that was opened
    st.subheader(f"The path: {len(PATH_STOPS)} pages")
    done = sum(name in visited for name, _ in PATH_STOPS)
    st.caption(
        f"{done} of {len(PATH_STOPS)} pages visited. A cookie keeps the count in this browser."
    )
    with st.grid(len(PATH_STOPS), min_column_width=160, gap="medium"):
        for number, (name, sentence) in enumerate(PATH_STOPS, 1):
            with st.container(gap="xsmall"):
                st.html(thumbnail(name, data["thumbnails"], lab.theme()))
                step, seen = lab.step_of(name), name in visited
                st.page_link(
                    step.page(),
                    label=f"**{number}. {step.title.split(',')[0]}**",
                    icon=":material/check_circle:" if seen else step.icon,
                )
                lab.paragraph(f"{sentence}{' (visited)' if seen else ''}")
    lab.details("The addresses of these pages, to copy", _links, key("links"))
    _doors()


def _example(data: dict) -> dict:
    """The tour's button, in a phone's first screen too, and the examples, of which it returns the picked one."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        if st.button(
            f"Take the tour of {len(lab.page_bars.STOPS)} pages",
            icon=":material/tour:",
            type="primary",
            key=key("tour"),
            help="Each page of the path with one sentence. It sets the page's controls; End tour ends it.",
        ):
            lab.page_bars.open_stop(0)
        words = Controls.draw("sentence", into=lab.HERE).sentence
    return next(each for each in data["translations"] if " ".join(each["source"]) == words)


def _introduction(item: dict) -> None:
    with st.container(width=560):
        lab.paragraph("\n".join(f"{number}. {each}" for number, each in enumerate(SENTENCES, 1)))
        weights = item["weights"][:-1]  # without the end mark
        lab.fact(
            "For each German word, most attention is on one English word: on average "
            f"**{100 * sum(map(max, weights)) / len(weights):.0f} %**; evenly spread, "
            f"{100 / len(item['source']):.0f} %."
        )


def _doors() -> None:
    st.subheader("Other doors")
    models, mechanisms, lessons = st.columns(3, gap="medium")
    with models:
        name = _box(
            "model",
            "**I have a model.**",
            "Its name or folder",
            "See its heads",
            help="The model's name on the Hugging Face hub, owner/name, or a folder of this computer",
        )
    if name:
        st.switch_page(lab.step_of("pretrained").page(), query_params={"inside:model": name})
    with mechanisms:
        formula = _box(
            "formula",
            "**I invent mechanisms.**",
            "A formula for the score",
            "Compare it",
            "score - 0.5*abs(i-j)",
            help="i is the place of the query, j that of the key; it is compared with the plain dot product",
        )
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


def _box(name: str, who: str, label: str, button: str, text: str = "", *, help: str) -> str | None:
    """What was typed into the box of a door, once Enter or its button was pressed."""
    st.markdown(who)
    with st.form(key(f"door:{name}"), border=False):
        typed = st.text_input(label, text, key=key(f"door:{name}:text"), help=help)
        return typed.strip() if st.form_submit_button(button) else None


def _picked(weights: list[list[float]]) -> int:
    """The output word of the link or the session; else the first that attends beyond the next one."""
    count, strongest = len(weights), [row.index(max(row)) for row in weights]
    first = next((at for at in range(count - 1) if strongest[at] > strongest[at + 1]), 0)
    lab.link_value(WORD, first, lab.one_of(range(count)))
    picked: int = st.session_state.get(WORD, first)
    return picked if picked < count else first


def _links() -> None:
    base = (st.context.url or "").split("?")[0].rstrip("/")
    st.code(
        "\n".join(f"{base}/{page}" for page, _ in PATH_STOPS),
        language=None,
    )
