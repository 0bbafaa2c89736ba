"""Activation patching: which part's output, taken from one text into another, brings back the answer.

A clean and a corrupted text differ in what decides between two answers. Running the corrupted one with one part's
output of the clean one (denoising) says what is enough; the other way round (noising), what is needed. Effects are in
the difference of the two answers' logits, 0 for the corrupted run and 1 for the clean one.
Vig et al. 2020; Meng et al. 2022, section 2; Heimersheim and Nanda 2024.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.interpret.evidence import Baseline, Question, ask
from core.interpret.trace import LayerKey, layer_names, to_numpy
from core.models.base import hooked
from core.pretrained import (
    STACK,
    Answer,
    AttentionCall,
    ModelInputs,
    Patch,
    Pretrained,
    PretrainedError,
    answer_of,
    forward,
    numbers_by_layer,
    reject_if,
    tokenizer_of,
)

# The places of a model whose outputs are read and replaced: layers, and their feed-forward networks.


FEED_FORWARD = ("mlp", "feed_forward", "feedforward", "ffn", "ff", "moe", "block_sparse_moe")


@dataclass(frozen=True, eq=False)
class Replacement:
    """The output of a module at one token (None: at all)."""

    module: str
    token: int | None
    values: Float[Tensor, "T C"]


def blocks_of(model: Any, calls: Sequence[AttentionCall]) -> dict[LayerKey, tuple[str, str | None]]:
    """The names of the module of each layer that attended and of its feed-forward network, by its self-attention.

    Empty where the modules are not in a numbered list. Cross-attention is in the layer of the decoder's self-attention,
    and attention beside a state space in the layer of the first of both. A module that runs as several layers (ALBERT) is
    left out, as its outputs cannot be told apart.
    """
    blocks: dict[str, AttentionCall] = {}
    repeated = set()
    for call in calls:
        match = STACK.match(call.name)
        if match is None:
            return {}
        name = f"{match['stack']}.{match['number']}"
        if name not in blocks:
            blocks[name] = call
        elif (call.kind, call.state) == (blocks[name].kind, blocks[name].state):
            repeated.add(name)
    return {
        (first.kind, first.layer): (name, _feed_forward(model, name, calls))
        for name, first in blocks.items()
        if name not in repeated
    }


def _feed_forward(model: Any, block: str, calls: Sequence[AttentionCall]) -> str | None:
    """The module whose output a layer adds after its attention: one of a usual name, else the last linear map.

    None where it has no weights, as in a model of attention alone.
    """
    module = model.get_submodule(block)
    for name, child in module.named_children():
        if name in FEED_FORWARD and not adds_residual(child):
            return (
                f"{block}.{name}" if any(weight.numel() for weight in child.parameters()) else None
            )
    inside = tuple(
        f"{call.name.rpartition('.')[0] if '.' in call.name[len(block) + 1 :] else call.name}."
        for call in calls
        if call.name.startswith(f"{block}.")
    )
    maps = [
        f"{block}.{name}"
        for name, child in module.named_modules()
        if isinstance(child, nn.Linear) and not f"{block}.{name}".startswith(inside)
    ]
    return maps[-1] if maps else None


def adds_residual(module: nn.Module) -> bool:
    """Whether a module returns the stream with its own output added: BLOOM's and MPT's are given it, T5's kind read it."""
    given = "residual" in inspect.signature(module.forward).parameters
    return given or type(module).__name__.endswith("LayerFF")


def states_of(output: Any) -> Tensor:
    """The states in a module's output: itself, or the first of a tuple."""
    return output[0] if isinstance(output, tuple | list) else output


def with_states(output: Any, states: Tensor) -> Any:
    """A module's output with other states."""
    return type(output)((states, *output[1:])) if type(output) in (tuple, list) else states


def read_outputs(
    model: Any, names: Sequence[str], states: dict[str, Tensor]
) -> AbstractContextManager[None]:
    """Store the outputs (B, T, C) of modules by their names while a pass runs."""

    def keep(name: str) -> Any:
        return lambda module, inputs, output: states.__setitem__(name, states_of(output))

    return hooked(model.get_submodule(name).register_forward_hook(keep(name)) for name in names)


