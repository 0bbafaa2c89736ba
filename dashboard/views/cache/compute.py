"""What a layer computes, reads and stores at each step of decoding, recorded from a run of the trained model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.attention import attend
from core.pretrained.hf_conversion import TRAINED, encode, load_lab_decoder
from dashboard.server import cache

MOST_PROMPT, STEPS = 16, 8  # tokens of a prompt, and tokens that are written after it
NAMES = ("q", "k", "v")


@dataclass(frozen=True)
class Counts:
    """How many vectors of each type one layer computes, reads from its cache, and stores after a step."""

    computed: dict[str, int]  # by name: q, k, v
    read: int  # stored keys, and as many values
    stored: int

    @property
    def without(self) -> int:
        """Queries, and as many keys and values, that a layer without a cache computes at this step."""
        return self.read + self.computed["k"]


@dataclass(frozen=True, eq=False)
class Decoding:
    """A prompt and the tokens written after it, with every layer's q, k, v (L, H, T, D) and weights, step by step.

    Step 0 reads the prompt; step s reads token `prompt + s − 1`. k and v are those of the cache, keys rotated, and
    repeated for the heads that share them. `weights[s]` (L, H, S) are those of the last token of step s.
    """

    tokens: tuple[str, ...]
    prompt: int
    vectors: dict[str, np.ndarray]
    weights: tuple[np.ndarray, ...]
    counts: tuple[Counts, ...]
    unknown: tuple[str, ...]

    def first_new(self, step: int) -> int:
        """The index of the first token that is read at a step."""
        return 0 if step == 0 else self.prompt + step - 1

    def last(self, step: int) -> int:
        """The index of the last token that is read at a step."""
        return self.prompt + step - 1

    @property
    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of every head."""
        layers, heads = self.weights[0].shape[:2]
        return [(layer, head) for layer in range(layers) for head in range(heads)]

    def sharpest_head(self) -> tuple[int, int]:
        """The head whose largest weight is largest on average over the steps."""
        mean = np.mean([weights.max(-1) for weights in self.weights], axis=0)
        layer, head = np.unravel_index(int(mean.argmax()), mean.shape)
        return int(layer), int(head)


@torch.no_grad()
def decode_steps(text: str) -> Decoding:
    """Read the text, then write STEPS tokens, the likeliest at each step; ValueError for a text without a word."""
    model, task = cache.model(load_lab_decoder, TRAINED)
    tokens, ids, unknown = encode(task, text, MOST_PROMPT)
    if len(tokens) < 2:
        raise ValueError("There is no word here. Type a few words: the model continues them.")
    state, new, queries, weights, counts = model.start(None), ids, [], [], []
    for step in range(STEPS + 1):
        before = state.length
        logits, state, maps = model.read(None, state, new, True)
        causal, heads = maps["causal"], [past.heads for past in state.past if past is not None]
        queries.append(torch.stack([steps.q[0] for steps in causal]))
        weights.append(
            np.stack(
                [steps.weights[0, :, -1].numpy() for steps in causal if steps.weights is not None]
            )
        )
        stored = heads[0][0].shape[-2]
        computed = {
            "q": causal[0].q.shape[-2],
            "k": stored - before,
            "v": heads[0][1].shape[-2] - before,
        }
        counts.append(Counts(computed, before, stored))
        new = logits[:, -1:].argmax(-1)
        if step < STEPS:
            tokens = (
                [*tokens, *task.target_vocab.decode(new[0].tolist())]
                if int(new) > 3
                else [*tokens, "<end>"]
            )
    q = torch.cat(queries, 2)
    k, v = (torch.stack([layer[at][0] for layer in heads]) for at in (0, 1))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    vectors = {name: each.numpy() for name, each in zip(NAMES, (q, k, v), strict=True)}
    return Decoding(tuple(tokens), ids.shape[1], vectors, tuple(weights), tuple(counts), unknown)


def changes(decoding: Decoding) -> dict[str, float]:
    """How much the last token's output changes when all earlier q, k or v are set to zero, relative to its size."""
    tensors = [torch.from_numpy(decoding.vectors[name]) for name in NAMES]
    usual = attend(*tensors).out[:, :, -1]
    result = {}
    for at, name in enumerate(NAMES):
        changed = [each.clone() for each in tensors]
        changed[at][:, :, :-1] = 0
        result[name] = float((attend(*changed).out[:, :, -1] - usual).norm() / usual.norm())
    return result
