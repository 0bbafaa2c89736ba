"""Steering: a direction that is added to the residual stream after one layer, at every token, while a model writes.

The direction is a difference of means over texts, or what a head writes, as long as the stream itself is on average where
it was read: a strength of 1 adds a vector as long as the state. Turner et al. 2023, Activation Addition; Rimsky et al.
2024, Steering Llama 2 via Contrastive Activation Addition.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from core.interpret.evidence import output_matrix
from core.interpret.lens import layers_of, token_states
from core.interpret.patching import read_outputs, states_of, with_states
from core.models.base import hooked
from core.models.decoding import SearchSettings
from core.pretrained import ModelInputs, Pretrained, PretrainedError, forward, reject_if
from core.pretrained.generate import generate_steps, prepare_generation


@dataclass(frozen=True, eq=False)
class Direction:
    """A vector (C,) of the stream after a layer, as long as the mean of the states where it was read."""

    layer: int
    vector: Float[Tensor, " C"]


@dataclass(frozen=True, eq=False)
class SteeredText:
    """The tokens that follow a text while a direction is added, and the probabilities (V,) of the first of them."""

    tokens: tuple[int, ...]
    probabilities: Float[Tensor, " V"]


def mean_difference(
    pretrained: Pretrained, layer: int, positive: tuple[str, ...], negative: tuple[str, ...]
) -> Direction:
    """The mean state at the last token of some texts, minus that of others. PretrainedError where they are the same."""
    reject_if(not positive or not negative, "A direction needs a text on each side.")
    ends = [
        torch.stack([_states(pretrained, text, layer)[0][-1] for text in texts])
        for texts in (positive, negative)
    ]
    return _direction(layer, ends[0].mean(0) - ends[1].mean(0), torch.cat(ends))


def head_direction(
    pretrained: Pretrained, text: str, layer: int, head: int, token: int
) -> Direction:
    """What a head writes at a token of a text. PretrainedError for no such head or token, or where W_O is not found."""
    states, recorder = _states(pretrained, text, layer)
    inside = f"{layers_of(pretrained)[layer]}."
    calls = [one for one in recorder.calls if one.name.startswith(inside)]
    # of a layer with a state beside attention, the attention
    call = min(calls, key=lambda one: one.state, default=None)
    matrix = None if call is None else output_matrix(call)
    if call is None or matrix is None or head >= len(matrix) or token >= len(states):
        raise PretrainedError(
            f"{pretrained.name} has no head {head} of layer {layer} whose output at token {token} can be read."
        )
    return _direction(layer, call.replaceable[0, token, head] @ matrix[head], states[token][None])


def steer(
    pretrained: Pretrained,
    inputs: ModelInputs,
    direction: Direction,
    strength: float,
    settings: SearchSettings,
) -> SteeredText:
    """A text's best continuation with strength × direction added at every token, its own and new ones; 0 adds nothing."""
    hooks = partial(add_direction, pretrained, direction, strength)
    *_, tree = generate_steps(pretrained, prepare_generation(pretrained, inputs), settings, hooks)
    following = next_probabilities(pretrained, inputs, direction, strength)
    return SteeredText(tree.hypotheses[0].tokens, following)


def next_probabilities(
    pretrained: Pretrained, inputs: ModelInputs, direction: Direction, strength: float
) -> Float[Tensor, " V"]:
    """The probabilities of the token that follows a text with strength × direction added at every token."""
    ids = torch.tensor([prepare_generation(pretrained, inputs).prompt.prefix_tokens])
    added = add_direction(pretrained, direction, strength)
    output, _ = forward(pretrained, {"input_ids": ids}, hooks=added)
    return output.logits[0, -1].float().softmax(-1)


def add_direction(
    pretrained: Pretrained, direction: Direction, strength: float
) -> AbstractContextManager[None]:
    """Hooks that add strength × direction to what the layer returns; none for a strength of 0."""

    def add(module: Any, inputs: Any, output: Any) -> Any:
        states = states_of(output)
        return with_states(output, states + strength * direction.vector.to(states))

    names = [layers_of(pretrained)[direction.layer]] * bool(strength)
    return hooked(pretrained.model.get_submodule(one).register_forward_hook(add) for one in names)


def _states(pretrained: Pretrained, text: str, layer: int) -> tuple[Float[Tensor, "T C"], Any]:
    """The states after a layer at each token of a text that could go on, and the calls of attention."""
    start, names = prepare_generation(pretrained, ModelInputs(text)), layers_of(pretrained)
    reject_if(
        start.batch is not None,
        f"{pretrained.name} reads with one part and writes with another, so no text of yours passes the layers that write. "
        "Take a model that goes on with a text, such as GPT-2.",
    )
    reject_if(
        not 0 <= layer < len(names), f"{pretrained.name} has the layers 0 to {len(names) - 1}."
    )
    states, ids = dict[str, Tensor](), torch.tensor([start.prompt.prefix_tokens])
    hooks = read_outputs(pretrained.model, [names[layer]], states)
    _, recorder = forward(pretrained, {"input_ids": ids}, with_qkv=True, hooks=hooks)
    return token_states(states[names[layer]]).cpu(), recorder


def _direction(layer: int, vector: Tensor, states: Float[Tensor, "N C"]) -> Direction:
    reject_if(not vector.norm(), "Both sides have the same states, so they have no direction.")
    return Direction(layer, vector * states.norm(dim=-1).mean() / vector.norm())
