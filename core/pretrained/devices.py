"""Moving inputs to a model's device, and its outputs back to the CPU, where everything else is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from core.pretrained.attention_recorder import AttentionRecorder


def to_device(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Move the inputs to the model's device, also inside tuples and lists."""
    from torch.utils._pytree import tree_map_only

    return dict(tree_map_only(Tensor, lambda values: values.to(model.device), dict(batch)))


def to_cpu(output: Any, recorder: AttentionRecorder) -> Any:
    """Move a model's output and the recorded calls to the CPU, with their gradients."""
    from torch.utils._pytree import tree_map_only

    if all(call.weights.device.type == "cpu" for call in recorder.calls) and _is_on_cpu(output):
        return output
    for call in recorder.calls:
        for name in ("weights", "q", "k", "v", "out", "gated", "mask"):
            if (values := getattr(call, name)) is not None:
                setattr(call, name, values.cpu())
        call.options = tree_map_only(Tensor, Tensor.cpu, call.options)
    return tree_map_only(Tensor, Tensor.cpu, output)


def _is_on_cpu(output: Any) -> bool:
    values = output.values() if hasattr(output, "values") else ()
    first = next((one for one in values if isinstance(one, Tensor)), None)
    return first is None or first.device.type == "cpu"
