"""The Transformer: a model as a diagram that opens layer by layer, and what norms do to gradients with depth."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import ConfigError, heads_that_divide
from core.attention.positions import POSITIONS
from core.interpret.trace import AttentionTrace, Kind, head_name
from core.models import STACKED, DecoderLayer, EncoderLayer, ModelConfig, Residual
from core.models.model_summary import Part, with_layers
from core.pretrained import WRITER
from core.pretrained.model_inputs import text_of
from core.runs.runs import Run, find_run, list_runs
from core.studies.transformer import (
    BATCH,
    SEEDED,
    SEEDS,
    Depth,
    Measurements,
    Stream,
    Subject,
    by_depth,
    measurements,
    writer_controls,
)
from core.tasks import TASKS, TaskConfig, make_task, task_entry
from core.training.sweeps import SAME

# The page's controls: a run's model with its trained weights, or a model with random weights from a seed.


EXAMPLE, WEIGHTS = "example", "transformer:weights"
STARTS = {"writer": WRITER, "trained": EXAMPLE, "random": SEEDED}  # with which the page has opened
LABELS = {
    WRITER: "Trained: the writer of stories",
    EXAMPLE: "Trained: the example run",
    SEEDED: "Random, from a seed",
}
NORMS = {"post": "after", "pre": "before"}
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
        lambda values: {
            kind: {
                "transformer": "Encoder–decoder",
                "decoder": "Decoder only",
                "classifier": "Classifier",
                "one_token": "Classifier, row as one token",
                "forecaster": "Forecaster",
            }[kind]
            for kind in make_task(TaskConfig.of(values.task)).recommended
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
        lambda values: heads_of(values.d_model),
        2,
        help="Attentions side by side; their number divides d_model.",
    )
    pattern = lab.Select[str](
        "Layer pattern",
        lambda values: [SAME, *lab.published(values.kind, values.d_model, values.heads)],
        text=lab.pattern_label,
        help="The attentions of a published model's layers, which repeat; they bring positions "
        "of their own.",
    )
    seed = lab.Number("Seed", 0, 0, 999_999, help="Another seed gives other random weights.")
    depth = lab.Number(
        "Depth of both models, in layers",
        12,
        2,
        12,
        slider=True,
        help="How many layers each of the two models has.",
    )


def run_of(name: str) -> Run | None:
    return lab.EXAMPLE_RUNS[0] if name == EXAMPLE else find_run(name)


def weights_on_offer() -> list[str]:
    """The writer, the example run, the seed, and every run with a stacked model, the newest first."""
    stacked = [*LABELS]
    for run in reversed(list_runs(latest=50)):
        with suppress(ConfigError, KeyError, TypeError, ValueError):
            if run.checkpoint_steps() and run.config().model.kind in STACKED:
                stacked.append(run.id)
    return stacked


def source_label(source: str) -> str:
    run = run_of(source)
    return LABELS.get(source, f"Trained: {run.name if run else source}")


def _trained(row: Any, source: str) -> Subject:
    if source == WRITER:
        with row.cell(column_span=3):
            text = Controls.draw("text", into=lab.HERE).text.strip()
            lab.note_unknown_words(text)
            return lab.shared(writer_controls, text)
    run = run_of(source)
    if run is None or not run.checkpoint_steps():
        raise ConfigError("This run is no longer here. Choose another one, or random weights.")
    config = run.config()
    task = task_entry(config.task.key)
    with row.cell(column_span=3):
        lab.caption(
            f"{task.name}: {task.meaning} {task.look} Random weights, under “Another model”, build another one."
        )
    return Subject(config.model, config.task, source, run.default_step(), folder=run.path)


def _seeded(row: Any) -> Subject:
    values = Controls.draw("task", "kind", "layers", into=row)
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
        values = Controls.draw(*BLOCKS_OF, into=lab.HERE, **values)
    lab.note_heads("transformer:d_model", values.d_model, values.heads)
    model = ModelConfig.transformer(
        kind=values.kind,
        layers=values.layers,
        num_heads=values.heads,
        **{name: values[name] for name in BLOCKS_OF[:5]},
    )
    if values.pattern != SAME:
        first, *following = lab.published(values.kind, values.d_model, values.heads)[values.pattern]
        model = replace(model, attention=first, following=tuple(following))
    return Subject(model, TaskConfig.of(values.task), seed=values.seed)


# What the page computes as Python.


def script(
    controls: Subject, result: Measurements, kind: Kind, layer: int, head: int
) -> lab.Script:
    if controls.run == WRITER:
        model = f"""
