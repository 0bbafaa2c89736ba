"""Between layers: plain residuals beside attention over depth and hyper-connections, with as many parameters."""

from collections.abc import Iterator
from typing import Any

from core.claims.base import (
    Claim,
    ClaimSettings,
    Figure,
    Learned,
    Number,
    Part,
    Pick,
    Source,
    Stop,
    difference,
)
from core.claims.experiment import TEXT_BITS, session_of, train_whole
from core.entries import Param
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig

PLAIN, ATTENTION, HYPER = "plain residuals", "attention over depth", "hyper-connections"
CONDITIONS = (PLAIN, ATTENTION, HYPER)
BITS, PARAMETERS = "Bits a character", "Parameters"
LEARNED = Learned(BITS, high=TEXT_BITS, unit="positive")
# Of each its residual, and the best of three rates; hyper-connections have a narrower feed-forward network instead.
MODELS: dict[str, tuple[dict[str, Any], float]] = {
    PLAIN: (dict(residual="plain", d_ff=128), 0.005),
    ATTENTION: (dict(residual="attention", d_ff=128), 0.005),
    HYPER: (dict(residual="hyper", streams=2, d_ff=112), 0.005),
}


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """The parameters of a model, and the bits a character of unseen text after training."""
    steps, (model, rate) = int(settings["steps"]), MODELS[condition]
    sizes: dict[str, Any] = dict(kind="decoder", position="rope", norm="pre", normalization="rms")
    config = RunConfig(
        TaskConfig.of("topics", length=32),
        ModelConfig.transformer(64, 4, int(settings["layers"]), **sizes, **model),
        steps=steps,
        batch_size=16,
        learning_rate=rate,
        warmup=steps // 10,
        record_every=steps,
        decode_every=2,
    )
    trained = train_whole(session_of(config, seed), stop)
    yield PARAMETERS, trained.parameters, None
    yield BITS, trained.bits, None


OVER_DEPTH = Claim(
    key="depth",
    name="What stands between layers",
    subject="New variants",
    statement="With as many parameters and steps, a model with attention over depth or hyper-connections predicts text "
    "better than one with plain residuals.",
    source=Source("Kimi Team", "Attention Residuals", 2026, "https://arxiv.org/abs/2603.15031"),
    refutation="Six layers with attention over depth, or with hyper-connections, need more bits a character than with "
    "plain residuals.",
    guess=Pick(
        "Six layers learn a text. With what between them do they need the fewest bits a character?",
        ("Plain residuals", "Attention over depth", "Hyper-connections"),
        lambda results: min(range(3), key=lambda at: results.mean(CONDITIONS[at], BITS)),
    ),
    settings=(
        Param("steps", "Training steps", 1000, 40, 4000, 20, meaning="how long each model learns"),
        Param("layers", "Layers", 6, 2, 12, 1, meaning="depth of the models"),
    ),
    conditions=lambda settings: CONDITIONS,
    measure=measure,
    parts=(
        Part(
            "Attention over depth needs fewer bits.",
            difference((PLAIN, BITS), (ATTENTION, BITS)),
            "bits won by attention over depth",
            low=0.0,
            learned=LEARNED,
        ),
        Part(
            "Hyper-connections need fewer bits.",
            difference((PLAIN, BITS), (HYPER, BITS)),
            "bits won by hyper-connections",
            low=0.0,
            learned=LEARNED,
        ),
    ),
    figures=(
        Figure("Bits a character of unseen text", BITS, unit="positive"),
        Figure("Parameters", PARAMETERS, unit="positive"),
    ),
    limits="One small text, one width and one depth, and fewer steps than a large model takes. Attention over depth is the "
    "form over every sublayer, not the one over blocks; hyper-connections have two streams, where published models "
    "have four, and a feed-forward network that is narrower by as many weights as they add, to within 1 %. Both "
    "take longer for a step, which equal steps do not count.",
    tried="Two pilots of one seed, 100, which is none of the result's. Before the rule: 6 layers of d_model 32, 800 steps, "
    "rates of 0.02, 0.01 and 0.005, the best of each 2.63 bits (plain), 2.67 (attention) and 2.64 (hyper). With it, "
    "d_model 64 and 800 steps, for the rate of each: with 0.01, 0.005 and 0.0025 plain residuals need 2.529, 2.522 "
    "and 2.580 bits, attention over depth 2.588, 2.501 and 2.554, hyper-connections 2.623, 2.509 and 2.567. So the "
    "rate is 0.005 for all. Steps were raised to 1,000, as none had learned.",
    no_published="The paper's figures are of language models that are thousands of times larger; its abstract says that "
    "the improvement is consistent across sizes. The second source, Xie et al. 2025 (mHC), compares large models, too.",
    scope="in models of d_model 64 with 6 layers that read characters",
)
