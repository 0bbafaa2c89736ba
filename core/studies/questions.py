"""The numbers behind each answer of Questions, and the eight questions of Quiz with numbers drawn anew for each seed.

An answer is computed on small tensors or in closed form: a row for each line of its table. The page shows the source
of these functions, and its script contains it: they use core and torch alone. Of a question of Quiz the right option
and the wrong ones are computed: a wrong one is what a usual mistake gives.
"""

import random
import re
import string
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.cost import attention_cost
from core.models import ModelConfig, Shape, build_model
from core.seeding import seeded_rng
from core.studies.heads import measure_scaling

# What learners ask, and the answer in words; the page adds the numbers.


ANSWERS: dict[str, tuple[str, str]] = {
    "scaling": (
        "Why divide by √D?",
        "A score is a sum of D products, so scores grow with √D. Large ones push the softmax onto a single "
        "key, where its gradient is almost zero.",
    ),
    "names": (
        "Why the names query, key and value?",
        "Attention is a soft dictionary look-up. A dictionary returns the value of the key that equals the "
        "query. Attention scores every key against the query, and returns all values, weighted.",
    ),
    "lengths": (
        "What happens with longer sequences?",
        "Every query is compared with every key: the number of scores grows with the square of the length, "
        "the linear maps only with the length. Kernels that skip keys, or never store the weights, help.",
    ),
    "heads": (
        "Why several heads instead of one?",
        "One head has one set of weights for each query: it can follow one relation at a time. H heads of "
        "size d_model / H cost the same and follow H, such as the previous token and the subject.",
    ),
    "addition": (
        "Why are positions added and not concatenated?",
        "A linear map follows at once, and W(x + p) = Wx + Wp: addition is a concatenation whose two halves "
        "share one matrix. It keeps d_model, and costs no parameters.",
    ),
    "feed_forward": (
        "What does the feed-forward network do?",
        "Attention moves information between tokens, but its output is only a weighted sum of values. The "
        "feed-forward network then transforms each token on its own.",
    ),
    "gradients": (
        "How does attention help gradients?",
        "In a recurrent network the gradient shrinks or grows at every step between two words. Attention "
        "connects any two words in one step; residual connections and norms carry it through many layers.",
    ),
    "masks": (
        "Why does a decoder need a causal mask?",
        "A model that learns to predict the next token must not read it. With a causal mask, all positions "
        "are trained in one pass, and text is generated one token after another.",
    ),
    "importance": (
        "Do the weights show which words are important?",
        "Not by themselves. A large weight on a token whose value is small changes little, and later layers "
        "may undo it. Switch a head off, and measure how the answer changes.",
    ),
    "families": (
        "How do BERT, GPT and T5 differ?",
        "BERT is an encoder: every token attends to every token. GPT is a decoder: each attends to earlier "
        "ones. T5 has both stacks, joined by cross-attention.",
    ),
    "reshaping": (
        "Why view(B, T, H, D).transpose(1, 2) and not view(B, H, T, D)?",
        "The d_model numbers of a token lie side by side in memory. view only cuts this line into pieces. "
        "Cut as (B, H, T, D), a head's row gets numbers of other tokens.",
    ),
    "padding": (
        "Why are padded keys masked, and padded queries not?",
        "A padded key would receive weight from real tokens and change their outputs. A padded query only "
        "makes an extra row of output, which nothing reads.",
    ),
    "one_row": (
        "Why does the fused kernel return no weights?",
        "It goes through the keys in blocks with a running maximum and sum, and never stores all weights: "
        "hence its speed and small memory.",
    ),
    "cache": (
        "What is in the key/value cache?",
        "A new token needs the keys and values of all tokens before it. They do not change, so they are "
        "stored. Heads that share them, or a smaller latent, make the cache smaller.",
    ),
}


