"""PyTorch's optimizers for a run, without torch.compile, which is not used here and slow to import."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from core.training.config import RunConfig

Optimizer = torch.optim.Optimizer
WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def _without_compile(kind: Any) -> Any:
    """A subclass with the methods that torch wraps for torch.compile, unwrapped; the numbers are the same.

    The wrappers import torch._dynamo: as much time as the rest of a worker's start, and 70 MB.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in WRAPPED}
    return type(
        kind.__name__, (kind,), methods | {"step": torch.no_grad()(inspect.unwrap(kind.step))}
    )


KINDS = {
    "adamw": _without_compile(torch.optim.AdamW),
    "adam": _without_compile(torch.optim.Adam),
    "rmsprop": _without_compile(torch.optim.RMSprop),
    "sgd": _without_compile(torch.optim.SGD),
}


def make_optimizer(config: RunConfig, model: nn.Module) -> Optimizer:
    """The optimizer of a config; AdamW decouples weight decay from the gradient (Loshchilov & Hutter 2019)."""
    more = {"momentum": 0.9} if config.optimizer == "sgd" else {}
    optimizer: Optimizer = KINDS[config.optimizer](
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, **more
    )
    return optimizer