def replace_outputs(
    model: Any, replacements: Mapping[int, Replacement]
) -> AbstractContextManager[None]:
    """Replace outputs of modules while a pass runs, each in one row of the batch."""

    def hook(name: str, module: Any, inputs: Any, output: Any) -> Any:
        states = states_of(output).clone()
        for row, one in replacements.items():
            if one.module == name:
                which = slice(None) if one.token is None else one.token
                states[row, which] = one.values[which].to(states)
        return with_states(output, states)

    return hooked(
        model.get_submodule(name).register_forward_hook(partial(hook, name))
        for name in {one.module for one in replacements.values()}
    )


Direction = Literal["denoise", "noise"]
ROWS, NUMBERS = 96, 2**21  # rows in one batch, and at most so many cells of a map in it
MIN_DIFFERENCE = 1e-4  # a difference between the two runs below which nothing can be told


@dataclass(frozen=True, eq=False)
class TextPair:
    """Two texts of one model with the same two answers, `output` and `contrast`, and how far apart they are."""

    clean: Baseline
    corrupted: Baseline

    @property
    def gap(self) -> float:
        return self.clean.value - self.corrupted.value

    def recovered(self, value: Any) -> Any:
        """A value on the scale from 0, the corrupted run's, to 1, the clean run's."""
        return (value - self.corrupted.value) / self.gap


@dataclass(frozen=True, eq=False)
class LayerEffect:
    """What patching the parts of one layer recovers, in the units of `TextPair.recovered`.

    `heads` one by one, `attention` all of them at once, `feed_forward` (None where it was not found), and `residual`
    the state after the layer at each token (empty for cross-attention, whose layer is that of the self-attention).
    """

    heads: Float[np.ndarray, " H"]
    attention: float
    feed_forward: float | None
    residual: Float[np.ndarray, " T"]


@dataclass(frozen=True, eq=False)
class PatchSource:
    """One run of a pair, whose outputs are put into the other one, `base`.

    `names`: L0, L1 …, the model's own numbers, with the kind where there are several. `estimates`: the effect of each
    head (H,) of a layer, to first order, where `patch_texts` computed it.
    """

    pair: TextPair
    base: Baseline
    calls: dict[LayerKey, AttentionCall]
    blocks: dict[LayerKey, tuple[str, str | None]]
    states: dict[str, Tensor]
    names: dict[LayerKey, str]
    estimates: dict[LayerKey, np.ndarray] = field(default_factory=dict)

    def effect(self, key: LayerKey) -> LayerEffect:
        """The effect of each part of a layer. PretrainedError as in `forward`."""
        out, (block, inner) = self.calls[key].replaceable[0], self.blocks.get(key, ("", None))
        heads: list[Patch | Replacement] = [
            (0, *key, head, out) for head in (*range(out.shape[1]), None)
        ]
        states = self.states[block][0] if block in self.states else out[:0]
        tokens = [Replacement(block, token, states) for token in range(len(states))]
        feeds = [Replacement(inner, None, self.states[inner][0])] if inner in self.states else []
        parts = [*heads, *tokens, *feeds]
        values = rerun_rows(self.base, parts)
        of_heads, of_tokens, of_inner = np.split(
            self.pair.recovered(np.array(values)), [len(heads), len(heads) + len(tokens)]
        )
        return LayerEffect(
            of_heads[:-1],
            float(of_heads[-1]),
            float(of_inner[0]) if feeds else None,
            of_tokens,
        )


def ranked(
    effects: Mapping[LayerKey, LayerEffect], direction: Direction
) -> list[tuple[LayerKey, int, float]]:
    """Each head with its effect, the largest first; when noising, the largest loss first."""
    return sorted(
        (
            (key, head, float(value))
            for key, effect in effects.items()
            for head, value in enumerate(effect.heads)
        ),
        key=lambda row: -row[2] if direction == "denoise" else row[2],
    )