from core.studies.transformer import writer_controls

controls = writer_controls({controls.text!r})
"""
    elif controls.folder is None:
        made = lab.source_of(controls)
        imports = (
            lab.attention_import(made) if "AttentionConfig" in made or "Choice" in made else ""
        )
        model = f"""
{imports}
from core.models import ModelConfig
from core.studies.transformer import Subject
from core.tasks import TaskConfig

controls = {made}
"""
    else:
        model = f"""
from core.runs.runs import open_run
from core.studies.transformer import Subject

run = open_run({lab.path_code(controls.folder)})  # core.training.train(run.config()) trains it again
config = run.config()
controls = Subject(config.model, config.task, step={controls.step}, folder=run.path)
"""
    return lab.Script(
        (
            lab.Cell(
                "A model with random weights from a seed."
                if controls.seeded
                else "A trained model from a checkpoint of its run.",
                model,
            ),
            lab.Cell(
                "Parameters, FLOPs and the loss, measured on one forward and backward pass over held-out examples.",
                """
from core.studies.transformer import measurements

measured = measurements(controls)
tree = measured.tree
print(tree.parameters, "parameters,", tree.flops, "FLOPs, loss", measured.loss)
for part in tree.children:
    print(part.title, part.parameters)
""",
            ),
            lab.Cell(
                "The attention of every layer and head on the first example, and what the model predicts there.",
                f"""
trace = measured.trace.of({kind!r})
print(measured.predicted)
""",
                f"""
from dashboard.show import show

