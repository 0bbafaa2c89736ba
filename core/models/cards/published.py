"""The published models whose cards there are: their sizes, and what distinguishes each."""

from typing import Any

from core.attention import AttentionConfig, Choice
from core.models.cards.base import AttentionLayer, Block, Extra, FeedForward, ModelCard, stack

# Blocks whose layers all attend to the whole text, as in GPT-2, BERT, T5, Llama 2 and 3, Qwen3, OLMo 2, and SmolLM3.


DEFAULTS = "the defaults of its class in transformers"
_PLAIN_T5 = Choice.of("multi_head", bias=False, head_dim=64)
_ONE_TABLE = Extra(
    "Bias table shared", -32 * 8, "all layers of a stack add the table of the first", False
)


def _t5(bidirectional: bool, first: bool) -> AttentionLayer:
    config = AttentionConfig(
        512,
        8,
        _PLAIN_T5,
        score="dot",
        position=Choice.of("t5", buckets=32, max_distance=128, bidirectional=bidirectional),
        mask="padding" if bidirectional else "causal",
    )
    return AttentionLayer(
        "both directions" if bidirectional else "causal", config, () if first else (_ONE_TABLE,)
    )


def llama_block(
    d_model: int,
    heads: int,
    projection: Choice,
    width: int,
    position: Choice | str = "rope",
    name: str = "full",
    extras: tuple[Extra, ...] = (),
    mask: Choice | str = "causal",
    **axes: Any,
) -> Block:
    """RMSNorm, attention with rotary positions, RMSNorm, SwiGLU: the block that most open models are built of."""
    config = AttentionConfig(d_model, heads, projection, position=position, mask=mask, **axes)
    return Block(AttentionLayer(name, config, extras), FeedForward(width), 2 * d_model)


def final_norm(d_model: int) -> tuple[Extra, ...]:
    return (Extra("Final norm", d_model, "before the output map", False),)


_SMOLLM3 = Choice.of("grouped_query", kv_heads=4, bias=False)


# Layers with latent attention: DeepSeek-V2, and V3.2, whose indexer picks the keys.


_MLA = Choice.of("latent", latent=512, rope=64, query_latent=1536, head_dim=128)
_V2 = AttentionLayer("latent of 512", AttentionConfig(5120, 128, _MLA, mask="causal"))
_V32 = AttentionLayer(
    "latent, 2,048 keys picked",
    AttentionConfig(
        7168, 128, _MLA, mask=Choice.of("lightning", keys=2048, heads=64, size=128, share=0.5)
    ),
    (
        Extra(
            "Indexer reads the query latent",
            -(7168 - 1536) * 64 * 128,
            "its queries come from 1,536 numbers, not from the token's 7,168",
        ),
    ),
    beside=128,
)


def _experts(
    layer: AttentionLayer,
    d_model: int,
    width: int,
    dense: int,
    layers: int,
    experts: FeedForward,
) -> tuple[Block, ...]:
    """The first `dense` blocks with one wide feed-forward layer, the others with experts."""
    first = Block(layer, FeedForward(width), 2 * d_model)
    return (*stack((first,), dense), *stack((Block(layer, experts, 2 * d_model),), layers - dense))


# Layers of models in which some attend to a window: Mistral, Gemma 2 and 3, Llama 4, gpt-oss, and ModernBERT.


def _window(keys: int) -> Choice:
    """A query attends to itself and to the keys before it, so many in all."""
    return Choice.of("causal_local", lookback=keys - 1)


def _two(
    d_model: int,
    heads: int,
    projection: Choice,
    keys: int,
    positions: tuple[Choice, Choice],
    **axes: Any,
) -> tuple[AttentionLayer, AttentionLayer]:
    """A layer that attends to a window and one that attends to the whole text, with positions in the same order."""
    near, far = (
        AttentionConfig(d_model, heads, projection, position=position, mask=mask, **axes)
        for mask, position in zip((_window(keys), Choice("causal")), positions, strict=True)
    )
    return AttentionLayer(f"window of {keys:,}", near), AttentionLayer("full", far)


