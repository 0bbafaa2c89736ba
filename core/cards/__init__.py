"""Model cards: twenty published models, layer by layer, as configs of this lab."""

from core.cards.base import KINDS, AttentionLayer, Block, Extra, FeedForward, Kind, ModelCard
from core.cards.dense import BERT, GPT2, LLAMA2, LLAMA3, OLMO2, QWEN3, SMOLLM3, T5
from core.cards.latent import DEEPSEEK_V2, DEEPSEEK_V32
from core.cards.states import KIMI, MAMBA2, MINIMAX, QWEN3_NEXT, RETNET
from core.cards.windows import GEMMA2, GEMMA3, GPT_OSS, LLAMA4, MISTRAL, MODERNBERT

CARDS: tuple[ModelCard, ...] = (  # by year
    BERT, GPT2, T5, LLAMA2, RETNET, MISTRAL, DEEPSEEK_V2, MAMBA2, LLAMA3, GEMMA2, OLMO2, MODERNBERT, MINIMAX, GEMMA3,
    LLAMA4, QWEN3, SMOLLM3, GPT_OSS, QWEN3_NEXT, KIMI, DEEPSEEK_V32)


def card(key: str) -> ModelCard:
    """The card of that key; KeyError names one that is unknown."""
    return next((one for one in CARDS if one.key == key), None) or _unknown(key)


def _unknown(key: str) -> ModelCard:
    raise KeyError(f"{key} is no model card; expected one of {', '.join(one.key for one in CARDS)}.")


__all__ = ["CARDS", "KINDS", "AttentionLayer", "Block", "Extra", "FeedForward", "Kind", "ModelCard", "card"]