show(trace, layer={layer}, head={head})
""",
                f"transformer:grid:{kind}",
            ),
        ),
        {
            f"trace.map({index}).weights": item.weights
            for index, item in enumerate(result.trace.of(kind).maps)
        }
        | {
            "tree.parameters": np.array(result.tree.parameters),
            "tree.flops": np.array(result.tree.flops),
            "measured.loss": np.array(result.loss),
            "[share for _, share in measured.predicted]": np.array(
                [share for _, share in result.predicted]
            ),
        },
    )


# Sentences of the page The Transformer.


def of_model(whole: Part) -> str:
    share = {
        name: (
            sum(part.parameters for part in group) / whole.parameters,
            sum(part.flops for part in group) / whole.flops,
        )
        for name, group in (
            (
                "attention",
                [part for part in whole.walk() if part.children and lab.is_attention(part.path)],
            ),
            ("feed-forward", [part for part in whole.walk() if part.path.endswith("feed_forward")]),
        )
    }
    return (
        f"Attention has **{lab.percent(share['attention'][0])}** of the {whole.parameters:,} parameters and takes "
        f"**{lab.percent(share['attention'][1])}** of the FLOPs; the feed-forward networks have "
        f"{lab.percent(share['feed-forward'][0])} and take {lab.percent(share['feed-forward'][1])}."
    )


def of_answer(stream: Stream, text: str) -> str:
    answer = lab.plain(stream.tokens[0])
    comes = (
        f"After “{lab.plain(' '.join(text.split()[-2:]))}” comes **{answer}** (probability "
        f"**{lab.share_text(float(stream.shares[-1, 0]))}**)."
    )
    if not stream.lead:
        return comes
    earlier, _ = stream.leader(stream.lead - 1)
    return (
        f"{comes} With fewer layers the model would say “{lab.plain(earlier)}”; from "
        f"**layer {(stream.lead - 1) // 2}** on it says {answer}."
    )


ABOUT = {
    "source": "Each input token becomes a vector: a list of numbers, looked up in a learned table.",
    "Linear map of the input": "A linear map turns the numbers of each patch of the image, or of each value of the "
    "series, into a vector: a list of numbers.",
    "Column embedding": "Each column of the table becomes a vector, a list of numbers: a number by a linear map, a "
    "category by a learned table.",
    "target": "Each output token becomes a vector: a list of numbers, looked up in a learned table. The model reads "
    "the right output after a start mark and predicts each next token (teacher forcing); in use it reads its own "
    "output.",
    "text": "Each token becomes a vector: a list of numbers, looked up in a learned table.",
    "both": "Each token becomes a vector: a list of numbers, looked up in a learned table. Input, start mark and right "
    "output are one sequence; from the mark on, the model predicts each next token (teacher forcing).",
    "places": "A vector that depends only on the position is added: attention itself ignores the order of tokens.",
    "attention": "Every token attends to every token of the same sequence, so its vector can take in what the "
    "others say. Each head has its own weights.",
    "causal": "Each token attends to itself and to the tokens before it, never to those after it.",
    "cross": "Each output token attends to the whole input and takes in the part that it needs: queries come from the "
    "decoder, keys and values from the encoder.",
    "feed_forward": "Changes each token’s vector on its own, by linear maps with an activation between them.",
    "add": "Adds what {} wrote to what was there: the residual connection.",
    "norm": "Norm (normalization) brings each token’s vector to one scale before {} reads it.",
    "add_norm": "Adds what {} wrote to what was there (the residual connection), then brings each token’s vector to "
    "one scale (the norm).",
    "last_norm": "Brings each token’s vector to one scale before the output layer reads it.",
    "output": "A linear map turns each vector into one logit for each possible answer. Softmax turns logits into "
    "probabilities.",
    "layer": "One layer: attention between the tokens, then the same feed-forward network for each token.",
}


# The names in ABOUT of parts by their path and title; others have one by their title or the end of their path.
KINDS = {
    r"(.*\.)?\d+: .*": "layer",
    r".*places: .*": "places",
    r"target: Word embedding": "both",
    r"(.*\.)?around_\w+: .*": "add_norm",
    r"(encoder\.)?norm: .*": "last_norm",
}


def about(part: Part, of_text: bool = False) -> str:
    kinds = [
        kind
        for pattern, kind in KINDS.items()
        if re.fullmatch(pattern, f"{part.path}: {part.title}")
    ]
    kinds += [part.title, part.path.rpartition(".")[2]]
    kind = next((kind for kind in kinds if kind in ABOUT), "")
    return ABOUT.get("text" if of_text and kind == "both" else kind, "").format(sublayer(part.path))


def sublayer(path: str) -> str:
    return "feed-forward" if "feed_forward" in path else "attention"


# The page: controls, the diagram, attention layer by layer, norms against depth, and the sources.


FRESH = {"transformer:weights": "seeded", "transformer:pattern": SAME}
TRANSLATOR = {**FRESH, "transformer:task": "reverse", "transformer:kind": "transformer"}
DECODER = {**FRESH, "transformer:task": "reverse", "transformer:kind": "decoder"}
NORMS_PANEL = "transformer:norms"  # the panel that compares both norms
MOVES = (
    lab.Move(
        "Encoder and decoder",
        {"transformer:weights": EXAMPLE},
        "The Transformer of 2017: an encoder reads the input, and a decoder that writes the output looks at it by "
        "cross-attention. This one has learned to reverse its input.",
    ),
    lab.Move(
        "Decoder only",
        DECODER,
        "One stack is left: the input and the output are one sequence, and there is no cross-attention. GPT is "
        "built like this.",
    ),
    lab.Move(
        "Classifier of images",
        {**FRESH, "transformer:task": "digits", "transformer:kind": "classifier"},
        "The model is only an encoder. Patches of an image take the place of words. The Vision Transformer is built "
        "like this.",
    ),
    lab.Move(
        "Norm before",
        {**TRANSLATOR, "transformer:norm": "pre", NORMS_PANEL: True},
        "The norm moves into each sublayer, so no norm is on the path from the input to the output. The last "
        "panel compares both in deep models: a first layer whose gradient is near 0 hardly learns.",
    ),
    lab.Move(
        "Twelve layers",
        {**TRANSLATOR, "transformer:layers": 12},
        "All layers have the same shape, so attention’s share of the parameters hardly changes.",
    ),
    lab.Move(
        "Layers of Gemma 3",
        {**DECODER, "transformer:pattern": "gemma3", "transformer:layers": 6},
        "Five layers attend to a short window and one to the whole text: a coloured bar marks the kind. Open layers 0 "
        "and 5 and compare their maps. A long text then takes little memory in five layers of six.",
    ),
)

BLOCKS, DIAGRAM, PICK = "transformer:stacks", "transformer:diagram", "transformer:pick"
HEAD, CELL, DEPTH = "transformer:head", "transformer:cell", "transformer:depth"


def page() -> None:
    _explore()
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
def _explore() -> None:
    lab.export.begin_before_title()
    lab.title(
        "The Transformer",
        "Press **Next box** to follow one example up through a whole model.",
        first=False,
    )
    with st.container(width=lab.room(2200)):
        _model()


@lab.shown_errors(ValueError)
def _model() -> None:
    row = st.grid(3, min_column_width=200, vertical_alignment="bottom")
    sentence, drawing = st.container(), lab.picture("transformer")
    controls = _header(row)
    with drawing:
        result = _show(controls)
    with sentence:
        lab.fact(
            of_model(result.tree)
            if result.stream is None
            else of_answer(result.stream, controls.text)
        )
    lab.predict("transformer", question(result.mixes))
    lab.try_this("transformer", MOVES)
    path = _attention_path(result)
    kind, layer = lab.kind_and_layer(path)
    trace: AttentionTrace = result.trace.of(kind)
    usual, item = (layer, 0), trace.map(0)
    cell: tuple[int, int] | None = None
    if result.stream and layer == result.stream.layer:
        usual, cell = (layer, result.stream.head), (len(item.queries) - 1, result.stream.key)
    layer, head = lab.read_linked("transformer", HEAD, trace.shape, path) or usual
    weights = {SEEDED: "drawn from a seed", WRITER: "of the lab's writer"}.get(
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
            pin=lab.read_linked(
                "transformer", CELL, item.weights.shape[1:], (path, item.queries, item.keys)
            )
            or (cell if (state.layer, state.head) == usual else None),
            show="matrix",
            height=360,
            title=f"Layer {state.layer}, head {state.head}",
        )
    lab.add_script(partial(script, controls, result, kind, state.layer, state.head))
    if kind == "cross":
        lab.caption(
            f"A row is named after the token that the model predicts there. The decoder reads the token before it: its "
            f"input is the output shifted by one, with {lab.plain('<bos>')} in front, so row 0 reads "
            f"{lab.plain('<bos>')} and "
            f"predicts {lab.plain(item.queries[0])}."
        )
    if result.stream:
        step = lab.step_of("evidence")
        st.page_link(
            step.page(),
            label="Why this answer: what does it need?",
            icon=step.icon,
            query_params={"inside:model": WRITER, "inside:text": controls.text},
        )
    lab.write_linked(
        "transformer",
        HEAD,
        None if (state.layer, state.head) == usual else (state.layer, state.head),
    )
    lab.write_linked("transformer", CELL, None if state.pin == cell else state.pin)
    lab.details(
        "Every part and its numbers", partial(_numbers, result, path), "transformer:numbers"
    )
    if DEPTH in st.query_params:
        st.session_state.setdefault(NORMS_PANEL, True)
    lab.details("The norm before or after each sublayer", partial(_depth, controls), NORMS_PANEL)


def _header(row: Any) -> Subject:
    """Draw the controls, the model's own in a row; ConfigError where they are of no model."""
    first = STARTS[lab.read_start("transformer", *STARTS)]
    options = weights_on_offer()
    if lab.is_new("run") and st.query_params["run"] not in options:
        st.warning(
            "The run in the link is not on this machine, or its model has no layers. Below is another model."
        )
    lab.link_value(WEIGHTS, first, lab.one_of(options), name="run")
    with lab.settings_panel("Another model", "transformer:model"):
        source = st.selectbox(
            "Weights",
            options,
            options.index(first),
            key=WEIGHTS,
            format_func=source_label,
            persist_state="session",
            help="Trained weights, of the lab's writer or of a run, or random weights from a seed.",
        )
    try:
        return _seeded(row) if source == SEEDED else _trained(row, source)
    finally:
        lab.write_start("transformer")