_ROPE = Choice("rope")
_NEAR2, _FAR2 = _two(
    2304,
    8,
    Choice.of("grouped_query", kv_heads=4, bias=False, head_dim=256),
    4096,
    (_ROPE, _ROPE),
    normalizer=Choice.of("softcap", cap=50.0),
)
_NEAR3, _FAR3 = _two(
    3840,
    16,
    Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=256),
    1024,
    (_ROPE, Choice.of("linear_rope", base=1_000_000.0, factor=8.0)),
    score="qk_norm",
)
_YARN = Choice.of("yarn", factor=32.0, original=4096, base=150_000.0)
_NEAR_OSS, _FAR_OSS = _two(
    2880,
    64,
    Choice.of("grouped_query", kv_heads=8, bias=True, head_dim=64),
    128,
    (_YARN, _YARN),
    normalizer="sink",
)
_GROUPED4 = Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=128)
_CHUNK4 = AttentionLayer(
    "chunks of 8,192",
    AttentionConfig(
        5120,
        40,
        _GROUPED4,
        position=Choice.of("rope", base=500_000.0, layout="interleaved"),
        mask=Choice.of("chunked", size=8192),
    ),
)
_WHOLE4 = AttentionLayer(
    "without positions",
    AttentionConfig(
        5120,
        40,
        _GROUPED4,
        position=Choice.of("position_temperature", growth=0.1, step=8192),
        mask="causal",
    ),
)
_MODERN = Choice.of("multi_head", bias=False)
_BOTH = AttentionLayer(
    "full",
    AttentionConfig(768, 12, _MODERN, position=Choice.of("rope", base=160_000.0), mask="padding"),
)
_NEARBY = AttentionLayer(
    "64 on each side",
    AttentionConfig(768, 12, _MODERN, position="rope", mask=Choice.of("local", window=64)),
)


# Layers that carry a state: RetNet, Mamba-2, MiniMax-01, Qwen3-Next, and Kimi Linear.


KERNEL = 4  # inputs that a short convolution reads, and that are held of each channel


def _convolution(channels: int, bias: bool = False) -> Extra:
    return Extra(
        "Short convolution",
        channels * (KERNEL + bias),
        "each channel reads its last three inputs too",
        False,
    )


def _norm(size: int) -> Extra:
    return Extra("Norm of the output", size, "before the gate and the last map", False)


