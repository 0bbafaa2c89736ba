"""ModelCard: the sizes of a published model as configs of this lab, layer by layer, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby
from math import lcm
from typing import Any, Literal, TypeVar

import msgspec

from core.attention import AttentionConfig, Choice, entry
from core.attention.cost import meta_layer
from core.entries import refuse_if

WINDOW = 8  # tokens, in place of hundreds or thousands
# A window of the last tokens is narrower. After five layers with windows of 8 each vector is a mixture of nearly all 19
# tokens of a recall text, in which the sixth layer finds no pair in 1,500 steps; with windows of 4 it does in 400.
LAST = WINDOW // 2
LONGEST = 12  # layers of a pattern
SMALL = {  # axis, choice → its parameters in small
    ("projection", "latent"): {"latent": 32, "rope": 4, "query_latent": 0},
    ("position", "learned"): {"max_len": 512},
    ("position", "relative_logits"): {"distance": 64},
    ("mask", "causal_local"): {"lookback": LAST - 1},
    ("mask", "local"): {"window": WINDOW // 2},
    ("mask", "chunked"): {"size": WINDOW},
    ("mask", "lightning"): {"keys": WINDOW, "heads": 2, "size": 8},
    ("mask", "block_max"): {"size": 2, "blocks": LAST, "dim": 8},
    ("mask", "block_mean"): {"size": 2, "blocks": LAST, "heads": 2, "dim": 8},
    ("mask", "block_gated"): {"size": 2, "blocks": LAST, "heads": 2, "dim": 8},
    ("kernel", "hca"): {"size": LAST, "window": LAST},
    ("kernel", "csa"): {"size": 2, "blocks": LAST, "window": LAST, "heads": 2, "dim": 8},
}


def shrink(config: AttentionConfig, d_model: int, num_heads: int) -> AttentionConfig:
    """The config at that size, with as many query heads to a key head as its heads allow; ConfigError where it cannot
    have it."""
    changes = {}
    for axis in ("projection", "position", "mask", "kernel"):
        choice: Choice = getattr(config, axis)
        params = {**choice.kwargs, **SMALL.get((axis, choice.key), {})}
        if "head_dim" in params:
            params["head_dim"] = 0
        if "kv_heads" in params:
            # In the config's proportion, rounded down to a number that divides the query heads.
            fits = max(1, num_heads * config.kv_heads // config.num_heads)
            params["kv_heads"] = max(n for n in range(1, fits + 1) if num_heads % n == 0)
        changes[axis] = Choice.of(choice.key, *choice.parts, **params)
    return config.with_(d_model=d_model, num_heads=num_heads, **changes)


Kind = Literal["full", "window", "latent", "linear", "no positions", "none", "unknown"]
KINDS: tuple[Kind, ...] = (
    "full",
    "window",
    "latent",
    "linear",
    "no positions",
    "none",
    "unknown",
)
# mask → its parameter, and keys seen = factor · parameter + 1
WINDOWS = {
    "causal_local": ("lookback", 1, 1),
    "local": ("window", 2, 1),
    "chunked": ("size", 1, 0),
    "lightning": ("keys", 1, 0),
}
BLOCKS = ("hca", "csa")  # kernels whose keys stand for blocks, beside a window


@dataclass(frozen=True)
class Extra:
    """Parameters that a choice of ours lacks, or has too many (then negative), with the reason.

    `multiplied` says that they are matrices, which each token is multiplied with.
    """

    name: str
    parameters: int
    reason: str
    _: KW_ONLY
    multiplied: bool = True


@dataclass(frozen=True)
class AttentionLayer:
    """The attention of a layer: a config, what it says too little or too much, and what it stores beside it.

    `beside` are numbers stored for each token besides keys and values, `state` numbers of the state that is written
    and read, and `held` further numbers, such as a convolution's last inputs, each of one sequence at any length.
    `products` is how often each token multiplies the state: to write, to read, and to correct. `per_token` and
    `per_key` are the numbers stored of a token and multiplied for a key, where the config's heads have other sizes.
    `unused` are the parameters of experts in it that a token is not sent to. The config is None where our axes have none:
    a convolution, experts alone, or a layer that is `unknown`.
    """

    name: str
    config: AttentionConfig | None
    extras: tuple[Extra, ...] = ()
    beside: int = 0
    state: int = 0
    held: int = 0
    products: int = 2
    per_token: int | None = None
    per_key: int | None = None
    unknown: bool = False
    unused: int = 0

    @property
    def kind(self) -> Kind:
        """What the picture colours it by."""
        if self.unknown:
            return "unknown"
        if self.state:
            return "linear"
        if self.config is None:
            return "none"
        if self.config.projection.key == "latent":
            return "latent"
        if self.config.mask.key in WINDOWS or self.config.kernel.key in BLOCKS:
            return "window"
        ordered = self.config.position.key not in ("none", "position_temperature")
        return "full" if ordered else "no positions"

    def keys(self, length: int) -> int:
        """How many keys, of tokens or of blocks, a query attends to at a length."""
        if self.config is None:
            return 0
        mask, kernel = self.config.mask, self.config.kernel
        if kernel.key in BLOCKS:
            blocks = length // int(kernel["size"])
            chosen = min(blocks, int(kernel["blocks"])) if kernel.key == "csa" else blocks
            return min(length, int(kernel["window"])) + chosen
        if mask.key in ("block_gated", "block_max"):
            blocks, rest = divmod(length, int(mask["size"]))
            count = int(mask["blocks"]) - (mask.key == "block_max" and rest > 0)
            return min(blocks, count) * int(mask["size"]) + rest
        if mask.key not in WINDOWS:
            return length
        name, factor, more = WINDOWS[mask.key]
        return min(length, factor * int(mask[name]) + more)

    def stored(self, length: int) -> int:
        """Numbers stored of one sequence of that length, for the next query.

        A window forgets the key that it will not see; a mask that chooses keys by content forgets none.
        """
        if self.state or self.config is None:
            return self.state + self.held
        if self.config.kernel.key in BLOCKS:
            return self._compressed(self.config.kernel, self.config.sizes.cache, length)
        tokens = length if self.config.has("mask", "reads content") else self.keys(length + 1) - 1
        each = self.config.sizes.cache if self.per_token is None else self.per_token
        return each * tokens + self.beside * length + self.held

    def _compressed(self, kernel: Choice, each: int, length: int) -> int:
        """As DeepSeek-V4 stores it: a window, a key for each block, and c and z of the tokens of the unfinished block.

        Blocks of CSA overlap, so it has two c and z of each token, and those of the last block stay for the next; its
        indexer stores alike.
        """
        size, (blocks, rest) = int(kernel["size"]), divmod(length, int(kernel["size"]))
        near = each * min(length, int(kernel["window"]) - 1)
        if kernel.key == "hca":
            return near + each * (blocks + 2 * rest)
        last = 2 * size if blocks else 0
        return near + (each + int(kernel["dim"])) * (blocks + 4 * rest + last)

    @property
    def added(self) -> int:
        """Numbers that one more token adds while no window is full; where keys stand for blocks, on average."""
        if self.config is None or self.config.kernel.key not in BLOCKS:
            return self.stored(2) - self.stored(1)
        kernel, each = self.config.kernel, self.config.sizes.cache
        index = int(kernel["dim"]) if kernel.key == "csa" else 0
        return each + (each + index) // int(kernel["size"])

    def flops(self, length: int) -> int:
        """Operations for one token that attends to a length: q · k and weights · v, or those with the state; and those
        of an indexer, or of a bias by distance."""
        if self.state or self.config is None:
            return 2 * self.products * self.state
        config, more = self.config, 0
        mask, kernel, position = config.mask, config.kernel, config.position
        if mask.key == "lightning":
            more = 2 * int(mask["heads"]) * int(mask["size"]) * length
        for one in (mask, kernel):
            if one.key == "block_max":  # each key is scored
                more = 2 * config.kv_heads * int(one["dim"]) * length
            if one.key in ("block_gated", "csa"):
                more = 2 * int(one["heads"]) * int(one["dim"]) * (length // int(one["size"]))
        if position.key == "relative_logits":
            more = 2 * config.score_heads * int(position["size"]) * int(position["distance"])
        usual = config.score_heads * config.scored_dim + config.num_heads * config.v_dim
        return 2 * (self.per_key or usual) * self.keys(length) + more

    @property
    def parameters(self) -> int:
        own = count_parameters(self.config) if self.config else (0, 0)
        return sum(own) + sum(extra.parameters for extra in self.extras)

    @property
    def matrices(self) -> int:
        """The parameters that each token is multiplied with."""
        return (count_parameters(self.config)[0] if self.config else 0) + sum(
            extra.parameters for extra in self.extras if extra.multiplied
        )


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer: its parameters, those of them in matrices, and as many of each as one token uses.

    A token uses all but the experts that it is not sent to.
    """

    parameters: int = 0
    matrices: int = 0
    used: int = 0
    used_matrices: int = 0

    @classmethod
    def dense(cls, d_model: int, width: int, gated: bool = True, bias: bool = False) -> FeedForward:
        """One layer of that width, which each token uses as a whole."""
        matrices = (3 if gated else 2) * d_model * width
        every = matrices + bias * (width * (2 if gated else 1) + d_model)
        return cls(every, matrices, every, matrices)


