"""Maps over depth: a row of shares is what the sublayer reads, whatever stands between the layers."""

import pytest
import torch
from torch import nn

from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.models.model_summary import record_outputs
from core.models.transformer import Residual
from core.studies.runs import EMBEDDING, OUTPUT, DepthMap, depth_maps, farthest
from core.tasks import TaskConfig, make_task
from tests.cases import each
from tests.close import assert_close

TASK = make_task(TaskConfig.of("reverse", length=5, vocab=9))
EXAMPLE = TASK.held_out(1)[0]


def made(**more):
    torch.manual_seed(0)
    config = ModelConfig.transformer(12, 3, 2, **{"norm": "pre", "position": "rope"} | more)
    model = build_model(config, TASK.shape)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    return model, config


@torch.no_grad()
@each(("residual", "streams"), [("plain", 4), ("attention", 4), ("hyper", 3)])
@each("kind", ["decoder", "transformer"])
def test_the_outputs_in_their_shares_are_what_each_sublayer_reads(residual, streams, kind):
    model, config = made(residual=residual, streams=streams, kind=kind)
    with record_outputs(model) as outputs:
        maps = {one.stack: one for one in depth_maps(model, config, TASK, EXAMPLE)}
    places = {"encoder": "source_places", "decoder": "target_places"}
    assert maps.keys() == ({"decoder"} if kind == "decoder" else places.keys())
    parts = dict(model.named_modules())
    for stack, one in maps.items():
        prefix = "encoder." if stack == "encoder" else ""
        around = [
            path
            for path, part in parts.items()
            if isinstance(part, Residual) and path.startswith("encoder.") == bool(prefix)
        ]
        written = [places[stack] if kind == "transformer" else "places"]
        for path in around:
            inner = path.replace("around_", "")
            written.append(inner if "forward" in path else f"{inner}.projection.output")
        values = torch.stack([outputs[path][0] for path in written], 1)  # (T, N, C)
        end = f"{prefix}norm" if residual == "plain" else f"{prefix}norm.norm"
        for row, norm in enumerate([*(f"{path}.norm" for path in around), end]):
            read = torch.einsum("tn,tnc->tc", one.shares[:, row], values)
            assert_close(parts[norm](read), outputs[norm][0], 1e-3)
        assert_close(one.shares.sum(-1), torch.ones(one.shares.shape[:2]))
        assert not one.shares.triu(1).any() and len(one.tokens) == len(one.shares)
        assert (one.readers[-1], one.outputs[0]) == (OUTPUT, EMBEDDING)
        assert one.readers[:-1] == one.outputs[1:]
        shown = one.trace(2).maps[0]
        assert_close(torch.from_numpy(shown.weights[0]), one.shares[2])


def test_what_is_read_past_the_latest_output_and_what_no_map_shows():
    shares = torch.tensor([[[1.0, 0, 0], [0.2, 0.8, 0], [0.3, 0.5, 0.2]]]).expand(4, -1, -1)
    reading = farthest(DepthMap("decoder", (*"abcd",), ("a", "b", "end"), ("0", "a", "b"), shares))
    assert (reading.reader, reading.output) == ("end", "a")
    assert reading.share == 0.5 and reading.equal == pytest.approx(1 / 3)
    model, config = made(norm="post")
    with pytest.raises(ConfigError, match="take norm = pre"):
        depth_maps(model, config, TASK, EXAMPLE)
