"""The Transformer: a model as a diagram that opens layer by layer, and what norms do to gradients with depth."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError, heads_that_divide
from core.attention.positions import POSITIONS
from core.interpret.trace import AttentionTrace
from core.models import STACKED, DecoderLayer, EncoderLayer, ModelConfig, Residual
from core.models.model_summary import Part, with_layers
from core.pretrained import WRITER
from core.pretrained.model_inputs import text_of
from core.runs.runs import find_run, list_runs
from core.studies import transformer as study
from core.tasks import TASKS, TaskConfig, make_task, task_entry
from core.training.sweeps import SAME
from dashboard.draw import transformer as draw

# The page's controls: a run's model with its trained weights, or a model with random weights from a seed.


EXAMPLE = "example"
# with which the page has opened
STARTS = {"writer": WRITER, "trained": EXAMPLE, "random": study.SEEDED}
LABELS = {
    WRITER: "Trained: the writer of stories",
    EXAMPLE: "Trained: the example run",
    study.SEEDED: "Random, from a seed",
}
NORMS = {("post", True): "after", ("pre", True): "before", ("pre", False): "no Add"}
BLOCKS_OF = (
    "norm",
    "normalization",
    "activation",
    "position",
    "d_model",
    "heads",
    "pattern",
    "seed",
)


heads_of = partial(heads_that_divide, max_heads=8)


class Controls(lab.Fields, page="transformer"):
    head, cell = lab.CellField(), lab.CellField()  # a layer and its head; a cell of its map
    pick = lab.SessionValue("")  # the path of the part that is picked
    offered: Mapping[str, str]  # the models that can be chosen, with their names
    first: str  # the one with which the page opens
    run = lab.Select[str](
        "Weights",
        lambda c: c.offered,
        lambda c: c.first,
        key="weights",
        link="run",
        hidden=True,
        help="Trained weights, of the lab's writer or of a run, or random weights from a seed.",
    )

    text = lab.Text(
        "Your sentence",
        text_of(WRITER),
        help="What the model reads; it says which token comes next. It knows the words of short stories.",
    )
    task = lab.Select(
        "Task",
        {
            entry.key: entry.name
            for entry in TASKS
            if not any(param.key == "data" for param in entry.params)
        },
        help="The data whose example goes through the model.",
    )
    kind = lab.Select[str](
        "Model",
        lambda c: {
            kind: {
                "transformer": "Encoder–decoder",
                "decoder": "Decoder only",
                "classifier": "Classifier",
                "one_token": "Classifier, row as one token",
                "forecaster": "Forecaster",
            }[kind]
            for kind in make_task(TaskConfig.of(c.task)).recommended
            if kind in STACKED
        },
        help="Encoder and decoder, only a decoder, or an encoder that classifies.",
    )
    layers = lab.Number("Layers", 3, 1, 12, slider=True, help="How many layers are stacked.")
    norm = lab.Select(
        "Norm position",
        {"post": "After (2017)", "pre": "Before (2020)"},
        help="Whether a norm comes after the sum or before the sublayer.",
    )
    normalization = lab.Select(
        "Norm",
        {"layer": "LayerNorm", "rms": "RMSNorm"},
        help="RMSNorm scales a vector without shifting its mean.",
    )
    activation = lab.Select(
        "Activation",
        {"relu": "ReLU", "gelu": "GELU", "swiglu": "SwiGLU"},
        help="The function between the two layers of feed-forward.",
    )
    position = lab.Select(
        "Position",
        {entry.key: entry.name for entry in POSITIONS},
        "sinusoidal",
        help="How the model learns the order of tokens.",
    )
    d_model = lab.SelectSlider(
        "d_model",
        (16, 32, 64, 128),
        32,
        help="The count of numbers in the vector of each token.",
        also=lab.keep_heads("transformer:d_model", lambda _: "transformer:heads", heads_of),
    )
    heads = lab.Select[int](
        "Heads",
        lambda c: heads_of(c.d_model),
        2,
        help="Attentions side by side; their number divides d_model.",
    )
    pattern = lab.Select[str](
        "Layer pattern",
        lambda c: [SAME, *lab.published(c.kind, c.d_model, c.heads)],
        text=lab.pattern_label,
        help="The attentions of a published model's layers, which repeat; they bring positions "
        "of their own.",
    )
    seed = lab.Number("Seed", 0, 0, 999_999, help="Another seed gives other random weights.")
    depth = lab.Number(
        "Depth of the models, in layers",
        12,
        2,
        12,
        slider=True,
        help="How many layers each of the models has.",
    )


def weights_on_offer() -> dict[str, str]:
    """The writer, the example run, the seed, and every run with a stacked model, the newest first, with their names."""
    stacked = {**LABELS}
    for run in reversed(list_runs(latest=50)):
        with suppress(ConfigError, KeyError, TypeError, ValueError):
            if run.checkpoint_steps() and run.config().model.kind in STACKED:
                stacked[run.id] = f"Trained: {run.name}"
    return stacked


def trained_subject(row: lab.Grid, source: str) -> study.Subject:
    if source == WRITER:
        with row.cell(column_span=3):
            text = Controls.draw("text", into=lab.HERE).text.strip()
            lab.note_unknown_words(text)
            return lab.shared(study.writer_controls, text)
    run = lab.EXAMPLE_RUN if source == EXAMPLE else find_run(source)
    if run is None or not run.checkpoint_steps():
        raise ConfigError("This run is no longer here. Choose another one, or random weights.")
    subject = lab.computed(study.run_controls, run, source)
    task = task_entry(subject.task.key)
    with row.cell(column_span=3):
        lab.caption(
            f"{task.name}: {task.meaning} {task.look} To build your own, pick random weights under “Another model”."
        )
    return subject


def seeded_subject(row: lab.Grid) -> study.Subject:
    controls = Controls.draw("task", "kind", "layers", into=row)
    with (
        row,
        st.popover(
            "Blocks",
            icon=":material/tune:",
            key="transformer:blocks",
            width="stretch",
            help="Norm, activation, position, sizes and seed",
        ),
    ):
        controls = controls.draw_more(*BLOCKS_OF, into=lab.HERE)
    lab.note_heads("transformer:d_model", controls.d_model, controls.heads)
    model = ModelConfig.transformer(
        kind=controls.kind,
        layers=controls.layers,
        num_heads=controls.heads,
        **{name: controls[name] for name in BLOCKS_OF[:5]},
    )
    if controls.pattern != SAME:
        first, *following = lab.published(controls.kind, controls.d_model, controls.heads)[
            controls.pattern
        ]
        model = replace(model, attention=first, following=tuple(following))
    return study.Subject(model, TaskConfig.of(controls.task), seed=controls.seed)


# The page: controls, the diagram, attention layer by layer, norms against depth, and the sources.


FRESH = Controls.state(run=study.SEEDED, pattern=SAME)
TRANSLATOR = {**FRESH, **Controls.state(task="reverse", kind="transformer")}
DECODER = {**FRESH, **Controls.state(task="reverse", kind="decoder")}
NORMS_PANEL = "transformer:norms"  # the panel that compares both norms
MOVES = (
    lab.Move(
        "Encoder and decoder",
        Controls.state(run=EXAMPLE),
        "The Transformer of 2017: an encoder reads the input, and a decoder that writes the output takes from it by "
        "cross-attention. This one has learned to reverse its input.",
    ),
    lab.Move(
        "Decoder only",
        Controls.state(run=WRITER),
        "One stack: it reads one text and continues it, so there is no cross-attention. GPT is built like this. Here it "
        "is the trained writer of stories.",
    ),
    lab.Move(
        "Classifier of images",
        {**FRESH, **Controls.state(task="digits", kind="classifier")},
        "The model is only an encoder. Patches of an image take the place of words. The Vision Transformer is built "
        "like this.",
    ),
    lab.Move(
        "Norm before",
        {**TRANSLATOR, **Controls.state(norm="pre"), NORMS_PANEL: True},
        "The norm moves into each sublayer, so no norm is on the path from the input to the output. The last "
        "panel compares both in deep models: a first layer whose gradient is near 0 hardly learns.",
    ),
    lab.Move(
        "Twelve layers",
        {**TRANSLATOR, **Controls.state(layers=12)},
        "All layers have the same shape, so attention’s share of the parameters hardly changes.",
    ),
    lab.Move(
        "Layers of Gemma 3",
        {**DECODER, **Controls.state(pattern="gemma3", layers=6)},
        "Five layers take from a short window and one from the whole text: a coloured bar marks the kind. Open layers 0 "
        "and 5 and compare their maps. A long text then takes little memory in five layers of six.",
    ),
)

BLOCKS, DIAGRAM = "transformer:stacks", "transformer:diagram"
DEPTH = "transformer:depth"


def page() -> None:
    explore()
    lab.details(
        "Papers and the code that just ran",
        partial(
            lab.sources,
            "**Attention is all you need**, encoder–decoder, norm after the residual sum: "
            "[Vaswani et al. 2017](https://arxiv.org/abs/1706.03762). **Norm before**, and why: "
            "[Xiong et al. 2020](https://arxiv.org/abs/2002.04745). **RMSNorm**: "
            "[Zhang & Sennrich 2019](https://arxiv.org/abs/1910.07467). **SwiGLU**: "
            "[Shazeer 2020](https://arxiv.org/abs/2002.05202).",
            Residual,
            EncoderLayer,
            DecoderLayer,
        ),
        "transformer:source",
    )


@lab.fragment
def explore() -> None:
    lab.export.begin_before_title()
    lab.title(
        "The Transformer",
        "**Next step** follows one example up the model.",
        first=False,
    )
    with st.container(width=lab.room(2200)):
        model_view()


@lab.shown_errors(ValueError)
def model_view() -> None:
    row = st.grid(3, min_column_width=200, vertical_alignment="bottom")
    sentence, drawing, notice = st.container(), lab.picture("transformer"), st.container()
    controls = subject_of(row)
    with drawing:
        result = show_model(controls)
    with sentence:
        lab.fact(
            f"{seeded_text(controls)}{draw.of_model(result.tree)}"
            if result.stream is None
            else draw.of_answer(result.stream, controls.text, result.tokens["causal"])
        )
    lab.predict("transformer", question(result.mixes))
    lab.try_this("transformer", MOVES, notice)
    path = attention_path(result)
    kind, layer = lab.kind_and_layer(path)
    trace: AttentionTrace = result.trace.of(kind)
    usual, item = (layer, 0), trace.map(0)
    cell: tuple[int, int] | None = None
    if result.stream and layer == result.stream.layer:
        usual, cell = (layer, result.stream.head), (len(item.queries) - 1, result.stream.key)
    layer, head = Controls.head.pinned(trace.shape, path) or usual
    weights = {study.SEEDED: "drawn from a seed", WRITER: "of the lab's writer"}.get(
        controls.run, f"trained for {controls.step:,} steps"
    )
    name = {"self": "Self-attention", "causal": "Causal self-attention", "cross": "Cross-attention"}
    lab.paragraph(f"**{name[kind]}, every layer and head**")
    columns = st.columns([1, 2], gap="large")
    with columns[0]:
        state = lab.attention_view(
            trace,
            key=f"transformer:grid:{kind}",
            layer=layer,
            head=head,
            layout="grid",
            link=f"transformer:{kind}",
            caption=f"Weights {weights}.",
        )
    with columns[1]:
        state = lab.attention_view(
            trace,
            key=f"transformer:map:{kind}",
            layer=state.layer,
            head=state.head,
            link=f"transformer:{kind}",
            pin=Controls.cell.pinned(item.weights.shape[1:], (path, item.queries, item.keys))
            or (cell if (state.layer, state.head) == usual else None),
            show="matrix",
            height=360,
            title=f"Layer {state.layer}, head {state.head}",
        )
    lab.as_python(measured=result, also=[draw.maps_cell(result, kind, state.layer, state.head)])
    if kind == "cross":
        lab.caption(
            f"A row is named after the token that the model predicts there. The decoder reads the token before it: its "
            f"input is the output shifted by one, with {lab.plain('<bos>')} in front, so row 0 reads "
            f"{lab.plain('<bos>')} and "
            f"predicts {lab.plain(item.queries[0])}."
        )
    if result.stream:
        query, key = state.pin or cell or (len(item.queries) - 1, 0)
        weight = {"head": f"{state.layer}.{state.head}", "cell": f"{query}.{key}"}
        for page, asks, more in (
            ("evidence", "what does it need?", {}),
            ("why_key", "what wrote this score?", weight),
        ):
            step = lab.step_of(page)
            st.page_link(
                step.page(),
                label=f"{step.title}: {asks}",
                icon=step.icon,
                query_params={"inside:model": WRITER, "inside:text": controls.text} | more,
            )
    picked = state.layer, state.head
    Controls.head.pin(None if picked == usual else picked)
    Controls.cell.pin(None if state.pin == cell else state.pin)
    lab.details(
        "Every part and its numbers", partial(numbers_view, result, path), "transformer:numbers"
    )
    lab.details(
        "The norm before or after each sublayer, or no Add",
        partial(depth_view, controls),
        NORMS_PANEL,
        opened=DEPTH in st.query_params,
    )


def subject_of(row: lab.Grid) -> study.Subject:
    """Draw the controls, the model's own in a row; ConfigError where they are of no model."""
    first = STARTS[lab.read_start("transformer", *STARTS)]
    offered = weights_on_offer()
    if lab.is_new("run") and st.query_params["run"] not in offered:
        st.warning(
            "The run in the link is not on this machine, or its model has no layers. Below is another model."
        )
    panel = lab.settings_panel("Another model", "transformer:model")
    source = Controls.draw("run", into=panel, first=first, offered=offered).run
    try:
        return seeded_subject(row) if source == study.SEEDED else trained_subject(row, source)
    finally:
        lab.write_start("transformer")


