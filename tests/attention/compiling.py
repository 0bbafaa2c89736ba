"""Which choices torch.compile and torch.export take, as JSON; run alone, without the hook that checks shapes.

What is expected to pass is traced several axes at a time: choices that pass alone pass together.
"""

import gc
import json
import sys

import einops
import sympy
import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from core.attention import AXES, Attention, AttentionConfig, Choice, ConfigError, entry, normalizers
from core.attention.config import example, needs

C = 24
# with symbolic lengths the cache costs more than it saves; memory is not short
torch._dynamo.config.fake_tensor_cache_enabled = torch._dynamo.config.run_gc_after_compile = False
# nobody reads where a node comes from, nor how fast its guards are
torch.fx.config.do_not_emit_stack_traces = True
torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
normalizers.MAX_STEPS = 4  # a graph takes every step of entmax, and the same ones without a graph
JOINED = {"mask": "or", "position": "and"}  # how several of one axis stand in one row
NAMES = [f"{axis}-{item.key}" for axis in AXES for item in AXES[axis]]


class Traced(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = Attention(config, add_positions=True).eval()

    def forward(self, x, real):
        return self.layer(x, key_mask=real, record=False).merged


def inputs(batch, length):
    return torch.randn(batch, length, C), torch.arange(length) < torch.randint(
        1, length + 1, (batch, 1)
    )


def compiles(model):
    given = inputs(2, 9)
    torch._dynamo.reset()
    result = torch.compile(model, fullgraph=True, backend="eager")(*given)
    # traced once with the rest, since it takes half the time
    torch._dynamo.allow_in_graph(einops.rearrange)
    return given, result


def exports(model):
    """One graph is given another batch and length."""
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=400)}
    given = inputs(3, 17)
    return given, torch.export.export(
        model, inputs(2, 5), dynamic_shapes=(sizes, sizes), strict=False
    ).module()(*given)


def hold(self, guard, own=ShapeEnv._maybe_guard_rel):
    # What a length of 5 decides otherwise than the largest is refused once all is traced: here at once, in half the time.
    sizes = {symbol: {2: 3, 5: 400}[int(size)] for symbol, size in self.backed_var_to_val.items()}
    if guard.xreplace(sizes) is sympy.false:
        raise ValueError(f"{guard} depends on the length")
    own(self, guard)


def fault(run, config):
    """None where one graph gives the eager numbers, else what went wrong."""
    model = Traced(config)
    try:
        given, result = run(model)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None if torch.allclose(result, model(*given), rtol=1e-4, atol=1e-5) else "other numbers"


def small(axis, key):
    """The choice with short chunks, whose halves a graph unrolls."""
    return example(
        axis,
        key,
        **{"chunk": 8} if any(param.key == "chunk" for param in entry(axis, key).params) else {},
    )


def alone(name):
    axis, key = name.split("-")
    return AttentionConfig(
        C,
        4,
        **{other: example(other, one) for other, one in needs(axis, key).items()}
        | {axis: small(axis, key)},
    )


def candidates(axis, keys):
    """What a row may take of the keys that are left, each with the keys that it covers: masks and positions joined."""
    for count in (3, 2) if axis in JOINED and keys[:1] != ["none"] else ():
        if len(keys) >= count:
            yield Choice.of(JOINED[axis], *(small(axis, key) for key in keys[:count])), keys[:count]
    for key in keys:
        yield small(axis, key), [key]


def together(names):
    """Configs in which each of the names stands once, as many axes at a time as go together."""
    left = [name.split("-") for name in names]
    while left:
        chosen: dict[str, Choice] = {}
        taken: list[list[str]] = []
        # what goes with least first
        for axis in sorted(AXES, key=("kernel", "position").__contains__, reverse=True):
            for choice, keys in candidates(axis, [key for other, key in left if other == axis]):
                try:
                    config = AttentionConfig(C, 4, **chosen | {axis: choice})
                except ConfigError:
                    continue
                chosen[axis] = choice
                taken += [[axis, key] for key in keys]
                break
        if not chosen:  # needs another choice beside it
            config, taken = alone("-".join(left[0])), left[:1]
        left = [name for name in left if name not in taken]
        yield config, ["-".join(name) for name in taken]


def main(failing):
    """The report; `failing` names what is expected to fail, each as choice:way."""
    report: dict[str, dict[str, str | None]] = {name: {} for name in NAMES}
    for way, run in {
        "export": exports,
        "fullgraph": compiles,
    }.items():  # exported before any eager call
        split = {name: f"{name}:{way}" in failing for name in NAMES}
        rows = [*together([name for name in NAMES if not split[name]])]
        for config, names in rows + [(alone(name), [name]) for name in NAMES if split[name]]:
            wrong = fault(run, config)
            report |= {name: report[name] | {way: wrong} for name in names}
    print(json.dumps(report))


if __name__ == "__main__":
    torch.manual_seed(86)
    torch.set_num_threads(1)
    gc.freeze()
    gc.disable()  # a tenth of the time
    ShapeEnv._maybe_guard_rel = hold  # type: ignore[assignment]
    main(sys.argv[1:])
