"""ModelConfig: the model around the attention, frozen, validated when made, to and from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from core.attention import AttentionConfig, entry
from core.attention.masks import MASKS, build_mask
from core.attention.presets import distinct_names
from core.entries import Choice, ConfigError, check_fields, find, quote, refuse_if
from core.serialization import bounds, check_types

STACKED = (
    "transformer",
    "decoder",
    "classifier",
    "one_token",
    "forecaster",
)  # layers of attention and feed-forward
RECURRENT = ("recurrent", "hybrid", "hierarchical")  # cells, with attention beside them
NEW_FIELDS = ("residual", "streams")  # written only where they differ from their defaults
PATTERN_FIELDS = ("following", "decoder_attention", "cross_attention", "kv_shared_layers")
READERS = {  # fields that only some kinds read
    "cell": RECURRENT,
    "bidirectional": RECURRENT,
    "feeding": ("recurrent", "hybrid"),
    "pool": ("classifier",),
    "tied": ("transformer", "decoder", "recurrent", "hybrid"),
    "output_bias": ("transformer", "decoder"),
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
    attention: AttentionConfig | None
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
    def required_attention(self) -> AttentionConfig:
        """`attention` of a model that cannot do without."""
        assert self.attention is not None
        return self.attention

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
    for field in fields(config):
        readers = READERS.get(field.name, (kind,))
        refuse_if(
            kind not in readers and getattr(config, field.name) != field.default,
            f"kind = {kind} does not read {field.name}; leave it at {field.default!r}, or take "
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