def agreement(
    effects: Mapping[LayerKey, LayerEffect], estimates: Mapping[LayerKey, np.ndarray]
) -> float | None:
    """The correlation of the heads' estimates with their effects; None where one of them does not vary."""
    pairs = [(effects[key].heads, estimates[key]) for key in effects if key in estimates]
    if not pairs:
        return None
    exact, fast = (np.concatenate(values) for values in zip(*pairs, strict=True))
    return float(np.corrcoef(exact, fast)[0, 1]) if exact.std() > 0 and fast.std() > 0 else None


def pair_of(pretrained: Pretrained, clean: ModelInputs, corrupted: ModelInputs, output: int | None = None,
            contrast: int | None = None, position: int | None = None) -> TextPair:  # fmt: skip
    """The two texts with the answers that are compared: by default the likeliest one of each text.

    An encoder–decoder that is given no target reads its own output for the clean text in both runs, and answers where
    its two outputs first differ. PretrainedError where the texts differ in length, or the model's answers do not.
    """
    reject_if(
        not pretrained.recordable,
        f"{pretrained.name} {pretrained.not_recorded}. So the outputs of its heads cannot be "
        "replaced here. Take a model such as BERT, GPT-2 or Llama.",
    )
    first, second = (ask(pretrained, Question(inputs, position)) for inputs in (clean, corrupted))
    if (
        pretrained.head == "seq2seq"
        and first.target is not None
        and second.target is not None
        and clean.target is None
    ):
        outputs = first.target.ids[1:], second.target.ids[1:]
        same = next(
            (index for index, (a, b) in enumerate(zip(*outputs, strict=False)) if a != b),
            min(map(len, outputs)),
        )
        target = tokenizer_of(pretrained).decode(list(outputs[0]), skip_special_tokens=True)
        first, second = (
            ask(
                pretrained,
                Question(replace(inputs, target=target), same if position is None else position),
            )
            for inputs in (clean, corrupted)
        )
    for name, lines in (
        ("texts", (first.source, second.source)),
        ("targets", (first.target, second.target)),
    ):
        lengths = [0 if line is None else len(line) for line in lines]
        reject_if(
            lengths[0] != lengths[1],
            f"The {name} have {lengths[0]} and {lengths[1]} tokens. Patching puts what one "
            "computes at a token into the same token of the other: write texts of equal length.",
        )
    if first.answer.logits is not None and second.answer.logits is not None:
        answers = [int(one.argmax()) for one in (first.answer.logits, second.answer.logits)]
        followed = answers[0] if output is None else output
        reject_if(
            contrast is None and followed == answers[1],
            f"{pretrained.name} gives the same answer to both texts, so there is nothing to bring "
            "back. Name two answers, or change the second text.",
        )
        other = answers[1] if contrast is None else contrast
        first, second = (
            ask(
                pretrained,
                replace(one.question, output=followed, quantity="difference", contrast=other),
            )
            for one in (first, second)
        )
    else:  # embeddings
        second = replace(second, reference=first.reference)
    pair = TextPair(first, second)
    reject_if(
        abs(pair.gap) < MIN_DIFFERENCE,
        "Both texts have the same difference between the two answers, so there is nothing that a "
        "part could bring back. Change the second text, or name other answers.",
    )
    return pair


def patch_source(pair: TextPair, direction: Direction = "denoise") -> PatchSource:
    """The run whose outputs are put into the other: the clean one to denoise, the corrupted one to noise.

    PretrainedError as in `forward`.
    """
    runs = (pair.corrupted, pair.clean)
    base, other = runs if direction == "denoise" else runs[::-1]
    model, states = other.pretrained.model, dict[str, Tensor]()
    _, recorder = forward(other.pretrained, other.batch, with_qkv=True)
    blocks = blocks_of(model, recorder.calls)
    names = [name for both in blocks.values() for name in both if name]
    forward(other.pretrained, other.batch, hooks=read_outputs(model, names, states))
    return PatchSource(
        pair,
        base,
        {(call.kind, call.layer): call for call in recorder.calls},
        blocks,
        {name: values for name, values in states.items() if values.ndim == 3},  # experts flatten
        layer_names(numbers_by_layer(model, recorder.calls)),
    )


