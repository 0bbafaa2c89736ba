"""2020 to 2026: the models of today, one change each to the Transformer, and choices of which keys to read."""

from core.attention.presets.base import Choices, Preset, share_heads
from core.attention.presets.early import PLAIN
from core.entries import Choice

_LLAMA3 = Choice.of("llama3_rope", base=500_000.0)


def latent_sizes(d_model: int, num_heads: int, groups: int = 1) -> dict[str, Choice]:
    """DeepSeek's own proportions: four heads' worth of latent (at most half of d_model), half a head rotated."""
    size = d_model // num_heads
    rope = max(2, size // 4 * 2)
    return {
        "projection": Choice.of(
            "latent", latent=max(1, min(4 * size, d_model // 2)), rope=rope, groups=groups
        )
    }


def _latents_without_positions(d_model: int, num_heads: int) -> Choices:
    whole = latent_sizes(d_model, num_heads)["projection"]
    return {"projection": Choice.of("latent", **{**whole.kwargs, "rope": 0})}


def _deepseek_v4(key: str, name: str, *, kernel: str | Choice, meaning: str) -> Preset:
    return Preset(
        key,
        name,
        paper="DeepSeek-AI",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/deepseek_v4",
        choices=(
            ("projection", Choice.of("keys_as_values", kv_heads=1)),
            ("score", "qk_norm"),
            ("position", Choice.of("rope", layout="interleaved", share=0.125)),
            ("mask", "causal"),
            ("normalizer", "sink"),
            ("kernel", kernel),
        ),
        meaning=meaning,
        heads=8,
    )


def _two_latents(d_model: int, num_heads: int) -> Choices:
    """Two groups, where there are two halves of the heads and of the latent."""
    whole = latent_sizes(d_model, num_heads)["projection"]
    return latent_sizes(d_model, num_heads, 1 if num_heads % 2 or int(whole["latent"]) % 2 else 2)


def _half_heads(d_model: int, num_heads: int) -> Choices:
    """One key head for four query heads, and heads of half the usual size, as in ZAYA1."""
    shared = share_heads(4, "compressed")(d_model, num_heads)["projection"]
    size = max(2, d_model // num_heads // 2)
    return {"projection": Choice.of("compressed", kv_heads=shared["kv_heads"], head_dim=size)}


RECENT: tuple[Preset, ...] = (
    # 2023 to today: the attention of models in use.
    Preset(
        "llama",
        "Llama",
        paper="Touvron et al.",
        year=2023,
        url="https://arxiv.org/abs/2302.13971",
        choices=(("projection", PLAIN), ("position", "rope"), ("mask", "causal")),
        meaning="No biases, and rotary positions. Most open models are built on it.",
    ),
    Preset(
        "llama2",
        "Llama 2, 70B",
        paper="Touvron et al.",
        year=2023,
        url="https://arxiv.org/abs/2307.09288",
        choices=(("position", "rope"), ("mask", "causal")),
        meaning="Eight query heads share a head of keys and values, so the cache of a decoder is eight times smaller.",
        heads=8,
        fit=share_heads(8, bias=False),
    ),
    Preset(
        "retnet",
        "RetNet",
        paper="Sun et al.",
        year=2023,
        url="https://arxiv.org/abs/2307.08621",
        choices=(
            ("projection", PLAIN),
            ("position", Choice.of("rope", layout="interleaved")),
            ("mask", "causal"),
            ("kernel", "retention"),
        ),
        meaning="It is trained in parallel and decoded with one state for each head. Each head has its decay. The norm and "
        "the gate after it are left out here.",
    ),
    Preset(
        "mistral",
        "Mistral 7B",
        paper="Jiang et al.",
        year=2023,
        url="https://arxiv.org/abs/2310.06825",
        choices=(("position", "rope"), ("mask", Choice.of("causal_local", lookback=3))),
        meaning="Each layer attends to the last 4,096 tokens (here 3), so L layers reach L times as far.",
        heads=8,
        fit=share_heads(4, bias=False),
    ),
    Preset(
        "gla",
        "GLA",
        paper="Yang et al.",
        year=2023,
        url="https://arxiv.org/abs/2312.06635",
        choices=(
            ("projection", "short_conv"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "gla"),
        ),
        meaning="Each channel of the state forgets at a pace that every token sets. The short convolution before it is that "
        "of later models of its family, and an option of the authors' own code.",
    ),
    Preset(
        "cope",
        "CoPE",
        paper="Golovneva et al.",
        year=2024,
        url="https://arxiv.org/abs/2405.18719",
        choices=(("position", "cope"), ("mask", "causal")),
        meaning="A position counts what the model finds relevant, such as sentences, instead of every token.",
    ),
    Preset(
        "deepseek_v2",
        "DeepSeek-V2, MLA",
        paper="DeepSeek-AI",
        year=2024,
        url="https://arxiv.org/abs/2405.04434",
        choices=(("mask", "causal"),),
        meaning="A decoder caches one small vector and one rotated key for each token. DeepSeek-V3 and R1 do the same.",
        heads=8,
        fit=latent_sizes,
    ),
    Preset(
        "mamba2",
        "Mamba-2",
        paper="Dao and Gu",
        year=2024,
        url="https://arxiv.org/abs/2405.21060",
        choices=(
            ("projection", "short_conv"),
            ("score", "dot"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "ssd"),
        ),
        meaning="A state space model, written as attention: C, B and x are queries, keys and values. In the paper all heads "
        "share queries and keys, and the norm is over them together, after the gate. The skip is left out here.",
    ),
    Preset(
        "deltanet",
        "DeltaNet",
        paper="Yang et al.",
        year=2024,
        url="https://arxiv.org/abs/2406.06484",
        choices=(
            ("projection", Choice.of("short_conv", gate="none")),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "delta"),
        ),
        meaning="Each token corrects the value that a state holds for its key, and nothing is forgotten otherwise.",
    ),
    Preset(
        "gemma2",
        "Gemma 2",
        paper="Gemma Team",
        year=2024,
        url="https://arxiv.org/abs/2408.00118",
        choices=(
            ("position", "rope"),
            ("mask", Choice.of("causal_local", lookback=3)),
            ("normalizer", "softcap"),
        ),
        meaning="Scores are limited to 50. Every second layer attends to the last 4,096 tokens only; that layer is shown "
        "here, with 3.",
        fit=share_heads(2, bias=False),
    ),
    Preset(
        "llama3",
        "Llama 3.1",
        paper="Grattafiori et al.",
        year=2024,
        url="https://arxiv.org/abs/2407.21783",
        choices=(("position", _LLAMA3), ("mask", "causal")),
        meaning="Slow rotations are made eight times slower, so a model trained on 8,192 tokens can read 131,072.",
        heads=8,
        fit=share_heads(4, bias=False),
    ),
    Preset(
        "sigmoid",
        "Sigmoid attention",
        paper="Ramapuram et al.",
        year=2024,
        url="https://arxiv.org/abs/2409.04431",
        choices=(("position", "alibi"), ("mask", "causal"), ("normalizer", "sigmoid")),
        meaning="Each weight depends on its own score alone, so the weights of a row need not sum to 1.",
    ),
    Preset(
        "differential",
        "Differential Transformer, DiffLlama",
        paper="Ye et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.05258",
        choices=(
            ("projection", Choice.of("differential", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="A second attention map is subtracted from the first, to remove what both share.",
    ),
    Preset(
        "gated_deltanet",
        "Gated DeltaNet",
        paper="Yang et al.",
        year=2024,
        url="https://arxiv.org/abs/2412.06464",
        choices=(
            ("projection", "short_conv"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "gated_delta"),
        ),
        meaning="Each token corrects the value that a state holds for its key. Three of four layers in Qwen3-Next use it.",
    ),
    Preset(
        "olmo2",
        "OLMo 2",
        paper="OLMo Team",
        year=2024,
        url="https://arxiv.org/abs/2501.00656",
        choices=(
            ("projection", PLAIN),
            ("score", "qk_norm"),
            ("position", Choice.of("rope", base=500_000.0)),
            ("mask", "causal"),
        ),
        meaning="Queries and keys are normalized, in the paper over all heads together, so that scores cannot grow without "
        "limit in training.",
    ),
    Preset(
        "minimax",
        "MiniMax-01, lightning",
        paper="MiniMax",
        year=2025,
        url="https://arxiv.org/abs/2501.08313",
        choices=(
            ("projection", Choice.of("gated", bias=False)),
            ("score", "dot"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", Choice.of("retention", decay="lightning")),
        ),
        meaning="Seven of eight layers have one state for each head, so the model can read a million tokens; the eighth "
        "uses softmax. SiLU on queries, keys and values and the norm before the gate are left out here.",
    ),
    Preset(
        "forgetting",
        "Forgetting Transformer",
        paper="Lin et al.",
        year=2025,
        url="https://arxiv.org/abs/2503.02130",
        choices=(("position", "forgetting"), ("mask", "causal")),
        meaning="Each token has a gate that reduces the scores of all earlier tokens.",
    ),
    Preset(
        "llama4",
        "Llama 4",
        paper="Meta",
        year=2025,
        url="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        choices=(
            ("position", Choice.of("rope", base=500_000.0, layout="interleaved")),
            ("mask", Choice.of("chunked", size=4)),
        ),
        meaning="Three of four layers attend within chunks of 8,192 tokens (here 4). The fourth attends to all tokens, "
        "without positions.",
        heads=8,
        fit=share_heads(5, bias=False),
    ),
    Preset(
        "gemma3",
        "Gemma 3",
        paper="Gemma Team",
        year=2025,
        url="https://arxiv.org/abs/2503.19786",
        choices=(
            ("score", "qk_norm"),
            ("position", "rope"),
            ("mask", Choice.of("causal_local", lookback=3)),
        ),
        meaning="QK-norm replaces the soft cap of Gemma 2. Five of six layers attend to the last 1,024 tokens (here 3).",
        fit=share_heads(2, bias=False),
    ),
    Preset(
        "qwen3",
        "Qwen3",
        paper="Qwen Team",
        year=2025,
        url="https://arxiv.org/abs/2505.09388",
        choices=(
            ("score", "qk_norm"),
            ("position", Choice.of("rope", base=1_000_000.0)),
            ("mask", "causal"),
        ),
        meaning="The queries and keys of each head are normalized, and four query heads share a head of keys and values.",
        heads=8,
        fit=share_heads(4, bias=False),
    ),
    Preset(
        "gated",
        "Gated attention",
        paper="Qiu et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.06708",
        choices=(
            ("projection", Choice.of("gated", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="A gate can set the output of a head to almost 0, so a head that is not needed does not have to put its "
        "weight on the first token. Qwen3-Next uses it.",
    ),
    Preset(
        "log_linear",
        "Log-linear Mamba-2",
        paper="Guo et al.",
        year=2025,
        url="https://arxiv.org/abs/2506.04761",
        choices=(
            ("projection", "short_conv"),
            ("score", "dot"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "log_linear"),
        ),
        meaning="The state of Mamba-2 becomes one state for each of log T stretches of the past.",
    ),
    Preset(
        "kimi_linear",
        "Kimi Linear, KDA",
        paper="Kimi Team",
        year=2025,
        url="https://arxiv.org/abs/2510.26692",
        choices=(
            ("projection", Choice.of("short_conv", gate="sigmoid")),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "kda"),
        ),
        meaning="Each token corrects the value that a state holds for its key, and each channel forgets at its own pace. "
        "Three of four layers are like this; the fourth has latent attention without positions.",
    ),
    Preset(
        "gpt_oss",
        "gpt-oss",
        paper="OpenAI",
        year=2025,
        url="https://arxiv.org/abs/2508.10925",
        choices=(
            ("position", Choice.of("yarn", base=150_000.0, factor=32.0, original=4096)),
            ("mask", Choice.of("causal_local", lookback=3)),
            ("normalizer", "sink"),
        ),
        meaning="A learned sink takes the weight that a head gives to no token. Every second layer attends to the last 128 "
        "tokens (here 3).",
        heads=8,
        fit=share_heads(8),
    ),
    # 2020 to 2025: one change each to the Transformer, in its scores, its positions or how scores become weights.
    Preset(
        "talking_heads",
        "Talking-heads attention",
        paper="Shazeer et al.",
        year=2020,
        url="https://arxiv.org/abs/2003.02436",
        choices=(
            ("projection", PLAIN),
            ("position", "sinusoidal"),
            ("normalizer", "talking_heads"),
        ),
        meaning="Heads are no longer computed apart: before and after the softmax each one reads all others.",
    ),
    Preset(
        "longrope",
        "LongRoPE, Phi-3",
        paper="Ding et al.",
        year=2024,
        url="https://arxiv.org/abs/2402.13753",
        choices=(
            ("projection", PLAIN),
            ("position", Choice.of("longrope", stretch=32.0, original=4096)),
            ("mask", "causal"),
        ),
        meaning="A search finds how much slower each pair of dimensions must rotate in texts that are many times longer. "
        "The lists that it found for each model are left out here.",
    ),
    Preset(
        "p_rope",
        "p-RoPE",
        paper="Barbero et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.06205",
        choices=(("projection", PLAIN), ("position", "p_rope"), ("mask", "causal")),
        meaning="The slowest rotations of RoPE are left out, as trained models use them for content and not for position.",
    ),
    Preset(
        "pope",
        "PoPE",
        paper="Gopalakrishnan et al.",
        year=2025,
        url="https://arxiv.org/abs/2509.10534",
        choices=(("projection", PLAIN), ("position", "pope"), ("mask", "causal")),
        meaning="What a token says is a length and where it stands an angle, so a head can match content alone, or place "
        "alone.",
    ),
    Preset(
        "path",
        "PaTH",
        paper="Yang et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.16381",
        choices=(("projection", PLAIN), ("position", "path"), ("mask", "causal")),
        meaning="The tokens between key and query say how the key is turned, so that a layer can count or follow swaps.",
    ),
    Preset(
        "path_fox",
        "PaTH-FoX",
        paper="Yang et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.16381",
        choices=(
            ("projection", PLAIN),
            ("position", Choice.of("and", Choice("path"), Choice("forgetting"))),
            ("mask", "causal"),
        ),
        meaning="A forget gate stands beside the reflections of PaTH, so that far keys fade.",
    ),
    Preset(
        "cca",
        "ZAYA1, CCA",
        paper="Figliolia et al.",
        year=2025,
        url="https://arxiv.org/abs/2510.04476",
        choices=(("position", Choice.of("rope", base=5_000_000.0, share=0.5)), ("mask", "causal")),
        meaning="Heads of half the usual size attend, and four of them share a key. Before that, short convolutions mix "
        "queries and keys with the tokens before them.",
        heads=8,
        fit=_half_heads,
    ),
    Preset(
        "rope_vit",
        "RoPE-ViT, axial",
        paper="Heo et al.",
        year=2024,
        url="https://arxiv.org/abs/2403.13298",
        choices=(("position", Choice.of("grid_rope", base=100.0)),),
        meaning="A vision transformer rotates queries and keys by the row and the column of each patch, so it also reads "
        "pictures larger than those it was trained on.",
    ),
    Preset(
        "selective",
        "Selective attention",
        paper="Leviathan et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.02703",
        choices=(("projection", PLAIN), ("position", "selective"), ("mask", "causal")),
        meaning="A token can remove an earlier one from the context of all later tokens, so a decoder may forget it.",
    ),
    Preset(
        "ngpt",
        "nGPT",
        paper="Loshchilov et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.01131",
        choices=(
            ("projection", PLAIN),
            ("score", "unit_vectors"),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="Queries and keys have length 1. In the paper all vectors of the model have, and its weights too.",
    ),
    Preset(
        "llama4_global",
        "Llama 4, global layers",
        paper="Meta",
        year=2025,
        url="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        choices=(("position", "position_temperature"), ("mask", "causal")),
        meaning="Every fourth layer attends to all tokens without positions. Only the scores grow with the position, after "
        "each 8,192 tokens (here after each).",
        heads=8,
        fit=share_heads(5, bias=False),
    ),
    Preset(
        "ssmax",
        "Scalable-Softmax",
        paper="Nakanishi",
        year=2025,
        url="https://arxiv.org/abs/2501.19399",
        choices=(
            ("projection", PLAIN),
            ("position", "rope"),
            ("mask", "causal"),
            ("normalizer", "scalable_softmax"),
        ),
        meaning="Scores grow with the logarithm of the number of keys, so the weights of a long text do not become flat.",
    ),
    Preset(
        "multi_token",
        "Multi-token attention",
        paper="Golovneva et al.",
        year=2025,
        url="https://arxiv.org/abs/2504.00927",
        choices=(
            ("projection", PLAIN),
            ("position", Choice.of("and", Choice("rope"), Choice("multi_token"))),
            ("mask", "causal"),
        ),
        meaning="A score no longer depends on one query and one key alone, so words that stand together can be looked for "
        "together. The mixing of heads and the norm after it are left out here.",
    ),
    Preset(
        "softpick",
        "Softpick",
        paper="Zuhri et al.",
        year=2025,
        url="https://arxiv.org/abs/2504.20966",
        choices=(
            ("projection", PLAIN),
            ("position", "rope"),
            ("mask", "causal"),
            ("normalizer", "softpick"),
        ),
        meaning="A row may give no weight at all, so no token becomes the sink of heads that have nothing to read.",
    ),
    Preset(
        "stick_breaking",
        "Stick-breaking attention",
        paper="Tan et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.17980",
        choices=(
            ("projection", PLAIN),
            ("position", "none"),
            ("mask", Choice.of("formula", text="j < i")),
            ("normalizer", "stick_breaking"),
        ),
        meaning="The nearest key with a high score takes its weight first, so that no position is needed. A token does not "
        "attend to itself.",
    ),
    Preset(
        "based",
        "Based",
        paper="Arora et al.",
        year=2024,
        url="https://arxiv.org/abs/2402.18668",
        choices=(
            ("projection", PLAIN),
            ("position", "none"),
            ("mask", "causal"),
            ("normalizer", "taylor"),
        ),
        meaning="Softmax by three terms of its series, which a state of one size can sum up. In the model other layers "
        "have a short window and the softmax itself.",
    ),
    Preset(
        "value_residual",
        "ResFormer",
        paper="Zhou et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.17897",
        choices=(
            ("projection", Choice.of("value_residual", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="The first layer's values reach every layer, so that deep layers, whose tokens have become alike, can "
        "still read the words themselves.",
    ),
    Preset(
        "differential_v2",
        "Differential Transformer, version 2",
        paper="Ye et al.",
        year=2026,
        url="https://github.com/microsoft/unilm/tree/master/Diff-Transformer/Diff-Transformer-V2",
        choices=(("position", "rope"), ("mask", "causal")),
        meaning="The second map has queries of its own and shares the keys, so decoding is as fast as without it. The norm "
        "of each head, which made long training unstable, is gone.",
        heads=8,
        fit=share_heads(4, "differential_v2", bias=False),
    ),
    Preset(
        "parallax",
        "Parallax",
        paper="Zuo et al.",
        year=2026,
        url="https://arxiv.org/abs/2605.29157",
        choices=(
            ("projection", Choice.of("parallax", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="The softmax is a local mean of the values; a second query turns it into a local line through them, without "
        "the system of equations that would find the best one.",
    ),
    Preset(
        "wall",
        "Wall attention",
        paper="Averbuch et al.",
        year=2026,
        url="https://blog.tilderesearch.com/blog/wall-attn",
        choices=(("projection", PLAIN), ("position", "wall"), ("mask", "causal")),
        meaning="The forget gates of linear attention, one for each channel, come to the softmax and replace RoPE.",
    ),
    # 2022 to 2026: which keys are read, several texts in a row, and values made anew.
    Preset(
        "nat",
        "Neighborhood Attention Transformer",
        paper="Hassani et al.",
        year=2022,
        url="https://arxiv.org/abs/2204.07143",
        choices=(("position", "none"), ("mask", "neighborhood")),
        meaning="Each patch of a picture attends to the patches around it (7 × 7 in the paper, here 3 × 3). Its biases for "
        "relative positions are left out here.",
    ),
    Preset(
        "specinfer",
        "SpecInfer, Medusa",
        paper="Miao et al.",
        year=2023,
        url="https://arxiv.org/abs/2305.09781",
        choices=(("projection", PLAIN), ("position", "rope"), ("mask", "tree")),
        meaning="A small model proposes a tree of continuations, and the large one checks all of them in one call. In the "
        "paper a token's position is its depth; here positions count all tokens.",
    ),
    Preset(
        "hydragen",
        "Hydragen",
        paper="Juravsky et al.",
        year=2024,
        url="https://arxiv.org/abs/2402.05099",
        choices=(("projection", PLAIN), ("position", "rope"), ("mask", "shared_prefix")),
        meaning="Many answers to one prompt read its keys and values together. In the paper each answer counts its "
        "positions from the end of the prompt; here positions count all tokens.",
    ),
    Preset(
        "block_diffusion",
        "Block diffusion, BD3-LM",
        paper="Arriola et al.",
        year=2025,
        url="https://arxiv.org/abs/2503.09573",
        choices=(("projection", PLAIN), ("position", "rope"), ("mask", "block_diffusion")),
        meaning="The tokens of a block are denoised together, and blocks follow one another as in an autoregressive model.",
    ),
    Preset(
        "nsa",
        "Native sparse attention, NSA",
        paper="Yuan et al.",
        year=2025,
        url="https://arxiv.org/abs/2502.11089",
        choices=(("position", "rope"), ("mask", "causal"), ("kernel", "nsa")),
        meaning="A model that is trained from the start to read summaries of all blocks, a few whole blocks, and its "
        "neighbours. The heads that share keys and values select the same blocks.",
        heads=8,
        fit=share_heads(16, bias=False),
    ),
    Preset(
        "moba",
        "MoBA, Kimi",
        paper="Lu et al.",
        year=2025,
        url="https://arxiv.org/abs/2502.13189",
        choices=(
            ("projection", PLAIN),
            ("position", "rope"),
            ("mask", "moba"),
            ("kernel", "block_sparse"),
        ),
        meaning="Blocks of keys compete like the experts of a mixture. A model can change between this and full attention, "
        "as both have the same weights.",
    ),
    Preset(
        "deepseek_v32",
        "DeepSeek-V3.2, DSA",
        paper="DeepSeek-AI",
        year=2025,
        url="https://arxiv.org/abs/2512.02556",
        choices=(("mask", "lightning"),),
        meaning="Each token attends to the 2,048 keys (here 4) that a small indexer chooses, over the latents of MLA. A "
        "loss of its own trains the indexer to predict the attention to all keys. GLM-5 has the same attention; some of "
        "its layers take the keys that an earlier one chose, and here each chooses for itself.",
        heads=8,
        fit=latent_sizes,
    ),
    Preset(
        "tpa",
        "T6, tensor product attention",
        paper="Zhang et al.",
        year=2025,
        url="https://arxiv.org/abs/2501.06425",
        choices=(("projection", "tensor_product"), ("position", "rope"), ("mask", "causal")),
        meaning="Queries, keys and values are sums of a few outer products, so a decoder caches a few short vectors for all "
        "heads together.",
    ),
    Preset(
        "gta",
        "Grouped-tied attention",
        paper="Zadouri et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.21487",
        choices=(("mask", "causal"),),
        meaning="One state serves as value and as half of the key, so each number that a decoder loads from its cache is "
        "used twice.",
        heads=8,
        fit=share_heads(4, "grouped_tied"),
    ),
    Preset(
        "grouped_latent",
        "Grouped latent attention, GLA-2",
        paper="Zadouri et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.21487",
        choices=(("mask", "causal"),),
        meaning="The latent of MLA is cut in two, and half of the heads read each part, so two devices can share one layer "
        "without storing anything twice but the rotated key.",
        heads=8,
        fit=_two_latents,
    ),
    Preset(
        "gemma4",
        "Gemma 4",
        paper="Gemma Team",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/gemma4",
        choices=(
            ("score", "qk_norm"),
            ("position", Choice.of("p_rope", base=1_000_000.0, share=0.25)),
            ("mask", "causal"),
        ),
        meaning="In layers that attend to all tokens, values are the normalized keys. The other layers have a window and "
        "values of their own. Scores are not divided by √D; learned gains replace that.",
        heads=8,
        fit=share_heads(8, "keys_as_values", bias=False),
    ),
    Preset(
        "hgrn2",
        "HGRN2",
        paper="Qin et al.",
        year=2024,
        url="https://arxiv.org/abs/2404.07904",
        choices=(
            ("projection", PLAIN),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "hgrn2"),
        ),
        meaning="A gated recurrence whose state grows from a vector to a matrix without further weights. In the paper "
        "queries pass a SiLU, and the output is normalized.",
    ),
    Preset(
        "rwkv6",
        "RWKV-6, Finch",
        paper="Peng et al.",
        year=2024,
        url="https://arxiv.org/abs/2404.05892",
        choices=(
            ("projection", Choice.of("short_conv", width=2)),
            ("score", "dot"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "rwkv6"),
        ),
        meaning="A recurrent model with a matrix for each head, which each channel forgets at a pace that the token sets. A "
        "convolution of two tokens stands here for its mixing with the token before.",
    ),
    Preset(
        "rwkv7",
        "RWKV-7, Goose",
        paper="Peng et al.",
        year=2025,
        url="https://arxiv.org/abs/2503.14456",
        choices=(
            ("projection", Choice.of("short_conv", width=2)),
            ("score", "dot"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "rwkv7"),
        ),
        meaning="A recurrent model whose state learns while it reads. A convolution of two tokens stands here for its "
        "mixing with the token before; its bonus for the own token is left out.",
    ),
    Preset(
        "comba",
        "Comba",
        paper="Hu et al.",
        year=2025,
        url="https://arxiv.org/abs/2506.02475",
        choices=(
            ("projection", Choice.of("short_conv", gate="sigmoid")),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "comba"),
        ),
        meaning="Gated DeltaNet seen as a control loop: the state is corrected by what it returns, and so is the output.",
    ),
    Preset(
        "delta_product",
        "Gated DeltaProduct",
        paper="Siems et al.",
        year=2025,
        url="https://arxiv.org/abs/2502.10297",
        choices=(
            ("projection", "short_conv"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "delta_product"),
        ),
        meaning="A token corrects the state several times, so one layer can follow a rotation, such as a shuffle of three "
        "things.",
    ),
    Preset(
        "gated_deltanet2",
        "Gated DeltaNet-2",
        paper="Hatamizadeh et al.",
        year=2026,
        url="https://arxiv.org/abs/2605.22791",
        choices=(
            ("projection", Choice.of("short_conv", gate="sigmoid")),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "gdn2"),
        ),
        meaning="KDA's one β becomes two sets of gates: what is erased and what is written no longer depend on each other.",
    ),
    Preset(
        "mamba3",
        "Mamba-3",
        paper="Lahoti et al.",
        year=2026,
        url="https://arxiv.org/abs/2603.15569",
        choices=(
            ("projection", Choice.of("gated", bias=False)),
            ("score", "qk_norm"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", "trapezoid"),
        ),
        meaning="The state of Mamba-2 turns by angles that every token sets, and a token enters it over two steps, so no "
        "convolution is needed. In the paper the gate is a SiLU and queries and keys are one head for all; the skip and "
        "inputs of several ranks are left out here.",
    ),
    Preset(
        "olmo_hybrid",
        "OLMo Hybrid",
        paper="OLMo Team",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/olmo_hybrid",
        choices=(
            ("projection", "short_conv"),
            ("position", "none"),
            ("mask", "causal"),
            ("kernel", Choice.of("gated_delta", beta_max=2.0)),
        ),
        meaning="Gated DeltaNet with β up to 2, so a token can turn the sign of what the state holds for its key and a "
        "state can count modulo two (2411.12537). Three of four layers are like this; the fourth is softmax attention.",
    ),
    Preset(
        "inkling",
        "Inkling",
        paper="Thinking Machines",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/inkling",
        choices=(
            ("score", "qk_norm"),
            ("position", "relative_logits"),
            ("mask", Choice.of("causal_local", lookback=3)),
        ),
        meaning="Order enters by a bias that each token mixes from learned profiles, and by short convolutions of keys and "
        "values. "
        "Five of six layers attend to the last 512 tokens (here 4). Scores are divided by D; learned gains replace that.",
        heads=8,
        fit=share_heads(4, "dynamic_conv", taps="fixed", scaled=False, gate=False),
    ),
    Preset(
        "inkling2",
        "Inkling 2",
        paper="Thinking Machines",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/inkling2",
        choices=(
            ("score", "clipped"),
            ("position", Choice.of("relative_logits", clip=2.0)),
            ("mask", "causal"),
            ("normalizer", "query_sink"),
        ),
        meaning="A layer that attends to all tokens: each token computes the taps of its convolution, its sink and its "
        "bias by "
        "distance. The other five of six have a window and fixed taps. Convolutions after a layer are left out here.",
        heads=8,
        fit=share_heads(6, "dynamic_conv"),
    ),
    Preset(
        "exclusive",
        "Exclusive self-attention",
        paper="Zhai",
        year=2026,
        url="https://arxiv.org/abs/2603.09078",
        choices=(
            ("projection", Choice.of("exclusive", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="What a token's own value says is left out of the output, since the residual path carries it already.",
    ),
    Preset(
        "minimax_m3",
        "MiniMax-M3",
        paper="MiniMax",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/minimax_m3_vl",
        choices=(
            ("score", "qk_norm"),
            ("position", Choice.of("rope", share=0.5)),
            ("mask", "block_max"),
        ),
        meaning="Each token attends to 16 blocks of 128 keys (here 2 of 4), so that keys are read in stretches. The heads "
        "of one key head choose their blocks together.",
        heads=8,
        fit=share_heads(16, bias=False),
    ),
    Preset(
        "qwen4",
        "Qwen4, QSA",
        paper="Qwen Team",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/qwen4_exp",
        choices=(
            ("score", "qk_norm"),
            ("position", Choice.of("rope", share=0.25)),
            ("mask", "block_mean"),
        ),
        meaning="An indexer compares a query with one mean key for each block, so it scores far fewer keys than there are "
        "tokens. The output has a gate.",
        heads=8,
        fit=share_heads(8, "gated", bias=False),
    ),
    Preset(
        "glm53",
        "GLM-5.3",
        paper="Z.ai",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/glm5_next",
        choices=(("mask", "block_gated"),),
        meaning="Latent attention without positions, whose indexer scores a learned mean of each block of 16 keys (here "
        "4). Its other layers are linear and carry the order of the tokens.",
        heads=8,
        fit=_latents_without_positions,
    ),
    _deepseek_v4(
        "deepseek_v4_csa",
        "DeepSeek-V4, CSA",
        kernel="csa",
        meaning="Four tokens share one compressed key that is a value too, and an indexer chooses among these, so a cache "
        "of a million tokens is small and few of its entries are read.",
    ),
    _deepseek_v4(
        "deepseek_v4_hca",
        "DeepSeek-V4, HCA",
        kernel=Choice.of("hca", size=8),
        meaning="So many tokens share one compressed key (128 in the model, here 8) that a query can attend to all of them. "
        "Layers of this kind take turns with those that choose.",
    ),
)