_RETENTION = AttentionLayer(
    "retention",
    AttentionConfig(
        4096,
        16,
        Choice.of("gated", bias=False, head_dim=256),
        position=Choice.of("rope", layout="interleaved"),
        mask="causal",
        kernel=Choice.of("retention", decay="retnet"),
    ),
    (
        Extra(
            "Wider values",
            3 * 4096 * (6912 - 4096),
            "values, gate and last map have 432 numbers a head, not 256",
        ),
    ),
    state=16 * 256 * 432,
)
_SSD = AttentionLayer(
    "state space",
    AttentionConfig(
        4096,
        128,
        Choice.of("gated", bias=False, head_dim=64),
        score="dot",
        mask="causal",
        kernel="ssd",
    ),
    (
        Extra(
            "Shared queries and keys",
            2 * 4096 * (8 * 128 - 8192),
            "8 groups of 128 numbers serve all 128 heads of 64",
        ),
        _convolution(8192 + 2 * 8 * 128, bias=True),
        _norm(8192),
        Extra("Skip", 128, "each head adds its input times one number", False),
    ),
    state=128 * 64 * 128,
    held=KERNEL * (8192 + 2 * 8 * 128),
)
_LIGHTNING = AttentionLayer(
    "lightning",
    AttentionConfig(
        6144,
        64,
        Choice.of("gated", bias=False, head_dim=128),
        score="dot",
        mask="causal",
        kernel=Choice.of("retention", decay="lightning"),
    ),
    (_norm(64 * 128),),
    state=64 * 128 * 128,
)
_SOFTMAX = AttentionLayer(
    "full",
    AttentionConfig(
        6144,
        64,
        Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=128),
        position=Choice.of("rope", base=10_000_000.0, share=0.5),
        mask="causal",
    ),
)
_DELTA = AttentionLayer(
    "gated delta rule",
    AttentionConfig(
        2048, 32, Choice.of("gated", bias=False, head_dim=128), mask="causal", kernel="gated_delta"
    ),
    (
        Extra(
            "Shared queries and keys",
            -2 * 2048 * 16 * 128,
            "16 heads of queries and keys serve 32 heads of values",
        ),
        _convolution(2 * 16 * 128 + 32 * 128),
        _norm(128),
    ),
    state=32 * 128 * 128,
    held=KERNEL * (2 * 16 * 128 + 32 * 128),
    products=3,
)
_GATED = AttentionLayer(
    "full, gated",
    AttentionConfig(
        2048,
        16,
        Choice.of("gated", kv_heads=2, bias=False, head_dim=256),
        score="qk_norm",
        position=Choice.of("rope", base=10_000_000.0, share=0.25),
        mask="causal",
    ),
)
_KDA = AttentionLayer(
    "Kimi delta",
    AttentionConfig(
        2304, 32, Choice.of("gated", bias=False, head_dim=128), mask="causal", kernel="kda"
    ),
    (
        Extra(
            "Gate through 128 numbers",
            2304 * 128 + 128 * 4096 - 2304 * 4096,
            "a low-rank map in place of a full one",
        ),
        _convolution(3 * 4096),
        _norm(128),
    ),
    state=32 * 128 * 128,
    held=KERNEL * 3 * 4096,
    products=3,
)
_KIMI_LATENT = AttentionLayer(
    "latent of 512",
    AttentionConfig(
        2304,
        32,
        Choice.of("latent", latent=512, rope=64, head_dim=128, layout="none"),
        mask="causal",
    ),
)