# The numbers behind each answer.


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def scaling() -> list[dict]:
    """The standard deviation of q · k, and the largest softmax weight of 64 keys, with and without 1/√D, as on One query."""
    return [
        {
            "D": point.dims,
            "std": point.variance[0] ** 0.5,
            "plain": point.largest[0],
            "scaled": point.largest[1],
        }
        for point in measure_scaling()
        if point.dims in (4, 64, 512)
    ]


D_MODEL = 512  # of the layers that are counted


def lengths(d_model: int = D_MODEL, heads: int = 8) -> list[dict]:
    """FLOPs of one layer's attention, split, and the bytes of its weights in fp32, by length."""
    return [
        {
            "tokens": length,
            "maps": 8 * length * d_model**2,
            "products": 4 * length**2 * d_model,
            "bytes": 4 * heads * length**2,
        }
        for length in (128, 1024, 8192)
    ]


def heads(d_model: int = D_MODEL, length: int = 1024) -> list[dict]:
    """What a layer of that width has and costs by its number of heads."""
    return [
        {
            "heads": count,
            "size": d_model // count,
            "parameters": sum(
                one.numel() for one in Attention(AttentionConfig(d_model, count)).parameters()
            ),
            "FLOPs": attention_cost(AttentionConfig(d_model, count), length, length).flops,
        }
        for count in (1, 2, 4, 8)
    ]


def addition(d_model: int = D_MODEL) -> list[dict]:
    """A linear map of x + p is a linear map of the concatenation (x, p) with a shared matrix."""
    x, p, weight = normal(18, 8).split((5, 5, 8))
    return [
        {"form": "add: W(x + p)", "columns": d_model, "numbers": d_model**2, "difference": 0.0},
        {
            "form": "concatenate: W₁x + W₂p",
            "columns": 2 * d_model,
            "numbers": 2 * d_model**2,
            "difference": (
                ((x + p) @ weight) - (torch.cat((x, p), 1) @ torch.cat((weight, weight)))
            )
            .abs()
            .max()
            .item(),
        },
    ]


def feed_forward(d_model: int = D_MODEL) -> list[dict]:
    """Parameters of a layer with an inner width of 4 · d_model, by part."""
    parts = {
        "attention": 4 * d_model * (d_model + 1),
        "feed-forward": 2 * d_model * 4 * d_model + 5 * d_model,
    }
    return [
        {"part": part, "parameters": count, "share": count / sum(parts.values())}
        for part, count in parts.items()
    ]


def causality() -> list[dict]:
    """What changes when the last of six tokens changes, with and without a causal mask."""
    x = normal(1, 1, 6, 8)
    changed = x.clone()
    changed[..., -1, :] += 1
    differences = {
        name: attend(x, x, x, mask).out - attend(changed, changed, changed, mask).out
        for name, mask in {
            "no mask": None,
            "causal mask": torch.ones(6, 6, dtype=torch.bool).tril(),
        }.items()
    }
    return [
        {"mask": name}
        | {f"output {i}": row for i, row in enumerate(each.abs().amax((0, 1, 3)).tolist())}
        for name, each in differences.items()
    ]


def reshaping() -> list[dict]:
    """Which tokens' numbers each head row gets, for view then transpose, and for view alone."""
    tokens, heads, size = 3, 2, 2
    x = torch.arange(tokens).repeat_interleave(heads * size).view(1, tokens, heads * size)
    right, wrong = x.view(1, tokens, heads, size).transpose(1, 2), x.view(1, heads, tokens, size)
    return [
        {"row": f"head {head}, row {row}"}
        | {
            f"{name} {at}": int(way[0, head, row, at])
            for name, way in (("right", right), ("wrong", wrong))
            for at in range(size)
        }
        for head in range(heads)
        for row in range(tokens)
    ]


