"""Model cards: twenty published models, layer by layer, as configs of this lab."""

from core.cards.base import KINDS, AttentionLayer, Block, Extra, FeedForward, Kind, ModelCard
from core.cards.dense import BERT, GPT2, LLAMA2, LLAMA3, OLMO2, QWEN3, SMOLLM3, T5
from core.cards.latent import DEEPSEEK_V2, DEEPSEEK_V32
from core.cards.states import KIMI, MAMBA2, MINIMAX, QWEN3_NEXT, RETNET
from core.cards.windows import GEMMA2, GEMMA3, GPT_OSS, LLAMA4, MISTRAL, MODERNBERT

CARDS: tuple[ModelCard, ...] = (  # by year
    BERT,
    GPT2,
    T5,
    LLAMA2,
    RETNET,
    MISTRAL,
    DEEPSEEK_V2,
    MAMBA2,
    LLAMA3,
    GEMMA2,
    OLMO2,
    MODERNBERT,
    MINIMAX,
    GEMMA3,
    LLAMA4,
    QWEN3,
    SMOLLM3,
    GPT_OSS,
    QWEN3_NEXT,
    KIMI,
    DEEPSEEK_V32,
)


def card(key: str) -> ModelCard:
    """The card of that key; KeyError lists the keys there are."""
    known = {one.key: one for one in CARDS}
    if key not in known:
        raise KeyError(f"{key} is no model card; expected one of {', '.join(known)}.")
    return known[key]


__all__ = [
    "BERT",
    "CARDS",
    "DEEPSEEK_V2",
    "DEEPSEEK_V32",
    "GEMMA2",
    "GEMMA3",
    "GPT2",
    "GPT_OSS",
    "KIMI",
    "KINDS",
    "LLAMA2",
    "LLAMA3",
    "LLAMA4",
    "MAMBA2",
    "MINIMAX",
    "MISTRAL",
    "MODERNBERT",
    "OLMO2",
    "QWEN3",
    "QWEN3_NEXT",
    "RETNET",
    "SMOLLM3",
    "T5",
    "AttentionLayer",
    "Block",
    "Extra",
    "FeedForward",
    "Kind",
    "ModelCard",
    "card",
]