@dataclass(frozen=True)
class Block:
    """One layer of a stack: its attention, perhaps another (to an encoder's output, or beside it), and what follows.

    `again` says that it is an earlier one of the stack, which a token passes once more: its weights are counted there.
    """

    attention: AttentionLayer
    feed_forward: FeedForward
    norms: int  # parameters of its norms
    second: AttentionLayer | None = None
    again: bool = False

    @property
    def attentions(self) -> tuple[AttentionLayer, ...]:
        return (self.attention,) if self.second is None else (self.attention, self.second)


@dataclass(frozen=True)
class ModelCard:
    """A published model. `source` says where its numbers stand, `different` what sets it apart, in a sentence.

    `pattern` is the number of blocks after which the attentions repeat. `head` is false where no output map gives each
    word a score, `stores` where a text is read at once and nothing is stored. `remark` says what the numbers leave out.
    """

    key: str
    name: str
    _: KW_ONLY
    year: int
    url: str
    checkpoint: str
    source: str
    different: str
    d_model: int
    vocabulary: int
    blocks: tuple[Block, ...]
    pattern: int = 1
    tied: bool = False
    encoder_blocks: int = 0  # the first so many blocks read the input; they store nothing
    extras: tuple[Extra, ...] = ()
    head: bool = True
    stores: bool = True
    remark: str = ""
    # its parameters in billions, as its authors print them; empty where none were looked up
    published: str = ""

    @property
    def layers(self) -> tuple[AttentionLayer, ...]:
        """The attention of each layer, in order; that to an encoder after the layer's own."""
        return tuple(layer for block in self.blocks for layer in block.attentions)

    @property
    def known(self) -> bool:
        """Whether every layer is one that the lab has, so that its cache and its operations can be counted."""
        return not any(layer.unknown for layer in self.layers)

    @property
    def attention(self) -> AttentionConfig:
        """The first attention that is one of ours."""
        return next(layer.config for layer in self.layers if layer.config is not None)

    @property
    def distinct(self) -> dict[AttentionLayer, int]:
        """Each attention once, with the number of layers that have it."""
        return dict(Counter(self.layers))

    @property
    def _own(self) -> tuple[Block, ...]:
        """Each block whose weights are its own, once."""
        return tuple(block for block in self.blocks if not block.again)

    @cached_property
    def parameter_rows(self) -> dict[str, int]:
        """All parameters by what they are for."""
        attention = Counter(layer for block in self._own for layer in block.attentions)
        rows = {
            "Word embeddings": self.vocabulary * self.d_model,
            "Output map": self.vocabulary * self.d_model * (self.head and not self.tied),
            "Attention": sum(layer.parameters * count for layer, count in attention.items()),
            "Feed-forward layers": sum(block.feed_forward.parameters for block in self._own),
            "Norms": sum(block.norms for block in self._own),
        }
        rows |= {extra.name: extra.parameters for extra in self.extras}
        return {name: count for name, count in rows.items() if count}

    @property
    def parameters(self) -> int:
        return sum(self.parameter_rows.values())

    @cached_property
    def active(self) -> int:
        """The parameters that one token uses: all but the experts it is not sent to; in a loop, by its first pass."""
        feeds = (block.feed_forward.parameters - block.feed_forward.used for block in self._own)
        mixers = (layer.unused for block in self._own for layer in block.attentions)
        return self.parameters - sum(feeds) - sum(mixers)

    def cache_numbers(self, length: int) -> int:
        """Numbers that all layers store of one sequence of that length."""
        return sum(layer.stored(length) for layer in self._writing)

    @property
    def _writing(self) -> tuple[AttentionLayer, ...]:
        """The attention of each layer that stores something."""
        writing = self.blocks[self.encoder_blocks :] if self.stores else ()
        return tuple(layer for block in writing for layer in block.attentions)

    def cache_bytes(self, length: int, number_bytes: int = 2) -> int:
        return number_bytes * self.cache_numbers(length)

    @property
    def longest(self) -> int | None:
        """The longest text that has positions, where each position has a learned vector; None for no such bound."""
        configs = [layer.config for layer in self.layers if layer.config is not None]
        learned = [one.position for one in configs if one.position.key == "learned"]
        return int(learned[0]["max_len"]) if learned else None

    @property
    def token_bytes(self) -> int:
        """Bytes that one more token adds while no window is full, in 16-bit numbers; states do not grow."""
        return 2 * sum(layer.added for layer in self._writing)

    def late_bytes(self, length: int) -> int:
        """Bytes that one more token adds before that length, on average over the blocks that keys stand for."""
        configs = (layer.config for layer in self.layers if layer.config is not None)
        every = lcm(*(int(one.kernel["size"]) for one in configs if one.kernel.key in BLOCKS))
        return (self.cache_bytes(length) - self.cache_bytes(length - every)) // every

    @cached_property
    def matrices(self) -> int:
        """The parameters that one token is multiplied with, the output map too."""
        attention = sum(layer.matrices * count for layer, count in self.distinct.items())
        inner = sum(block.feed_forward.used_matrices for block in self.blocks)
        beside = sum(extra.parameters for extra in self.extras if extra.multiplied)
        return attention + inner + beside + self.head * self.vocabulary * self.d_model

    @property
    def untrained(self) -> str:
        """Why the pattern cannot be trained in small, in a sentence; empty where it can be."""
        missing = [
            layer.name
            for layer in self.distinct
            if layer.config is None and (layer.unknown or layer.state or layer.held)
        ]
        return (
            f"The lab has no layer like “{missing[0]}”, so this pattern is not trained here."
            if missing
            else "Its layers have two mixers side by side, and those of the lab have one."
            if any(block.second for block in self.blocks) and not self.encoder_blocks
            else f"Its {self.pattern} layers do not repeat, and the lab's patterns have at most {LONGEST}."
            if len(self._pattern) > LONGEST
            else ""
        )

    @property
    def _pattern(self) -> tuple[AttentionConfig, ...]:
        read = [block.attention.config for block in self.blocks[: self.encoder_blocks or None]]
        every = usual_of(read, self.pattern)
        return tuple(config for config in every if config is not None)

    def small(self, d_model: int = 64, num_heads: int = 8) -> tuple[AttentionConfig, ...]:
        """The pattern's attentions shrunk for training here; ConfigError where one cannot have that size, or the lab
        has no such layer."""
        refuse_if(self.untrained, self.untrained)
        return tuple(shrink(config, d_model, num_heads) for config in self._pattern)

    def flops(self, length: int) -> int:
        """Operations of one token that attends to `length` tokens: two for each number it is multiplied with.

        For a model with an encoder, of one token read and one written.
        """
        return 2 * self.matrices + sum(
            count * layer.flops(length) for layer, count in self.distinct.items()
        )

    def to_json(self) -> dict[str, Any]:
        """Each different block once; `order` are runs: how many, and which of them they have."""
        different = list(dict.fromkeys(self.blocks))
        runs = groupby(map(different.index, self.blocks))
        return msgspec.to_builtins(replace(self, blocks=tuple(different))) | {
            "order": [(len(list(run)), at) for at, run in runs]
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelCard:
        card = msgspec.convert(data, cls)
        blocks = (card.blocks[at] for count, at in data["order"] for _ in range(count))
        return replace(card, blocks=tuple(blocks))


@lru_cache(maxsize=512)
def count_parameters(config: AttentionConfig) -> tuple[int, int]:
    """How many learned numbers a layer has in matrices, and how many beside; positions added to x are the model's."""
    layer = meta_layer(config)
    added = entry("position", config.position.key).enters == "x"
    weights = [
        weight
        for name, weight in layer.named_parameters()
        if not (added and name.startswith("position."))
    ]
    inside = sum(
        weight.numel()
        for name, weight in layer.named_parameters()
        if weight.dim() == 2 and not name.startswith("position.")
    )
    return inside, sum(weight.numel() for weight in weights) - inside


def stack(pattern: tuple[Block, ...], layers: int) -> tuple[Block, ...]:
    """That many blocks: the pattern again and again, the last time as far as it goes."""
    return tuple(pattern[layer % len(pattern)] for layer in range(layers))


Layer = TypeVar("Layer", bound=Hashable)


def usual_of(layers: Sequence[Layer], length: int) -> list[Layer]:
    """The most frequent kind at each place of a pattern of that length."""
    return [Counter(layers[at::length]).most_common(1)[0][0] for at in range(length)]


def repeat_of(layers: Sequence[Hashable], longest: int = LONGEST) -> int:
    """After how many layers the kinds repeat, but for one in ten, as the first ones; where they do not, all of them."""
    for length in range(1, min(longest, len(layers)) + 1):
        usual = usual_of(layers, length)
        if sum(one != usual[at % length] for at, one in enumerate(layers)) * 10 <= len(layers):
            return length
    return len(layers)
