"""Activation patching: which part's output, taken from one text into another, brings back the answer.

A clean and a corrupted text differ in what decides between two answers. Running the corrupted one with one part's
output of the clean one (denoising) says what is enough; the other way round (noising), what is needed. Effects are in
the difference of the two answers' logits, 0 for the corrupted run and 1 for the clean one.
Vig et al. 2020; Meng et al. 2022, section 2; Heimersheim and Nanda 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.answers import answer_of
from core.pretrained.attention_recorder import AttentionCall, Patch
from core.pretrained.base import ModelInputs, Pretrained, PretrainedError
from core.pretrained.evidence.question import Baseline, Question, ask
from core.pretrained.evidence.sites import Block, Replacement, blocks_of, read_outputs, replace_outputs
from core.pretrained.reading import forward
from core.trace import Kind

Direction = Literal["denoise", "noise"]
ROWS, NUMBERS = 96, 2**21  # rows in one batch, and at most so many cells of a map in it
LEAST = 1e-4  # a difference between the two runs below which nothing can be told

LayerKey = tuple[Kind, int]


@dataclass(frozen=True, eq=False)
class TextPair:
    """Two texts of one model with the same two answers, `output` and `contrast`, and how far apart they are."""

    clean: Baseline
    corrupted: Baseline

    @property
    def pretrained(self) -> Pretrained:
        return self.clean.pretrained

    @property
    def gap(self) -> float:
        return self.clean.value - self.corrupted.value

    def recovered(self, value: float) -> float:
        """A value on the scale from 0, the corrupted run's, to 1, the clean run's."""
        return (value - self.corrupted.value) / self.gap


@dataclass(frozen=True, eq=False)
class PatchEffects:
    """What patching each part recovers; all in the units of `TextPair.recovered`.

    By (kind, layer): `heads` (H,), `attention` of all heads at once and `feed_forward`; `residual` (T,) is the state
    after the layer at each token. `estimates` (H,) are the heads' effects by one gradient (attribution patching).
    """

    direction: Direction
    heads: dict[LayerKey, Float[np.ndarray, " H"]] = field(default_factory=dict)
    attention: dict[LayerKey, float] = field(default_factory=dict)
    feed_forward: dict[LayerKey, float] = field(default_factory=dict)
    residual: dict[LayerKey, Float[np.ndarray, " T"]] = field(default_factory=dict)
    estimates: dict[LayerKey, Float[np.ndarray, " H"]] = field(default_factory=dict)

    def ranked(self) -> list[tuple[LayerKey, int, float]]:
        """Each head with its effect, the largest first; when noising, the largest loss first."""
        rows = [(key, head, float(value)) for key, values in self.heads.items() for head, value in enumerate(values)]
        return sorted(rows, key=lambda row: -row[2] if self.direction == "denoise" else row[2])

    @property
    def agreement(self) -> float | None:
        """The correlation of the heads' estimates with their effects; None where one of them does not vary."""
        keys = [key for key in self.heads if key in self.estimates]
        if not keys:
            return None
        exact, fast = (np.concatenate([values[key] for key in keys]) for values in (self.heads, self.estimates))
        return float(np.corrcoef(exact, fast)[0, 1]) if exact.std() > 0 and fast.std() > 0 else None


def pair_of(pretrained: Pretrained, clean: ModelInputs, corrupted: ModelInputs, output: int | None = None,
            contrast: int | None = None, position: int | None = None) -> TextPair:  # fmt: skip
    """The two texts with the answers that are compared: by default the likeliest one of each text.

    PretrainedError where the texts differ in length, or the model's answers do not.
    """
    if not pretrained.recordable:
        raise PretrainedError(f"{pretrained.name} computes attention in its own code, so the outputs of its heads "
                              "cannot be replaced. Take a model such as BERT, GPT-2 or Llama.")
    first, second = (ask(pretrained, Question(inputs, position)) for inputs in (clean, corrupted))
    for name, lines in (("texts", (first.source, second.source)), ("targets", (first.target, second.target))):
        lengths = [0 if line is None else len(line) for line in lines]
        if lengths[0] != lengths[1]:
            raise PretrainedError(f"The {name} have {lengths[0]} and {lengths[1]} tokens. Patching puts what one "
                                  "computes at a token into the same token of the other: write texts of equal length.")
    if first.answer.logits is None:
        return _checked(TextPair(first, replace(second, reference=first.reference)))
    assert second.answer.logits is not None
    answers = [int(one.logits.argmax()) for one in (first.answer, second.answer) if one.logits is not None]
    wanted = answers[0] if output is None else output
    if contrast is None and wanted == answers[1]:
        raise PretrainedError(f"{pretrained.name} gives the same answer to both texts, so there is nothing to bring "
                              "back. Name two answers, or change the second text.")
    other = answers[1] if contrast is None else contrast
    return _checked(TextPair(*(ask(pretrained, replace(one.question, output=wanted, quantity="difference",
                                                       contrast=other)) for one in (first, second))))


def _checked(pair: TextPair) -> TextPair:
    if abs(pair.gap) < LEAST:
        raise PretrainedError("Both texts have the same difference between the two answers, so there is nothing that a "
                              "part could bring back. Change the second text, or name other answers.")
    return pair


