"""ModelCard: the sizes of a published model as configs of this lab, layer by layer, and what follows from them."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from core.attention import AttentionConfig, Choice, entry
from core.attention.cost import meta_layer

WINDOW = 8  # tokens, in place of hundreds or thousands
# A window of the last tokens is narrower. After five layers with windows of 8 each vector is a mixture of nearly all 19
# tokens of a recall text, in which the sixth layer finds no pair in 1,500 steps; with windows of 4 it does in 400.
LAST = WINDOW // 2
SMALL = {  # axis, choice → its parameters in small
    ("projection", "latent"): {"latent": 32, "rope": 4, "query_latent": 0},
    ("position", "learned"): {"max_len": 512},
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


Kind = Literal["full", "window", "latent", "linear", "no positions"]
KINDS: tuple[Kind, ...] = ("full", "window", "latent", "linear", "no positions")
WINDOWS = {
    "causal_local": ("lookback", 1, 1),
    "local": ("window", 2, 1),
    "chunked": ("size", 1, 0),
    "lightning": ("keys", 1, 0),
}  # mask → its parameter, and keys seen = factor · parameter + 1


@dataclass(frozen=True)
class Extra:
    """Parameters that a choice of ours lacks, or has too many (then negative), with the reason.

    `multiplied` says that they are matrices, which each token is multiplied with.
    """

    name: str
    parameters: int
    reason: str
    multiplied: bool = True


@dataclass(frozen=True)
class AttentionLayer:
    """The attention of a layer: a config, what it says too little or too much, and what it stores beside it.

    `beside` are numbers stored for each token besides keys and values, `state` numbers of the state that is written
    and read, and `held` further numbers, such as a convolution's last inputs, each of one sequence at any length.
    `products` is how often each token multiplies the state: to write, to read, and to correct.
    """

    name: str
    config: AttentionConfig
    extras: tuple[Extra, ...] = ()
    beside: int = 0
    state: int = 0
    held: int = 0
    products: int = 2

    @property
    def kind(self) -> Kind:
        """What the picture colours it by."""
        if self.state:
            return "linear"
        if self.config.projection.key == "latent":
            return "latent"
        if self.config.mask.key in WINDOWS:
            return "window"
        ordered = self.config.position.key not in ("none", "position_temperature")
        return "full" if ordered else "no positions"

    def keys(self, length: int) -> int:
        """How many keys a query attends to at a length."""
        if self.config.mask.key not in WINDOWS:
            return length
        name, factor, more = WINDOWS[self.config.mask.key]
        return min(length, factor * int(self.config.mask[name]) + more)

    def stored(self, length: int) -> int:
        """Numbers stored of one sequence of that length, for the next query.

        A window forgets the key that it will not see; a mask that chooses keys by content forgets none.
        """
        if self.state:
            return self.state + self.held
        seen = self.keys(length + 1) - 1
        tokens = length if self.config.has("mask", "reads content") else seen
        return self.config.sizes.cache * tokens + self.beside * length

    def flops(self, length: int) -> int:
        """Operations for one token that attends to a length: q · k and weights · v, or those with the state."""
        if self.state:
            return 2 * self.products * self.state
        config, indexing = self.config, 0
        if config.mask.key == "lightning":
            indexing = 2 * int(config.mask["heads"]) * int(config.mask["size"]) * length
        a_key = config.score_heads * config.scored_dim + config.num_heads * config.v_dim
        return 2 * a_key * self.keys(length) + indexing

    @property
    def parameters(self) -> int:
        return sum(count_parameters(self.config)) + sum(extra.parameters for extra in self.extras)

    @property
    def matrices(self) -> int:
        """The parameters that each token is multiplied with."""
        return count_parameters(self.config)[0] + sum(
            extra.parameters for extra in self.extras if extra.multiplied
        )


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer, or experts of which each token uses a few, besides one that all use (`shared` wide)."""

    width: int
    gated: bool = True
    bias: bool = False
    experts: int = 0
    used: int = 0
    shared: int = 0
    shared_gate: bool = False  # one number for each token, times the shared expert's output

    def matrices(self, d_model: int, active: bool = True) -> int:
        """The parameters that a token is multiplied with: of the experts it uses, or of all."""
        maps = 3 if self.gated else 2
        router = d_model * (self.experts + self.shared_gate)
        return maps * d_model * (self._count(active) * self.width + self.shared) + router

    def parameters(self, d_model: int, active: bool = True) -> int:
        """The matrices and the biases: of the experts that a token uses, or of all."""
        biases = self.width * (2 if self.gated else 1) + d_model
        return self.matrices(d_model, active) + self.bias * (
            self._count(active) * biases + self.experts
        )

    def _count(self, active: bool) -> int:
        return (self.used if active else self.experts) if self.experts else 1


