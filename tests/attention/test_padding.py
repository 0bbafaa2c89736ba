"""What a key mask hides is felt by nobody: for every choice, whatever the padding holds, forward and backward."""

import copy
import traceback
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.attention import AXES, Attention, AttentionConfig, Choice, ConfigError
from core.attention.config import example_config
from core.attention.kernels.exact import exact
from tests.attention import drawing
from tests.attention.drawing import ENTRIES, B, C, configs, perturbed, plain, positioned
from tests.cases import each

T, S = 5, 7
H = 4
REAL = torch.tensor([[True, True, False, True, False, True, False], [True] * 7])
FILLINGS = {
    "random": lambda x: torch.randn_like(x),
    "huge": lambda x: 1e30 * torch.randn_like(x),
    "NaN": lambda x: torch.full_like(x, torch.nan),
    "∞": lambda x: torch.full_like(x, torch.inf),
}


def layer_of(axis, key):
    return perturbed(Attention(drawing.config_of(axis, key, H), add_positions=True))


def felt(layer, x, context, real, rows, record):
    x, context = (
        x.clone().requires_grad_(),
        None if context is None else context.clone().requires_grad_(),
    )
    out = layer(x, context, key_mask=real, record=record).merged[rows]
    inputs = [
        x,
        *([] if context is None else [context]),
        *(w for w in layer.parameters() if w.requires_grad),
    ]
    return out, torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)


@each("cross", [False, True])
@each(("axis", "key"), ENTRIES)
def test_what_padding_holds_is_felt_by_nobody(axis, key, cross):
    layer = layer_of(axis, key)
    if cross and layer.config.has("projection", "one sequence"):
        return
    tokens, queries = torch.randn(B, S, C), torch.randn(B, T, C)
    hidden, rows = ~REAL[..., None], torch.ones(B, T, dtype=torch.bool) if cross else REAL
    for record in (True, False):
        clean = None
        for name, fill in FILLINGS.items():
            filled = torch.where(hidden, fill(tokens), tokens)
            x, context = (queries, filled) if cross else (filled, None)
            got = felt(layer, x, context, REAL, rows, record)
            assert got[0].isfinite().all(), name
            assert all(grad.isfinite().all() for grad in got[1] if grad is not None), name
            if clean is not None:
                torch.testing.assert_close(
                    got[0], clean, rtol=1e-4, atol=1e-5, msg=partial("{}: {}".format, name)
                )
            clean = got[0] if clean is None else clean


@each(("axis", "key"), ENTRIES)
def test_a_text_without_a_real_key_gives_zeros(axis, key):
    layer, real = layer_of(axis, key), torch.tensor([[True] * S, [False] * S])
    for record in (True, False):
        x = torch.randn(B, S, C, requires_grad=True)
        steps = layer(x, key_mask=real, record=record)
        assert not steps.out[1].any()
        grads = torch.autograd.grad(
            steps.merged.square().sum(), [x, *layer.parameters()], allow_unused=True
        )
        assert all(grad.isfinite().all() for grad in grads if grad is not None)


def test_forgetting_counts_no_gate_of_a_hidden_key():
    # The distance from 0 to 2 is log f of keys 1 and 2; with key 1 hidden it is that of key 2 alone.
    layer = Attention(AttentionConfig(C, 1, position="forgetting"))
    x, real = torch.randn(1, 3, C), torch.tensor([[True, False, True]])
    gate = torch.nn.functional.logsigmoid(layer.position.gate(x))[0, :, 0]
    assert (layer(x).bias[0, 0, 2, 0].item(), layer(x, key_mask=real).bias[0, 0, 2, 0].item()) == (
        pytest.approx((gate[1] + gate[2]).item()),
        pytest.approx(gate[2].item()),
    )


BLOCKS = pytest.mark.parametrize("key", ["chunked", "local", "block_sparse"])
LENGTHS = [(11, 13), (17, 5)]  # of no common divisor with a block


def agrees_with_exact(config, queries, keys, real):
    layer = precise_layer(config).eval()
    x, context = torch.randn(2, queries, C), torch.randn(2, keys, C, requires_grad=True)
    q, k, v = layer.projection(x, context)
    inputs = layer.kernel_inputs(q, k, v, x, context, key_mask=real)
    got, want = layer.kernel(inputs).out, exact(replace(inputs, record=True)).out
    torch.testing.assert_close(got, want, rtol=1e-4, atol=2e-5)
    a, b = (
        torch.autograd.grad(out.square().sum(), context, retain_graph=True)[0]
        for out in (got, want)
    )
    torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4 * max(1.0, b.abs().max().item()))
    return got


