"""2023 to today: the attention of models in use."""

from __future__ import annotations

from collections.abc import Mapping

from core.attention.presets.base import Preset, share_heads
from core.attention.presets.long import PLAIN
from core.entries import Choice

_LLAMA3 = Choice.of("llama3_rope", base=500_000.0)


def _latent(d_model: int, num_heads: int) -> Mapping[str, Choice]:
    """DeepSeek's own proportions: four heads' worth of latent (at most half of d_model), half a head rotated."""
    size = d_model // num_heads
    rope = max(2, size // 4 * 2)
    return {"projection": Choice.of("latent", latent=max(1, min(4 * size, d_model // 2)), rope=rope)}


TODAY: tuple[Preset, ...] = (
    Preset("llama", "Llama", "Touvron et al.", 2023, "https://arxiv.org/abs/2302.13971",
           (("projection", PLAIN), ("position", "rope"), ("mask", "causal")),
           "No biases and turned queries: what most open models start from."),
    Preset("llama2", "Llama 2, 70B", "Touvron et al.", 2023, "https://arxiv.org/abs/2307.09288",
           (("position", "rope"), ("mask", "causal")),
           "Eight queries share a key head, so that what is kept of a conversation is eight times smaller.", heads=8,
           fit=share_heads(8, bias=False)),
    Preset("retnet", "RetNet", "Sun et al.", 2023, "https://arxiv.org/abs/2307.08621",
           (("projection", PLAIN), ("position", Choice.of("rope", layout="interleaved")), ("mask", "causal"),
            ("kernel", "retention")),
           "Trained in parallel, decoded as one state a head, each fading at its own rate; the norm and the gate after "
           "it are left out here."),
    Preset("mistral", "Mistral 7B", "Jiang et al.", 2023, "https://arxiv.org/abs/2310.06825",
           (("position", "rope"), ("mask", Choice.of("causal_local", lookback=3))),
           "Each layer looks back 4,096 tokens there, 3 here, and a stack of layers reaches as many times further.",
           heads=8, fit=share_heads(4, bias=False)),
    Preset("cope", "CoPE", "Golovneva et al.", 2024, "https://arxiv.org/abs/2405.18719",
           (("position", "cope"), ("mask", "causal")),
           "A place counts what matters, such as sentences, instead of every token."),
    Preset("deepseek_v2", "DeepSeek-V2, MLA", "DeepSeek-AI", 2024, "https://arxiv.org/abs/2405.04434",
           (("mask", "causal"),),
           "What is kept of a token is one small vector and one turned key; DeepSeek-V3 and R1 keep this.", heads=8,
           fit=_latent),
    Preset("gemma2", "Gemma 2", "Gemma Team", 2024, "https://arxiv.org/abs/2408.00118",
           (("position", "rope"), ("mask", Choice.of("causal_local", lookback=3)), ("normalizer", "softcap")),
           "Scores are capped at 50; every other layer looks back 4,096 tokens only, and is the one shown, with 3.",
           fit=share_heads(2, bias=False)),
    Preset("llama3", "Llama 3.1", "Grattafiori et al.", 2024, "https://arxiv.org/abs/2407.21783",
           (("position", _LLAMA3), ("mask", "causal")),
           "Slow rotations are slowed eightfold, so that a model trained on 8,192 tokens reads 131,072.", heads=8,
           fit=share_heads(4, bias=False)),
    Preset("sigmoid", "Sigmoid attention", "Ramapuram et al.", 2024, "https://arxiv.org/abs/2409.04431",
           (("position", "alibi"), ("mask", "causal"), ("normalizer", "sigmoid")),
           "No row has to spend anything: each pair of tokens decides alone."),
    Preset("differential", "Differential Transformer, DiffLlama", "Ye et al.", 2024, "https://arxiv.org/abs/2410.05258",
           (("projection", Choice.of("differential", bias=False)), ("position", "rope"), ("mask", "causal")),
           "A second map is subtracted from the first, as noise is from a signal."),
    Preset("gated_deltanet", "Gated DeltaNet", "Yang et al.", 2024, "https://arxiv.org/abs/2412.06464",
           (("projection", PLAIN), ("position", "none"), ("mask", "causal"), ("kernel", "gated_delta")),
           "What a state holds for a key is corrected, not added to. Three layers of four in Qwen3-Next are this; the "
           "short convolution before it and the norm and gate after it are left out here."),
    Preset("olmo2", "OLMo 2", "OLMo Team", 2024, "https://arxiv.org/abs/2501.00656",
           (("projection", PLAIN), ("score", "qk_norm"), ("position", Choice.of("rope", base=500_000.0)),
            ("mask", "causal")),
           "Queries and keys are normed, there over all heads at once, so that no score can run away in training."),
    Preset("minimax", "MiniMax-01, lightning", "MiniMax", 2025, "https://arxiv.org/abs/2501.08313",
           (("projection", Choice.of("gated", bias=False)), ("score", "dot"), ("position", "none"), ("mask", "causal"),
            ("kernel", Choice.of("retention", decay="lightning"))),
           "Seven layers of eight keep one state a head, so that a million tokens can be read; the eighth has softmax. "
           "SiLU on queries, keys and values and the norm before the gate are left out here."),
    Preset("forgetting", "Forgetting Transformer", "Lin et al.", 2025, "https://arxiv.org/abs/2503.02130",
           (("position", "forgetting"), ("mask", "causal")),
           "Each token says how much of what came before it still counts."),
    Preset("llama4", "Llama 4", "Meta", 2025, "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
           (("position", Choice.of("rope", base=500_000.0, layout="interleaved")),
            ("mask", Choice.of("chunked", size=4))),
           "Three layers of four are cut into chunks of 8,192 tokens, 4 here; the fourth sees all, without places.",
           heads=8, fit=share_heads(5, bias=False)),
    Preset("gemma3", "Gemma 3", "Gemma Team", 2025, "https://arxiv.org/abs/2503.19786",
           (("score", "qk_norm"), ("position", "rope"), ("mask", Choice.of("causal_local", lookback=3))),
           "QK-norm takes the cap's place; five layers of six look back 1,024 tokens, 3 here.",
           fit=share_heads(2, bias=False)),
    Preset("qwen3", "Qwen3", "Qwen Team", 2025, "https://arxiv.org/abs/2505.09388",
           (("score", "qk_norm"), ("position", Choice.of("rope", base=1_000_000.0)), ("mask", "causal")),
           "Each head's queries and keys are normed, and four queries share a key head.", heads=8,
           fit=share_heads(4, bias=False)),
    Preset("gated", "Gated attention", "Qiu et al.", 2025, "https://arxiv.org/abs/2505.06708",
           (("projection", Choice.of("gated", bias=False)), ("position", "rope"), ("mask", "causal")),
           "A head with nothing to say is shut by its gate, so that no first token has to take its weight. Qwen3-Next "
           "has it."),
    Preset("gpt_oss", "gpt-oss", "OpenAI", 2025, "https://arxiv.org/abs/2508.10925",
           (("position", Choice.of("yarn", base=150_000.0, factor=32.0, original=4096)),
            ("mask", Choice.of("causal_local", lookback=3)), ("normalizer", "sink")),
           "A learned sink takes what a head does not want to spend; every other layer looks back 128 tokens, 3 here.",
           heads=8, fit=share_heads(8)),
)