def seeded_text(controls: study.Subject) -> str:
    return f"The weights are random (seed {controls.seed}). " if controls.seeded else ""


def show_model(controls: study.Subject) -> study.Measurements:
    new = outline(controls) if lab.reruns_alone() else None
    if new is not None:
        blocks_view(new, None, controls)
    result = lab.shared(study.measurements, controls)
    if new is not None:
        st.rerun(scope="fragment")
    blocks_view(result.tree, result, controls)
    return result


def outline(controls: study.Subject) -> Part | None:
    """The parts of a model that is not measured yet, from a model with each unlike layer once; None where it is."""
    config = controls.config
    period = len(config.pattern)
    if (
        not controls.seeded
        or config.layers <= period
        or lab.remembered(study.measurements, controls)
    ):
        return None
    return with_layers(
        lab.shared(
            study.measurements, replace(controls, config=replace(config, layers=period))
        ).tree,
        config.layers,
        config.layer_names,
    )


def blocks_view(tree: Part, result: study.Measurements | None, controls: study.Subject) -> None:
    path, pre_norm = attention_path(result or tree), controls.config.norm == "pre"
    lab.block_diagram(
        lab.stacks_of(tree),
        draw.blocks(tree, result, pre_norm),
        key=BLOCKS,
        pre_norm=pre_norm,
        chosen=path if Controls.pick.value == path else "",
        on_pick=partial(store_pick, BLOCKS),
        label=draw.of_model(tree),
        steps=draw.main_steps(
            tree, pre_norm, result.stream.layer if result and result.stream else 0
        ),
        pending=result is None,
    )


