"""What a mask lets a seeded layer see: its weights with and without it, in a stack of layers, a batch, and in PyTorch.

And why the future is hidden: a small model trained with the causal mask and without a mask (`make future` trains again).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from core.attention import AXES, AttentionConfig, Choice, Steps, entry
from core.attention.masks import COMPOSITIONS, build_mask
from core.attention.masks.content import Selection, selection
from core.attention.masks.patterns import drawing_of, layers_needed
from core.models import Encoder, ModelConfig
from core.seeding import seeded_layer, seeded_rng
from core.studies.efficient import Saved, save
from core.tasks import PAD as PAD_ID, Task, TaskConfig, make_task
from core.tokens import embed, labels, tokenize

D_MODEL, HEADS, SEED = 16, 4, 126
TINY = 1e-30  # in place of a weight of 0, which nothing divides
PAD = "[pad]"
BATCH = ("The animal was too tired .", "It slept .", "A long day ends here at last .")


@dataclass(frozen=True, eq=False)
class MaskEffect:
    """One head with and without the mask: all are (T, T)."""

    names: tuple[str, ...]
    scores: np.ndarray
    before: np.ndarray
    after: np.ndarray
    allowed: np.ndarray
    factor: np.ndarray | None  # of the weights, by the mask; None for none
    # layers of this mask until a query receives anything of a key; 0 where no depth is enough
    needed: np.ndarray
    selection: Selection | None = None  # held against the causal mask, of a mask that reads content

    @property
    def drawing(self) -> str:
        """The mask as the text of a drawing."""
        return drawing_of(torch.from_numpy(self.allowed))

    @property
    def telling_cell(self) -> tuple[int, int]:
        """The query whose weights the mask changes most, of those that see the median number of keys, and its key."""
        keys, change = self.allowed.sum(1), np.abs(self.after - self.before).sum(1)
        min_keys = min(max(float(np.median(keys)), 2.0), keys.max())
        query = int(np.where(keys >= min_keys, change, -1.0).argmax())
        return query, int(self.after[query].argmax())


@dataclass(frozen=True, eq=False)
class Sentence:
    """One row of a padded batch: its tokens and padding, weights and allowed (T, T), and how many tokens are real."""

    names: tuple[str, ...]
    weights: np.ndarray
    allowed: np.ndarray
    real: int
    leak: float  # the mean weight that its words put on padding when nothing masks it


def config_of(mask: Choice) -> AttentionConfig:
    """The layer of the page with that mask; ConfigError where it does not fit."""
    return AttentionConfig(D_MODEL, HEADS, mask=mask)


def steps_of(mask: Choice, tokens: tuple[str, ...], real: int | None = None) -> Steps:
    """Every step of the seeded layer on the tokens; from `real` on they are padding."""
    key_mask = None if real is None else (torch.arange(len(tokens)) < real)[None]
    with torch.inference_mode():
        return seeded_layer(config_of(mask), SEED)(embed(tokens, D_MODEL, SEED), key_mask=key_mask)


def mask_effect(mask: Choice, tokens: tuple[str, ...], real: int | None, head: int) -> MaskEffect:
    """One head of the layer on the tokens, with the mask and without; ConfigError for a mask that cannot be built."""
    unmasked, masked = steps_of(Choice("none"), tokens), steps_of(mask, tokens, real)
    factor = (
        None
        if masked.normalized is None
        else _head(masked.weights / masked.normalized.clamp_min(TINY), head)
    )
    allowed, selected = allowed_of(masked, head), None
    if any("reads content" in entry("mask", part.key).traits for part in mask.walk()):
        full = steps_of(Choice("causal"), tokens).weights[:, head : head + 1]
        count = max(1, round(float(allowed.sum(1).mean())))
        selected = selection(torch.from_numpy(allowed), full, count)
    return MaskEffect(
        labels(tokens),
        _head(masked.scores, head),
        _head(unmasked.weights, head),
        _head(masked.weights, head),
        allowed,
        factor,
        layers_needed(torch.from_numpy(allowed)).numpy(),
        selected,
    )


@dataclass(frozen=True)
class TorchCheck:
    """nn.MultiheadAttention with the weights of the page's layer, run with the mask inverted and as it is here."""

    difference: float  # the largest of all weights, with the inverted mask, in rows that have a key
    forbidden: float  # the mean share of weight on forbidden keys, when the mask is passed without inverting it
    nan_rows: int  # queries without a key, for which it returns NaN