def _show(controls: Subject) -> Measurements:
    new = outline(controls) if lab.reruns_alone() else None
    if new is not None:
        _diagram(new, None, controls)
    result = lab.shared(measurements, controls)
    if new is not None:
        st.rerun(scope="fragment")
    _diagram(result.tree, result, controls)
    return result


def outline(controls: Subject) -> Part | None:
    """The parts of a model that is not measured yet, from a model with each unlike layer once; None where it is."""
    config = controls.config
    period = len(config.pattern)
    if not controls.seeded or config.layers <= period or lab.remembered(measurements, controls):
        return None
    return with_layers(
        lab.shared(measurements, replace(controls, config=replace(config, layers=period))).tree,
        config.layers,
        config.layer_names,
    )


def _diagram(tree: Part, result: Measurements | None, controls: Subject) -> None:
    path, pre_norm = _attention_path(result or tree), controls.config.norm == "pre"
    lab.block_diagram(
        lab.stacks_of(tree),
        blocks(tree, result, pre_norm),
        key=BLOCKS,
        pre_norm=pre_norm,
        chosen=path if st.session_state.get(PICK) == path else "",
        on_pick=partial(_store_pick, BLOCKS),
        label=of_model(tree),
        stops=main_steps(result.stream) if result and result.stream else (),
        pending=result is None,
    )


