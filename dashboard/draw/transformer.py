"""The Transformer: the blocks of its diagram, its sentences of numbers, and code of its script."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from core.interpret.trace import Kind, head_name
from core.models.model_summary import Part
from core.studies.transformer import Measurements, Stream
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


def of_answer(stream: Stream, text: str) -> str:
    answer = plain(stream.tokens[0])
    comes = (
        f"After “{plain(' '.join(text.split()[-2:]))}” comes **{answer}** with "
        f"probability **{share_text(float(stream.shares[-1, 0]))}**."
    )
    if not stream.lead:
        return comes
    earlier, _ = stream.leader(stream.lead - 1)
    return (
        f"{comes} With fewer layers it would say “{plain(earlier)}”; from "
        f"**layer {(stream.lead - 1) // 2}** on, {answer}."
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
    "attention": "Every token takes from every token of the same sequence. Each head has its own weights.",
    "causal": "Each token takes from itself and from the tokens before it, never from those after it.",
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
        few = with_rest(made["output"].bars[0].rows[:FEW], result.stream.choices)
        made[""] = Block("A decoder only", WHOLE_MODEL, bars=(Bars("The next token", few),))
    return made


WHOLE_MODEL = (
    "It reads one text and continues it; an encoder would read another one first. Each Add adds to what runs up: the "
    "residual stream."
)
FEW = 2  # likeliest tokens beside the whole model; Output has more


def with_rest(rows: Sequence[tuple[str, float]], count: int) -> tuple[tuple[str, float], ...]:
    """Some of `count` names with their shares, and what the others share, so that all add up to 1."""
    left = max(0.0, 1 - sum(share for _, share in rows))
    return (*rows, (plural(count - len(rows), "other"), left)) if count > len(rows) else tuple(rows)


AFTER = {"around_causal": 0, "causal": 0, "around_causal+": 1, "around_feed_forward": 1}
MAX_TOKENS = 16  # of the table of tokens
WHOLE = ("", "around_feed_forward+")  # what a whole layer did is told at its box and at its end
MAIN = ("around_causal", "causal", "around_causal+", "feed_forward", "around_feed_forward+")


def main_steps(stream: Stream) -> list[str]:
    """The blocks of the layer with the head that the answer needs most, the other layers, and both ends."""
    layers = [i for i in range(len(stream.says) // 2) if i != stream.layer]
    blocks = [f"layers.{stream.layer}.{name}" for name in MAIN]
    return [*blocks, "target", *(f"layers.{i}" for i in layers), "output"]


def _read(block: Block, path: str, stream: Stream) -> Block:
    """A block of the writer with the next token as it is read after it, and what a head takes from before it."""
    _, layer, name = [*path.split(".", 2), "", ""][:3]
    name = name if layer else path
    at = 2 * int(layer) + AFTER.get(name, 2) if layer else len(stream.shares) - 1
    at = 0 if path == "target" else at
    whole = bool(layer) and name in WHOLE
    named = list(zip(stream.tokens, stream.shares.T.tolist(), strict=True))
    rows, earlier = (
        with_rest([(token, shares[i]) for token, shares in named], stream.choices)
        for i in (at, max(0, at - 1 - whole))
    )
    bars = [Bars("The next token, if the model ended here", rows)]
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
        before = [share for _, share in earlier]
        change = f"the vector of “{last}” by {number(moved[-1])} times its length."
        if whole:
            takes = stream.lead and (stream.lead - 1) // 2 == int(layer)
            leads = "takes the lead" if takes else "leads"
            title = f"Layer {layer}: “{leader}” {leads}"
            about = (
                f"{ABOUT['add'].format('feed-forward')} With attention, this changes"
                if name
                else "Attention between the tokens, then feed-forward for each alone. Together they change"
            )
            about += f" {change}"
        elif name != "feed_forward":
            about = f"{ABOUT['add'].format('attention')} This changes {change}"
        bars = [Bars("The next token, before and after", rows, tuple(before))]
        if abs(rows[0][1] - before[0]) >= 0.01:
            where = f" In the whole of layer {layer}," if whole else ""
            about += (
                f"{where} {answer} goes from {share_text(before[0])} to {share_text(rows[0][1])}."
            )
        if name == "around_causal+":
            bare, wrong, its = stream.without_add
            about += (
                f" Without Add, each box of each layer would replace what was there: {answer} has {share_text(bare)} "
                f"then, and “{wrong}” leads with {share_text(its)}."
            )
    elif path == "output":
        final = {
            temperature: with_rest([*zip(stream.following, shares, strict=True)], stream.choices)
            for temperature, shares in stream.at_temperature
        }
        at_temperature = tuple((one, tuple(share for _, share in final[one])) for one in final)
        heading = f"The next token, the likeliest of {stream.choices:,}"
        bars = [Bars(heading, final[1.0], at_temperature=at_temperature)]
    if block.maps is not None:
        about += " Positions enter here: RoPE rotates queries and keys."
    if block.maps is not None and int(layer) == stream.layer:
        cell = stream.head, len(tokens) - 1, stream.key
        row = block.maps[stream.head, -1]
        title = f"Layer {layer}, head {stream.head}: “{last}” takes from {tokens[stream.key]}"
        without, new, its = stream.without
        now = float(stream.shares[-1, 0])
        if without < 0.99 * now:
            about += (
                f" Of {stream.heads} heads, {answer} needs this one most: with its output set to 0, {answer} goes "
                f"from {share_text(now)} to {share_text(without)}"
                + (f", and {new} leads with {share_text(its)}." if new != answer else ".")
            )
            if new != answer and new == tokens[stream.key]:
                about += f" The head takes from {new} and keeps it down."
            other, head, weight, unmoved = stream.unneeded
            if (other, head) != (stream.layer, stream.head):
                about += (
                    f" {head_name(other, head)} takes most from {tokens[stream.key]} too ({share_text(weight)}); without "
                    f"it {answer} has {share_text(unmoved)}. A large weight alone does not say what the answer needs."
                )
        order = np.argsort(-row, kind="stable")[:4]
        weights = with_rest([(tokens[i], float(row[i])) for i in order], len(tokens))
        bars.insert(0, Bars(f"“{last}” takes from", weights))
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
        label=f"{leader} {share_text(share)}" if sums or path in ("target", "output") else "",
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