def numbers_view(result: study.Measurements, path: str) -> None:
    whole = result.tree
    if result.stream:
        lab.fact(draw.of_model(whole))
    over = "this text" if result.stream else f"{study.BATCH} held-out examples"
    lab.caption(
        f"Measured on one forward and backward pass over {over}; loss {lab.number(result.loss)}. "
        "FLOPs are those of the matrix products of the forward pass. “For backward” is what the backward pass "
        f"needs of this batch, {lab.byte_size(whole.bytes)} in all. The weights take {lab.byte_size(4 * whole.parameters)} "
        f"in fp32; training with AdamW takes {lab.byte_size(16 * whole.parameters)} with gradients and two moments. "
        "A bar is the part's share of the model."
    )
    lab.diagram(
        result.tree,
        key=DIAGRAM,
        chosen=path,
        on_pick=partial(store_pick, DIAGRAM),
        fact=draw.of_model(result.tree),
    )
    # Draw gradient and output of each layer of this model
    stacks: dict[str, list[Any]] = {
        name: [
            (part.gradient, part.std)
            for part in result.tree.layers()
            if part.path.startswith("encoder") == (name == "encoder")
        ]
        for name in ("encoder", "decoder")
    }
    if max(map(len, stacks.values())) > 1:
        two_charts(
            {
                name: ([row[0] for row in each], [row[1] for row in each])
                for name, each in stacks.items()
                if each
            },
            "along",
        )