def _numbers(result: Measurements, path: str) -> None:
    whole = result.tree
    if result.stream:
        lab.fact(of_model(whole))
    lab.caption(
        f"Measured on one forward and backward pass over {'this text' if result.stream else f'{BATCH} held-out examples'}"
        f"; loss {lab.number(result.loss)}. "
        "FLOPs are those of the matrix products of the forward pass. “For backward” is what the backward pass "
        f"needs of this batch, {lab.byte_size(whole.bytes)} in all. The weights take {lab.byte_size(4 * whole.parameters)} "
        f"in fp32; training with AdamW takes {lab.byte_size(16 * whole.parameters)} with gradients and two moments. "
        "A bar is the part's share of the model."
    )
    lab.diagram(
        result.tree,
        key=DIAGRAM,
        chosen=path,
        on_pick=partial(_store_pick, DIAGRAM),
        fact=of_model(result.tree),
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
        _two_charts(
            {
                name: ([row[0] for row in each], [row[1] for row in each])
                for name, each in stacks.items()
                if each
            },
            "along",
        )


def _store_pick(key: str) -> None:
    pick = st.session_state[key].get("pick") or {}
    st.session_state[PICK] = str(pick.get("path", ""))


def _attention_path(of: Measurements | Part) -> str:
    """The attention whose maps are drawn: the picked one, where this model has it.

    Else it is that of the layer from which the answer leads, or the first cross-attention.
    """
    tree, stream = (of, None) if isinstance(of, Part) else (of.tree, of.stream)
    paths = [part.path for part in tree.walk() if lab.is_attention(part.path)]
    default = next((path for path in paths if path.endswith("cross")), paths[0])
    default = f"layers.{stream.layer}.causal" if stream else default
    lab.take_link(PICK, lab.one_of(paths))
    path = st.session_state.get(PICK, default)
    path = path if path in paths else default
    lab.write_link(PICK, None if path == default else path)
    return path


def _depth(controls: Subject) -> None:
    row = st.columns([1, 1, 1], gap="large", vertical_alignment="center")
    layers = Controls.draw("depth", into=row[0]).depth
    row[1].latex(r"\text{after: } x \leftarrow \mathrm{norm}(x + f(x))")
    row[2].latex(r"\text{before: } x \leftarrow x + f(\mathrm{norm}(x))")
    depths: dict[str, Depth] = {
        norm: lab.cached(by_depth, controls.config, controls.task, layers, norm) for norm in NORMS
    }
    _two_charts(
        {NORMS[norm]: (depth.mean, depth.output) for norm, depth in depths.items()}, "depth"
    )
    after, before = depths["post"], depths["pre"]
    lab.fact(
        f"With {layers} layers and the norm after the sum, the gradient of the first layer is "
        f"**{lab.number(after.ratio)} ×** that of the last layer. With the norm before the sublayer, it is "
        f"**{lab.number(before.ratio)} ×**."
    )
    lab.caption(
        f"Untrained models of this shape, mean of {SEEDS} seeds, the same {BATCH} examples. First layer: "
        f"{lab.number(after.mean[0])} ± {lab.number(after.std[0])} after, {lab.number(before.mean[0])} ± "
        f"{lab.number(before.std[0])} before."
    )


def _two_charts(series: dict[str, tuple[Sequence[float], Sequence[float]]], key: str) -> None:
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
            alt=f"{heading}, post-norm and pre-norm",
        )


# What a reader predicts and tries on The Transformer.


def question(mixes: bool) -> lab.Question:
    """What an output depends on without attention; `mixes` says whether feed-forward mixes tokens, as measured."""
    why = (
        "One token’s vector was changed and the others were left as they were. After attention the other tokens’ "
        "vectors differ; after the feed-forward network they are equal to the last digit. Norms and residual "
        "connections process each token alone, too, so only attention moves information between tokens."
    )
    return lab.Question(
        "Take all attention blocks away. On which tokens could the output at one position still depend?",
        ("All tokens", "The tokens before it", "Only the token at its own position"),
        0 if mixes else 2,
        (why,) * 3,
    )