def padding() -> list[dict]:
    """Outputs of two real tokens with and without a padded third, its key masked or not."""
    x = normal(1, 1, 3, 4)
    real = torch.tensor([True, True, False])
    alone = attend(x[..., :2, :], x[..., :2, :], x[..., :2, :]).out
    outs = {
        name: attend(x, x, x, mask).out
        for name, mask in {
            "no mask": None,
            "padded key masked": real,
            "padded key and query masked": real & real[:, None],
        }.items()
    }
    return [
        {
            "mask": name,
            "change": (out[..., :2, :] - alone).abs().max().item(),
            "padded": out[..., 2, :].abs().max().item(),
        }
        for name, out in outs.items()
    ]


def cache(layers: int = 32, heads: int = 32, head_dim: int = 128) -> list[dict]:
    """Bytes of keys and values a token in bf16, for shared and latent forms, of a model of 32 layers."""
    return [
        {"keys and values": name, "token": 2 * layers * size, "text": 2 * layers * size * 8192}
        for name, size in {
            f"multi-head ({heads} key/value heads)": 2 * heads * head_dim,
            "grouped (8)": 2 * 8 * head_dim,
            "multi-query (1)": 2 * head_dim,
            "latent (512 + 64)": 512 + 64,
        }.items()
    ]


def one_row(length: int = 4096, head_dim: int = 64) -> list[dict]:
    """What the fused kernel does not store, and what one row costs to compute again."""
    return [
        {
            "what": "all weights of one head",
            "numbers": length**2,
            "FLOPs": 2 * length**2 * head_dim,
        },
        {"what": "one row of weights", "numbers": length, "FLOPs": 2 * length * head_dim},
    ]


def attentions_of(kind: Any, layers: int, shape: Shape) -> dict[str, int]:
    """How many modules of each form of attention a model has that is built here."""
    with seeded_rng(0):
        model = build_model(ModelConfig.transformer(kind=kind, layers=layers), shape)
    names = [path.rpartition(".")[2] for path, _ in model.named_modules()]
    return {part: names.count(part) for part in ("attention", "causal", "cross")}


def families() -> list[dict]:
    """Stacks and attentions of the three families, counted in models built here."""
    return [
        {"family": name} | attentions_of(kind, 2, shape)
        for name, kind, shape in (
            ("BERT: encoder only", "classifier", Shape(9, 3, 8, output="label")),
            ("GPT: decoder only", "decoder", Shape(9, 9, 8)),
            ("T5: encoder–decoder", "transformer", Shape(9, 9, 8)),
        )
    ]


# The questions of Quiz, about the stops of the path and the cache.


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
    rng.shuffle(options)
    if right.startswith("Head"):
        options.sort()
    return Drawn(page, text, tuple(options), options.index(right), why, maps)


def apart(right: float, mistakes: Iterable[float], gap: float) -> list[str]:
    """The first three mistakes that stand at least so far from the right number and from each other, as options."""
    options = [right]
    for mistake in mistakes:
        if all(abs(mistake - option) >= gap for option in options):
            options.append(mistake)
    return [f"{option:.2f}" for option in options[1:4]]


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
    size = 4  # few products: the question is about the scale
    q, k = ([rng.randint(-2, 3) for _ in range(size)] for _ in range(2))
    tensors = (torch.tensor([[[vector]]], dtype=torch.float32) for vector in (q, k, k))
    right, product = attend(*tensors).scores.item(), sum(map(int.__mul__, q, k))
    return make_question(
        rng,
        "one_query",
        f"q = {listed(q)} and k = {listed(k)}. What is their scaled score, "
        "q\u00a0·\u00a0k\u00a0/\u00a0√D?",
        f"{right:.2f}",
        (f"{product:.2f}", f"{product / size:.2f}", f"{product * size**0.5:.2f}"),
        f"q · k = {product} and D = {size}, so the scaled score is {product} / √{size} = {right:.2f}.",
    )


