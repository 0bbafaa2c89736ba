"""A layer's numbers: gradients of its output, fp64 that stays fp64, near results in half, no trace of padding."""

import copy
import traceback
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.attention import AXES, Attention, AttentionConfig, Choice, ConfigError
from tests.attention.drawing import C, H, config_of, plain
from tests.cases import each

ENTRIES = [(axis, item.key) for axis in AXES for item in AXES[axis]]
NARROW = (torch.float32, torch.float16, torch.bfloat16)
BESIDE = ["formula", "kerple"]  # positions that every other one is joined to
# An output that jumps where two candidates change their rank: rounding may choose the other in some rows.
JUMPS = {"lightning", "moba", "local_p", "nsa", "top_k", "hard"}


def layer_of(config, dtype=torch.float32):
    layer = Attention(config, add_positions=True)
    for weight in layer.position.parameters():  # what starts at zero would hide what it does
        torch.nn.init.normal_(weight, std=0.5)
    return layer.to(dtype)


def all_real(x):
    return torch.ones(x.shape[:2], dtype=torch.bool)


class Single(TorchDispatchMode):
    """The lines of core that make fp32 or half numbers which are not whole, so that fp64 is lost."""

    def __init__(self):
        super().__init__()
        self.lines = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if (
                isinstance(x, torch.Tensor)
                and x.dtype in NARROW
                and bool((x.isfinite() & (x != x.round())).any())
            ):
                frames = [
                    frame for frame in traceback.extract_stack() if "/core/" in frame.filename
                ]
                self.lines.add(
                    f"{frames[-1].filename}:{frames[-1].lineno} {func}" if frames else str(func)
                )
        return out


def singles(config):
    layer, x = (
        layer_of(config, torch.float64),
        torch.randn(2, 11, C, dtype=torch.float64, requires_grad=True),
    )
    with Single() as seen:
        for record in (True, False):
            layer(x, key_mask=all_real(x), record=record).merged.square().sum().backward()
        if config.mask.key == "causal":
            layer.step(x)
    return seen.lines


@each(("axis", "key"), ENTRIES)
def test_a_double_layer_computes_nothing_in_single(axis, key):
    config, lines = config_of(axis, key), set()
    for mask in (config.mask, Choice("causal")):
        try:
            lines |= singles(config.with_(mask=mask))
        except ConfigError as refusal:
            assert "mask = causal" in str(refusal)
    assert (
        all("relative.py" in line for line in lines) if key == "t5" else not lines
    )  # T5's buckets are whole numbers
    assert [name for name, x in layer_of(config).named_buffers() if x.is_floating_point()] == (
        ["kernel.directions"] if key == "performer" else []
    ), "a table in a buffer is rounded when the layer is"


@each("beside", BESIDE)
@each(
    "key",
    [
        item.key
        for item in AXES["position"]
        if item.enters not in ("", "x") and item.key not in ("and", "t5")
    ],
)
def test_joined_positions_of_a_double_layer_compute_nothing_in_single(key, beside):
    try:
        config = AttentionConfig(
            C, H, position=Choice.of("and", plain("position", beside), plain("position", key))
        )
    except ConfigError:
        return
    assert not singles(config)


@each("scale", [1.0, 2.0, 4.0])
@each(
    ("axis", "key"), [pair for pair in ENTRIES if pair[1] != "hard"]
)  # the gradient of hard is the softmax's
def test_the_gradient_is_that_of_the_output(axis, key, scale):
    """Along a random direction of x and of all weights, by central differences in fp64."""
    layer = layer_of(config_of(axis, key), torch.float64)
    x = (scale * torch.randn(2, 7, C, dtype=torch.float64)).requires_grad_()
    inputs = [x, *(weight for weight in layer.parameters() if weight.requires_grad)]
    weights = torch.randn(2, 7, C, dtype=torch.float64)
    for record in (True, False):

        def loss(record=record):
            return (layer(x, key_mask=all_real(x), record=record).merged * weights).sum()

        grads = torch.autograd.grad(loss(), inputs, allow_unused=True)
        along = [torch.randn_like(value) for value in inputs]
        slope = sum(
            (grad * way).sum() for grad, way in zip(grads, along, strict=True) if grad is not None
        )
        step, sides = 1e-6, []
        with torch.no_grad():
            for sign in (1, -2):
                for value, way in zip(inputs, along, strict=True):
                    value += sign * step * way
                sides.append(loss())
            for value, way in zip(inputs, along, strict=True):
                value += step * way
        torch.testing.assert_close((sides[0] - sides[1]) / (2 * step), slope, rtol=1e-5, atol=1e-5)