# The blocks of the diagram: what each part is, its numbers, and the first example's vectors and maps in it.


def blocks(whole: Part, result: Measurements | None, pre_norm: bool) -> dict[str, lab.Block]:
    """A block for every part of the diagram, by its path; with pre-norm, "…+" is the sum after a sublayer.

    Without a result they have no vectors and no maps yet.
    """
    made, shown = {}, lab.paths_of(lab.stacks_of(whole))
    answers: tuple[lab.Bars, ...] = ()
    if result and result.predicted:
        answers = (lab.Bars("Most probable at each position", result.predicted[:24], picked=False),)
    for part in whole.walk():
        if part.path not in shown:
            continue
        is_norm = pre_norm and part.path.rpartition(".")[2].startswith("around_")
        if is_norm:
            path = f"{part.path}+"
            text = ABOUT["add"].format(sublayer(path))
            made[path] = lab.Block("Add", text, (), *_vectors(result, path))
        maps = None
        if result and lab.is_attention(part.path):
            kind, layer = lab.kind_and_layer(part.path)
            maps = result.trace.of(kind).map(layer).weights
        made[part.path] = lab.Block(
            "Norm" if is_norm else part.title,
            ABOUT["norm"].format(sublayer(part.path))
            if is_norm
            else about(part, bool(result and result.stream)),
            _axis_numbers(part, whole),
            *_vectors(result, part.path),
            maps,
            answers if part.path == "output" else (),
        )
    if result and result.stream:
        made |= {path: _read(block, path, result.stream) for path, block in made.items()}
        made[""] = lab.Block("The whole model", WHOLE_MODEL, bars=made["output"].bars)
    return made


WHOLE_MODEL = (
    "The tokens enter at the bottom. In each layer attention lets them read earlier ones, and feed-forward changes each "
    "alone; Add adds what they wrote, Norm brings vectors to one scale. Beside a box is what the model would say if it "
    "ended there."
)
AFTER = {"around_causal": 0, "causal": 0, "around_causal+": 1, "around_feed_forward": 1}
MAX_TOKENS = 16  # of the table of tokens
WHOLE = ("", "around_feed_forward+")  # what a whole layer did is told at its box and at its end
MAIN = ("around_causal", "causal", "around_causal+", "feed_forward", "around_feed_forward+")