def patch(pair: TextPair, direction: Direction = "denoise") -> dict[LayerKey, LayerEffect]:
    """The effect of every part of every layer, by (kind, layer)."""
    source = patch_source(pair, direction)
    return {key: source.effect(key) for key in source.calls}


def estimate_heads(source: PatchSource) -> dict[LayerKey, Float[np.ndarray, " H"]]:
    """The same effects of heads to first order, from one gradient: (other output − own) · ∂value/∂own output.

    Attribution patching: Nanda 2023; Syed et al. 2023, equation 2. Empty where the value has no gradient.
    """
    pair, base = source.pair, source.base
    output, recorder = forward(base.pretrained, base.batch, with_qkv=True, probe=True)
    calls = [call for call in recorder.calls if call.replaceable.requires_grad]
    slopes = (
        torch.autograd.grad(
            base.target_value(base.answer_in(base.batch, output)),
            [call.replaceable for call in calls],
            allow_unused=True,
        )
        if calls
        else ()
    )
    estimates = {}
    for call, slope in zip(calls, slopes, strict=True):
        if slope is not None:
            change = source.calls[call.kind, call.layer].replaceable - call.replaceable.detach()
            estimates[call.kind, call.layer] = pair.recovered(
                to_numpy((change * slope)[0].sum((0, 2))) + base.value
            )
    return estimates


def rerun_rows(
    baseline: Baseline, changes: Sequence[Patch | Replacement], measured: Baseline | None = None
) -> list[float]:
    """The target value with each change, or that of another question, `measured`; as many changes at once as fit.

    PretrainedError as in `forward`.
    """
    length = max(len(baseline.source), len(baseline.target or ()))
    value = (measured or baseline).target_value
    rows = max(1, min(ROWS, NUMBERS // length**2))
    try:
        return [float(value(answer)) for answer in rerun_answers(baseline, changes, rows)]
    except PretrainedError:  # a model that takes one input at a time
        if rows == 1:
            raise
        return [float(value(answer)) for answer in rerun_answers(baseline, changes, 1)]


def rerun_answers(
    baseline: Baseline, changes: Sequence[Patch | Replacement], rows: int
) -> Iterator[Answer]:
    """The answer with each change, of which so many run in one batch, a row each. PretrainedError as in `forward`."""
    model = baseline.pretrained
    for start in range(0, len(changes), rows):
        part = changes[start : start + rows]
        batch = {
            name: values.expand(len(part), *values.shape[1:])
            for name, values in baseline.batch.items()
        }
        moved = {row: one for row, one in enumerate(part) if isinstance(one, Replacement)}
        output, _ = forward(
            model,
            batch,
            patches=[(row, *one[1:]) for row, one in enumerate(part) if isinstance(one, tuple)],
            hooks=replace_outputs(model.model, moved),
        )
        for row in range(len(part)):
            yield answer_of(model, batch, output, baseline.question.position, row)


# Two texts of one model, prepared for a page that caches them.


def patch_texts(
    model: Pretrained,
    clean: ModelInputs,
    corrupted: ModelInputs,
    answers: tuple[int | None, int | None],
    direction: Direction,
) -> PatchSource:
    """One text's run, to be patched into the other's; PretrainedError for texts that cannot be compared.

    It is without the model, which a cached result would keep in memory; `with_model` attaches it.
    """
    source = patch_source(pair_of(model, clean, corrupted, *answers), direction)
    return replace(with_model(source, None), estimates=estimate_heads(source))


def with_model(source: PatchSource, model: Pretrained | None) -> PatchSource:
    """A source with another model, from which layers are patched."""
    clean, corrupted = (
        replace(one, pretrained=cast(Pretrained, model))
        for one in (source.pair.clean, source.pair.corrupted)
    )
    return replace(
        source,
        pair=TextPair(clean, corrupted),
        base=clean if source.base is source.pair.clean else corrupted,
    )
