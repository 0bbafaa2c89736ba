"""ModelConfig: the model around the attention, frozen, validated when made, to and from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from core.attention import AttentionConfig, entry
from core.attention.masks import MASKS, build_mask
from core.attention.presets import distinct_names
from core.entries import Choice, ConfigError, check_fields, find, quote

STACKED = (
    "transformer",
    "decoder",
    "classifier",
    "one_token",
    "forecaster",
)  # layers of attention and feed-forward
RECURRENT = ("recurrent", "hybrid", "hierarchical")  # cells, with attention beside them
_CHOICES = {
    "kind": (*STACKED, *RECURRENT),
    "cell": ("gru", "lstm"),
    "norm": ("post", "pre"),
    "normalization": ("layer", "rms"),
    "activation": ("relu", "gelu", "swiglu"),
    "pool": ("first", "mean"),
    "feeding": ("none", "input", "bahdanau"),
}
_FLAGS = ("bidirectional", "tied", "output_bias")
_OUTPUT_FLAGS = ("tied", "output_bias")
_READS = {
    "transformer": _OUTPUT_FLAGS,
    "decoder": _OUTPUT_FLAGS,
    "classifier": ("pool",),
}  # fields that only some use
_LONG = 256  # tokens; few texts here are longer
SOURCE_MASKS: tuple[str, ...] = (
    "none",
    "padding",
    "local_m",
    "local_p",
)  # those that make sense for another sequence
UNPLACED_MASKS: tuple[str, ...] = (
    "none",
    "padding",
)  # those that make sense for a query without a position
BOUNDS = {
    "d_model": (1, 512),
    "num_heads": (1, 64),
    "layers": (1, 12),
    "d_ff": (0, 4096),
    "kv_shared_layers": (0, 11),
}


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
    `tied` shares one matrix between the target's embedding and the output; `output_bias` is the bias of that output.
    """

    kind: str
    d_model: int
    num_heads: int
    attention: AttentionConfig | None
    layers: int = 1
    d_ff: int = 64
    norm: str = "post"
    activation: str = "relu"
    cell: str = "gru"
    bidirectional: bool = True
    dropout: float = 0.0
    normalization: str = "layer"
    pool: str = "first"
    feeding: str = "none"
    tied: bool = False
    output_bias: bool = True
    following: tuple[AttentionConfig, ...] = ()
    decoder_attention: AttentionConfig | None = None
    cross_attention: AttentionConfig | None = None
    kv_shared_layers: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"model: {name} = {quote(getattr(self, name))}; expected one of "
                    f"{', '.join(choices)}."
                )
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(
                    f"model: {name} = {quote(value)}; expected a whole number from {low} to {high}."
                )
        dropout = self.dropout
        if (
            isinstance(dropout, bool)
            or not isinstance(dropout, int | float)
            or not 0 <= dropout < 1
        ):
            raise ConfigError(f"model: dropout = {quote(self.dropout)}; expected 0 ≤ dropout < 1.")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(
                    f"model: {name} = {quote(getattr(self, name))}; expected true or false."
                )
        self._check_attention()

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
        same = (
            other
            for other in reversed(range(first_shared))
            if self.layer_attention(other) == self.layer_attention(layer)
        )
        return next(same, None)

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

    def _check_attention(self) -> None:
        if not isinstance(self.following, tuple | list):
            raise ConfigError(
                f"model: following = {quote(self.following)}; expected a list of attentions."
            )
        object.__setattr__(self, "following", tuple(self.following))
        if self.attention is None and self.kind != "recurrent":
            raise ConfigError(
                f"kind = {self.kind} needs an attention; attention = none is for kind = recurrent."
            )
        for attention in (
            self.attention,
            *self.following,
            self.decoder_attention,
            self.cross_attention,
        ):
            if attention is not None and not isinstance(attention, AttentionConfig):
                raise ConfigError(
                    f"model: attention = {quote(attention)}; expected an AttentionConfig or None."
                )
            sizes = self.d_model, self.num_heads
            if attention is not None and (attention.d_model, attention.num_heads) != sizes:
                raise ConfigError(
                    f"The attention has d_model = {attention.d_model}, num_heads = {attention.num_heads}, but the model "
                    f"{self.d_model} and {self.num_heads}; give both the same."
                )
        if self.kind in RECURRENT:
            self._check_recurrent()
        else:
            self._check_stacked()

    def _check_stacked(self) -> None:
        check_pattern(self)
        if self.num_heads > 1 and any(
            attention.projection.key == "identity" for attention in self.attentions
        ):
            raise ConfigError(
                f"A {self.kind} with projection = identity has a single head; take num_heads = 1, or "
                "projection = multi_head."
            )
        unread = {"cell", "bidirectional", "feeding", "pool", *_OUTPUT_FLAGS} - set(
            _READS.get(self.kind, ())
        )
        for field in fields(self):
            if field.name in unread and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"kind = {self.kind} does not read {field.name}; leave it at {field.default!r}."
                )
        for mask in (attention.mask for attention in self.pattern):
            if self.kind == "classifier" and self.pool == "first" and _first_sees_itself(mask):
                raise ConfigError(
                    "With pool = first the class is read from a token before the source, which mask = "
                    f"{mask.key} does not let attend to the source; take pool = mean, or mask = none."
                )

    def _check_recurrent(self) -> None:
        for name in PATTERN_FIELDS:
            if getattr(self, name):
                raise ConfigError(
                    f"kind = {self.kind} does not read {name}; a pattern of layers is for a stacked "
                    f"kind ({', '.join(STACKED)})."
                )
        if not self.output_bias:
            raise ConfigError(f"kind = {self.kind} does not read output_bias; leave it at True.")
        if self.bidirectional and self.d_model % 2:
            raise ConfigError(
                f"A bidirectional encoder divides d_model = {self.d_model} between two directions; take "
                "an even d_model, or bidirectional = false."
            )
        if self.attention is None:
            if self.feeding != "none":
                raise ConfigError(
                    f"feeding = {self.feeding} feeds the output of an attention to the decoder; take "
                    "feeding = none, or an attention."
                )
            return
        if self.kind == "hybrid":
            return  # its self-attention is within one sequence, where all positions and masks make sense
        attends, masks = "attends to another text", SOURCE_MASKS
        if self.kind == "hierarchical":
            if self.feeding != "none" or self.tied:
                raise ConfigError(
                    "kind = hierarchical has no decoder and reads neither feeding nor tied; leave them at "
                    "'none' and False."
                )
            if self.num_heads > 1:
                raise ConfigError("kind = hierarchical has a single head; take num_heads = 1.")
            if not self.required_attention.has("kernel", "same"):
                raise ConfigError(
                    "kind = hierarchical attends within each sentence by a mask, which kernel = "
                    f"{self.required_attention.kernel.key} cannot take; take kernel = exact."
                )
            attends, masks = "attends from a learned query, which has no position", UNPLACED_MASKS
        if self.attention.position.key != "none":
            raise ConfigError(
                f"kind = {self.kind} reads tokens in order and needs no positions; position = "
                f"{self.attention.position.key} does not go with it; take position = none."
            )
        if self.attention.has("projection", "one sequence"):
            raise ConfigError(
                f"kind = {self.kind} {attends}, and projection = {self.attention.projection.key} is for "
                "one text that attends to itself; take projection = multi_head."
            )
        if self.attention.mask.key not in masks:
            raise ConfigError(
                f"kind = {self.kind} {attends}, so mask = {self.attention.mask.key} has no meaning; take "
                f"mask = {', '.join(masks)}."
            )

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
        **attention: Choice | str,
    ) -> ModelConfig:
        """A stacked model of any kind; `attention` are fields of its AttentionConfig (position, score, mask, …)."""
        config = _attention(d_model, num_heads, dropout=dropout, **attention)
        return cls(
            kind,
            d_model,
            num_heads,
            config,
            layers,
            2 * d_model if d_ff is None else d_ff,
            norm,
            activation,
            dropout=dropout,
            normalization=normalization,
            pool=pool,
            tied=tied,
            output_bias=output_bias,
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
        config = (
            None
            if score is None
            else _attention(
                d_model, num_heads, **{"projection": "identity", "score": score, **attention}
            )
        )
        return cls(
            kind,
            d_model,
            num_heads,
            config,
            layers,
            cell=cell,
            bidirectional=bidirectional,
            dropout=dropout,
            feeding=feeding,
            tied=tied,
        )

    def to_json(self) -> dict[str, Any]:
        """The fields; those of a pattern only where there is one."""
        data = {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}
        unused = [name for name in PATTERN_FIELDS if not getattr(self, name)]
        return {name: value for name, value in data.items() if name not in unused}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """ConfigError for a field that is missing or unknown."""
        values = check_fields(cls, data, "A model", ("kind", "d_model", "num_heads", "attention"))
        if not isinstance(following := values.get("following", ()), list | tuple):
            raise ConfigError(
                f"model: following = {quote(following)}; expected a list of attentions."
            )
        values["following"] = tuple(map(_attention_of, following))
        for name in ("attention", "decoder_attention", "cross_attention"):
            values[name] = _attention_of(values.get(name))
        return cls(**values)


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return value.to_json() if isinstance(value, AttentionConfig) else value


def _attention_of(data: Any) -> AttentionConfig | None:
    return None if data is None else AttentionConfig.from_json(data)


def _first_sees_itself(mask: Choice) -> bool:
    """Whether the first token of a text attends to itself alone."""
    if any(
        "causal" in find(MASKS, "mask", part.key).traits
        for part in (mask.parts if mask.key == "and" else (mask,))
    ):
        return True
    try:
        allowed = build_mask(mask, _LONG, _LONG)
    except ConfigError:  # a mask that depends on the queries
        return False
    return allowed is not None and not bool(allowed[..., 0, 1:].any())


def _attention(d_model: int, num_heads: int, **choices: Any) -> AttentionConfig:
    for name, value in (("d_model", d_model), ("num_heads", num_heads)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"model: {name} = {quote(value)}; expected a whole number.")
    return AttentionConfig(d_model=d_model, num_heads=num_heads, **choices)


# What attentions can stand in one stack of unlike layers, and which layers share keys and values.


LONGEST = 12  # attentions in a pattern, as many as a model has layers
PATTERN_FIELDS = ("following", "decoder_attention", "cross_attention", "kv_shared_layers")


def check_pattern(config: ModelConfig) -> None:
    """ConfigError for attentions that cannot stand in one stack."""
    if None in config.following:
        raise ConfigError("Every layer of a pattern needs an attention; one of them is none.")
    if len(config.pattern) > LONGEST:
        raise ConfigError(
            f"A pattern has at most {LONGEST} attentions; this one has {len(config.pattern)}."
        )
    added = [attention.position for attention in config.pattern if _is_added(attention)]
    if added and (len(set(added)) > 1 or len(added) < len(config.pattern)):
        raise ConfigError(
            f"position = {added[0].key} is added to the embedding, once for all layers; take it in every "
            "attention of the pattern, or positions that enter the attention (rope, alibi)."
        )
    for name in ("decoder_attention", "cross_attention"):
        own = getattr(config, name)
        if own is not None and config.kind != "transformer":
            raise ConfigError(f"kind = {config.kind} does not read {name}; leave it at None.")
        if own is not None and _is_added(own):
            raise ConfigError(
                f"{name} has position = {own.position.key}, which is added to the embedding, where the "
                "model's first attention decides; take position = none here."
            )
    if config.kv_shared_layers:
        _check_shared(config)


def _check_shared(config: ModelConfig) -> None:
    if config.kind != "decoder":
        raise ConfigError(
            f"kind = {config.kind} does not read kv_shared_layers; leave it at 0, or take kind = "
            "decoder."
        )
    for layer in range(max(0, config.layers - config.kv_shared_layers), config.layers):
        attention = config.layer_attention(layer)
        if config.kv_source(layer) is None:
            raise ConfigError(
                f"kv_shared_layers = {config.kv_shared_layers}: no layer before has the attention of layer {layer + 1} "
                f"of {config.layers}, whose keys and values it would take; share fewer layers."
            )
        if not attention.has("projection", "shares keys"):
            raise ConfigError(
                f"projection = {attention.projection.key} cannot take keys and values from another "
                "layer; take projection = multi_head, grouped_query or multi_query."
            )
        if attention.kernel.key != "exact" and not attention.has("kernel", "same"):
            raise ConfigError(
                f"kernel = {attention.kernel.key} stores no keys that another layer could take; take "
                "kernel = exact, or kv_shared_layers = 0."
            )
        if attention.has("position", "other rows"):
            raise ConfigError(
                f"position = {attention.position.key} computes earlier queries again, which shared keys "
                "do not allow; take another position, or kv_shared_layers = 0."
            )


def _is_added(attention: AttentionConfig) -> bool:
    """Whether its positions are added to the embedding."""
    return entry("position", attention.position.key).enters == "x"