def patch(pair: TextPair, direction: Direction = "denoise") -> PatchEffects:
    """The effect of every head, of each layer's attention and feed-forward network, and of each layer's state.

    Each part of one run is put into the other: of the clean run into the corrupted one to denoise, and back to noise.
    PretrainedError as in `forward`.
    """
    base, other = (pair.corrupted, pair.clean) if direction == "denoise" else (pair.clean, pair.corrupted)
    calls, blocks, states = _outputs(other)
    effects = PatchEffects(direction)
    heads = [(key, head) for key, call in calls.items() for head in range(_heads_of(call))]
    values = _run(pair, base, [((0, *key, head, _out(calls[key])),) for key, head in heads])
    for (key, _), value in zip(heads, values, strict=True):
        effects.heads[key] = np.append(effects.heads.get(key, np.zeros(0)), value)
    whole = _run(pair, base, [((0, *key, None, _out(call)),) for key, call in calls.items()])
    effects.attention.update(zip(calls, whole, strict=True))
    inner = [block for block in blocks if block.feed_forward]
    found = _run(pair, base, [(Replacement(str(block.feed_forward), 0, None, states[str(block.feed_forward)][0]),)
                              for block in inner])
    effects.feed_forward.update({(block.kind, block.layer): value for block, value in zip(inner, found, strict=True)})
    cells = [(block, token) for block in blocks for token in range(states[block.name].shape[1])]
    after = _run(pair, base, [(Replacement(block.name, 0, token, states[block.name][0]),) for block, token in cells])
    for (block, _), value in zip(cells, after, strict=True):
        key = (block.kind, block.layer)
        effects.residual[key] = np.append(effects.residual.get(key, np.zeros(0)), value)
    effects.estimates.update(estimate_heads(pair, direction))
    return effects


def estimate_heads(pair: TextPair, direction: Direction = "denoise") -> dict[LayerKey, Float[np.ndarray, " H"]]:
    """The same effects of heads to first order, from one gradient: (other output − own) · ∂value/∂own output.

    Attribution patching: Nanda 2023; Syed et al. 2023, equation 2. Empty where the value has no gradient.
    """
    base, other = (pair.corrupted, pair.clean) if direction == "denoise" else (pair.clean, pair.corrupted)
    calls, *_ = _outputs(other)
    output, recorder = forward(base.pretrained, base.batch, with_qkv=True, probe=True)
    outs = [call.out for call in recorder.calls if call.out is not None]
    slopes = torch.autograd.grad(base.target_value(base.answer_in(base.batch, output)), outs, allow_unused=True)
    estimates = {}
    for call, slope in zip(recorder.calls, slopes, strict=True):
        if slope is not None:
            change = ((_out(calls[call.kind, call.layer]) - _out(call).detach()) * slope[0]).sum((0, 2))  # (H,)
            estimates[call.kind, call.layer] = (change.numpy() + base.value - pair.corrupted.value) / pair.gap
    return estimates


def _outputs(baseline: Baseline) -> tuple[dict[LayerKey, AttentionCall], tuple[Block, ...], dict[str, Tensor]]:
    """The calls of attention of a run, its layers, and the outputs of layers and feed-forward networks."""
    model, states = baseline.pretrained.model, dict[str, Tensor]()
    _, recorder = forward(baseline.pretrained, baseline.batch, with_qkv=True)
    blocks = blocks_of(model, recorder.calls)
    names = [name for block in blocks for name in (block.name, block.feed_forward) if name]
    forward(baseline.pretrained, baseline.batch, hooks=read_outputs(model, names, states))
    whole = {name for name, values in states.items() if values.ndim == 3}  # experts flatten the tokens
    blocks = tuple(block if block.feed_forward in whole else replace(block, feed_forward=None) for block in blocks)
    return {(call.kind, call.layer): call for call in recorder.calls}, blocks, states


def _heads_of(call: AttentionCall) -> int:
    return call.weights.shape[1]


def _out(call: AttentionCall) -> Float[Tensor, "T H E"]:
    assert call.out is not None
    return call.out[0]


def _run(pair: TextPair, base: Baseline, changes: Sequence[tuple[Patch | Replacement, ...]]) -> list[float]:
    """What each change recovers; many run in one batch, a row each."""
    length = max(len(base.source), len(base.target or ()))
    rows = max(1, min(ROWS, NUMBERS // (length * length)))
    recovered: list[float] = []
    for start in range(0, len(changes), rows):
        part = changes[start:start + rows]
        batch = {name: values.expand(len(part), *values.shape[1:]) for name, values in base.batch.items()}
        patches = [(row, *one[1:]) for row, ones in enumerate(part) for one in ones if isinstance(one, tuple)]
        moved = [replace(one, row=row) for row, ones in enumerate(part) for one in ones if isinstance(one, Replacement)]
        hooks = replace_outputs(base.pretrained.model, moved)
        output, _ = forward(base.pretrained, batch, patches=patches, hooks=hooks)
        for row in range(len(part)):
            answer = answer_of(base.pretrained, batch, output, base.question.position, row)
            recovered.append(pair.recovered(float(base.target_value(answer))))
    return recovered