def store_pick(key: str) -> None:
    pick = lab.sent(key, "pick") or {}
    Controls.pick.value = str(pick.get("path", ""))


def attention_path(of: study.Measurements | Part) -> str:
    """The attention whose maps are drawn: the picked one, where this model has it.

    Else it is that of the layer from which the answer leads, or the first cross-attention.
    """
    tree, stream = (of, None) if isinstance(of, Part) else (of.tree, of.stream)
    paths = [part.path for part in tree.walk() if lab.is_attention(part.path)]
    default = next((path for path in paths if path.endswith("cross")), paths[0])
    default = f"layers.{stream.layer}.causal" if stream else default
    pick = Controls.pick
    lab.take_link(pick.key, lab.one_of(paths))
    path = pick.value if pick.value in paths else default
    lab.write_link(pick.key, None if path == default else path)
    return path


def depth_view(controls: study.Subject) -> None:
    layers = Controls.draw("depth", into=lab.HERE).depth
    row = st.columns(3, gap="large")
    row[0].latex(r"\text{after: } x \leftarrow \mathrm{norm}(x + f(x))")
    row[1].latex(r"\text{before: } x \leftarrow x + f(\mathrm{norm}(x))")
    row[2].latex(r"\text{no Add: } x \leftarrow f(\mathrm{norm}(x))")
    after, before, bare = depths = [
        lab.cached(study.by_depth, controls.config, controls.task, layers, norm, add)
        for norm, add in NORMS
    ]
    names = NORMS.values()
    two_charts({n: (one.mean, one.output) for n, one in zip(names, depths, strict=True)}, "depth")
    lab.fact(
        f"With {layers} layers and the norm after the sum, the gradient of the first layer is "
        f"**{lab.number(after.ratio)} ×** that of the last layer. With the norm before the sublayer, it is "
        f"**{lab.number(before.ratio)} ×**. Without the residual sum, it is **{lab.number(bare.ratio)} ×**."
    )
    lab.caption(
        f"Untrained models of this shape, mean of {study.SEEDS} seeds, the same {study.BATCH} examples. First layer: "
        f"{lab.number(after.mean[0])} ± {lab.number(after.std[0])} after, {lab.number(before.mean[0])} ± "
        f"{lab.number(before.std[0])} before, {lab.number(bare.mean[0])} ± {lab.number(bare.std[0])} without the sum. "
        "Without the sum a decoder alone has more of its gradient left than one with an encoder and cross-attention."
    )