def torch_check(mask: Choice, tokens: tuple[str, ...], real: int | None) -> TorchCheck | None:
    """Run the same mask in nn.MultiheadAttention; None for a mask that also multiplies the weights."""
    steps, layer = steps_of(mask, tokens, real), seeded_layer(config_of(mask), SEED)
    if steps.normalized is not None:
        return None
    allowed = whole(steps.mask, *steps.scores.shape)[0]
    x = embed(tokens, D_MODEL, SEED)
    projection = layer.projection  # whose biases begin as 0, like PyTorch's
    other = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True).eval()
    maps = (projection.query, projection.key, projection.value)
    with torch.inference_mode():
        other.in_proj_weight.copy_(torch.cat([each.weight for each in maps]))
        converted, copied = (
            other(x, x, x, attn_mask=each, average_attn_weights=False)[1][0]
            for each in (~allowed, allowed)
        )
    blind = converted.isnan().any(-1)
    gap = (converted - steps.weights[0]).abs()[~blind]
    share = (copied * ~allowed).sum(-1)
    finite = share[~share.isnan()]
    return TorchCheck(
        float(gap.max()) if gap.numel() else 0.0,
        float(finite.mean()) if finite.numel() else 0.0,
        int(blind.all(0).sum()),
    )


def _head(matrix: torch.Tensor, head: int) -> np.ndarray:
    return matrix[0, head].float().numpy()


def allowed_of(steps: Steps, head: int, item: int = 0) -> np.ndarray:
    """The mask of one head as a full bool matrix."""
    return np.ascontiguousarray(whole(steps.mask, *steps.scores.shape)[item, head].numpy())


def whole(mask: torch.Tensor | None, *shape: int) -> torch.Tensor:
    """A mask in its full shape; all keys are allowed without one."""
    return torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)


# name, rule, cells, layers until all pairs that can meet have met, never
Pattern = tuple[str, str, int, int, int]


def patterns(tokens: int) -> list[Pattern]:
    """Every mask that depends on positions alone, at its defaults, the fewest cells first."""
    result = []
    for item in AXES["mask"]:
        if item.key in COMPOSITIONS or item.key in ("padding", "drawn") or item.traits:
            continue
        mask = config_of(Choice(item.key)).mask
        allowed = whole(build_mask(mask, tokens, tokens), tokens, tokens)
        needed = layers_needed(allowed)
        rule = item.short.format(**dict(mask.params))
        counts = int(allowed.sum()), int(needed.max()), int((needed == 0).sum())
        result.append((item.name, rule, *counts))
    return sorted(result, key=lambda pattern: pattern[2])


def batch(mask: Choice, head: int) -> list[Sentence]:
    """Three sentences of unequal length in one batch, with the page's mask and their padding masked."""
    cut = [tokenize(text).tokens for text in BATCH]
    longest = max(map(len, cut))
    padded = [tokens + (PAD,) * (longest - len(tokens)) for tokens in cut]
    x = torch.cat([embed(tokens, D_MODEL, SEED) for tokens in padded])
    key_mask = torch.tensor(
        [[True] * len(tokens) + [False] * (longest - len(tokens)) for tokens in cut]
    )
    with torch.inference_mode():
        masked = seeded_layer(config_of(mask), SEED)(x, key_mask=key_mask)
        unmasked = seeded_layer(config_of(Choice("none")), SEED)(x)
    return [
        Sentence(
            tokens,
            masked.weights[item, head].float().numpy(),
            allowed_of(masked, head, item),
            len(words),
            float(unmasked.weights[item, head, : len(words), len(words) :].sum(-1).mean()),
        )
        for item, (tokens, words) in enumerate(zip(padded, cut, strict=True))
    ]