@each("dtype", [torch.bfloat16, torch.float16])
@each(("axis", "key"), ENTRIES)
def test_half_precision_keeps_the_result(axis, key, dtype):
    """Within 16 roundings of the largest number; a layer that jumps, in four tokens of five. Autocast is the same.

    In all, too, it is the layer in fp32, whose weights and inputs were not rounded.
    """
    layer, x = layer_of(config_of(axis, key)), torch.randn(2, 33, C)
    single = layer(x, key_mask=all_real(x)).merged
    rounded, small = copy.deepcopy(layer).to(dtype), x.to(dtype)
    autocast = torch.autocast("cpu", dtype)
    for record in (True, False):
        got = [(rounded(small, key_mask=all_real(x), record=record).merged, rounded, small)]
        with autocast:
            got.append((layer(x, key_mask=all_real(x), record=record).merged, layer, x))
        for out, source, inputs in got:
            assert (out.float() - single).norm() < 0.25 * single.norm()
            want = copy.deepcopy(source).double()(inputs.double(), key_mask=all_real(x)).merged
            error = (out.double() - want).abs().amax(-1) / want.abs().max()  # of each token
            close = error < 16 * torch.finfo(dtype).eps
            assert close.double().mean() > 0.8 if key in JUMPS else close.all(), (
                f"{error.max():.3g}"
            )


@each("key", [item.key for item in AXES["kernel"] if item.traits & {"implied"}])
@each("gate", [-39.0, -30.0, -20.0, 0.0, 1.0, 2.0, 4.0])
def test_scores_near_ten_thousand_have_finite_gradients(key, gate):
    """Whatever the gates are: with some of these a chunk fades by nearly e^80, and the next by more."""
    layer, x = layer_of(config_of("kernel", key)), (100.0 * torch.randn(2, 64, C)).requires_grad_()
    with torch.no_grad():
        for name, weight in (
            layer.kernel.named_parameters() if isinstance(layer.kernel, torch.nn.Module) else ()
        ):
            if name.startswith("forget"):
                weight.fill_(gate if name.endswith("bias") else 0.0)
            elif name == "log_rate":
                weight.zero_()
    steps = layer(x, key_mask=all_real(x), record=False)
    grads = torch.autograd.grad(
        steps.merged.square().sum(), [x, *layer.parameters()], allow_unused=True
    )
    assert steps.merged.isfinite().all() and all(
        grad.isfinite().all() for grad in grads if grad is not None
    )


REAL = 9
LENGTHS = [10, 32, 33, 65, 130]  # across chunks, blocks and landmarks
BY_LENGTH = {
    "ntk_rope",
    "long_rope",
}  # the angles are those of the longest text, its padding included


@each("cross", [False, True])
@each(("axis", "key"), ENTRIES)
def test_padding_of_any_length_changes_nothing(axis, key, cross):
    layer = layer_of(config_of(axis, key), torch.float64).eval()
    if cross and layer.config.has("projection", "one sequence"):
        return
    x, queries = (torch.randn(2, length, C, dtype=torch.float64) for length in (REAL, REAL + 4))
    for record in (True, False):
        want = None
        for length in [REAL, *LENGTHS]:
            padded = torch.cat((x, torch.randn(2, length - REAL, C, dtype=torch.float64)), 1)
            real = (torch.arange(length) < REAL).expand(2, -1)
            out = (
                layer(queries, padded, key_mask=real, record=record)
                if cross
                else layer(padded, key_mask=real, record=record)
            )
            got = out.merged if cross else out.merged[:, :REAL]
            want = got if want is None else want
            torch.testing.assert_close(
                got, want, rtol=1e-9, atol=1e-9, msg=partial("{}: {}".format, length)
            )
