"""Many pairs: every head of a model on many contrast pairs, as means with their intervals."""

from functools import partial
from typing import cast

import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError, Param
from core.interpret import interventions, pairs as study
from core.interpret.corpus import half_interval
from core.interpret.trace import Kind
from core.tasks import reading
from dashboard.draw import pairs as draw

FILE = Param(
    "data",
    "Your pairs",
    default="",
    meaning="CSV, TSV, or JSON a line: clean, corrupted, answer, other",
    longest=reading.MAX_SIGNS,
)
DATA = "pairs:data"
REFUSED = 5  # rows that are told one by one


def template_text(label: str, part: int, help: str) -> lab.Text:
    """A part of the template, which starts as the lab's own for the model."""
    return lab.Text(
        label,
        lambda c: c.own[part] if isinstance(c.own[part], str) else ", ".join(c.own[part]),
        key=lambda c: f"{label.lower().replace(' ', '_')}:{c.ref.name}",
        help=help,
        also=lambda c: {"width": lab.room(520)},  # a whole sentence
    ).when(lambda c: c.source == "template")


class Controls(lab.Fields, page="pairs"):
    ref: lab.ModelRef
    effects: study.PairEffects
    source = lab.Segmented(
        "Pairs from",
        {"template": "A template", "file": "A file"},
        help="A template with two lists of words, or a file with a pair a line.",
    )
    clean = template_text(
        "Clean text",
        0,
        "The text whose answer is [A]; [A] and [B] are replaced by the words below.",
    )
    corrupted = template_text(
        "Corrupted text", 1, "The text that differs in what decides, so that its answer is another."
    )
    first = template_text("Words for A", 2, "Separated by commas; each is paired with each of B.")
    second = template_text("Words for B", 3, "Separated by commas.")
    answer = template_text(
        "Answer", 4, "What the clean text is continued with; one token of the model."
    )
    other = template_text(
        "Other answer", 5, "What the corrupted text is continued with; one token, too."
    )
    both = lab.Toggle(
        "Both orders", True, help="Each couple of words also the other way round: B as A."
    ).when(lambda c: c.source == "template")
    quantity = lab.Select[study.PairQuantity](
        "What is measured",
        draw.QUANTITIES,
        help="The logit of the answer minus that of the other one leaves out what changes all logits. The KL "
        "divergence is of all answers from those of the whole model.",
    )
    ways = lab.MultiSelect[str](
        "Ways",
        {one.key: one.name for one in interventions.WAYS},
        list(interventions.BY_KEY),
        help="How a head’s information is taken away. Each way costs a pass a head and pair; direct, one a pair.",
    )
    positions = lab.Toggle(
        "Head by token",
        True,
        help="Patch each head in at one token at a time, too: a pass a head, token and pair.",
    )
    way = lab.Segmented[str](
        "Taken away by",
        lambda c: {one: interventions.BY_KEY[one].name for one in c.effects.effects},
        help=" ".join(f"**{one.name}**: {one.asks}" for one in interventions.WAYS),
        also={"wrap": True},
    )
    head = lab.HeadField(None)
    run = lab.LinkedValue("")  # the measurement of a link, by its id
    data = lab.SessionValue("")  # a person's own pairs, or their reference

    @property
    def own(self) -> tuple[str | tuple[str, ...], ...]:
        return *study.OWN.get(self.ref.name, study.OWN["writer"]), "[A]", "[B]"

    @property
    def config(self) -> study.PairsConfig:
        """ConfigError for pairs that cannot be measured."""
        data = Controls.data.value
        if self.source == "template":
            first, second = (
                [one.strip() for one in text.split(",") if one.strip()]
                for text in (self.first, self.second)
            )
            data = study.to_csv(
                study.pairs_of_template(
                    self.clean, self.corrupted, first, second, self.answer, self.other, self.both
                )
            )
        else:
            study.read_pairs(reading.read(data))
        ways = tuple(way for way in interventions.BY_KEY if way in self.ways)  # in one order
        return study.PairsConfig(
            lab.config_name(self.ref), data, ways, self.quantity, self.positions
        )


def draw_controls() -> tuple[Controls, study.PairsConfig | None] | None:
    """Draw the model and its pairs; None after a message when there is no model, no config after one on the pairs."""
    *row, rest = st.columns([1.2, 1.4, 1.4], vertical_alignment="bottom")
    choice = lab.choose_model(("model",), usual=lab.WRITES, has_inputs=False, columns=row)
    if choice is None:
        return None
    with lab.input_errors():
        study.check_model(choice.model)
        lab.link_data(DATA, "")
        with row[1]:
            controls = Controls.draw("source", into=lab.HERE, ref=choice.ref)
        with rest.container(horizontal=True):
            with st.popover("Pairs", width="stretch", icon=":material/edit:"):
                if controls.source == "file":
                    lab.data_widget(FILE, DATA)
                    st.caption("The first line names the columns: clean, corrupted, answer, other.")
                controls = controls.draw_more(
                    "clean",
                    "corrupted",
                    "first",
                    "second",
                    "answer",
                    "other",
                    "both",
                    into=lab.HERE,
                )
            with st.popover("Measured", width="stretch", icon=":material/tune:"):
                controls = controls.draw_more("quantity", "ways", "positions", into=lab.HERE)
        try:
            return controls, controls.config
        except ConfigError as error:
            lab.field_error(error)
            return controls, None
    return None


