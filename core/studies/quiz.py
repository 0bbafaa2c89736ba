"""Eight questions about the stops of the path, with numbers that are drawn anew for each seed.

The right option and the wrong ones are computed: a wrong one is what a usual mistake gives.
"""

import random
import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from core.attention import Attention, AttentionConfig, attend
from core.attention.positions.rotary import Rotary
from core.models import ModelConfig, Shape, build_model
from core.seeding import seeded_rng

WORDS = ("The", "cat", "chased", "a", "mouse")


# Weights (heads, T, T) that belong to a question, with the letter that is written in each row and read in each column.
Maps: TypeAlias = tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Drawn:
    """A question about a page of the path; `answer` is the index of the right option, `why` says how it is computed."""

    page: str
    text: str
    options: tuple[str, ...]
    answer: int
    why: str
    maps: Maps | None = None


def make_question(
    rng: random.Random,
    page: str,
    text: str,
    right: str,
    wrong: Iterable[str],
    why: str,
    maps: Maps | None = None,
) -> Drawn | None:
    """The question with its options in a random order, heads in theirs; None where two options are the same."""
    text, why, right, *wrong = (
        re.sub(r"-(?=\d)", "−", each) for each in (text, why, right, *wrong)
    )
    options = [right, *wrong]
    if len(set(options)) < len(options):
        return None
    if maps is None:
        rng.shuffle(options)
    else:
        options.sort()
    return Drawn(page, text, tuple(options), options.index(right), why, maps)


def listed(values: list[float] | list[int]) -> str:
    return f"({', '.join(f'{value:g}' for value in values)})"


def bottleneck(rng: random.Random) -> Drawn | None:
    words, size = rng.randint(11, 30), rng.choice((16, 32, 64))
    return make_question(
        rng,
        "why",
        f"A sentence has {words} words, and a vector {size} numbers. How many numbers can a translator read "
        "with attention?",
        f"{words * size:,}",
        (f"{size:,}", f"{words + size:,}", f"{words**2:,}"),
        f"Attention reads the vectors of all words, {words} × {size} = {words * size:,} numbers; one vector for the "
        f"whole sentence would leave {size}.",
    )


def score(rng: random.Random) -> Drawn | None:
    size = rng.choice((4, 9))
    q, k = ([rng.randint(-2, 3) for _ in range(size)] for _ in range(2))
    tensors = (torch.tensor([[[vector]]], dtype=torch.float32) for vector in (q, k, k))
    right, product = attend(*tensors).scores.item(), sum(map(int.__mul__, q, k))
    return make_question(
        rng,
        "one_query",
        f"q = {listed(q)} and k = {listed(k)}. What is their score, q · k / √D?",
        f"{right:.2f}",
        (f"{product:.2f}", f"{product / size:.2f}", f"{product * size**0.5:.2f}"),
        f"q · k = {product} and D = {size}, so the score is {product} / {size**0.5:g} = {right:.2f}.",
    )


def weight(rng: random.Random) -> Drawn | None:
    first, second = (rng.randint(1, 8) / 2 for _ in range(2))
    right, other = torch.tensor([first, second]).softmax(-1).tolist()
    return make_question(
        rng,
        "one_query",
        f"Two keys have the scores {first:g} and {second:g}. Which weight does the softmax give to the first?",
        f"{right:.2f}",
        (
            f"{first / (first + second):.2f}",
            f"{other:.2f}",
            f"{first**2 / (first**2 + second**2):.2f}",
        ),
        f"e^{first:g} / (e^{first:g} + e^{second:g}) = {right:.2f}: only the difference, {abs(first - second):g}, counts.",
    )


def projection(rng: random.Random) -> Drawn | None:
    heads, size = rng.choice((2, 4, 8)), rng.choice((32, 64, 128))
    layer = Attention(AttentionConfig(d_model=size, num_heads=heads))
    every = layer.get_parameter("projection.query.weight").numel()
    right, head = every // heads, size // heads
    return make_question(
        rng,
        "heads",
        f"Attention with d_model = {size} has {heads} heads. How many parameters does W_q have for one head, "
        "without a bias?",
        f"{right:,}",
        (f"{every:,}", f"{head**2:,}", f"{3 * every:,}"),
        f"Each head has D = {size} / {heads} = {head}, and its part of W_q is {size} × {head} = {right:,}.",
    )


