"""What attentions can stand in one stack of unlike layers, and which layers share keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.attention import AttentionConfig, entry
from core.entries import ConfigError

if TYPE_CHECKING:
    from core.models.config import ModelConfig

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