def weight(rng: random.Random) -> Drawn | None:
    first, second = (rng.randint(1, 8) / 2 for _ in range(2))
    if first == second:
        return None
    right, other = torch.tensor([first, second]).softmax(-1).tolist()
    alone = torch.tensor(first).sigmoid().item()
    return make_question(
        rng,
        "one_query",
        f"Two keys have the scores {first:g} and {second:g}. Which weight does the softmax give to the first?",
        f"{right:.2f}",
        apart(
            right, (first / (first + second), other, 0.5, alone, 0.9, 0.75, 0.25, 0.65, 0.35), 0.1
        ),
        f"e^{first:g} / (e^{first:g} + e^{second:g}) = {right:.2f}: only the difference, {abs(first - second):g}, counts.",
    )


def hundredths(rng: random.Random, count: int) -> list[float]:
    """So many different weights of two decimals, none under 0.05, which sum to 1."""
    while len({*(parts := rng.choices(range(5, 60), k=count))}) < count or sum(parts) != 100:
        pass
    return [part / 100 for part in parts]


def previous(rng: random.Random) -> Drawn | None:
    return head_question(
        rng,
        "heads",
        "A row is a letter that takes, a column one that it takes from. Which head takes from the letter before?",
        2,
        "on the diagonal below the main one, the letter before",
    )


def shuffled(rng: random.Random) -> Drawn | None:
    words, weights = rng.sample(WORDS[1:], 4), hundredths(rng, 4)
    order, key = rng.sample(range(4), 4), rng.randrange(4)
    if order.index(key) == key:
        return None
    scores = torch.tensor(weights).log()
    after = dict(zip([words[at] for at in order], scores[order].softmax(-1).tolist(), strict=True))
    right = after[words[key]]
    return make_question(
        rng,
        "positions",
        "Without positions, a query takes "
        f"{', '.join(f'{each:.2f}' for each in weights)} from “{' '.join(words)}”. The words are shuffled to "
        f"“{' '.join(after)}”. Which weight does the word “{words[key]}” get now?",
        f"{right:.2f}",
        (f"{each:.2f}" for at, each in enumerate(weights) if at != key),
        f"A score compares two vectors, whatever their order: the weight moves with its word, so “{words[key]}” "
        f"still gets {right:.2f}.",
    )


def causal(rng: random.Random) -> Drawn | None:
    *others, last = sorted(hundredths(rng, len(WORDS)))
    before = [*rng.sample(others, len(others)), last]
    after = torch.tensor(before[:-1]).log().softmax(-1).tolist()
    asks, key = len(WORDS) - 2, rng.randrange(len(WORDS) - 1)
    return make_question(
        rng,
        "masks",
        f"Without a mask, “{WORDS[asks]}” takes "
        f"{', '.join(f'{each:.2f}' for each in before)} from the words of “{' '.join(WORDS)}”. "
        f"Which weight does the word “{WORDS[key]}” get with a causal mask?",
        f"{after[key]:.2f}",
        apart(
            after[key],
            (
                before[key],
                before[key] + before[-1],
                before[key] + before[-1] / len(after),
                0.0,
                before[-1],
                1.0,
            ),
            0.05,
        ),
        f"The mask hides “{WORDS[-1]}”, which comes later, before the softmax: {before[key]:.2f} / (1 − "
        f"{before[-1]:.2f}) = {after[key]:.2f}, and the others grow by the same factor.",
    )


def needed(rng: random.Random) -> Drawn | None:
    weights = [percent / 100 for percent in rng.sample(range(10, 96), 4)]
    values = torch.tensor(rng.sample((0.2, 0.4, 0.6, 4.0), 4))  # towards the answer's logit
    added = torch.tensor(weights) * values
    whole, without = added.sum().sigmoid().item(), (added.sum() - added).sigmoid().tolist()
    best, largest = int(np.argmin(without)), int(np.argmax(weights))
    if best == largest or sorted(without)[1] - min(without) < 0.1:
        return None
    heads = [
        f"Head {at}: weight {weight:.2f}, without it {share:.2f}"
        for at, (weight, share) in enumerate(zip(weights, without, strict=True))
    ]
    return make_question(
        rng,
        "transformer",
        f"Four heads read *Mary*; the answer has a probability of {whole:.2f}. Each option shows a head’s weight on "
        "*Mary*, and the probability without the head. Which head does the answer need?",
        heads.pop(best),
        heads,
        f"Without head {best} the probability falls to {without[best]:.2f}. Head {largest} has the largest weight, "
        f"{weights[largest]:.2f}, but without it the probability is still {without[largest]:.2f}: a weight shows what a "
        "head takes from, not what the answer needs.",
    )


