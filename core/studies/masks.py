"""What a mask lets a seeded layer see: its weights with and without it, in a stack of layers, a batch, and in PyTorch.

And why the future is hidden: a small model trained with the causal mask and without a mask (`make future` trains again).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from core.attention import AXES, Attention, AttentionConfig, Choice, Steps, entry
from core.attention.masks import COMPOSITIONS, build_mask
from core.attention.masks.content import Selection, selection
from core.attention.masks.patterns import drawing_of, layers_needed
from core.seeding import seeded_layer, seeded_rng
from core.studies.efficient import Saved, save
from core.tasks import Task, TaskConfig, make_task
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

WIDTH, CONTEXT, BATCH_SIZE, RATE = 64, 16, 32, 3e-3
LEARNED, HELD_OUT = 2000, 100  # sentences
RECORDED = (0, 10, 20, 30, 50, 100, 150)  # steps
START, LONGEST = "when ann and", 18  # words that are given, and with those that are written
SEEDS = 3  # of the saved measurement
SAVED = Path(__file__).parent / "data" / "masks.json"


class NextWord(nn.Module):
    """Two layers of attention and feed-forward; each word's vector then scores what the next word may be."""

    def __init__(self, vocabulary: int, mask: str) -> None:
        super().__init__()
        config = AttentionConfig(WIDTH, HEADS, position="rope", mask=mask)
        self.embedding, self.output = nn.Embedding(vocabulary, WIDTH), nn.Linear(WIDTH, vocabulary)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(WIDTH),
                    "attention": Attention(config),
                    "feed_forward": nn.Sequential(
                        nn.LayerNorm(WIDTH),
                        nn.Linear(WIDTH, 2 * WIDTH),
                        nn.ReLU(),
                        nn.Linear(2 * WIDTH, WIDTH),
                    ),
                }
            )
            for _ in range(2)
        )

    def forward(self, words: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        x = self.embedding(words)
        for layer in self.layers:
            x = x + layer["attention"](layer["norm"](x)).merged
            x = x + layer["feed_forward"](x)
        return self.output(x)


class Progress(NamedTuple):
    """A model after some steps, on sentences that it did not learn from.

    `loss` in nats is that of training: all words are the input, and each is to name the next. `accuracy` is the share of
    next words named right when it writes: only the words before are there. `text` is what it writes after START.
    """

    step: int
    loss: float
    accuracy: float
    text: str


@dataclass(frozen=True)
class Comparison:
    """The model with the causal mask and without a mask, at the same steps, from one seed."""

    seed: int
    causal: tuple[Progress, ...]
    unmasked: tuple[Progress, ...]


@lru_cache(maxsize=1)
def sentences() -> tuple[Task, Int[Tensor, " N"], Int[Tensor, " M"]]:
    """The task, and its sentences in one line: those to learn from, and others."""
    task, generator = make_task(TaskConfig.of("names", sentences="names")), torch.Generator()
    lines = []
    for count, held_out in ((LEARNED, False), (HELD_OUT, True)):
        drawn = [task.draw(generator.manual_seed(n), held_out).target for n in range(count)]
        lines.append(torch.tensor(task.target_vocab.encode(chain.from_iterable(drawn))))
    return task, lines[0], lines[1]


def windows(line: Int[Tensor, " N"], count: int, generator: torch.Generator) -> Int[Tensor, "B T"]:
    """Pieces of CONTEXT words, from random places of a line."""
    starts = torch.randint(len(line) - CONTEXT + 1, (count, 1), generator=generator)
    return line[starts + torch.arange(CONTEXT)]


def loss_of(model: NextWord, words: Int[Tensor, "B T"]) -> Tensor:
    """The mean loss in nats where each word names the one after it."""
    return cross_entropy(model(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def train(mask: str, seed: int) -> Iterator[Progress]:
    """Train the model with that mask, and measure it at each step of RECORDED; equal seeds get equal words."""
    task, line, _ = sentences()
    with seeded_rng(seed):
        model = NextWord(len(task.target_vocab), mask)
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    generator = torch.Generator().manual_seed(seed)
    for step in range(RECORDED[-1] + 1):
        if step in RECORDED:
            yield measure(model, step)
        loss_of(model, windows(line, BATCH_SIZE, generator)).backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def measure(model: NextWord, step: int) -> Progress:
    """The model as it is now."""
    task, _, line = sentences()
    words = windows(line, HELD_OUT, torch.Generator().manual_seed(0))
    # a word a call, as when it writes: what comes later is not there yet
    named = torch.stack([model(words[:, :end])[:, -1].argmax(-1) for end in range(1, CONTEXT)], 1)
    accuracy = round(float((named == words[:, 1:]).float().mean()), 4)
    text = torch.tensor([task.target_vocab.encode(START.split())])
    while text.shape[1] < LONGEST:
        text = torch.cat([text, model(text[:, -CONTEXT:])[:, -1:].argmax(-1)], 1)
    loss = round(float(loss_of(model, words)), 4)
    return Progress(step, loss, accuracy, " ".join(task.target_vocab.decode(text[0])))


def train_both(seed: int) -> Iterator[tuple[Progress, Progress]]:
    """Train with the causal mask and without a mask, in turns; both at each step of RECORDED."""
    return zip(train("causal", seed), train("none", seed), strict=True)


def compare_masks(seed: int, count: int = len(RECORDED)) -> Comparison:
    """Train both models from that seed until the first `count` steps of RECORDED are measured."""
    causal, unmasked = zip(*islice(train_both(seed), count), strict=True)
    return Comparison(seed, causal, unmasked)


def load_comparison(seed: int) -> Comparison:
    """Both models from one of SEEDS seeds, as saved (`make future` trains them again)."""
    saved = msgspec.json.decode(SAVED.read_bytes(), type=Saved[tuple[Comparison, ...]])
    return saved.measured[seed]


def main() -> None:
    """Train both models on one thread, and save what they did."""
    torch.set_num_threads(1)
    save(SAVED, Saved(tuple(map(compare_masks, range(SEEDS)))))