CARDS: tuple[ModelCard, ...] = (  # by year
    ModelCard(
        "bert",
        "BERT base",
        2018,
        "https://arxiv.org/abs/1810.04805",
        "google-bert/bert-base-uncased",
        DEFAULTS,
        "Every token attends to both sides, and the model learns to fill in hidden words.",
        768,
        30522,
        stack(
            (
                Block(
                    AttentionLayer(
                        "both directions",
                        AttentionConfig(
                            768, 12, position=Choice.of("learned", max_len=512), mask="padding"
                        ),
                    ),
                    FeedForward(3072, gated=False, bias=True),
                    4 * 768,
                ),
            ),
            12,
        ),
        tied=True,
        head=False,
        stores=False,
        extras=(
            Extra(
                "Position embeddings",
                512 * 768,
                "a learned vector for each of 512 positions",
                False,
            ),
            Extra("Segment embeddings", 2 * 768, "one vector for each of two sentences", False),
            Extra(
                "Norm of the embeddings",
                2 * 768,
                "after words, positions and segments are added",
                False,
            ),
            Extra(
                "Pooler",
                768 * 769,
                "a layer that reads the first token, for a class of the text",
                False,
            ),
        ),
        remark="Without the head that fills in words.",
    ),
    ModelCard(
        "gpt2",
        "GPT-2",
        2019,
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
        "openai-community/gpt2",
        DEFAULTS,
        "One decoder, trained on web text alone, does many tasks without being trained for them.",
        768,
        50257,
        stack(
            (
                Block(
                    AttentionLayer(
                        "full",
                        AttentionConfig(
                            768, 12, position=Choice.of("learned", max_len=1024), mask="causal"
                        ),
                    ),
                    FeedForward(3072, gated=False, bias=True),
                    4 * 768,
                ),
            ),
            12,
        ),
        tied=True,
        extras=(
            Extra(
                "Position embeddings",
                1024 * 768,
                "a learned vector for each of 1,024 positions",
                False,
            ),
            Extra("Final norm", 2 * 768, "before the output map", False),
        ),
    ),
    ModelCard(
        "t5",
        "T5 small",
        2019,
        "https://arxiv.org/abs/1910.10683",
        "google-t5/t5-small",
        DEFAULTS,
        "Encoder and decoder read and write every task as text, and a learned number for each distance gives the order.",
        512,
        32128,
        (
            *(
                Block(_t5(True, layer == 0), FeedForward(2048, gated=False), 2 * 512)
                for layer in range(6)
            ),
            *(
                Block(
                    _t5(False, layer == 0),
                    FeedForward(2048, gated=False),
                    3 * 512,
                    AttentionLayer(
                        "to the input",
                        AttentionConfig(512, 8, _PLAIN_T5, score="dot", mask="padding"),
                    ),
                )
                for layer in range(6)
            ),
        ),
        tied=True,
        encoder_blocks=6,
        extras=(Extra("Final norms", 2 * 512, "after each of the two stacks", False),),
        remark="Cache and FLOPs of one token read and one token written, with as many read as written.",
    ),
    ModelCard(
        "llama2",
        "Llama 2 7B",
        2023,
        "https://arxiv.org/abs/2307.09288",
        "meta-llama/Llama-2-7b-hf",
        DEFAULTS,
        "RMSNorm, SwiGLU and rotary positions without biases: the block that most open models have taken over.",
        4096,
        32000,
        stack((llama_block(4096, 32, Choice.of("multi_head", bias=False), 11008),), 32),
        extras=final_norm(4096),
    ),
    ModelCard(
        "retnet",
        "RetNet 7B",
        2023,
        "https://arxiv.org/abs/2307.08621",
        "retnet_7b of the authors' torchscale",
        "the architecture of that name in the authors' code",
        "No softmax: the past fades at a fixed pace in each head, so that one state replaces the cache.",
        4096,
        0,
        stack((Block(_RETENTION, FeedForward(6912), 2 * 4096),), 32),
        extras=final_norm(4096),
        remark="Without word embeddings and output map: no vocabulary is published with these sizes.",
    ),
    ModelCard(
        "mistral",
        "Mistral 7B",
        2023,
        "https://arxiv.org/abs/2310.06825",
        "mistralai/Mistral-7B-v0.1",
        DEFAULTS,
        "Each layer attends to the last 4,096 tokens only, so the cache stops growing there; layers above reach further.",
        4096,
        32000,
        stack(
            (
                llama_block(
                    4096,
                    32,
                    Choice.of("grouped_query", kv_heads=8, bias=False),
                    14336,
                    name="window of 4,096",
                    mask=_window(4096),
                ),
            ),
            32,
        ),
        extras=final_norm(4096),
    ),
    ModelCard(
        "deepseek_v2",
        "DeepSeek-V2",
        2024,
        "https://arxiv.org/abs/2405.04434",
        "deepseek-ai/DeepSeek-V2",
        "a training recipe for it in public code",
        "Keys and values of 128 heads come from one vector of 512 numbers a token, which alone is stored.",
        5120,
        102400,
        _experts(_V2, 5120, 12288, 1, 60, FeedForward(1536, experts=160, used=6, shared=3072)),
        extras=final_norm(5120),
    ),
    ModelCard(
        "mamba2",
        "Mamba-2 (Codestral 7B)",
        2024,
        "https://arxiv.org/abs/2405.21060",
        "mistralai/Mamba-Codestral-7B-v0.1",
        DEFAULTS,
        "No attention and no feed-forward layers: each token chooses how long a step the state takes.",
        4096,
        32768,
        stack((Block(_SSD, FeedForward(0), 4096),), 64),
        extras=final_norm(4096),
    ),
    ModelCard(
        "llama3",
        "Llama 3.1 8B",
        2024,
        "https://arxiv.org/abs/2407.21783",
        "meta-llama/Llama-3.1-8B",
        "its config.json, in a copy found in public code",
        "Four query heads share a head of keys and values, and slow rotations are stretched to read 128k tokens.",
        4096,
        128256,
        stack(
            (
                llama_block(
                    4096,
                    32,
                    Choice.of("grouped_query", kv_heads=8, bias=False),
                    14336,
                    Choice.of("llama3_rope", base=500_000.0, factor=8.0, original=8192),
                ),
            ),
            32,
        ),
        extras=final_norm(4096),
    ),
    ModelCard(
        "gemma2",
        "Gemma 2 2B",
        2024,
        "https://arxiv.org/abs/2408.00118",
        "google/gemma-2-2b",
        DEFAULTS,
        "Every second layer attends to a window, and scores are kept between −50 and 50.",
        2304,
        256000,
        stack(tuple(Block(layer, FeedForward(9216), 4 * 2304) for layer in (_NEAR2, _FAR2)), 26),
        pattern=2,
        tied=True,
        extras=final_norm(2304),
    ),
    ModelCard(
        "olmo2",
        "OLMo 2 7B",
        2024,
        "https://arxiv.org/abs/2501.00656",
        "allenai/OLMo-2-1124-7B",
        "its config.json",
        "The norm stands after each sublayer, inside the residual path, and queries and keys are normalized.",
        4096,
        100352,
        stack(
            (
                llama_block(
                    4096,
                    32,
                    Choice.of("multi_head", bias=False),
                    11008,
                    Choice.of("rope", base=500_000.0),
                    extras=(
                        Extra(
                            "QK-norm over all heads",
                            2 * (4096 - 128),
                            "one norm over all 32 heads, not over each",
                            False,
                        ),
                    ),
                    score="qk_norm",
                ),
            ),
            32,
        ),
        extras=final_norm(4096),
    ),
    ModelCard(
        "modernbert",
        "ModernBERT base",
        2024,
        "https://arxiv.org/abs/2412.13663",
        "answerdotai/ModernBERT-base",
        DEFAULTS,
        "An encoder with rotary positions, in which two of three layers attend to 64 tokens on each side.",
        768,
        50368,
        (
            Block(_BOTH, FeedForward(1152), 768),
            *stack(
                tuple(
                    Block(layer, FeedForward(1152), 2 * 768) for layer in (_NEARBY, _NEARBY, _BOTH)
                ),
                21,
            ),
        ),
        pattern=3,
        tied=True,
        head=False,
        stores=False,
        extras=(
            *final_norm(768),
            Extra("Norm of the embeddings", 768, "in place of the first layer's own", False),
        ),
        remark="Without the head that fills in words.",
    ),
    ModelCard(
        "minimax",
        "MiniMax-01",
        2025,
        "https://arxiv.org/abs/2501.08313",
        "MiniMaxAI/MiniMax-Text-01",
        "its config.json; the vocabulary from memory",
        "Seven of eight layers are linear, so a text of a million tokens needs the cache of ten layers.",
        6144,
        200064,
        stack(
            tuple(
                Block(layer, FeedForward(9216, experts=32, used=2), 2 * 6144)
                for layer in (*7 * (_LIGHTNING,), _SOFTMAX)
            ),
            80,
        ),
        pattern=8,
        extras=final_norm(6144),
    ),
    ModelCard(
        "gemma3",
        "Gemma 3 12B",
        2025,
        "https://arxiv.org/abs/2503.19786",
        "google/gemma-3-12b-pt",
        "the config.json of its text model, in a copy without the image encoder",
        "Five of six layers attend to 1,024 tokens, so only the sixth has a cache that grows with the text.",
        3840,
        262208,
        stack(
            tuple(Block(layer, FeedForward(15360), 4 * 3840) for layer in (*5 * (_NEAR3,), _FAR3)),
            48,
        ),
        pattern=6,
        tied=True,
        extras=final_norm(3840),
        remark="Without the encoder of images.",
    ),
    ModelCard(
        "llama4",
        "Llama 4 Scout",
        2025,
        "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        "meta-llama/Llama-4-Scout-17B-16E",
        DEFAULTS,
        "Three of four layers attend within chunks of 8,192 tokens; the fourth attends to all, without positions.",
        5120,
        202048,
        stack(
            tuple(
                Block(layer, FeedForward(8192, experts=16, used=1, shared=8192), 2 * 5120)
                for layer in (*3 * (_CHUNK4,), _WHOLE4)
            ),
            48,
        ),
        pattern=4,
        extras=final_norm(5120),
        remark="Without the encoder of images, and without the QK-norm of the layers with positions, which learns nothing.",
    ),
    ModelCard(
        "qwen3",
        "Qwen3 8B",
        2025,
        "https://arxiv.org/abs/2505.09388",
        "Qwen/Qwen3-8B",
        "its config.json",
        "A norm on the queries and keys of each head replaces the biases of earlier Qwen models.",
        4096,
        151936,
        stack(
            (
                llama_block(
                    4096,
                    32,
                    Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=128),
                    12288,
                    Choice.of("rope", base=1_000_000.0),
                    score="qk_norm",
                ),
            ),
            36,
        ),
        extras=final_norm(4096),
    ),
    ModelCard(
        "smollm3",
        "SmolLM3 3B",
        2025,
        "https://huggingface.co/blog/smollm3",
        "HuggingFaceTB/SmolLM3-3B",
        DEFAULTS,
        "Every fourth layer has no positions at all, which helps with texts longer than those of training.",
        2048,
        128256,
        stack(
            (
                *3 * (llama_block(2048, 16, _SMOLLM3, 11008, Choice.of("rope", base=2_000_000.0)),),
                llama_block(2048, 16, _SMOLLM3, 11008, "none", "without positions"),
            ),
            36,
        ),
        pattern=4,
        tied=True,
        extras=final_norm(2048),
    ),
    ModelCard(
        "gpt_oss",
        "gpt-oss 120B",
        2025,
        "https://arxiv.org/abs/2508.10925",
        "openai/gpt-oss-120b",
        DEFAULTS,
        "A learned sink in each head takes weight that no token should get, and every second layer sees 128 tokens.",
        2880,
        201088,
        stack(
            tuple(
                Block(layer, FeedForward(2880, bias=True, experts=128, used=4), 2 * 2880)
                for layer in (_NEAR_OSS, _FAR_OSS)
            ),
            36,
        ),
        pattern=2,
        extras=final_norm(2880),
    ),
    ModelCard(
        "qwen3_next",
        "Qwen3-Next 80B",
        2025,
        "https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        DEFAULTS + "; the base of its rotations from memory",
        "Three of four layers correct a state instead of storing keys; the fourth attends to all and gates its output.",
        2048,
        151936,
        stack(
            tuple(
                Block(
                    layer,
                    FeedForward(512, experts=512, used=10, shared=512, shared_gate=True),
                    2 * 2048,
                )
                for layer in (*3 * (_DELTA,), _GATED)
            ),
            48,
        ),
        pattern=4,
        extras=final_norm(2048),
        remark="Without the layer that predicts a second token in training.",
    ),
    ModelCard(
        "kimi_linear",
        "Kimi Linear 48B",
        2025,
        "https://arxiv.org/abs/2510.26692",
        "moonshotai/Kimi-Linear-48B-A3B-Instruct",
        DEFAULTS + "; which layers are latent from memory",
        "Each channel of the state fades at a pace of its own, and every fourth layer is latent, without positions.",
        2304,
        163840,
        tuple(  # the first has no experts, and the last is latent too
            Block(
                layer,
                FeedForward(1024, experts=256, used=8, shared=1024) if at else FeedForward(9216),
                2 * 2304,
            )
            for at, layer in enumerate(
                (*6 * (*3 * (_KDA,), _KIMI_LATENT), _KDA, _KDA, _KIMI_LATENT)
            )
        ),
        pattern=4,
        extras=final_norm(2304),
    ),
    ModelCard(
        "deepseek_v32",
        "DeepSeek-V3.2",
        2025,
        "https://arxiv.org/abs/2512.02556",
        "deepseek-ai/DeepSeek-V3.2",
        DEFAULTS,
        "A small indexer scores all earlier tokens, and each query attends to the 2,048 that score highest.",
        7168,
        129280,
        _experts(_V32, 7168, 18432, 3, 61, FeedForward(2048, experts=256, used=8, shared=2048)),
        extras=final_norm(7168),
        remark="Without the layer that predicts a second token in training.",
    ),
)