def page() -> None:
    lab.title(
        "Many pairs",
        "One sentence can be an exception: measure each head on many pairs of texts.",
    )
    lab.fragment_unless_measuring(view)
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            draw.PAPERS,
            interventions.head_effects,
            study.measure_pairs,
            study.position_effects,
            half_interval,
        ),
        "pairs:papers",
    )


def view() -> None:
    drawn = draw_controls()
    if drawn is None:
        return
    controls, config = drawn
    lab.measurement(
        "pairs",
        Controls.run,
        config,
        study.SAVED,
        study.read_measurement,
        partial(show, controls),
        draw.progress,
        f"{lab.plural(len(config.pairs), 'pair')} were not measured in this way yet."
        if config
        else "Open Pairs, and write some that can be measured.",
        "A worker measures the pairs one by one; Stop keeps what there is.",
        ("The heads appear here while the pairs are measured.", draw.HEIGHT),
    )


@lab.input_errors()
def show(controls: Controls, measurement: study.Measurement) -> None:
    effects = measurement.effects
    if effects is None:
        if measurement.live:
            lab.placeholder("The heads appear here once the first pair is measured.", draw.HEIGHT)
        return
    controls = Controls(**vars(controls), effects=effects).draw_more("way", into=lab.HERE)
    way, at, layers = controls.way, draw.places(effects), draw.layer_names(effects)
    means = abs(effects.mean(way))
    picked = Controls.head.shown(
        controls.ref,
        controls.ref,
        {
            pair: (cast(Kind, kind), (layer, head))
            for pair, place in at.items()
            for kind, layer, head in [effects.heads[place]]
        },
        max(at, key=lambda pair: means[at[pair]]),
    )
    left, right = st.columns([1, 1], gap="medium")
    with left:
        lab.chart_title(f"Helps the answer by, mean of {lab.plural(len(effects.pairs), 'pair')}")
        lab.effect_chart(
            "pairs:grid",
            "How much each head helps the answer",
            lambda layer, head: lab.write_pair("head", (layers.index(layer), head)),
            draw.grid_rows(effects, way),
            layers,
            [str(head) for head in sorted({head for _, head in at})],
            (layers[picked[0]], str(picked[1])),
            title="helps the answer by",
            tips=[("name", "head"), ("by", "helps by"), ("share", "rank")],
            more={"half": "half of the 95 % interval"},
        )
    with right:
        lab.fact(draw.fact_text(effects, way, at[picked], measurement.config.quantity))
        lab.caption(draw.sure_text(effects, way))
        lab.paragraph(draw.example_text(effects.pairs[0]))
        Controls.head.draw(
            {effects.names[place]: pair for pair, place in at.items()}, picked, "pairs:head-list"
        )
    for sentence in effects.refused[:REFUSED]:
        st.warning(lab.plain(f"Not measured. {sentence}"))
    if more := effects.refused[REFUSED:]:
        lab.details(
            f"{lab.plural(len(more), 'more row')} not measured",
            lambda: lab.caption(lab.plain(" · ".join(more))),
            "pairs:refused",
        )
    head, rows = draw.table(effects, at[picked])
    lab.table(head, rows, caption="The heads with the largest effects, by each way", markers=False)
    lab.caption(draw.conditions(measurement))
    if effects.positions is not None:
        st.markdown("## Head by token")
        lab.fact(draw.token_text(effects, at[picked]))
        shown = [effects.names[place] for place in draw.strongest(effects, at[picked])]
        lab.effect_chart(
            "pairs:tokens",
            "What each head gains when patched in at one token",
            None,
            draw.token_rows(effects, at[picked]),
            shown,
            draw.token_names(effects),
            (
                effects.names[at[picked]],
                draw.token_names(effects)[draw.strongest_token(effects, at[picked])],
            ),
            title="patched in at this token, helps by",
            across="token",
            tips=[("name", "head"), ("by", "helps by")],
        )
        lab.caption("“…”: the pairs have different words there. Numbers count tokens from 0.")
    elif measurement.config.positions:
        lab.caption(
            "Head by token is left out: the pairs differ in their number of tokens, or an encoder–decoder reads two texts."
        )
    lab.details("The pairs", partial(show_pairs, effects.pairs), "pairs:list")
    with st.container(horizontal=True):
        for label, text, name in (
            ("All heads, CSV", study.to_table(effects), "heads-on-pairs.csv"),
            ("These pairs, CSV", study.to_csv(effects.pairs), "pairs.csv"),
        ):
            st.download_button(
                label,
                text,
                name,
                "text/csv",
                on_click="ignore",
                key=f"pairs:{name}",
                icon=":material/download:",
            )
    lab.as_python(
        effects=effects,
        draw={"pairs:grid": draw.CHART.format(way=way)},
        also=[draw.AGAIN],
    )


def show_pairs(pairs: tuple[study.Pair, ...]) -> None:
    head, *rows = draw.pair_rows(pairs)
    lab.table(
        head,
        rows,
        caption="The pairs that were measured",
        left=len(head),
        markers=False,
        wrap=True,
    )
