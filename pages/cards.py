"""Model cards: published models, or one from a config, layer by layer, with their sizes, caches and costs."""

from functools import partial

import streamlit as st

import dashboard.page as lab
from core.attention.text import to_text
from core.models import cards as study
from core.models.cards import CARDS, ModelCard, card
from dashboard.draw import cards as draw

COMPARED = (draw.REFERENCE, "deepseek_v32", "qwen3_next")
ALONE = "none"
MAX_CHARACTERS = 200_000  # of a pasted config
MAX_BESIDE = 5  # models beside the chosen one: six curves in a figure
READ = "read"  # the key of a card that was read from a config
CURVES = """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, points in sizes.items() for point in points]
alt.Chart(pd.DataFrame(rows, columns=["model", "tokens", "bytes"])).mark_line(point=True).encode(
    alt.X("tokens").scale(type="log", base=2), alt.Y("bytes").scale(type="log"), color="model")
"""  # the chart in a notebook
key = "cards:{}".format  # of a widget


def name(model: str) -> str:
    return f"{card(model).name} · {card(model).year}"


class Controls(lab.Fields, page="cards"):
    model = lab.Select(
        "Model",
        [one.key for one in CARDS],
        "gemma3",
        text=name,
        help="The published model whose card is drawn below.",
    )
    compared = lab.MultiSelect(
        f"Up to {MAX_BESIDE} models",
        [one.key for one in CARDS if one.stores],
        COMPARED,
        text=name,
        max_options=MAX_BESIDE,
        help="Models whose caches are drawn beside that of the chosen one.",
    )
    beside = lab.Select(
        "Beside",
        [ALONE, *(one.key for one in CARDS)],
        ALONE,
        text=lambda one: "No other model" if one == ALONE else name(one),
        help="A second model, of which is listed what differs from the first.",
    )
    pasted = lab.Text(
        "config.json, pasted",
        key=lambda c: f"pasted:{c.turn}",
        lines=True,
        help="The whole file, as it stands beside the weights of a model.",
        also=lab.UNBOUND | {"height": 120, "max_chars": MAX_CHARACTERS},
    )
    hub = lab.Text(
        "or a model of the Hugging Face hub",
        key=lambda c: f"hub:{c.turn}",
        help="The name in the address of the model's page; only its config.json is downloaded.",
        also=lab.UNBOUND | {"placeholder": "owner/name"},
    )
    turn: int  # the number of configs that were read: each leaves empty fields
    turns = lab.SessionValue(0)
    # the card that was read, its text, and the model that was chosen then
    own = lab.SessionValue[tuple[ModelCard, str, str] | None](None)
    wrong = lab.SessionValue("")  # why the last config could not be read


def page() -> None:
    lab.title(
        "Model cards",
        f"Which attention each layer of {len(CARDS)} published models has, and what it costs.",
    )
    st.html(draw.STYLE)
    models()
    lab.details("The code that just ran", partial(lab.source_panel, ModelCard), key("sources"))


@lab.fragment
def models() -> None:
    left, middle, right, last = st.columns([5, 5, 4, 4], gap="small", vertical_alignment="bottom")
    controls = Controls.draw("model", into=left).draw_more("beside", into=middle)
    with right, st.popover("Compare caches", icon=":material/show_chart:", width="stretch"):
        controls = controls.draw_more("compared", into=lab.HERE)
    with last, st.popover("Read a config", icon=":material/upload_file:", width="stretch"):
        read_config(controls.model)
    one = shown(controls.model)
    costs = lab.computed(study.figures, one)
    sizes = lab.computed(study.curves, one, tuple(controls.compared))
    lab.as_python(costs=costs, sizes=sizes, draw={key("sizes"): CURVES} if sizes else {})
    with st.container():  # the table below keeps its place
        if Controls.wrong.value:
            st.error(lab.plain(Controls.wrong.value))
        about = f"{lab.plain(one.different)} [Source]({one.url})"
        if one.key == READ:
            about = "Read from the config that you gave. Choose a model above to see its card."
        lab.paragraph(f"**{lab.plain(one.name)}.** {about}")
        other = None if controls.beside in (ALONE, one.key) else card(controls.beside)
        st.html(draw.strips(one, other, lab.theme()))
        st.html(draw.legend(controls.model, lab.theme(), one, other))
        lab.fact(draw.fact_text(one))
        if sizes:
            cache_chart(sizes)
        lab.details("Its sizes, and how they are calculated", partial(figures, one), key("note"))
        if other:
            st.markdown(f"### What differs from {other.name}")
            lab.table(
                ("", one.name, other.name),
                draw.differences(one, other),
                caption=f"What differs between {one.name} and {other.name}",
                markers=False,
            )
    st.markdown("## All models")
    st.html(draw.legend(controls.model, lab.theme()))
    st.html(draw.models_table(lab.theme()))
    lab.fact(draw.states_text())
    attentions(one)