@dataclass(frozen=True)
class Block:
    """One layer of a stack: its attention, in a decoder perhaps another to the encoder's output, and what follows."""

    attention: AttentionLayer
    feed_forward: FeedForward  # of width 0 where there is none
    norms: int  # parameters of its norms
    cross: AttentionLayer | None = None

    @property
    def attentions(self) -> tuple[AttentionLayer, ...]:
        return (self.attention,) if self.cross is None else (self.attention, self.cross)


@dataclass(frozen=True)
class ModelCard:
    """A published model. `source` says where its numbers stand, `different` what sets it apart, in a sentence.

    `pattern` is the number of blocks after which the attentions repeat. `head` is false where no output map gives each
    word a score, `stores` where a text is read at once and nothing is stored. `remark` says what the numbers leave out.
    """

    key: str
    name: str
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

    @property
    def layers(self) -> tuple[AttentionLayer, ...]:
        """The attention of each layer, in order; that to an encoder after the layer's own."""
        return tuple(layer for block in self.blocks for layer in block.attentions)

    @property
    def attention(self) -> AttentionConfig:
        """The attention of the first layer."""
        return self.layers[0].config

    @property
    def distinct(self) -> dict[AttentionLayer, int]:
        """Each attention once, with the number of layers that have it."""
        return dict(Counter(self.layers))

    @cached_property
    def parameter_rows(self) -> dict[str, int]:
        """All parameters by what they are for."""
        rows = {
            "Word embeddings": self.vocabulary * self.d_model,
            "Output map": self.vocabulary * self.d_model * (self.head and not self.tied),
            "Attention": sum(layer.parameters * count for layer, count in self.distinct.items()),
            "Feed-forward layers": sum(
                block.feed_forward.parameters(self.d_model, active=False) for block in self.blocks
            ),
            "Norms": sum(block.norms for block in self.blocks),
        }
        rows |= {extra.name: extra.parameters for extra in self.extras}
        return {name: count for name, count in rows.items() if count}

    @property
    def parameters(self) -> int:
        return sum(self.parameter_rows.values())

    @cached_property
    def active(self) -> int:
        """The parameters that one token uses: all but the experts it is not sent to."""
        unused = (
            block.feed_forward.parameters(self.d_model, active=False)
            - block.feed_forward.parameters(self.d_model)
            for block in self.blocks
        )
        return self.parameters - sum(unused)

    def cache_numbers(self, length: int) -> int:
        """Numbers that all layers store of one sequence of that length."""
        writing = self.blocks[self.encoder_blocks :] if self.stores else ()
        return sum(layer.stored(length) for block in writing for layer in block.attentions)

    def cache_bytes(self, length: int, number_bytes: int = 2) -> int:
        return number_bytes * self.cache_numbers(length)

    @property
    def longest(self) -> int | None:
        """The longest text that has positions, where each position has a learned vector; None for no such bound."""
        learned = [
            layer.config.position for layer in self.layers if layer.config.position.key == "learned"
        ]
        return int(learned[0]["max_len"]) if learned else None

    @property
    def token_bytes(self) -> int:
        """Bytes that one more token adds while no window is full, in 16-bit numbers; states do not grow."""
        return self.cache_bytes(2) - self.cache_bytes(1)

    @cached_property
    def matrices(self) -> int:
        """The parameters that one token is multiplied with, the output map too."""
        attention = sum(layer.matrices * count for layer, count in self.distinct.items())
        inner = sum(block.feed_forward.matrices(self.d_model) for block in self.blocks)
        beside = sum(extra.parameters for extra in self.extras if extra.multiplied)
        return attention + inner + beside + self.head * self.vocabulary * self.d_model

    def small(self, d_model: int = 64, num_heads: int = 8) -> tuple[AttentionConfig, ...]:
        """The pattern's attentions shrunk for training here; ConfigError where one cannot have that size."""
        return tuple(
            shrink(block.attention.config, d_model, num_heads)
            for block in self.blocks[: self.pattern]
        )

    def flops(self, length: int) -> int:
        """Operations of one token that attends to `length` tokens: two for each number it is multiplied with.

        For a model with an encoder, of one token read and one written.
        """
        return 2 * self.matrices + sum(
            count * layer.flops(length) for layer, count in self.distinct.items()
        )


@lru_cache(maxsize=256)
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