# Why the future is hidden: the same small model, trained with the causal mask and without a mask.

WIDTH, BATCH_SIZE, RATE, HELD_OUT = (
    64,
    32,
    3e-3,
    100,
)  # the last: sentences that it does not learn from
RECORDED = (0, 10, 20, 30, 50, 100, 150)  # steps
START, CONTEXT = "when ann and", 16  # words that are given; words that a model has at once, at most
SAVED, SEEDS = Path(__file__).parent / "data" / "masks.json", 3


class NextWord(nn.Module):
    """Two layers of attention and feed-forward; the vector of each word then scores what the next word may be."""

    def __init__(self, vocabulary: int, mask: str) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(vocabulary, WIDTH), nn.Linear(WIDTH, vocabulary)
        # An encoder whose mask is causal is a decoder.
        attention: Any = {"mask": mask, "position": "rope"}
        config = ModelConfig.transformer(
            WIDTH, HEADS, 2, kind="classifier", pool="mean", norm="pre", **attention
        )
        self.layers = Encoder(config)

    def forward(self, words: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.output(self.layers(self.embedding(words))[0])


class Progress(NamedTuple):
    """A model after some steps, on sentences that it did not learn from.

    `loss`, in nats, is that of training: all words are the input, and each is to name the next. `writing` is the same
    where only the words before are there, as when it writes. `text` is what it writes after START.
    """

    step: int
    loss: float
    writing: float
    text: str


def windows(sentences: Int[Tensor, "N L"]) -> Int[Tensor, "B T"]:
    """Padded sentences as one line, cut into pieces of CONTEXT words."""
    line = sentences[sentences != PAD_ID]
    return line[: len(line) // CONTEXT * CONTEXT].view(-1, CONTEXT)


def loss_of(scores: Float[Tensor, "B T V"], following: Int[Tensor, "B T"]) -> Tensor:
    """The mean loss in nats, where each word's scores are to name the word that follows it."""
    return cross_entropy(scores.flatten(0, 1), following.flatten())


def train(mask: str, seed: int) -> Iterator[Progress]:
    """Train the model with that mask, and measure it at each step of RECORDED; equal seeds get equal sentences."""
    task = make_task(TaskConfig.of("names", sentences="names"))
    with seeded_rng(seed):
        model = NextWord(len(task.target_vocab), mask)
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    generator = torch.Generator().manual_seed(seed)
    for step in range(RECORDED[-1] + 1):
        if step in RECORDED:
            yield measure(model, task, step)
        words = windows(task.batch(BATCH_SIZE, generator).target_out)
        loss_of(model(words)[:, :-1], words[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def measure(model: NextWord, task: Task, step: int) -> Progress:
    """The model as it is after that step."""
    words = windows(task.collate(task.held_out(HELD_OUT)).target_out)
    # word by word: what comes later is not there yet
    writing = torch.stack([model(words[:, :end])[:, -1] for end in range(1, CONTEXT)], 1)
    loss, alone = (
        round(float(loss_of(scores, words[:, 1:])), 4) for scores in (model(words)[:, :-1], writing)
    )
    text = torch.tensor([task.target_vocab.encode(START.split())])
    while text.shape[1] < CONTEXT:
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], 1)
    written = " ".join(task.target_vocab.decode(text[0].tolist()))
    return Progress(step, loss, alone, written)


Models = dict[str, tuple[Progress, ...]]  # by mask


def compare_masks(seed: int, count: int = len(RECORDED)) -> Models:
    """Train both models from that seed until the first `count` steps of RECORDED are measured."""
    return {mask: tuple(islice(train(mask, seed), count)) for mask in ("causal", "none")}


def load_models(seed: int) -> Models:
    """Both models from one of SEEDS seeds, as saved (`make future` trains them again)."""
    return msgspec.json.decode(SAVED.read_bytes(), type=Saved[tuple[Models, ...]]).measured[seed]


def main() -> None:
    """Train both models on one thread, and save what they did."""
    torch.set_num_threads(1)
    save(SAVED, Saved(tuple(map(compare_masks, range(SEEDS)))))
