"""ModelConfig, the model around the attention, frozen, validated when made, to and from JSON; and the interface of every
model: Shape, ModelOutput, and encoding and stepwise decoding (Seq2Seq)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from core.attention import Absent, AttentionConfig, Steps, distinct_names, entry
from core.attention.masks import MASKS, build_mask
from core.attention.positions import POSITIONS
from core.entries import Choice, ConfigError, check_fields, find, quote, refuse_if
from core.serialization import bounds, check_types
from core.tokens import token_text

# layers of attention and feed-forward
STACKED = ("transformer", "decoder", "classifier", "one_token", "forecaster")
RECURRENT = ("recurrent", "hybrid", "hierarchical")  # cells, with attention beside them
NEW_FIELDS = (
    "residual",
    "streams",
    "scaled_embedding",
)  # written only where they differ from their defaults
PATTERN_FIELDS = ("following", "decoder_attention", "cross_attention", "kv_shared_layers")
READERS = {  # fields that only some kinds read
    "cell": RECURRENT,
    "bidirectional": RECURRENT,
    "feeding": ("recurrent", "hybrid"),
    "pool": ("classifier",),
    "tied": ("transformer", "decoder", "recurrent", "hybrid"),
    "output_bias": ("transformer", "decoder"),
    "scaled_embedding": ("transformer", "decoder", "classifier", *RECURRENT),
    "following": STACKED,
    "decoder_attention": ("transformer",),
    "cross_attention": ("transformer",),
    "kv_shared_layers": ("decoder",),
    "residual": STACKED,
    "streams": STACKED,
}
LONGEST = 12  # attentions in a pattern, as many as a model has layers
_LONG = 256  # tokens; few texts here are longer
# Masks that make sense for another sequence, and for a query without a position.
SOURCE_MASKS: tuple[str, ...] = ("none", "padding", "local_m", "local_p")
UNPLACED_MASKS: tuple[str, ...] = ("none", "padding")


@dataclass(frozen=True)
class ModelConfig:
    """A kind of model and its sizes; ConfigError names a field that does not fit, and what would.

    | kind | what it is |
    | --- | --- |
    | transformer | encoder and decoder (Vaswani 2017); over patches it is image-to-text |
    | decoder | decoder only: a language model, or a source and its target in one line |
    | classifier | encoder only, one answer: over patches a Vision Transformer, over features a table's classifier |
    | one_token | the classifier of many tutorials, for which a whole row of a table is one token |
    | forecaster | encoder only, numbers ahead of a series |
    | recurrent | a recurrent encoder and decoder (Sutskever 2014), with attention (Bahdanau, Luong) or without |
    | hybrid | a BiLSTM and self-attention, an LSTM and cross-attention |
    | hierarchical | words to sentences to one answer, at both levels cells and a learned query (Yang 2016) |

    `attention` configures every attention of the model and has the model's d_model and num_heads; only `recurrent` may
    have None, and then reads the encoder's last state alone. In a stacked model of unlike layers it is that of the
    first layer, `following` has those of the next ones, and this pattern repeats; the decoder of a `transformer` may
    have `decoder_attention` and `cross_attention` of its own. The last `kv_shared_layers` layers of a `decoder` compute
    no keys and values: each takes those of the last layer before them that has the same attention (Gemma 3n).
    The stacked kinds use `norm` (where it stands),
    `normalization` (which), `d_ff` (0 for attention alone), `activation`; a classifier `pool`; those with cells
    `cell`, `bidirectional` and `feeding` (what of the attention enters the next step: nothing, Luong's input feeding,
    Bahdanau's context).
    `residual` is what stands between layers, in pre-norm models: the plain sum of all outputs before; attention over them
    (2603.15031); or hyper-connections (mHC, 2512.24880), `streams` sums that each token mixes.
    `tied` shares one matrix between the target's embedding and the output; `output_bias` is the bias of that output.
    `scaled_embedding` multiplies a token's vector by √C (Vaswani 2017, section 3.4); GPT-2 does not.
    """

    kind: Literal[
        "transformer",
        "decoder",
        "classifier",
        "one_token",
        "forecaster",
        "recurrent",
        "hybrid",
        "hierarchical",
    ]
    d_model: Annotated[int, Meta(ge=1, le=512)]
    num_heads: Annotated[int, Meta(ge=1, le=64)]
    attention: AttentionConfig | Absent
    layers: Annotated[int, Meta(ge=1, le=12)] = 1
    d_ff: Annotated[int, Meta(ge=0, le=4096)] = 64
    norm: Literal["post", "pre"] = "post"
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    cell: Literal["gru", "lstm"] = "gru"
    bidirectional: bool = True
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    normalization: Literal["layer", "rms"] = "layer"
    pool: Literal["first", "mean"] = "first"
    feeding: Literal["none", "input", "bahdanau"] = "none"
    tied: bool = False
    output_bias: bool = True
    following: tuple[AttentionConfig, ...] = ()
    decoder_attention: AttentionConfig | None = None
    cross_attention: AttentionConfig | None = None
    kv_shared_layers: Annotated[int, Meta(ge=0, le=11)] = 0
    residual: Literal["plain", "attention", "hyper"] = "plain"
    streams: Annotated[int, Meta(ge=1, le=8)] = 4
    scaled_embedding: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.following, tuple | list):
            raise ConfigError(
                f"model: following = {quote(self.following)}; expected a list of attentions."
            )
        refuse_if(
            None in self.following,
            "Every layer of a pattern needs an attention; one of them is none.",
        )
        object.__setattr__(self, "following", tuple(self.following))
        check_types(self, "model: ")
        _check(self)

    @property
    def pattern(self) -> tuple[AttentionConfig, ...]:
        """The attentions of the first layers, which repeat over all layers; empty for a model without attention."""
        return () if self.attention is None else (self.attention, *self.following)

    @property
    def attentions(self) -> tuple[AttentionConfig, ...]:
        """The pattern, and the decoder's own attentions where there are any."""
        own = (self.decoder_attention, self.cross_attention)
        return (*self.pattern, *(attention for attention in own if attention is not None))

    def layer_attention(self, layer: int, place: str = "self") -> AttentionConfig:
        """The attention of a layer, from 0: of the pattern, unless its place (causal, cross) has one of its own."""
        own = {"causal": self.decoder_attention, "cross": self.cross_attention}.get(place)
        return own or self.pattern[layer % len(self.pattern)]

    @property
    def layer_names(self) -> tuple[str, ...]:
        """What distinguishes the attention of each layer from those of the others; "" where all are the same."""
        names = distinct_names(self.pattern)
        return tuple(names[layer % len(names)] for layer in range(self.layers)) if names else ()

    def kv_source(self, layer: int) -> int | None:
        """The layer whose keys and values a layer takes, None for one that computes its own."""
        first_shared = self.layers - self.kv_shared_layers
        if layer < first_shared:
            return None
        return next(
            (
                other
                for other in reversed(range(first_shared))
                if self.layer_attention(other) == self.layer_attention(layer)
            ),
            None,
        )

    def with_attentions(
        self, change: Callable[[AttentionConfig], AttentionConfig], **changes: Any
    ) -> ModelConfig:
        """A copy with every attention changed by `change`, and the fields in `changes`."""
        changed: dict[str, Any] = {
            name: change(value)
            for name in ("attention", "decoder_attention", "cross_attention")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **changed, following=tuple(map(change, self.following)), **changes)

    @classmethod
    def transformer(
        cls,
        d_model: int = 32,
        num_heads: int = 2,
        layers: int = 1,
        d_ff: int | None = None,
        *,
        kind: str = "transformer",
        norm: str = "post",
        normalization: str = "layer",
        activation: str = "relu",
        pool: str = "first",
        tied: bool = False,
        output_bias: bool = True,
        dropout: float = 0.0,
        residual: str = "plain",
        streams: int = 4,
        scaled_embedding: bool = True,
        **attention: Choice | str,
    ) -> ModelConfig:
        """A stacked model of any kind; `attention` are fields of its AttentionConfig (position, score, mask, …)."""
        chosen: Any = dict(
            kind=kind,
            norm=norm,
            normalization=normalization,
            activation=activation,
            pool=pool,
            residual=residual,
        )
        return cls(
            d_model=d_model,
            num_heads=num_heads,
            attention=AttentionConfig(d_model, num_heads, dropout=dropout, **attention),
            layers=layers,
            d_ff=2 * d_model if d_ff is None else d_ff,
            dropout=dropout,
            tied=tied,
            output_bias=output_bias,
            streams=streams,
            scaled_embedding=scaled_embedding,
            **chosen,
        )

    @classmethod
    def recurrent(
        cls,
        d_model: int = 64,
        score: Choice | str | None = "dot",
        layers: int = 1,
        *,
        kind: str = "recurrent",
        cell: str = "gru",
        bidirectional: bool = True,
        feeding: str = "none",
        tied: bool = False,
        dropout: float = 0.0,
        num_heads: int = 1,
        **attention: Choice | str,
    ) -> ModelConfig:
        """A model with cells (Luong 2015); score = None for no attention."""
        chosen: Any = dict(kind=kind, cell=cell, feeding=feeding)
        choices: Any = {"projection": "identity", "score": score, **attention}
        return cls(
            d_model=d_model,
            num_heads=num_heads,
            attention=None if score is None else AttentionConfig(d_model, num_heads, **choices),
            layers=layers,
            bidirectional=bidirectional,
            dropout=dropout,
            tied=tied,
            **chosen,
        )

    def to_json(self) -> dict[str, Any]:
        """The fields; those of a pattern only where there is one, and newer ones only where they say something."""
        attentions = {
            name: None if (one := getattr(self, name)) is None else one.to_json()
            for name in ("attention", "decoder_attention", "cross_attention")
        }
        following = {"following": [attention.to_json() for attention in self.following]}
        return {
            name: value
            for name, value in (vars(self) | attentions | following).items()
            if (value or name not in PATTERN_FIELDS)
            and (name not in NEW_FIELDS or value != getattr(type(self), name))
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """ConfigError for a field that is missing or unknown."""
        values = check_fields(cls, data, "A model", ("kind", "d_model", "num_heads", "attention"))
        for name in ("attention", "decoder_attention", "cross_attention"):
            if values.get(name) is not None:
                values[name] = AttentionConfig.from_json(values[name])
        if isinstance(following := values.get("following"), list | tuple):
            values["following"] = [one and AttentionConfig.from_json(one) for one in following]
        return cls(**values)


BOUNDS = bounds(ModelConfig)


def _check(config: ModelConfig) -> None:
    kind, attention = config.kind, config.attention
    refuse_if(
        attention is None and kind != "recurrent",
        f"kind = {kind} needs an attention; attention = none is for kind = recurrent.",
    )
    for one in config.attentions:
        refuse_if(
            (one.d_model, one.num_heads) != (config.d_model, config.num_heads),
            f"The attention has d_model = {one.d_model}, num_heads = {one.num_heads}, but the model "
            f"{config.d_model} and {config.num_heads}; give both the same.",
        )
    for known in fields(config):
        readers = READERS.get(known.name, (kind,))
        refuse_if(
            kind not in readers and getattr(config, known.name) != known.default,
            f"kind = {kind} does not read {known.name}; leave it at {known.default!r}, or take "
            f"kind = {' or '.join(readers)}.",
        )
    (_check_stack if kind in STACKED else _check_cells)(config)


def _check_stack(config: ModelConfig) -> None:
    pattern = config.pattern
    refuse_if(
        config.residual != "plain" and config.norm == "post",
        f"residual = {config.residual} has no sum whose norm post-norm could take; take norm = pre.",
    )
    refuse_if(
        config.residual != "hyper" and config.streams != ModelConfig.streams,
        f"residual = {config.residual} does not read streams; leave it at {ModelConfig.streams}, or take "
        "residual = hyper.",
    )
    refuse_if(
        len(pattern) > LONGEST,
        f"A pattern has at most {LONGEST} attentions; this one has {len(pattern)}.",
    )
    added = [attention.position for attention in pattern if _is_added(attention)]
    if added and (len(set(added)) > 1 or len(added) < len(pattern)):
        raise ConfigError(
            f"position = {added[0].key} is added to the embedding, once for all layers; take it in every "
            "attention of the pattern, or positions that enter the attention (rope, alibi)."
        )
    for name in ("decoder_attention", "cross_attention"):
        own = getattr(config, name)
        if own is not None and _is_added(own):
            raise ConfigError(
                f"{name} has position = {own.position.key}, which is added to the embedding, where the "
                "model's first attention decides; take position = none here."
            )
    for layer in range(max(0, config.layers - config.kv_shared_layers), config.layers):
        attention = config.layer_attention(layer)
        refuse_if(
            config.kv_source(layer) is None,
            f"kv_shared_layers = {config.kv_shared_layers}: no layer before has the attention of layer {layer + 1} "
            f"of {config.layers}, whose keys and values it would take; share fewer layers.",
        )
        refuse_if(
            not attention.has("projection", "shares keys"),
            f"projection = {attention.projection.key} cannot take keys and values from another "
            "layer; take projection = multi_head, grouped_query or multi_query.",
        )
        refuse_if(
            attention.kernel.key != "exact" and not attention.has("kernel", "same"),
            f"kernel = {attention.kernel.key} stores no keys that another layer could take; take "
            "kernel = exact, or kv_shared_layers = 0.",
        )
        refuse_if(
            attention.has("position", "other rows"),
            f"position = {attention.position.key} computes earlier queries again, which shared keys "
            "do not allow; take another position, or kv_shared_layers = 0.",
        )
    refuse_if(
        config.num_heads > 1 and any(one.projection.key == "identity" for one in config.attentions),
        f"A {config.kind} with projection = identity has a single head; take num_heads = 1, or "
        "projection = multi_head.",
    )
    for mask in (attention.mask for attention in pattern):
        refuse_if(
            config.kind == "classifier" and config.pool == "first" and _first_sees_itself(mask),
            "With pool = first the class is read from a token before the source, which mask = "
            f"{mask.key} does not let attend to the source; take pool = mean, or mask = none.",
        )


def _check_cells(config: ModelConfig) -> None:
    kind, attention = config.kind, config.attention
    refuse_if(
        config.bidirectional and config.d_model % 2,
        f"A bidirectional encoder divides d_model = {config.d_model} between two directions; take "
        "an even d_model, or bidirectional = false.",
    )
    refuse_if(
        attention is None and config.feeding != "none",
        f"feeding = {config.feeding} feeds the output of an attention to the decoder; take "
        "feeding = none, or an attention.",
    )
    if attention is None or kind == "hybrid":
        return  # the hybrid's is within one sequence, where all positions and masks make sense
    attends, masks = "attends to another text", SOURCE_MASKS
    if kind == "hierarchical":
        attends, masks = "attends from a learned query, which has no position", UNPLACED_MASKS
        refuse_if(
            config.num_heads > 1, "kind = hierarchical has a single head; take num_heads = 1."
        )
        refuse_if(
            not attention.has("kernel", "same"),
            "kind = hierarchical attends within each sentence by a mask, which kernel = "
            f"{attention.kernel.key} cannot take; take kernel = exact.",
        )
    refuse_if(
        attention.position.key != "none",
        f"kind = {kind} reads tokens in order and needs no positions; position = "
        f"{attention.position.key} does not go with it; take position = none.",
    )
    refuse_if(
        attention.has("projection", "one sequence"),
        f"kind = {kind} {attends}, and projection = {attention.projection.key} is for "
        "one text that attends to itself; take projection = multi_head.",
    )
    refuse_if(
        attention.mask.key not in masks,
        f"kind = {kind} {attends}, so mask = {attention.mask.key} has no meaning; take "
        f"mask = {', '.join(masks)}.",
    )


def _first_sees_itself(mask: Choice) -> bool:
    """Whether the first token of a text attends to itself alone."""
    parts = mask.parts if mask.key == "and" else (mask,)
    if any("causal" in find(MASKS, "mask", part.key).traits for part in parts):
        return True
    try:
        allowed = build_mask(mask, _LONG, _LONG)
    except ConfigError:  # a mask that depends on the queries
        return False
    return allowed is not None and not bool(allowed[..., 0, 1:].any())


def _is_added(attention: AttentionConfig) -> bool:
    return entry("position", attention.position.key).enters == "x"


@dataclass(frozen=True)
class Shape:
    """The type and sizes of a model's input and output, set by its task.

    | input | a source is | `source` counts |
    | --- | --- | --- |
    | tokens | ids (B, S) | words in the vocabulary |
    | features | numbers (B, F), a category as its index | columns; `columns`: 0 for a number, else its categories |
    | patches | numbers (B, P, D) | numbers in a patch; `grid` is (rows, columns) of patches |
    | series | numbers (B, S, D) | channels |

    `output` is tokens (`target` words), label (`target` classes) or values (`target` numbers ahead). `longest` is the
    longest source or target, end mark included; `one_vocabulary` where source and target number the same words;
    `sentence_end` the id of the token that ends a sentence, 0 where no token does.
    """

    source: int
    target: int
    longest: int
    input: str = "tokens"
    output: str = "tokens"
    columns: tuple[int, ...] = ()
    grid: tuple[int, int] = (0, 0)
    one_vocabulary: bool = False
    sentence_end: int = 0


@dataclass(frozen=True)
class EncoderOutput:
    """The encoder's states (those of padding are zero or masked), which of them are real, and its attention."""

    states: Float[Tensor, "B S C"]
    mask: Bool[Tensor, "B S"]
    last: Any = None  # the recurrent encoder's final state; None for the transformer
    steps: tuple[Steps, ...] = ()


@dataclass(frozen=True)
class ModelOutput:
    """Logits (or values), and when recorded the Steps of each layer by kind: self (encoder), causal (decoder), cross;
    of a document its words, a row a sentence, and its sentences.

    `source_attention` holds, layer by layer, the weights of each output on the source, from whichever map has them (the
    cross-attention of a decoder, the lower left of a decoder-only model's map, the row of the token that a classifier
    reads, the product of both levels of a document); `visible` is the number of keys visible to each output, None for
    all of the source. `uniform` is what uniform attention gives, where that is not the same to all visible keys.
    """

    logits: Float[Tensor, B * out]
    maps: dict[str, list[Steps]] = field(default_factory=dict)
    source_attention: list[Float[Tensor, "B H T S"]] = field(default_factory=list)
    visible: Int[Tensor, "B T"] | None = None
    uniform: Float[Tensor, "B T S"] | None = None


class Model(nn.Module):
    """A padded source, and for a decoder the target so far, to a ModelOutput. With `checkpointing` the backward pass
    computes the layers again instead of storing their activations."""

    checkpointing = False

    def __init__(
        self, config: ModelConfig, shape: Shape, inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        """ConfigError unless the model can read such an input and give such an output."""
        super().__init__()
        for name, value, fitting in (
            ("reads", shape.input, inputs),
            ("answers with", shape.output, outputs),
        ):
            refuse_if(
                value not in fitting,
                f"kind = {config.kind} {name} {' or '.join(fitting)}, and this task has {value}; take "
                "one of the kinds that the task names.",
            )
        self.config = config

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits of every output, whatever the padding; `record` returns the Steps, computed by the exact kernel."""
        raise NotImplementedError


class Seq2Seq(Model):
    """An encoder and a decoder; `step` gives the same numbers as `forward` for the same prefix.

    With `one_length` all sources that are decoded together have one length.
    """

    one_length = False

    def encode(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        """The encoding of a padded source, whatever its padding."""
        raise NotImplementedError

    def decode(
        self, memory: EncoderOutput, target_in: Int[Tensor, "B T"], record: bool = False
    ) -> ModelOutput:
        """Logits (B, T, V) of every next token, with teacher forcing."""
        logits, _, maps = self.read(memory, self.start(memory), target_in, record)
        if record and memory.steps:
            maps = {"self": list(memory.steps)} | maps
        return ModelOutput(logits, maps, weights_of(maps.get("cross", ())))

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, T, V) of every next token."""
        if target_in is None:
            raise ValueError("A decoder needs target_in, which starts with the start mark.")
        return self.decode(self.encode(source, source_mask, record), target_in, record)

    def start(self, memory: EncoderOutput) -> Any:
        """The decoder's state before its first token; every tensor in it has the batch first."""
        raise NotImplementedError

    def read(
        self, memory: EncoderOutput, state: Any, tokens: Int[Tensor, "B T"], record: bool = False
    ) -> tuple[Float[Tensor, "B T V"], Any, dict[str, list[Steps]]]:
        """Logits of the next token after each of T more tokens a row, the new state, and the recorded maps."""
        raise NotImplementedError

    def step(
        self, memory: EncoderOutput, state: Any, tokens: Int[Tensor, " B"], record: bool = False
    ) -> tuple[Float[Tensor, "B V"], Any, dict[str, list[Steps]]]:
        """`read` for one token a row."""
        logits, state, maps = self.read(memory, state, tokens[:, None], record)
        return logits[:, 0], state, maps


def weights_of(steps: Iterable[Steps]) -> list[Float[Tensor, "B H T S"]]:
    return [one.weights for one in steps if one.weights is not None]


BEGIN, END, CLASS, ROW, AHEAD = "<bos>", "<eos>", "[class]", "row", "+"
SENTENCE, SENTENCE_END = "sentence", "."
Tokens = tuple[str, ...]


def map_tokens(
    config: ModelConfig, kind: str, source: Sequence[str], target: Sequence[str] | None
) -> tuple[Tokens, Tokens]:
    """The tokens of the rows and of the columns of a map of that kind (as in core.interpret.trace), and so its size. `target`
    is None where the model reads no target (a language model, a classifier); a forecaster's are its values."""
    source_tokens, target_tokens = (
        tuple(token_text(str(token)) for token in line) for line in (source, target or ())
    )
    if kind in ("words", "sentences"):
        sentences = tuple(f"{SENTENCE} {i + 1}" for i in range(len(sentence_spans(source))))
        return (sentences, source_tokens) if kind == "words" else ((CLASS,), sentences)
    if kind == "cross":
        return (*target_tokens, END), source_tokens
    if kind == "causal":
        fed_tokens = () if target is None else (BEGIN, *target_tokens)
        both = (*source_tokens, *fed_tokens) if config.kind == "decoder" else fed_tokens
        return both, both
    if config.kind == "one_token":
        return (ROW,), (ROW,)
    if config.kind == "classifier" and config.pool == "first":
        source_tokens = (CLASS, *source_tokens)
    if config.kind == "forecaster":
        source_tokens = (
            *source_tokens,
            *(f"{AHEAD}{step}" for step in range(1, len(target_tokens) + 1)),
        )
    return source_tokens, source_tokens


def sentence_spans(source: Sequence[str]) -> tuple[range, ...]:
    """The positions of each sentence's tokens; a sentence reaches up to its end mark, the last one to the end."""
    ends = [i + 1 for i, token in enumerate(source) if token == SENTENCE_END]
    return tuple(
        range(start, end)
        for start, end in zip([0, *ends], [*ends, len(source)], strict=True)
        if start < end
    )


class Positions(nn.Module):
    """Adds absolute positions, where the config has them, and dropout. Vaswani 2017, sections 3.5 and 5.4."""

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        """ConfigError where a table of positions is shorter than `max_length`."""
        super().__init__()
        longest = int(dict(config.attention.position.params).get("max_len", max_length))
        refuse_if(
            longest < max_length,
            f"position = learned has max_len = {longest}, but the task reaches {max_length}; "
            f"take max_len ≥ {max_length}, or a position without a table (sinusoidal, rope, alibi).",
        )
        self.position = find(POSITIONS, "position", config.attention.position.key).build(
            config.attention
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B S C"], offset: int = 0) -> Float[Tensor, "B S C"]:
        return self.dropout(self.position.add(x, offset))


class TokenEmbedding(nn.Module):
    """√C · E[token], Vaswani 2017, section 3.4; or E[token]."""

    def __init__(self, vocab: int, size: int, scaled: bool) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, size)
        nn.init.normal_(self.token.weight, std=size**-0.5)
        self.scale = math.sqrt(size) if scaled else 1.0

    def forward(self, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "B S C"]:
        return self.token(tokens) * self.scale

    def tie(self, output: nn.Linear, layers: nn.ModuleList) -> None:
        """Share the matrix with the output layer. It then begins at N(0, σ²) with σ = 2/C, at most 0.05: as large as
        without sharing, it would have each token predict itself. So that L layers do not drown so small an input, what
        their 2L sublayers add begins 1/√(2L) as large (Radford 2019, section 2.3)."""
        output.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=min(0.05, 2 / self.token.embedding_dim))
        for name, weight in layers.named_parameters():
            if name.endswith(("projection.output.weight", "feed_forward.outer.weight")):
                weight.data *= (2 * len(layers)) ** -0.5


class FeatureEmbedding(nn.Module):
    """A table's row as tokens: a number times its column's vector, or the embedding of a category (given by its index),
    plus the column's bias. Gorishniy 2021, section 3.3."""

    def __init__(self, columns: tuple[int, ...], size: int) -> None:
        """`columns` holds 0 for a number, else how many categories the column has."""
        super().__init__()
        self.columns = columns
        self.weight = nn.Parameter(torch.randn(sum(not count for count in columns), size))
        self.bias = nn.Parameter(torch.randn(len(columns), size))
        self.categories = nn.ModuleList(nn.Embedding(count, size) for count in columns if count)

    def forward(self, source: Float[Tensor, "B F"]) -> Float[Tensor, "B F C"]:
        """One vector a column; ValueError for another number of columns."""
        if source.shape[1] != len(self.columns):
            raise ValueError(
                f"A row has {source.shape[1]} columns; this model reads {len(self.columns)}."
            )
        weights, tables = iter(self.weight), iter(self.categories)
        columns = source.nan_to_num().unbind(1)  # missing is masked, but 0 · NaN would be NaN
        parts = [
            next(tables)(column.long()) if count else column[:, None] * next(weights)
            for count, column in zip(self.columns, columns, strict=True)
        ]
        return torch.stack(parts, dim=1) + self.bias


def source_embedding(config: ModelConfig, shape: Shape) -> nn.Module:
    """The embedding of a source of that shape, to (B, S, C), before positions."""
    if shape.input == "tokens":
        return TokenEmbedding(shape.source, config.d_model, config.scaled_embedding)
    if shape.input == "features":
        return FeatureEmbedding(shape.columns, config.d_model)
    # a patch or a moment is numbers: Dosovitskiy 2021, equation 1
    return nn.Linear(shape.source, config.d_model)


def concatenate(
    first: Float[Tensor, "B S C"], first_mask: Bool[Tensor, "B S"], second: Float[Tensor, "B T C"]
) -> tuple[Float[Tensor, "B L C"], Int[Tensor, "B T"]]:
    """Each row's real part of `first`, then `second` without a gap, and the positions of `second`. L = S + T; the
    padding moves to the end, where the causal mask hides it from real positions."""
    (_, size, _), length = first.shape, second.shape[1]
    lengths = first_mask.sum(1, keepdim=True)  # (B, 1)
    positions = lengths + torch.arange(length, device=first.device)
    both = torch.cat((first, second), dim=1)
    if bool((lengths == size).all()):
        return both, positions
    index = torch.arange(size + length, device=first.device).expand(len(first), -1)
    # (B, L)
    moved = torch.where(index < lengths, index, index - lengths + size).clamp(max=size + length - 1)
    return gather_positions(both, moved), positions


def gather_positions(
    x: Float[Tensor, "B L C"], positions: Int[Tensor, "B T"]
) -> Float[Tensor, "B T C"]:
    return x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))


def gather_rows(
    weights: Float[Tensor, "B H L K"],
    positions: Int[Tensor, "B T"],
    source_mask: Bool[Tensor, "B S"],
) -> Float[Tensor, "B H T S"]:
    """The rows of a map at those positions, on the columns of the source; 0 where the source is padding."""
    keys = source_mask.shape[1]
    index = positions[:, None, :, None].expand(-1, weights.shape[1], -1, keys)
    return weights[..., :keys].gather(2, index) * source_mask[:, None, None]


@contextmanager
def hooked(handles: Iterable[AbstractContextManager[Any] | RemovableHandle]) -> Iterator[None]:
    """Hooks on modules, or groups of them, which are removed at the end of the block."""
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield
