"""What each module of a model puts out on one pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from core.hooks import hooked
from core.models.base import Model
from core.models.inputs import TokenEmbedding
from core.models.model_summary import joined, main_output


@contextmanager
def record_outputs(model: Model) -> Iterator[dict[str, Tensor]]:
    """The main output of every module by its path, as the module last ran; the hooks are removed at the end.

    An embedding that reads the source and then the target has both, one after the other.
    """
    outputs: dict[str, Tensor] = {}

    def hook(path: str):
        def record(module: object, inputs: object, output: object) -> None:
            tensor = main_output(output)
            if tensor is not None:
                before = outputs.get(path) if isinstance(module, TokenEmbedding) else None
                outputs[path] = joined(before, tensor.detach())

        return record

    with hooked(
        module.register_forward_hook(hook(path)) for path, module in model.named_modules() if path
    ):
        yield outputs
