"""Every stacked model learns ten examples by heart: what is wired wrongly cannot."""

import pytest
import torch
import torch.nn.functional as F

from core.models import ModelConfig, Shape, build_model

N, S, T, V = 10, 6, 4, 12
REAL = torch.ones(N, S, dtype=torch.bool)
KINDS = {
    "transformer": ("transformer", Shape(V, V, 8)),
    "image-to-text": ("transformer", Shape(3, V, 8, "patches")),
    "decoder": ("decoder", Shape(V, V, 8, one_vocabulary=True)),
    "language-model": ("decoder", Shape(V, V, 8, one_vocabulary=True)),
    "text-classifier": ("classifier", Shape(V, 5, 8, output="label")),
    "vision-transformer": ("classifier", Shape(3, 5, 8, "patches", "label")),
    "table-classifier": ("classifier", Shape(S, 5, 8, "features", "label", columns=(0, 0, 0, 0, 3, 4))),
    "one-token": ("one_token", Shape(S, 5, 8, "features", "label", columns=(0, 0, 0, 0, 3, 4))),
    "forecaster": ("forecaster", Shape(1, T, 8, "series", "values")),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("style", ["published", "modern"])
def test_ten_examples_are_learned_by_heart(name, style):
    kind, shape = KINDS[name]
    modern = dict(norm="pre", normalization="rms", activation="swiglu", position="sinusoidal", tied=kind in (
        "transformer", "decoder"), pool="mean" if kind == "classifier" else "first")
    torch.manual_seed(0)
    model = build_model(ModelConfig.transformer(32, 2, 1, 64, kind=kind, **(
        modern if style == "modern" else {"position": "learned"})), shape)
    source = {"tokens": torch.randint(4, V, (N, S)), "patches": torch.randn(N, S, 3), "series": torch.randn(N, S, 1),
              "features": torch.cat((torch.randn(N, 4), torch.randint(3, (N, 2))), 1)}[shape.input]
    if name == "language-model":
        source[:, 0] = torch.arange(N) + 2  # or nobody could know what comes second
    target = torch.randint(4, V, (N, T + 1)) if shape.output == "tokens" and name != "language-model" else None
    wanted = (target[:, 1:] if target is not None else source[:, 1:] if name == "language-model"
              else torch.randint(5, (N,)) if shape.output == "label" else torch.randn(N, T))
    optimizer, first = torch.optim.Adam(model.parameters(), 5e-3), None
    for _ in range(400):
        out = model(source, REAL, None if target is None else target[:, :-1]).logits
        out = out[:, :-1] if name == "language-model" else out
        loss = F.mse_loss(out, wanted) if shape.output == "values" else F.cross_entropy(
            out.reshape(-1, out.shape[-1]), wanted.reshape(-1))
        first = first or loss.item()
        if loss.item() < 0.01:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pytest.fail(f"the loss went from {first:.3f} to {loss.item():.3f}")
