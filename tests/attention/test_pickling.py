"""A layer goes to another process and into a file: torch.save, pickle and deepcopy, for every choice and preset."""

import copy
import io
import pickle
import subprocess
import sys

import torch

from core.attention import AXES, Attention
from core.attention.config import config_with, example, needs
from core.attention.presets import PRESETS
from tests.attention.drawing import B, C, T
from tests.cases import each

CONFIGS = {
    f"{axis}-{item.key}": config_with(
        {other: example(other, name) for other, name in needs(axis, item.key).items()}
        | {axis: example(axis, item.key)},
        C,
    )
    for axis in AXES
    for item in AXES[axis]
} | {f"preset-{p.key}": p.config() for p in PRESETS}


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@each("name", CONFIGS)
def test_a_layer_comes_back_as_it_was(name):
    layer = Attention(CONFIGS[name]).eval()
    x = torch.randn(B, T, CONFIGS[name].d_model)
    real = torch.tensor([[True] * T, [True, True, False, True, True]])
    want = layer(
        x, key_mask=real, record=False
    ).merged  # what a call leaves on the layer must not stand in the way
    for again in (saved(layer), pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert torch.equal(again(x, key_mask=real, record=False).merged, want)


def test_another_process_reads_a_layer_of_every_mask(tmp_path):
    """As a spawned worker does, which has made none of them itself."""
    layers = {
        name: Attention(config).eval()
        for name, config in CONFIGS.items()
        if name.startswith("mask")
    }
    x, real = torch.randn(B, T, C), torch.ones(B, T, dtype=torch.bool)
    torch.save((layers, x, real), tmp_path / "layers.pt")
    read = (
        "import sys, torch; layers, x, real = torch.load(sys.argv[1], weights_only=False); "
        "torch.save({n: layer(x, key_mask=real).merged for n, layer in layers.items()}, sys.argv[2])"
    )
    subprocess.run(
        [sys.executable, "-c", read, tmp_path / "layers.pt", tmp_path / "out.pt"], check=True
    )
    for name, out in torch.load(tmp_path / "out.pt").items():
        torch.testing.assert_close(out, layers[name](x, key_mask=real).merged, msg=name)
