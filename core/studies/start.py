"""A soft dictionary look-up, and the saved numbers of the page Start here (`make translation`).

The weights are those of the lab's own translator and of MiniLM; the thumbnails take the numbers of the pages that they
lead to: their saved measurement or run, or what core computes for them.
"""

import datetime
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Lookup:
    """A query among keys with values: the products q · k, the scores q · k / √D, the weights, the output, and the
    index of the equal key or None."""

    query: tuple[float, ...]
    keys: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]
    products: tuple[float, ...]
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    output: float
    equal: int | None


def look_up(
    query: tuple[float, ...], keys: tuple[tuple[float, ...], ...], values: tuple[float, ...]
) -> Lookup:
    """Both look-ups of one query (D,) among keys (S, D) with values (S,); the soft one by core.attention.attend."""
    import torch  # here and below at run time: the first page is drawn before torch is loaded

    from core.attention import attend

    q = torch.tensor(query).reshape(1, 1, 1, -1)
    k = torch.tensor(keys)[None, None]  # (1, 1, S, D)
    steps = attend(q, k, torch.tensor(values).reshape(1, 1, -1, 1))
    products, scores, weights = (
        tuple(row[0, 0, 0].tolist()) for row in (q @ k.mT, steps.scores, steps.weights)
    )
    return Lookup(
        query,
        keys,
        values,
        products,
        scores,
        weights,
        float(steps.out),
        keys.index(query) if query in keys else None,
    )


FILE = Path(__file__).parent / "data" / "start.json"
DASHBOARD = FILE.parents[3] / "dashboard"
MODEL, LAYER, HEAD = "numbers", 1, 3
SENTENCES = {
    "five thousand three hundred and twenty one": "5,321",
    "two hundred and forty two": "242",
}
MINILM_LAYER, MINILM_HEADS = 3, 6
POSITIONS, DIMS = 8, 8
RUN = "example_run"


def load() -> dict[str, Any]:
    """The saved numbers."""
    return json.loads(FILE.read_text("utf-8"))


def translations() -> list[dict[str, Any]]:
    """The cross-attention of one head of the lab's translator on each sentence: rows are outputs, columns inputs."""
    from core.pretrained import load_lab_model, read

    model, examples = load_lab_model(MODEL), []
    for sentence in SENTENCES:
        item = read(model, sentence).trace.of("cross").map(LAYER)
        examples.append(
            {
                "source": list(item.keys),
                "target": list(item.queries),
                "weights": item.weights[HEAD].astype(float).round(4).tolist(),
            }
        )
    return examples


def worked_weights() -> list[float]:
    """The weights of q = [1, 2] on the keys [1, 0], [0, 1] and [1, 1]: the worked example of One query."""
    result = look_up((1.0, 2.0), ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)), (0.0, 0.0, 0.0))
    return [round(weight, 4) for weight in result.weights]


def heads() -> list[list[list[float]]]:
    """The weights of some heads of MiniLM on the sentence with which the pages about one layer open."""
    from core.pretrained import load_minilm, read
    from core.tokens import SENTENCE

    weights = read(load_minilm(), SENTENCE).trace.map(MINILM_LAYER).weights[:MINILM_HEADS]
    return weights.astype(float).round(3).tolist()


def order() -> dict[str, Any]:
    """The sinusoids of the first positions, and the causal mask over them."""
    import torch

    from core.attention.basics import ScoreBlock
    from core.attention.masks.patterns import causal
    from core.attention.positions.relative import sinusoids

    allowed = causal(ScoreBlock.whole(POSITIONS, POSITIONS))
    table = sinusoids(torch.arange(float(POSITIONS)), DIMS)
    return {
        "sinusoids": [[round(float(value), 3) for value in row] for row in table],
        "causal": allowed.int().tolist(),
    }


def bottleneck() -> dict[str, Any]:
    """The exact match by the length of the source without attention and with it, as Why attention measured it."""
    learned = json.loads((FILE.parent / "why" / "result.json").read_text("utf-8"))["learned"]
    size = min(one["model"][1] for one in learned)
    lengths = [bucket["lengths"] for bucket in learned[0]["buckets"]]

    def mean_exact(score: str | None) -> list[float]:
        runs = [one["buckets"] for one in learned if one["model"] == [score, size]]
        return [
            round(sum(run[at]["sequence_accuracy"] for run in runs) / len(runs), 4)
            for at in range(len(lengths))
        ]

    return {"lengths": lengths, "one_vector": mean_exact(None), "attention": mean_exact("dot")}


def parameters() -> dict[str, dict[str, int]]:
    """The parameters of each block of the example run's encoder and decoder, from its last checkpoint."""
    from safetensors import safe_open

    (file,) = (DASHBOARD / "examples" / RUN / "checkpoints").glob("*.safetensors")
    counts: dict[str, dict[str, int]] = {"encoder": {}, "decoder": {}}
    with safe_open(file, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118  it is no dict
            layer = re.fullmatch(
                r"model\.(encoder\.)?layers\.\d+\.(attention|causal|cross|feed_forward)\..*", name
            )
            if layer:
                part = counts["encoder" if layer[1] else "decoder"]
                part[layer[2]] = part.get(layer[2], 0) + math.prod(
                    tensors.get_slice(name).get_shape()
                )
    return counts


def losses() -> list[list[float]]:
    """Step and validation loss of the example run."""
    file = DASHBOARD / "examples" / RUN / "metrics.jsonl"
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [
        [record["step"], round(record["loss"], 4)]
        for record in records
        if record.get("loss") is not None
    ]


def main() -> None:
    data = {
        "model": MODEL,
        "layer": LAYER,
        "head": HEAD,
        "date": datetime.date.today().isoformat(),
        "translations": translations(),
        "thumbnails": {
            "why": bottleneck(),
            "one_query": worked_weights(),
            "heads": heads(),
            "order": order(),
            "transformer": parameters(),
            "train": losses(),
        },
    }
    FILE.write_text(json.dumps(data, ensure_ascii=False) + "\n", "utf-8")