@BLOCKS
@each("axis", ["mask", "position"])
def test_every_rule_reads_the_whole_and_not_its_block(key, axis):
    for at, item in enumerate(AXES[axis]):
        try:
            config = AttentionConfig(
                C, H, kernel=Choice.of(key, block=1 + at % 7), **{axis: plain(axis, item.key)}
            )
        except ConfigError as refusal:
            assert f"kernel = {key}" in str(refusal)
            continue
        for queries, keys in LENGTHS:
            agrees_with_exact(config, queries, keys, torch.rand(2, keys) < 0.6)


@BLOCKS
@settings(max_examples=15)
@given(data=st.data())
def test_random_choices_in_small_blocks_agree_with_exact(key, data):
    config = data.draw(configs(kernel=Choice.of(key, block=data.draw(st.integers(1, 7)))))
    assume(not config.has("projection", "one sequence"))
    queries, keys = data.draw(st.sampled_from([*LENGTHS, (13, 13), (7, 17)]))
    real = data.draw(st.lists(st.booleans(), min_size=2 * keys, max_size=2 * keys))
    real = torch.tensor(real).view(2, keys)
    assert not agrees_with_exact(config, queries, keys, real)[~real.any(1)].any(), (
        "a text without a real token gives zeros"
    )


# No step of any mechanism leaves the device of its inputs: run on PyTorch's meta device, which needs no GPU.


ROWS = 67  # more than the rows that are sorted on the CPU
# A formula is checked for numbers that are not finite, entmax is solved to a tolerance, and the gates of gla, kda, gdn2,
# rwkv6, rwkv7 and hgrn2 are computed another way where one is strong. For each such answer a GPU ends its work, and then
# waits for more.
ASKING = {
    ("position", "formula"),
    ("position", "and"),
    ("mask", "formula"),
    ("normalizer", "entmax"),
    ("kernel", "gla"),
    ("kernel", "kda"),
    ("kernel", "gdn2"),
    ("kernel", "rwkv7"),
    ("kernel", "hgrn2"),
    ("kernel", "rwkv6"),
}
MOVES = ("_to_copy", "copy_")  # moving from one device to another is their work