def cache_chart(sizes: dict[str, list[tuple[int, int]]]) -> None:
    lab.draw_chart(
        st,
        lab.size_figure(sizes, list(sizes), study.LENGTHS, lab.theme(), powers=6),
        key=key("sizes"),
        alt="Bytes of the cache by the length of the text, a line each model",
    )
    text = (
        "What is stored of a text (the cache), by its length. A grid line up is ×10; below 1 MB is "
        "drawn as 1 MB."
    )
    if any(points[-1][0] < study.LENGTHS[-1] for points in sizes.values()):
        text += " A curve ends where a model has no more positions."
    lab.caption(text)


def figures(one: ModelCard) -> None:
    lab.table(
        draw.FIGURES,
        [draw.figures(one)],
        caption=f"The figures of {one.name}",
        left=0,
        markers=False,
    )
    lab.caption(draw.note(one))


def attentions(one: ModelCard) -> None:
    st.markdown(f"## The attentions of {lab.plain(one.name)}")
    for layer, count in one.distinct.items():
        lab.paragraph(f"- {draw.layer_text(layer, count)}")
    step = lab.step_of("compare")
    if one.untrained:
        lab.caption(lab.plain(one.untrained))
    else:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            lab.train_small(one, key=key("train"))
            st.page_link(
                step.page(),
                label="See these attentions in small, side by side",
                icon=step.icon,
                width="content",
                query_params=link(one),
            )
    lab.details(
        "What its parameters are for",
        partial(
            lab.table,
            ("part", "parameters", "share"),
            draw.part_rows(one),
            caption=f"The parameters of {one.name}",
            markers=False,
        ),
        key("parts"),
    )


def link(one: ModelCard) -> dict[str, str | list[str]]:
    """The query of Side by side with the attentions of the pattern, in small, beside the plain dot product."""
    attentions = dict.fromkeys(one.small())
    sizes = next(iter(attentions))
    return {
        "source": "seeded",
        "sizes": f"{sizes.d_model}.{sizes.num_heads}.0",
        "m": [
            to_text(draw.LAYER, sizes=False),
            *(to_text(config, sizes=False) for config in attentions),
        ],
    }


# A card that is read from a config of the reader: pasted, in a file, or on the hub.


def shown(model: str) -> ModelCard:
    """The card that was read, until another model is chosen; else the chosen one."""
    if (own := Controls.own.value) is not None and own[2] == model:
        from core.pretrained.cards import parse_card

        return lab.recorded(parse_card, (own[1], own[0].name), own[0])
    return lab.shared(card, model)


def read_config(model: str) -> None:
    """Three fields for a config; what they hold becomes the card that is shown."""
    turn = Controls.turns.value
    pasted = Controls.draw("pasted", into=lab.HERE, turn=turn).pasted
    file = st.file_uploader(
        "or a file",
        ["json"],
        key=key(f"file:{turn}"),
        max_upload_size=1,
        help="A config.json of at most 1 MB.",
    )
    repo = Controls.draw("hub", into=lab.HERE, turn=turn).hub
    lab.caption("Only the config is read: no weights are loaded, and no code of the model is run.")
    if not (pasted or file or repo):
        return
    from core.pretrained.base import PretrainedError
    from core.pretrained.cards import parse_card
    from core.pretrained.hub import config_bytes, parse

    try:
        text, called = pasted, "The pasted config"
        if file is not None:
            lab.limits.admit_upload(file)
            text, called = file.getvalue().decode("utf-8-sig", "replace"), file.name
        elif repo and not pasted:
            called, revision = parse(repo)
            with st.spinner(f"Reading the config of {lab.plain(called)}"):
                text = config_bytes(called, revision, token=lab.secret("HF_TOKEN")).decode()
        with st.spinner("Building the model without its weights"):
            Controls.own.value = parse_card(text, called), text, model
        Controls.wrong.value = ""
    except (PretrainedError, lab.limits.LimitReached) as error:
        Controls.wrong.value = str(error)
    Controls.turns.value = turn + 1
    st.rerun()