def rotation(rng: random.Random) -> Drawn | None:
    query, distance = rng.randint(6, 12), rng.randint(2, 5)
    shift = rng.randint(3, 20)
    pairs = {
        (query + shift, query - distance + shift),
        (query, query - distance + 1),
        (query - distance, query),
        (query + shift, query - distance),
    }
    turned = Rotary(4, 100.0, "interleaved").rotate(torch.ones(1, 1, 64, 4))[0, 0]
    scores = {pair: float(turned[pair[0]] @ turned[pair[1]]) for pair in pairs}
    mine = float(turned[query] @ turned[query - distance])
    right = (query + shift, query - distance + shift)
    names = {pair: f"{pair[0]} and {pair[1]}" for pair in pairs}
    return make_question(
        rng,
        "positions",
        f"Rotary positions turn q and k by their positions. The query is at {query}, the key at "
        f"{query - distance}. At which positions do the same q and k always get the same score?",
        names[right],
        tuple(names[pair] for pair in sorted(pairs - {right})),
        f"Only the distance counts: {query} − {query - distance} = {right[0]} − {right[1]} = {distance}; for "
        f"q = k = (1, 1, 1, 1) both score {mine:.2f} and {scores[right]:.2f}.",
    )


def causal(rng: random.Random) -> Drawn | None:
    scores = [*(rng.randint(0, 4) / 2 for _ in WORDS[:-1]), rng.randint(4, 6) / 2]
    before, after = (torch.tensor(part).softmax(-1).tolist() for part in (scores, scores[:-1]))
    asks, key = len(WORDS) - 2, rng.randrange(len(WORDS) - 1)
    return make_question(
        rng,
        "masks",
        f"Without a mask, *{WORDS[asks]}* gives the words of *{' '.join(WORDS)}* the weights "
        f"{', '.join(f'{each:.2f}' for each in before)}. Which does *{WORDS[key]}* get with a causal mask?",
        f"{after[key]:.2f}",
        (
            f"{before[key]:.2f}",
            f"{before[key] + before[-1]:.2f}",
            f"{before[key] + before[-1] / len(scores[:-1]):.2f}",
        ),
        f"The mask hides *{WORDS[-1]}*, which comes later, before the softmax: {before[key]:.2f} / (1 − "
        f"{before[-1]:.2f}) = {after[key]:.2f}, and the others grow by the same factor.",
    )


def attentions(rng: random.Random) -> Drawn | None:
    layers = rng.randint(2, 6)
    with seeded_rng(0):
        model = build_model(ModelConfig.transformer(layers=layers), Shape(9, 9, 8))
    names = [path.rpartition(".")[2] for path, _ in model.named_modules()]
    each = {part: names.count(part) for part in ("attention", "causal", "cross")}
    right = sum(each.values())
    return make_question(
        rng,
        "transformer",
        f"A translator has {layers} encoder and {layers} decoder layers. How many of its blocks are attention?",
        f"{right}",
        (f"{layers}", f"{2 * layers}", f"{4 * layers}"),
        f"{each['attention']} in the encoder, {each['causal']} with a causal mask in the decoder, and "
        f"{each['cross']} from the decoder to the encoder: {right}.",
    )


def reversing(rng: random.Random) -> Drawn | None:
    letters = tuple(rng.sample(string.ascii_lowercase, 6))
    size, noise = len(letters), np.random.default_rng(rng.randrange(2**32))
    ideals = [np.eye(size)[::-1], np.eye(size), np.eye(size, k=-1), np.zeros((size, size))]
    order = rng.sample(range(len(ideals)), len(ideals))
    scores = torch.tensor(
        np.array([4 * ideals[at] + noise.normal(0, 0.7, (size, size)) for at in order])
    )
    letter = torch.eye(size).double().expand(1, len(ideals), size, size)
    weights = attend(scores[None], letter, letter, scale=1.0).weights[0].numpy()
    along = [float(head[::-1].diagonal().mean()) for head in weights]
    best = int(np.argmax(along))
    heads = [f"Head {at}" for at in range(len(weights))]
    return make_question(
        rng,
        "train",
        "A model writes letters in reverse order. A row is a letter that it writes. Which head finds the letter "
        "to write?",
        heads.pop(best),
        tuple(heads),
        f"Head {best} puts {along[best]:.2f} of its weight on the anti-diagonal, the letter that comes next in "
        f"reverse; even attention would put {1 / size:.2f}.",
        (weights, letters[::-1], letters),
    )


QUESTIONS: tuple[Callable[[random.Random], Drawn | None], ...] = (
    bottleneck,
    score,
    weight,
    projection,
    rotation,
    causal,
    attentions,
    reversing,
)


def quiz(seed: int) -> tuple[Drawn, ...]:
    """The eight questions of a seed, in the order of the path."""
    rng = random.Random(seed)
    drawn = []
    for draw in QUESTIONS:
        while (question := draw(rng)) is None:  # a rare tie of two options
            pass
        drawn.append(question)
    return tuple(drawn)
