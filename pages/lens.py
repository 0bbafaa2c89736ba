"""When it decides: every layer read as if it were the last, and who wrote the answer."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import lens as study
from core.interpret.evidence import Baseline, Question
from core.pretrained import Line, PretrainedError, Reading
from core.pretrained.generate import mask_position, output_id, token_names
from dashboard.draw import lens as draw

LENS_PARTS, ATTRIBUTED = "lens:read", "lens:attributed"  # for all sessions
DECISIVE = "where it is decided"


class Controls(lab.Fields, page="lens"):
    choice: lab.ModelChoice
    names: tuple[str, ...]  # of the layers
    offered: dict[str, int]  # tokens by their names
    reading: Reading
    masked: int | None  # the position of the mask
    ref: lab.ModelRef
    baseline: Baseline
    word = lab.masked_word("word")
    position = lab.answer_position()
    output = lab.OutputField("Token to follow")
    contrast = lab.OutputField("Minus the logit of", part="contrast", first=lab.NOTHING)
    head = lab.HeadField(None)
    view = lab.Segmented(
        "View",
        {"when": "When it decides", "who": "Who wrote it"},
        help="The answer layer by layer, or the parts that it is the sum of.",
        also={"label_visibility": "collapsed"},
    )
    tokens = lab.MultiSelect[str](
        "More tokens",
        lambda c: list(c.offered),
        key=lambda c: f"tokens:{c.choice.ref.name}",
        max_options=4,
        typed=True,
        also={"placeholder": "pick or type"},
        help="Each gets a curve of its own. Type any token of the vocabulary, or its number, "
        "such as #17.",
    )
    layer = lab.Select[str](
        "Layer",
        lambda c: [DECISIVE, *c.names],
        key=lambda c: f"layer:{c.choice.ref.name}",
        help="The layer whose attention is shown. A click in the picture of the layers picks one, too.",
        also=lambda c: {"width": lab.room(240)},
    )


@dataclass(frozen=True, eq=False)
class Probe:
    """What the model is asked, and its answer; `contrast` is a token whose logit is subtracted."""

    choice: lab.ModelChoice
    question: Question
    baseline: Baseline
    contrast: int | None

    @property
    def ref(self) -> lab.ModelRef:
        return self.choice.ref

    @property
    def reading(self) -> Reading:
        return self.choice.reading

    @property
    def line(self) -> Line:
        """The tokens of the sequence that answers."""
        return self.reading.target or self.reading.source

    @property
    def position(self) -> int:
        return self.baseline.answer.position

    @property
    def token(self) -> str:
        return self.line.tokens[self.position]


def page() -> None:
    lab.title(
        "When it decides",
        "Each layer has an answer, if it is read as the last one.",
    )
    choice = lab.choose_model(needs=("tokens",), usual=lab.WRITES, weights=False)
    if choice is not None:
        lab.fragment_unless_measuring(partial(explore, choice))
    lab.details(
        "How layers are read and summed: papers and source",
        partial(
            lab.sources,
            "The states after a layer stand in for the last layer’s, so that whatever the family does after it is "
            "done to them: [nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/"
            "interpreting-gpt-the-logit-lens). Attribution: [Elhage et al. 2021](https://transformer-circuits.pub/"
            "2021/framework/index.html); [Wang et al. 2023](https://arxiv.org/abs/2211.00593), section 3. In "
            "models that normalize after each addition, such as the original Transformer, a part passes every "
            "later norm with its scale held.",
            study.read_part,
            study._readout,
            study.attribute_passes,
            study._stream_parts,
            study._scaled_copy,
        ),
        "lens:how",
    )


def explore(choice: lab.ModelChoice) -> None:
    with lab.input_errors():
        view = Controls.draw("view", into=lab.HERE).view
        probe = ask(choice, view)
        with lab.picture("lens"):
            {"when": when, "who": who}[view](probe)
        lab.caption(
            draw.conditions(
                probe.reading.trace.source,
                probe.line.count,
                probe.reading.target is not None,
                view == "who",
                probe.baseline.answer.kind == "mask",
            )
        )
    lab.try_this(
        "lens",
        (
            lab.Move(
                "A passage without a repeat",
                Controls.state(view="when")
                | lab.model_state(
                    "induction", "the old king walked to the dark river . the young dog"
                ),
                "Nothing can be copied here, so no layer is sure: compare the entropy of the last layer with that of a "
                "passage that repeats.",
            ),
            lab.Move(
                "A translation",
                Controls.state(view="when")
                | lab.model_state("numbers", "nine thousand three hundred and twelve"),
                "The layers are those of the decoder. Press a cell of another column to see where another word is decided.",
            ),
            lab.Move(
                "Who copies?",
                Controls.state(view="who")
                | lab.model_state(
                    "induction",
                    "the old king walked to the dark river . the old king walked to the dark",
                ),
                "The heads of the last layer write the word that they attend to: press one in the picture to see what it "
                "takes from.",
            ),
        ),
    )


def ask(choice: lab.ModelChoice, view: str) -> Probe:
    """Draw the fields of the question; PretrainedError where this model cannot answer."""
    ref, masked, contrast = choice.ref, None, None
    with st.container(horizontal=True, vertical_alignment="top", key="lens:question"):
        if choice.model.head == "masked":
            word = Controls.draw("word", into=lab.HERE, choice=choice).word
            choice = replace(choice, inputs=choice.masked(word))
            masked = mask_position(
                choice.model, lab.baseline_of(ref, Question(choice.inputs)).batch["input_ids"]
            )
        controls = Controls.draw("position", into=lab.HERE, reading=choice.reading, masked=masked)
        question = Question(choice.inputs, controls.position)
        baseline = lab.baseline_of(ref, question)
        controls = controls.draw_more("output", into=lab.HERE, ref=ref, baseline=baseline)
        question = replace(question, output=controls.output)
        baseline = lab.baseline_of(ref, question)
        if view == "who":
            contrast = controls.draw_more("contrast", into=lab.HERE, baseline=baseline).contrast
    return Probe(choice, question, baseline, contrast)


# The view When it decides: the lens at every position, and tokens along the layers at one.


GRID = "lens:grid"
# A long text scrolls in its own box, whose cells keep the width that a token needs: from the end that is picked.
STYLE = """<style>
.st-key-lens-cells {{ overflow-x: auto; direction: {direction} }}
.st-key-lens-cells > div {{ min-width: {width}px; direction: ltr }}
</style>"""


def read_lens(probe: Probe) -> study.LogitLens | None:
    """The lens, read part by part with progress; None where that was stopped."""
    start = study.window_start(probe.position, len(probe.line))
    # the states are those of any position
    key = probe.ref, Question(probe.question.inputs, 0)
    with st.spinner("Running the model"):
        first = lab.baseline_of(*key)
        stream = lab.answer_study(study.read_stream, *key, start, start + study.WINDOW)
    parts = range(study.count_parts(first, stream))
    read = partial(study.read_part, first, stream)
    values = lab.measure_with_progress(LENS_PARTS, (*key, start), parts, read, "parts", lab.UNASKED)
    if len(values) < len(parts):
        return None
    lens = study.join_parts(probe.baseline.pretrained, stream, [*values.values()])
    window = (start, start + study.WINDOW) if len(probe.line) > study.WINDOW else ()
    return lab.recorded(study.read_lens, (probe.baseline, *window), lens)


def when(probe: Probe) -> None:
    lens, baseline = read_lens(probe), probe.baseline
    if lens is None:
        return
    view = st.container()
    with st.popover("More", help="Further tokens, and the layer whose attention is shown"):
        # Further tokens, of which those that lead in some layer are offered
        leaders = tuple(study.leaders(baseline, lens))
        controls = Controls.draw(
            "tokens",
            into=lab.HERE,
            choice=probe.choice,
            names=lens.names[1:],
            offered=lab.output_names(probe.ref, baseline.question, leaders),
        )
        further = typed_tokens(controls, baseline)
        controls = controls.draw_more("layer", into=lab.HERE)
    tokens = study.followed(baseline, lens, further)
    along = lab.computed(study.follow_tokens, baseline, lens, probe.position, tokens)
    decision = study.Decision(lens, tokens, along)
    ids = tuple(dict.fromkeys([*tokens, *lens.top.flatten().tolist()]))
    words = lab.study_of(token_names, probe.ref, ids)
    names = lab.distinct([words[token] for token in tokens])
    lab.as_python(
        lens=lens,
        along=along,
        likeliest=lab.computed(study.first_likeliest, along),
        draw={GRID: GRID_CODE, "lens:probability": CURVES_CODE.format(names=names)},
    )
    state = controls.layer
    if state == DECISIVE:
        state = lens.names[max(1, decision.decisive)]
    with view:
        layers_grid(probe, controls, decision, words, state)
        lab.fact(draw.decided_fact(decision, words, probe.position, probe.token))
    curves(probe, decision, names, state)
    lab.details(
        "The layers at this position, as a table",
        lambda: lab.table(
            ["after", "likeliest", "its probability", "the answer’s", "rank", "entropy, bits"],
            draw.layer_rows(decision, words, probe.position - lens.start),
            caption="The lens at the picked position",
            left=2,
            markers=False,
        ),
        "lens:rows",
    )
    attention(probe, state)
    st.latex(
        r"\mathrm{lens}(x_\ell) = \mathrm{softmax}\big(W_U\, \mathrm{norm}(x_\ell)\big)",
        width="content",
    )


def typed_tokens(controls: Controls, baseline: Baseline) -> list[int]:
    """The further tokens; of a text that is no token, a sentence below the field."""
    tokens = list[int]()
    for text in controls.tokens:
        try:
            known = controls.offered.get(text)
            tokens.append(
                output_id(baseline.pretrained, baseline.answer, text) if known is None else known
            )
        except PretrainedError as error:
            lab.field_error(error)
    return tokens


GRID_CODE = """
import altair as alt
import pandas as pd

