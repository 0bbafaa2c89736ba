"""Inputs to where a model's weights are, and what came of them back to the CPU, where all else is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from core.pretrained.attention_recorder import AttentionRecorder


def to_device(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs on the model's device, those in tuples and lists too."""
    from torch.utils._pytree import tree_map_only

    return dict(tree_map_only(Tensor, lambda values: values.to(model.device), dict(batch)))


def to_cpu(output: Any, watch: AttentionRecorder) -> Any:
    """A model's output with every tensor on the CPU, gradients and all, and so what was watched."""
    from torch.utils._pytree import tree_map_only

    if all(seen.weights.device.type == "cpu" for seen in watch.seen) and _is_on_cpu(output):
        return output
    for seen in watch.seen:
        for name in ("weights", "q", "k", "v", "out", "mask"):
            if (values := getattr(seen, name)) is not None:
                setattr(seen, name, values.cpu())
        seen.extra = tree_map_only(Tensor, Tensor.cpu, seen.extra)
    return tree_map_only(Tensor, Tensor.cpu, output)


def _is_on_cpu(output: Any) -> bool:
    values = output.values() if hasattr(output, "values") else ()
    first = next((one for one in values if isinstance(one, Tensor)), None)
    return first is None or first.device.type == "cpu"
