"""Names of the parts of a model, in the words of the papers."""

from __future__ import annotations

from torch import nn

from core.models.config import ModelConfig
from core.models.inputs import FeatureEmbedding, TokenEmbedding

ITSELF = "itself"  # the share of a part that is in none of its children
NAMES = {
    "": "Model",
    "source_places": "Positions of the source",
    "target_places": "Positions of the target",
    "places": "Positions",
    "target": "Target embedding",
    "encoder": "Encoder",
    "attention": "Self-attention",
    "causal": "Causal self-attention",
    "cross": "Cross-attention",
    "around_attention": "Add and norm",
    "around_causal": "Add and norm",
    "around_cross": "Add and norm",
    "around_feed_forward": "Add and norm",
    "feed_forward": "Feed-forward",
    "inner": "Inner map",
    "outer": "Outer map",
    "gate": "Gate",
    "output": "Output",
    "projection": "Projections",
    "query": "W_q",
    "key": "W_k",
    "value": "W_v",
    "norm": "Norm",
    "token": "Words",
    "position": "Position",
    "score": "Score",
    "normalizer": "Normalizer",
    "kernel": "Kernel",
    "mask": "Mask",
    "words": "Words of each sentence",
    "sentences": "Sentences of the document",
}
OWN_SHARE = {
    "attention": "Scores, softmax, weights · v",
    "causal": "Scores, softmax, weights · v",
    "cross": "Scores, softmax, weights · v",
    "feed_forward": "Activation",
    "": "How they are combined",
}


def title(path: str, model: nn.Module) -> str:
    """The name of the part at that path."""
    above, _, last = path.rpartition(".")
    if last == ITSELF:
        return OWN_SHARE.get(above.rpartition(".")[2], "Sums and scales")
    if last.isdecimal():
        return (
            layer_title(above, int(last), _layer_names(model))
            if above.endswith("layers")
            else f"Column {last}"
        )
    if path == "target" and getattr(model, "source", None) is getattr(model, "target", None):
        return "Word embedding"  # of one sequence, input and output
    if last == "source":
        module = model.get_submodule(path)
        if isinstance(module, TokenEmbedding):
            return "Word embedding"
        return (
            "Column embedding"
            if isinstance(module, FeatureEmbedding)
            else "Linear map of the input"
        )
    if last == "norm" and above in ("", "encoder"):
        return "Last norm"
    if last == "output" and above:
        return "W_o"
    return NAMES.get(last, last.replace("_", " ").capitalize())


def layer_title(stack: str, layer: int, names: tuple[str, ...]) -> str:
    """A layer's number, with what its attention has unlike those of the other layers: its name, if layers have any."""
    number = f"{'Layer' if stack.startswith('encoder') else 'Decoder layer'} {layer}"
    return f"{number}: {names[layer]}" if names and names[layer] else number


def _layer_names(model: nn.Module) -> tuple[str, ...]:
    config = getattr(model, "config", None)
    return config.layer_names if isinstance(config, ModelConfig) and config.following else ()
