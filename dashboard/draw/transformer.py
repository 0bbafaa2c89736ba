"""The Transformer: the blocks of its diagram, its sentences of numbers, and code of its script."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from core.interpret.trace import Kind, head_name
from core.models.model_summary import Part
from core.studies.transformer import Instead, Measurements, Stream
from dashboard.draw.components import Cell
from dashboard.draw.formats import number, operations, percent, plain, plural, share_text
from dashboard.draw.page_views import Bars, Block, is_attention, kind_and_layer, paths_of, stacks_of


def of_model(whole: Part) -> str:
    share = {
        name: (
            sum(part.parameters for part in group) / whole.parameters,
            sum(part.flops for part in group) / whole.flops,
        )
        for name, group in (
            (
                "attention",
                [part for part in whole.walk() if part.children and is_attention(part.path)],
            ),
            ("feed-forward", [part for part in whole.walk() if part.path.endswith("feed_forward")]),
        )
    }
    left = [
        round(1 - sum(round(one, 2) for one in each), 2)
        for each in zip(*share.values(), strict=True)
    ]
    return (
        f"Attention has **{percent(share['attention'][0])}** of the {whole.parameters:,} parameters and takes "
        f"**{percent(share['attention'][1])}** of the FLOPs; the feed-forward networks have "
        f"{percent(share['feed-forward'][0])} and take {percent(share['feed-forward'][1])}; embeddings, norms and "
        f"output have {percent(left[0])} and take {percent(left[1])}."
    )


def of_answer(stream: Stream, text: str, tokens: Sequence[str]) -> str:
    answer, now = plain(stream.tokens[0]), float(stream.shares[-1, 0])
    *needed, key = stream.needed
    sentence = (
        f"After “{plain(' '.join(text.split()[-2:]))}” comes **{answer}** ({share_text(now)}). "
        f"**{head_name(stream.layer, stream.head)}** adds most to it: it takes **{number(stream.weight)}** from "
        f"“{plain(tokens[stream.key])}”."
    )
    if stream.without[0] < 0.99 * now or stream.without_needed[0] >= 0.99 * now:
        return sentence
    return (
        f"{sentence} Needed most is {head_name(*needed)}, which takes from “{plain(tokens[key])}”: without it, {answer} has "
        f"{share_text(stream.without_needed[0])}."
    )


ABOUT = {
    "source": "Each input token becomes a vector: a list of numbers, looked up in a learned table.",
    "Linear map of the input": "A linear map turns the numbers of each patch of the image, or of each value of the "
    "series, into a vector: a list of numbers.",
    "Column embedding": "Each column of the table becomes a vector, a list of numbers: a number by a linear map, a "
    "category by a learned table.",
    "target": "Each output token becomes a vector: a list of numbers from a learned table. The model reads the right "
    "output after a start mark and predicts each next token (teacher forcing); in use, its own.",
    "text": "Each token becomes a vector: a list of numbers from a learned table.",
    "both": "Each token becomes a vector: a list of numbers from a learned table. Input, start mark and right output "
    "are one sequence; from the mark on, the model predicts each next token (teacher forcing).",
    "places": "A vector that depends only on the position is added: attention itself ignores the order of tokens.",
    "attention": "Every token takes from every token of the same sequence. Each head has its own weights.",
    "causal": "Each token takes from itself and earlier tokens.",
    "cross": "Each output token takes from the whole input what it needs: queries come from the "
    "decoder, keys and values from the encoder.",
    "feed_forward": "Changes each token’s vector on its own, by linear maps with an activation between them.",
    "add": "Adds what {} wrote to what was there: the residual connection.",
    "norm": "Norm (normalization) brings each token’s vector to one scale before {} reads it.",
    "add_norm": "Adds what {} wrote to what was there (the residual connection), then brings each token’s vector to "
    "one scale (the norm).",
    "last_norm": "Brings each token’s vector to one scale before the output layer reads it.",
    "output": "A linear map turns each vector into one logit for each possible answer. Softmax turns logits into "
    "probabilities.",
    "layer": "Built like the open layer, with other weights.",
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


# The blocks of the diagram: what each part is, its numbers, and the first example's vectors and maps in it.


def blocks(whole: Part, result: Measurements | None, pre_norm: bool) -> dict[str, Block]:
    """A block for every part of the diagram, by its path; with pre-norm, "…+" is the sum after a sublayer.

    Without a result they have no vectors and no maps yet.
    """
    made, shown = {}, paths_of(stacks_of(whole))
    answers: tuple[Bars, ...] = ()
    if result and result.predicted:
        answers = (Bars("Most probable at each position", result.predicted[:24], picked=False),)
    for part in whole.walk():
        if part.path not in shown:
            continue
        is_norm = pre_norm and part.path.rpartition(".")[2].startswith("around_")
        if is_norm:
            path = f"{part.path}+"
            text = ABOUT["add"].format(sublayer(path))
            made[path] = Block("Add", text, (), *_vectors(result, path))
        maps = None
        if result and is_attention(part.path):
            kind, layer = kind_and_layer(part.path)
            maps = result.trace.of(kind).map(layer).weights
        made[part.path] = Block(
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
    return made


def with_rest(rows: Sequence[tuple[str, float]], count: int) -> tuple[tuple[str, float], ...]:
    """Some of `count` names with their shares, and what the others share, so that all add up to 1."""
    left = max(0.0, 1 - sum(share for _, share in rows))
    return (*rows, (plural(count - len(rows), "other"), left)) if count > len(rows) else tuple(rows)


AFTER = {"around_causal": 0, "causal": 0, "around_causal+": 1, "around_feed_forward": 1}
MAX_TOKENS = 16  # of the table of tokens
MAIN = "around_causal+", "feed_forward", "around_feed_forward+"  # they change the vector


def main_steps(tree: Part, pre_norm: bool, opened: int = 0) -> list[list[str]]:
    """The blocks that each step of the walk lights, from below, each once; the first of a step is told.

    Of each stack they are the input, the sublayers of the layer `opened`, the later layers, and the output.
    """
    steps: list[list[str]] = []
    for stack in stacks_of(tree):
        nodes, paths = stack["nodes"], [node["path"] for node in stack["nodes"]]
        layers = [at for at, node in enumerate(nodes) if "sublayers" in node]
        if not layers:
            steps += [[path] for path in paths]
            continue
        here, end = layers[min(opened, len(layers) - 1)], layers[-1] + 1
        steps += [[path] for path in paths[: layers[0]]]
        steps[-1] += paths[layers[0] : here]
        for at, part in enumerate(nodes[here]["sublayers"]):
            around = [part["around"]] if part["around"] else []
            norm, add = (around, [f"{path}+" for path in around]) if pre_norm else ([], around)
            # The first sum is a step of its own: it is what the walk is to show.
            steps += [[part["path"], *norm, *add]] if at else [[part["path"], *norm], add]
        steps += [paths[here + 1 : end], paths[end:][::-1]]
    return [step for step in steps if step]


def _layers(first: int, last: int) -> str:
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def _without(answer: str, instead: Instead) -> str:
    share, leader, its = instead
    return f"{answer} has {share_text(share)}" + (
        f", and “{leader}” leads with {share_text(its)}" if leader != answer else ""
    )


def _read(block: Block, path: str, stream: Stream) -> Block:
    """A block of the writer with the next token as it is read after it, and what a head takes from before it."""
    _, layer, name = [*path.split(".", 2), "", ""][:3]
    last_layer = len(stream.shares) // 2 - 1
    at = 2 * int(layer) + AFTER.get(name, 2) if layer else len(stream.shares) - 1
    at = 0 if path == "target" else at
    whole = name == "around_feed_forward+"  # tells what its layer did
    named = list(zip(stream.tokens, stream.shares.T.tolist(), strict=True))
    rows, earlier = (
        with_rest([(token, shares[i]) for token, shares in named], stream.choices)
        for i in (at, max(0, at - 1 - whole))
    )
    bars = [Bars("If the model ended here", rows)]
    title, about, answer, tokens = block.title, block.about, stream.tokens[0], block.tokens
    (leader, share), last, moved = stream.leader(at), tokens[-1], stream.moved[at].tolist()
    cell: tuple[int, int, int] | None = None
    if path == "target":
        if stream.layer:
            about += f" Next: {_layers(0, stream.layer - 1)}, like the open one."
        about += " A decoder only: an encoder would read another text first."
    elif path == "output":
        title = "Last norm and output"
        final = {
            temperature: with_rest([*zip(stream.following, shares, strict=True)], stream.choices)
            for temperature, shares in stream.at_temperature
        }
        at_temperature = tuple((one, tuple(share for _, share in final[one])) for one in final)
        heading = f"The next token, the likeliest of {stream.choices:,}"
        bars = [Bars(heading, final[1.0], at_temperature=at_temperature)]
    elif layer and not name:
        title = _layers(int(layer), last_layer).capitalize()
        leaders = [(one, *stream.leader(2 * one + 2)) for one in range(int(layer), last_layer + 1)]
        after = [(f"{one}: {token}", its) for one, token, its in leaders]
        bars = [Bars("After layer, it would say", tuple(after), picked=False)]
        if stream.lead > 2 * int(layer):
            about += f" From layer {(stream.lead - 1) // 2} on, {answer} leads."
    elif name in MAIN:
        bars = [
            Bars("The next token, before and after", rows, tuple(share for _, share in earlier))
        ]
    if whole:
        takes = stream.lead and (stream.lead - 1) // 2 == int(layer)
        title = f"Layer {layer}: “{leader}” {'takes the lead' if takes else 'leads'}"
    elif name == "around_causal+":
        about = (
            "Each layer adds to what is there, the residual stream, instead of replacing it. Without any Add a word’s "
            f"own vector is lost: {_without(answer, stream.without_add)}."
        )
    elif name == "feed_forward":
        about += " Norm brings each vector to one scale first, as before attention."
    if block.maps is not None and int(layer) == stream.layer:
        cell = stream.head, len(tokens) - 1, stream.key
        row = block.maps[stream.head, -1]
        title = f"Layer {layer}, head {stream.head}: “{last}” takes from {tokens[stream.key]}"
        about += (
            f" Of {stream.heads} heads, this one adds most to {answer}’s score (logit); without it "
            f"{_without(answer, stream.without)}"
        )
        now = float(stream.shares[-1, 0])
        spare = stream.without[0] >= 0.99 * now > stream.without_needed[0]
        about += ": a large weight is not yet a need." if spare else "."
        order = np.argsort(-row, kind="stable")[:4]
        weights = with_rest([(tokens[i], float(row[i])) for i in order], len(tokens))
        bars = [Bars(f"“{last}” takes from", weights)]
    next_rows = [(f"{word} {share_text(one)}", one) for word, one in stream.says[at]]
    table = [Bars("would say next", tuple(next_rows[-MAX_TOKENS:]))]
    sums = whole or name == "around_causal+"
    if sums:
        lengths = [(f"{number(one)} × its length", one / max(moved)) for one in moved]
        table.insert(0, Bars("vector changed by", tuple(lengths[-MAX_TOKENS:])))
    return replace(
        block,
        title=title,
        about=about,
        bars=tuple(bars),
        cell=cell,
        label=f"{leader} {share_text(share)}"
        if sums or path in ("target", "output") or (layer and not name)
        else "",
        table=() if cell or not name else tuple(table),
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
        and f"{part.parameters:,} ({percent(part.parameters / whole.parameters)})",
        "FLOPs": part.flops and f"{operations(part.flops)} ({percent(part.flops / whole.flops)})",
    }
    return tuple((name, str(text)) for name, text in rows.items() if text)


def maps_cell(measured: Measurements, kind: Kind, layer: int, head: int) -> Cell:
    return Cell(
        "The attention of every layer and head on the first example, and what the model predicts there.",
        f"""
trace = measured.trace.of({kind!r})
print(measured.predicted)
for part in measured.tree.children:
    print(part.title, part.parameters)
""",
        f"""
from dashboard.show import show

show(trace, layer={layer}, head={head})
""",
        f"transformer:grid:{kind}",
        {
            f"trace.map({at}).weights": item.weights
            for at, item in enumerate(measured.trace.of(kind).maps)
        }
        | {
            "[share for _, share in measured.predicted]": [share for _, share in measured.predicted]
        },
    )
