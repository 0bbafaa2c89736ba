"""The harness of oracles: two computations agree in their output, and in the gradients at their inputs and weights."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distribution
from runpy import run_path
from typing import Any

import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice
from core.attention.base import ScoreBlock
from tests.close import assert_close

CLOSE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-8, 1e-10)}  # of the largest, and at least


def agree(
    ours: Tensor,
    theirs: Tensor,
    inputs: Sequence[Tensor],
    others: Sequence[Tensor] | None = None,
    *,
    rel: float | None = None,
    gradient: float | None = None,
    felt: bool = True,
) -> None:
    """One output and, along a random direction of it, the gradients; `others` are the inputs of theirs if not ours.

    `rel` and `gradient` are how far output and gradients may be apart in shares of the largest number, if not as far as
    the arithmetic allows. Unless `felt` is off each input has a
    gradient that is not zero, which would agree with too much.
    """
    usual, floor = CLOSE[theirs.dtype]
    assert_close(ours, theirs, rel or usual, floor)
    way = torch.randn_like(ours)
    mine = torch.autograd.grad((ours * way).sum(), inputs, retain_graph=True)
    peers = torch.autograd.grad((theirs * way).sum(), others or inputs, retain_graph=True)
    for a, b in zip(mine, peers, strict=True):
        assert not felt or b.any(), "a gradient of zeros agrees with too much"
        assert_close(a, b.view_as(a), gradient or rel or usual, floor)


@torch.no_grad()
def put(*pairs: tuple[Tensor, Any]) -> None:
    """Write numbers into weights: a number fills one, lists and tensors have its shape."""
    for weight, numbers in pairs:
        weight.copy_(torch.as_tensor(numbers))


def fla(operation: str, name: str, module: str = "naive") -> Callable[..., Any]:
    """A function of flash-linear-attention's plain PyTorch, read from its file: its packages import Triton."""
    file = distribution("fla-core").locate_file(f"fla/ops/{operation}/{module}.py")
    return run_path(str(file))[name]


def twin(layer: Attention, strict: bool = True, **axes: Any) -> Attention:
    """A layer of the same weights with other choices on these axes."""
    other = Attention(layer.config.with_(**axes)).to(layer.projection.output.weight.dtype)
    other.load_state_dict(layer.state_dict(), strict=strict)
    return other


def by_name(
    layer: Attention, query="q_proj", key="k_proj", value="v_proj", output="o_proj"
) -> dict[str, Tensor]:
    """The weights of our maps by the names that they have in somebody else's layer."""
    return {
        f"{name}.{part}": weight
        for own, name in {"query": query, "key": key, "value": value, "output": output}.items()
        if name
        for part, weight in getattr(layer.projection, own).named_parameters()
    }


def same_layer(
    layer: Attention,
    peer: torch.nn.Module,
    names: Mapping[str, Tensor],
    x: Tensor,
    *more: Any,
    mask: Tensor | None = None,
    shows: bool = True,
    **how: Any,
) -> None:
    """A whole layer of somebody else's is ours, with our weights in it by its names: weights, output, all gradients.

    `more` and `how` are what it is called with beside x, `mask` is ours. `shows` where it returns weights of attention.
    """
    out, weights = torch.func.functional_call(peer, dict(names), (x.requires_grad_(), *more), how)[
        :2
    ]
    steps = layer(x, mask=mask)
    if shows:
        assert_close(steps.weights, weights)
    learned = [
        weight
        for name, weight in layer.named_parameters()
        if weight.requires_grad and name != "projection.key.bias"  # softmax ignores it
    ]
    agree(steps.merged, out, [x, *learned])


def cells(q: Tensor, k: Tensor, offset: int = 0, **tensors: Any) -> ScoreBlock:
    return ScoreBlock.whole(
        q.shape[2], k.shape[2], num_heads=q.shape[1], offset=offset, q=q, k=k, **tensors
    )


def layer_of(
    position: str,
    d_model: int,
    heads: int,
    *,
    score="scaled_dot",
    mask="none",
    bias=True,
    **params,
) -> Attention:
    projection, place = Choice.of("multi_head", bias=bias), Choice.of(position, **params)
    return Attention(
        AttentionConfig(d_model, heads, projection, score, place, mask), add_positions=True
    ).eval()