def two_charts(series: dict[str, tuple[Sequence[float], Sequence[float]]], key: str) -> None:
    headings = "Gradient norm of each layer's weights", "Std of each layer's output"
    ink, last = lab.Ink.of(lab.theme()), max(len(pair[0]) for pair in series.values()) - 1
    for i, (column, heading) in enumerate(zip(st.columns(2, gap="large"), headings, strict=True)):
        curves = [lab.Curve(name, list(enumerate(pair[i]))) for name, pair in series.items()]
        column.markdown(
            f"{lab.glossary.explain_markdown(f'**{heading}**')} {lab.legend(curves, ink)}",
            unsafe_allow_html=True,
        )
        lab.draw_chart(
            column,
            lab.step_chart(curves, ink=ink, last_x=last, unit="layer", height=180),
            key=f"transformer:{key}:{i}",
            alt=f"{heading}, one line each",
        )


# What a reader predicts and tries on The Transformer.


def question(mixes: bool) -> lab.Question:
    """What an output depends on without attention; `mixes` says whether feed-forward mixes tokens, as measured."""
    why = (
        "One token’s vector was changed. After attention the other tokens’ vectors differ; after feed-forward they are "
        "equal to the last digit. Norm and Add process each token alone, too: only attention moves information between "
        "tokens."
    )
    return lab.Question(
        "Take all attention blocks away. On which tokens could the output at one position still depend?",
        ("All tokens", "The tokens before it", "Only the token at its own position"),
        0 if mixes else 2,
        (why,) * 3,
    )