def reversing(rng: random.Random) -> Drawn | None:
    return head_question(
        rng,
        "train",
        "A model writes letters in reverse order. A row is a letter that it writes. Which head finds the letter "
        "to write?",
        0,
        "on the anti-diagonal, the letter that comes next in reverse",
    )


def head_question(rng: random.Random, page: str, text: str, ideal: int, where: str) -> Drawn | None:
    """Four heads' maps of random letters; one attends as the ideal of that index, of reverse, same, before, even."""
    letters = tuple(rng.sample(string.ascii_lowercase, 6))
    size, noise = len(letters), np.random.default_rng(rng.randrange(2**32))
    ideals = [np.eye(size)[::-1], np.eye(size), np.eye(size, k=-1), np.zeros((size, size))]
    order = rng.sample(range(len(ideals)), len(ideals))
    scores = torch.tensor(
        np.array([4 * ideals[at] + noise.normal(0, 0.7, (size, size)) for at in order])
    )
    letter = torch.eye(size).double().expand(1, len(ideals), size, size)
    weights = attend(scores[None], letter, letter, scale=1.0).weights[0].numpy()
    best, cells = order.index(ideal), ideals[ideal] > 0
    heads = [f"Head {at}" for at in range(len(weights))]
    return make_question(
        rng,
        page,
        text,
        heads.pop(best),
        tuple(heads),
        f"Head {best} puts {weights[best][cells].mean():.2f} of its weight {where}; attention spread evenly over the "
        f"letters would put {1 / size:.2f} there.",
        (weights, letters[::-1] if ideal == 0 else letters, letters),
    )


def stored(rng: random.Random) -> Drawn | None:
    layers, pairs, size = rng.randint(4, 32), rng.choice((2, 4, 8)), rng.choice((16, 32, 64))
    grouped = Choice.of("grouped_query", kv_heads=pairs)
    layer = Attention(AttentionConfig(16 * size, 16, grouped))
    cached = layer.projection.cached(torch.zeros(1, 1, 16 * size))
    right = layers * sum(part.numel() for part in cached)
    return make_question(
        rng,
        "cache",
        f"A decoder has {layers} layers with 16 query heads and {pairs} key/value heads of size {size}. How many numbers "
        "does its key/value cache grow by with each token?",
        f"{right:,}",
        (f"{right // 2:,}", f"{right // layers:,}", f"{right // pairs * 16:,}"),
        f"Each layer stores a key and a value for each key/value head: {layers} × 2 × {pairs} × {size} = {right:,}. "
        "Queries are not stored, so their 16 heads do not count.",
    )


QUESTIONS: tuple[Callable[[random.Random], Drawn | None], ...] = (
    bottleneck,
    score,
    weight,
    previous,
    shuffled,
    causal,
    needed,
    reversing,
    stored,
)
PAGES = ("why", *2 * ("one_query",), "heads", "positions", "masks", "transformer", "train", "cache")


def left_out(seen: Collection[str]) -> int:
    """The question that a quiz of eight leaves out: the last one about a page that was not seen, else the second of two."""
    return max((at for at, page in enumerate(PAGES) if page not in seen), default=2)


def quiz(seed: int, without: int = len(PAGES) - 1) -> tuple[Drawn, ...]:
    """The questions of a seed in the order of the path, but for one."""
    rng = random.Random(seed)
    drawn = []
    for draw in QUESTIONS:
        while (question := draw(rng)) is None:  # a rare tie of two options
            pass
        drawn.append(question)
    return tuple(drawn[:without] + drawn[without + 1 :])