def main_steps(stream: Stream) -> list[str]:
    """The blocks of the layer with the head that the answer needs most, the other layers, and both ends."""
    layers = [i for i in range(len(stream.says) // 2) if i != stream.layer]
    blocks = [f"layers.{stream.layer}.{name}" for name in MAIN]
    return [*blocks, "target", *(f"layers.{i}" for i in layers), "output"]


def _read(block: lab.Block, path: str, stream: Stream) -> lab.Block:
    """A block of the writer with the next token as it is read after it, and what a head attends to before it."""
    _, layer, name = [*path.split(".", 2), "", ""][:3]
    name = name if layer else path
    at = 2 * int(layer) + AFTER.get(name, 2) if layer else len(stream.shares) - 1
    at = 0 if path == "target" else at
    whole = bool(layer) and name in WHOLE
    rows = tuple(zip(stream.tokens, stream.shares[at].tolist(), strict=True))
    bars = [lab.Bars("The next token, if the model ended here", rows)]
    title, about, answer, tokens = block.title, block.about, stream.tokens[0], block.tokens
    (leader, share), last, moved = stream.leader(at), tokens[-1], stream.moved[at].tolist()
    cell: tuple[int, int, int] | None = None
    if path == "target":
        repeats = sum(map(str.__eq__, tokens, (word for word, _ in stream.says[0])))
        them = "each token" if repeats == len(tokens) else f"{repeats} of {len(tokens)} tokens"
        about += (
            f" No token knows the others yet: if the model ended here, {them} would follow itself."
        )
    elif whole or name in MAIN[2:]:
        before = stream.shares[at - 1 - whole].tolist()
        change = f"the vector of “{last}” by {lab.number(moved[-1])} times its length."
        if whole:
            takes = stream.lead and (stream.lead - 1) // 2 == int(layer)
            title = f"Layer {layer}: “{leader}” {'takes the lead' if takes else 'leads'}"
            about = (
                f"{ABOUT['add'].format('feed-forward')} With attention, this changes"
                if name
                else "Attention between the tokens, then feed-forward for each alone. Together they change"
            )
            about += f" {change}"
        elif name != "feed_forward":
            about = f"{ABOUT['add'].format('attention')} This changes {change}"
        bars = [lab.Bars("The next token, before and after", rows, tuple(before))]
        if abs(rows[0][1] - before[0]) >= 0.01:
            about += (
                f" {answer} goes from {lab.share_text(before[0])} to {lab.share_text(rows[0][1])}."
            )
    elif path == "output":
        final = zip(stream.following, dict(stream.at_temperature)[1.0], strict=True)
        heading = f"The next token, the likeliest of {stream.choices:,}"
        bars = [lab.Bars(heading, tuple(final), at_temperature=stream.at_temperature)]
    if block.maps is not None:
        about += " Positions enter here: RoPE rotates queries and keys."
    if block.maps is not None and int(layer) == stream.layer:
        cell = stream.head, len(tokens) - 1, stream.key
        row = block.maps[stream.head, -1]
        title = f"Layer {layer}, head {stream.head}: “{last}” attends to {tokens[stream.key]}"
        without, new, its = stream.without
        now = float(stream.shares[-1, 0])
        if without < 0.99 * now:
            about += (
                f" Of {stream.heads} heads, {answer} needs this one most: with its output set to 0, {answer} goes "
                f"from {lab.share_text(now)} to {lab.share_text(without)}"
                + (f", and {new} leads with {lab.share_text(its)}." if new != answer else ".")
            )
            if new != answer and new == tokens[stream.key]:
                about += f" The head attends to {new} and keeps it down."
            other, head, weight, unmoved = stream.unneeded
            if (other, head) != (stream.layer, stream.head):
                about += (
                    f" {head_name(other, head)} attends most to {tokens[stream.key]} too ({lab.share_text(weight)}); without "
                    f"it {answer} has {lab.share_text(unmoved)}. A large weight alone does not say what the answer needs."
                )
        order = np.argsort(-row, kind="stable")[:4]
        weights = tuple((tokens[i], float(row[i])) for i in order)
        bars.insert(0, lab.Bars(f"“{last}” attends to", weights))
    next_rows = [(f"{word} {lab.share_text(one)}", one) for word, one in stream.says[at]]
    table = [lab.Bars("would say next", tuple(next_rows[-MAX_TOKENS:]))]
    sums = whole or name == "around_causal+"
    if sums:
        lengths = [(f"{lab.number(one)} × its length", one / max(moved)) for one in moved]
        table.insert(0, lab.Bars("vector changed by", tuple(lengths[-MAX_TOKENS:])))
    return replace(
        block,
        title=title,
        about=about,
        bars=tuple(bars),
        cell=cell,
        label=f"{leader} {lab.share_text(share)}" if sums or path in ("target", "output") else "",
        table=() if cell or path == "output" else tuple(table),
    )


def _vectors(result: Measurements | None, path: str) -> tuple[tuple[str, ...], np.ndarray | None]:
    """The tokens and vectors (T, C) of the first example after a part; of a norm around a sublayer, the norm's."""
    vectors = result.outputs.get(path, result.outputs.get(f"{path}.norm")) if result else None
    if result is None or vectors is None or vectors.ndim != 2:
        return (), None
    kind: Kind = "self" if path.startswith(("source", "encoder", "places")) else "causal"
    tokens = result.tokens.get(kind) or next(iter(result.tokens.values()))
    return (tokens if len(tokens) == len(vectors) else ()), vectors


def _axis_numbers(part: Part, whole: Part) -> tuple[tuple[str, str], ...]:
    shape = part.shape or ()
    axes = {2: "examples × numbers", 3: "examples × tokens × numbers"}.get(
        len(shape), "the batch first"
    )
    rows = {
        f"output, {axes}": " × ".join(map(str, shape)),
        "parameters": part.parameters
        and f"{part.parameters:,} ({lab.percent(part.parameters / whole.parameters)})",
        "FLOPs": part.flops
        and f"{lab.operations(part.flops)} ({lab.percent(part.flops / whole.flops)})",
    }
    return tuple((name, str(text)) for name, text in rows.items() if text)
