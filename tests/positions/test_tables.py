"""What a position makes of its weights or inputs alone is made once a call, however many blocks a kernel cuts."""

import torch

from core.attention import Attention, AttentionConfig, Choice
from tests.cases import each

C, H, T = 12, 3, 13
TABLES = {"transformer_xl": ["project"], "deberta": ["key", "query"], "forgetting": ["gate"]}
KERNELS = ("chunked", "local", "block_sparse")
STRIDED = Choice.of("strided", lookback=2, stride=5)
every_table = each("key", TABLES)
every_kernel = each("kernel", KERNELS)


def layer_of(key, kernel, mask="none"):
    torch.manual_seed(0)
    position = Choice.of(key, distance=4) if key == "deberta" else key
    layer = Attention(AttentionConfig(C, H, position=position, mask=mask, kernel=kernel))
    for weight in layer.position.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # what starts at zero would hide what it does
    return layer


@every_table
@every_kernel
def test_a_table_is_made_once_a_call(key, kernel):
    layer, made = layer_of(key, Choice.of(kernel, block=4)), []
    for name in TABLES[key]:
        getattr(layer.position, name).register_forward_hook(lambda *_, name=name: made.append(name))
    out = layer(torch.randn(1, T, C), record=False).merged
    out.sum().backward()
    assert made == TABLES[key]


@every_table
@every_kernel
@each("mask", ["none", STRIDED])
@each("keys", [T, 17])
def test_output_and_gradients_are_exacts(key, kernel, mask, keys):
    x = torch.randn(2, T, C, requires_grad=True)
    context = x if keys == T else torch.randn(2, keys, C, requires_grad=True)
    real = torch.arange(keys) < torch.tensor([[keys], [10]])
    results = []
    for choice in (Choice.of(kernel, block=4), "exact"):
        layer = layer_of(key, choice, mask)
        out = layer(x, context, key_mask=real, record=False).merged
        inputs = [x, *([] if context is x else [context]), *layer.parameters()]
        grads = torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)
        results.append(
            [
                out,
                *(
                    torch.zeros_like(each) if grad is None else grad
                    for each, grad in zip(inputs, grads, strict=True)
                ),
            ]
        )
    for ours, exact in zip(*results, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)