class OneDevice(TorchDispatchMode):
    """Raises where one operation is given tensors of two devices; a single number may come from anywhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [
            t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()
        ]
        devices = {t.device.type for t in tensors}
        assert len(devices) < 2 or any(name in str(func) for name in MOVES), (
            f"{func} is given tensors of {devices}"
        )
        return func(*args, **(kwargs or {}))


@cache
def config_of(axis, key):
    return example_config(axis, key, C, 4)


def answers(monkeypatch):
    """A meta tensor has no values to ask for (is it finite, how far do places reach): answers, and a list of them."""
    asked = []
    for name, answer in (("__bool__", True), ("__int__", 0)):
        plain = getattr(torch.Tensor, name)

        def ask(t, answer=answer, plain=plain):
            if not t.is_meta:
                return plain(t)
            asked.append(answer)
            return answer

        monkeypatch.setattr(torch.Tensor, name, ask)
    return asked


@each("record", [True, False])
@each(("axis", "key"), ENTRIES)
def test_device_is_kept_and_few_choices_wait_for_value(axis, key, record, monkeypatch):
    layer = Attention(config_of(axis, key), add_positions=True).to("meta")
    key_mask = torch.ones(B, ROWS, dtype=torch.bool, device="meta") if key == "padding" else None
    with monkeypatch.context() as patch, OneDevice():
        asked = answers(patch)
        steps = layer(torch.randn(B, ROWS, C, device="meta"), key_mask=key_mask, record=record)
    types = {
        name: t.device.type
        for name, t in vars(steps).items()
        if isinstance(t, torch.Tensor) and t.dim()
    }
    assert set(types.values()) == {"meta"}, types
    assert bool(asked) == ((axis, key) in ASKING)


def test_a_stray_tensor_is_found_out():
    with OneDevice(), pytest.raises(AssertionError, match="two|cpu"):
        torch.randn(3, device="meta") + torch.randn(3)


# A layer's numbers: gradients of its output, fp64 that stays fp64, near results in half, no trace of padding.

NARROW = (torch.float32, torch.float16, torch.bfloat16)
# An output that jumps where two candidates change their rank: rounding may choose the other in some rows.
JUMPS = {"lightning", "moba", "local_p", "nsa", "csa", "top_k", "hard"}
JUMPS |= {"block_max", "block_mean", "block_gated"}


def precise_layer(config, dtype=torch.float32):
    return positioned(config).to(dtype)


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
        precise_layer(config, torch.float64),
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
    config, lines = drawing.config_of(axis, key), set()
    for mask in (config.mask, Choice("causal")):
        try:
            lines |= singles(config.with_(mask=mask))
        except ConfigError as refusal:
            assert "mask = causal" in str(refusal)
    # T5's buckets are whole numbers
    assert all("relative.py" in line for line in lines) if key == "t5" else not lines
    assert [name for name, x in precise_layer(config).named_buffers() if x.is_floating_point()] == (
        # the gradient of hard is the softmax's
        ["kernel.directions"] if key == "performer" else []
    ), "a table in a buffer is rounded when the layer is"


@each("scale", [1.0, 2.0, 4.0])
@each(("axis", "key"), [pair for pair in ENTRIES if pair[1] != "hard"])
def test_the_gradient_is_that_of_the_output(axis, key, scale):
    # Along a random direction of x and of all weights, by central differences in fp64.
    layer = precise_layer(drawing.config_of(axis, key), torch.float64)
    x = (scale * torch.randn(2, 7, C, dtype=torch.float64)).requires_grad_()
    given = {"x": x} | {name: w for name, w in layer.named_parameters() if w.requires_grad}
    weights = torch.randn(2, 7, C, dtype=torch.float64)
    for record in (True, False):
        how = {"key_mask": all_real(x), "record": record}
        along = {name: torch.randn_like(value) for name, value in given.items()}

        def loss(step, how=how, along=along):
            moved = {name: value + step * along[name] for name, value in given.items()}
            return (
                torch.func.functional_call(layer, moved, moved.pop("x"), how).merged * weights
            ).sum()

        grads = torch.autograd.grad(loss(0.0), list(given.values()), allow_unused=True)
        slope = sum(
            (grad * way).sum()
            for grad, way in zip(grads, along.values(), strict=True)
            if grad is not None
        )
        torch.testing.assert_close((loss(1e-6) - loss(-1e-6)) / 2e-6, slope, rtol=1e-5, atol=1e-5)


@each("dtype", [torch.bfloat16, torch.float16])
@each(("axis", "key"), ENTRIES)
def test_half_precision_keeps_the_result(axis, key, dtype):
    # Within 16 roundings of the largest number; a layer that jumps, in four tokens of five. Autocast is the same.
    # In all, too, it is the layer in fp32, whose weights and inputs were not rounded.
    layer, x = (
        precise_layer(drawing.config_of(axis, key)),
        torch.randn(2, 33, C, requires_grad=True),
    )
    single = layer(x, key_mask=all_real(x)).merged
    for source, inputs, casts in (
        (copy.deepcopy(layer).to(dtype), x.to(dtype), False),
        (layer, x, True),
    ):
        want = copy.deepcopy(source).double()(inputs.double(), key_mask=all_real(x)).merged
        for record in (True, False):
            with torch.autocast("cpu", dtype, enabled=casts):
                out = source(inputs, key_mask=all_real(x), record=record).merged
            assert (out.float() - single).norm() < 0.25 * single.norm()
            error = (out.double() - want).abs().amax(-1) / want.abs().max()  # of each token
            close = error < 16 * torch.finfo(dtype).eps
            assert close.double().mean() > 0.8 if key in JUMPS else close.all(), (
                f"{error.max():.3g}"
            )
    out.float().sum().backward()  # as a run with precision = bf16 does
    assert all(w.grad is None or w.grad.isfinite().all() for w in (x, *layer.parameters()))


@each("key", [item.key for item in AXES["kernel"] if item.traits & {"implied", "pooled"}])
@each("gate", [-39.0, -30.0, -20.0, 0.0, 1.0, 2.0, 4.0])
def test_scores_near_ten_thousand_have_finite_gradients(key, gate):
    # Whatever the gates are: with some of these a chunk fades by nearly e^80, and the next by more.
    layer, x = (
        precise_layer(drawing.config_of("kernel", key)),
        (100.0 * torch.randn(2, 64, C)).requires_grad_(),
    )
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


VISIBLE = 9
SIZES = [10, 33, 130]  # across chunks, blocks and landmarks
# the angles are those of the longest text, its padding included
BY_LENGTH = {"ntk_rope", "long_rope"}


@each("cross", [False, True])
@each(("axis", "key"), ENTRIES)
def test_padding_of_any_length_changes_nothing(axis, key, cross):
    layer = precise_layer(drawing.config_of(axis, key), torch.float64).eval()
    if cross and layer.config.has("projection", "one sequence"):
        return
    x, queries = (
        torch.randn(2, length, C, dtype=torch.float64) for length in (VISIBLE, VISIBLE + 4)
    )
    for record in (True, False):
        want = None
        for length in [VISIBLE, *SIZES]:
            padded = torch.cat((x, torch.randn(2, length - VISIBLE, C, dtype=torch.float64)), 1)
            real = (torch.arange(length) < VISIBLE).expand(2, -1)
            out = (
                layer(queries, padded, key_mask=real, record=record)
                if cross
                else layer(padded, key_mask=real, record=record)
            )
            got = out.merged if cross else out.merged[:, :VISIBLE]
            want = got if want is None else want
            torch.testing.assert_close(
                got, want, rtol=1e-9, atol=1e-9, msg=partial("{}: {}".format, length)
            )