from core.pretrained.generate import token_names

likeliest_tokens = lens.top[:, :, 0]  # (N, T) token ids
words = token_names(model, likeliest_tokens.flatten().tolist())
cells = [{"state": state, "position": lens.start + at, "token": words[one], "probability": float(probability)}
         for state, row in enumerate(zip(likeliest_tokens.tolist(), lens.probabilities[:, :, 0]))
         for at, (one, probability) in enumerate(zip(*row))]
base = alt.Chart(pd.DataFrame(cells)).encode(x="position:O", y=alt.Y("state:O", sort="descending"))
base.mark_rect().encode(color="probability:Q") + base.mark_text(size=9).encode(text="token:N")
"""
CURVES_CODE = """
import altair as alt
import pandas as pd

curves = pd.DataFrame(along.probabilities.numpy(), columns={names!r}).rename_axis("state").reset_index()
alt.Chart(curves.melt("state", var_name="token", value_name="probability")).mark_line().encode(
    x="state:Q", y="probability:Q", color="token:N")
"""


def layers_grid(
    probe: Probe, controls: Controls, decision: study.Decision, words: dict[int, str], state: str
) -> None:
    lens, start, length = decision.lens, decision.lens.start, decision.lens.top.shape[1]
    tokens, position = probe.line.tokens[start : start + length], probe.position - start
    lab.chart_title(
        "The likeliest token after each layer, in the colour of its probability",
        legend=draw.colour_legend(lab.theme()),
    )
    if length < len(probe.line):
        lab.caption(
            f"Tokens {start} to {start + length - 1} of {len(probe.line)}, around the position that answers."
        )
    late = position >= length / 2

    def pick() -> None:
        if point := lab.pressed_point(GRID):
            Controls.set(position=int(point["index"]), reading=probe.reading)
            if point["state"] != study.EMBEDDING:
                Controls.set(layer=point["state"], choice=probe.choice)

    width = draw.WIDE * len(tokens) + 80
    st.html(STYLE.format(width=width, direction="rtl" if late else "ltr"))
    cells = draw.grid_cells(decision, words, tokens)
    with st.container(key="lens:cells"):
        lab.draw_chart(
            st,
            draw.token_grid(cells, lens.names, tokens, (state, position), lab.theme(), late),
            key=GRID,
            on_select=pick,
            selection_mode=[lab.PICKED],
            alt="The likeliest token after each layer, at each position",
        )


def curves(probe: Probe, decision: study.Decision, names: list[str], state: str) -> None:
    along, at = decision.trajectories, probe.position - decision.lens.start
    shares, ranks = (
        dict(zip(names, values.T.tolist(), strict=True))
        for values in (along.probabilities, along.ranks)
    )
    entropy = {"entropy": decision.lens.entropy[:, at].tolist()}
    charts: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        (
            "probability",
            "Probability",
            "Probability of the answers",
            {"curves": shares, "high": 1.0, "column": "probability"},
        ),
        (
            "rank",
            "Rank, 1 is the likeliest",
            "Rank of the answers",
            {"curves": ranks, "rank": True, "column": "rank"},
        ),
        (
            "entropy",
            "Entropy of all tokens, bits",
            "Entropy of all tokens, in bits,",
            {"curves": entropy, "column": "entropy, bits"},
        ),
    )
    legend = draw.curves_legend(names, lab.theme())
    for column, (key, heading, alt, how) in zip(st.columns(3, gap="medium"), charts, strict=True):
        lab.draw_chart(
            column,
            draw.along_layers(**how, states=decision.lens.names, theme=lab.theme(), picked=state),
            key=f"lens:{key}",
            alt=f"{alt} after each layer",
            heading=heading,
            legend=legend if key == "probability" else "",
        )


# Where the heads of a layer look from the position that answers.


def attention(probe: Probe, state: str, only: tuple[str, int] | None = None) -> None:
    position = probe.position
    rows = [
        (item.weights[head, position], item, head)
        for item in study.answering_maps(probe.reading)
        for head in range(len(item.weights))
        if item.layer_name == state and only in (None, (item.kind, head))
    ]
    if not rows:
        lab.caption(f"{lab.plain(state)} has no attention.")
        return
    rows.sort(key=lambda row: -float(np.abs(row[0]).max()))
    weights, item, head = rows[0]
    name = (
        state
        if only is None
        else f"{study.answering_layers(probe.reading)[item.kind, item.layer]}·H{head}"
    )
    lab.paragraph(f"**What {lab.plain(name)} takes from, at “{lab.plain(probe.token)}”**")
    several = len({item.kind for _, item, _ in rows}) > 1
    lab.table(
        ["head", *["attention"] * several, "takes most from", "weight"],
        [
            [
                f"{item.layer_name}·H{head}",
                *[lab.KINDS[item.kind].lower()] * several,
                f"{item.keys[at]} ({at})",
                lab.number(float(weights[at])),
            ]
            for weights, item, head in rows
            for at in [int(np.abs(weights).argmax())]
        ],
        caption=f"The heads of {state}",
        left=2 + several,
        markers=False,
    )
    lab.weight_link(
        probe.choice, item.kind, (item.layer, head), (position, int(np.abs(weights).argmax()))
    )


# The view Who wrote it: the answer's logit as a sum of what each part wrote.


def attribute(probe: Probe) -> study.Attribution | None:
    """The parts of the logit, pass by pass with progress; None where that was stopped."""
    baseline, run = probe.baseline, list[study.Attribution | None]()
    passes = study.attribute_passes(baseline, baseline.id, probe.contrast)

    def one(index: int) -> study.Attribution | None:
        run.extend(islice(passes, index + 1 - len(run)))
        return run[index]

    results = lab.measure_with_progress(
        ATTRIBUTED,
        (probe.ref, probe.question, probe.contrast),
        range(study.PASSES),
        one,
        "passes",
        lab.UNASKED,
    )
    if (attribution := results.get(study.PASSES - 1)) is None:
        return None
    return lab.recorded(study.attribute_logit, (baseline, baseline.id, probe.contrast), attribution)


def who(probe: Probe) -> None:
    if (attribution := attribute(probe)) is None:
        return
    reading, baseline = probe.reading, probe.baseline
    parts = lab.computed(study.named_parts, reading, attribution)
    lab.as_python(attribution=attribution, parts=parts, draw={"lens:parts": HEADS_CODE})
    layers = study.answering_layers(reading)
    ids = [token for token in (baseline.id, probe.contrast) if token is not None]
    answer, *other = lab.study_of(token_names, probe.ref, tuple(ids)).values()
    lab.fact(draw.wrote_fact(attribution, parts, answer, next(iter(other), None), probe.token))
    rows = list(layers)
    values = {
        (rows.index(part.key), part.head): part.value
        for part in attribution.parts
        if part.role == "head" and part.key is not None and part.head is not None
    }
    picked = None
    if values:
        picked = Controls.head.shown(
            probe.ref,
            probe.ref,
            {(row, head): (rows[row][0], (rows[row][1], head)) for row, head in values},
            max(values, key=lambda head: abs(values[head])),
        )
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        if rows:  # a model may have no attention
            inner = any(part.role == "feed-forward" for _, part in parts)
            more = ", and the feed-forward network (FF) of a layer" if inner else ""
            lab.paragraph(f"**What each head adds{more}**")
            Controls.head.draw(
                {f"{layers[rows[row]]}·H{head}": (row, head) for row, head in values},
                picked,
                f"lens:head:{probe.ref.name}",
            )
            names = list(layers.values())
            cells, columns = draw.part_cells(layers, attribution)
            lab.effect_chart(
                "lens:parts",
                "What each head and feed-forward layer adds to the logit",
                lambda layer, head: lab.write_pair("head", (names.index(layer), head)),
                cells,
                names,
                columns,
                ("", "") if picked is None else (names[picked[0]], str(picked[1])),
                title="added to the logit",
                tips=(("name", "part"), ("by", "adds")),
            )
        lab.caption(draw.share_of_heads(parts))
    lab.draw_chart(
        right,
        draw.part_bars(study.grouped(reading, attribution), lab.theme()),
        key="lens:bars",
        alt="What each kind of part adds to the logit",
        heading="The sum, in the order of the model",
    )
    listed = [[name, lab.signed(part.value)] for name, part in parts]
    lab.details(
        f"All {len(listed)} parts, the largest first",
        partial(lab.table, ["part", "adds"], listed, caption="Parts of the logit", markers=False),
        "lens:ranked",
    )
    if picked is not None:
        kind, layer = rows[picked[0]]
        attention(probe, reading.trace.of(kind).map(layer).layer_name, (kind, picked[1]))
    st.latex(draw.sum_latex(attribution), width="content")


HEADS_CODE = """
import altair as alt
import pandas as pd

heads = pd.DataFrame([{"layer": str(part.key), "head": part.head, "adds": part.value}
                      for _, part in parts if part.role == "head"])
alt.Chart(heads).mark_rect().encode(x="head:O", y="layer:N", color="adds:Q")
"""
