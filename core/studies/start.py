"""A soft dictionary look-up, and the saved numbers of the page Start here (`make translation`).

The weights are those of the lab's own translator and of MiniLM; the thumbnails take the numbers of the pages that they
lead to: their saved measurement or run, or what core computes for them.
"""

import datetime
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Lookup:
    """A query among keys with values: the products q · k, the scores q · k / √D, the weights, the output, and the
    index of the equal key or None."""

    products: tuple[float, ...]
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    output: float
    equal: int | None


def look_up(
    query: tuple[float, ...], keys: tuple[tuple[float, ...], ...], values: tuple[float, ...]
) -> Lookup:
    """One query (D,) looks up keys (S, D) with values (S,): softly, by core.attention.attend, and as a dictionary does."""
    import torch  # here and below at run time: the first page is drawn before torch is loaded

    from core.attention import attend

    q = torch.tensor(query).reshape(1, 1, 1, -1)
    k = torch.tensor(keys)[None, None]  # (1, 1, S, D)
    steps = attend(q, k, torch.tensor(values).reshape(1, 1, -1, 1))
    products, scores, weights = (
        tuple(row[0, 0, 0].tolist()) for row in (q @ k.mT, steps.scores, steps.weights)
    )
    equal = keys.index(query) if query in keys else None
    return Lookup(products, scores, weights, float(steps.out), equal)


# The worked example of One query, and the numbers with which the dictionary opens
QUERY = (1.0, 2.0)
KEYS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
VALUES = (10.0, 20.0, 30.0)
FILE = Path(__file__).parent / "data" / "start.json"
MODEL, LAYER, HEAD = "numbers", 1, 3
SENTENCES = {
    "five thousand three hundred and twenty one": "5,321",
    "two hundred and forty two": "242",
}
MINILM_LAYER, MINILM_HEADS = 3, 6
POSITIONS, DIMS = 8, 8


def load() -> dict[str, Any]:
    """The saved numbers."""
    return json.loads(FILE.read_text("utf-8"))


def translations() -> list[dict[str, Any]]:
    """The cross-attention of one head of the lab's translator on each sentence: rows are outputs, columns inputs."""
    from core.pretrained import load_lab_model, read

    model = load_lab_model(MODEL)
    maps = [read(model, sentence).trace.of("cross").map(LAYER) for sentence in SENTENCES]
    return [
        {
            "source": list(item.keys),
            "target": list(item.queries),
            "weights": item.weights[HEAD].astype(float).round(4).tolist(),
        }
        for item in maps
    ]


def worked_weights() -> list[float]:
    """The weights of QUERY on KEYS."""
    return [round(weight, 4) for weight in look_up(QUERY, KEYS, VALUES).weights]


def heads() -> list[list[list[float]]]:
    """The weights of some heads of MiniLM on the sentence with which the pages about one layer open."""
    from core.pretrained import load_minilm, read
    from core.tokens import SENTENCE

    weights = read(load_minilm(), SENTENCE).trace.map(MINILM_LAYER).weights[:MINILM_HEADS]
    return weights.astype(float).round(3).tolist()


def order() -> dict[str, Any]:
    """The sinusoids of the first positions, and the causal mask over them."""
    import torch

    from core.attention.base import ScoreBlock
    from core.attention.masks.patterns import causal
    from core.attention.positions.relative import sinusoids

    table = sinusoids(torch.arange(float(POSITIONS)), DIMS)
    return {
        "sinusoids": [[round(float(value), 3) for value in row] for row in table],
        "causal": causal(ScoreBlock.whole(POSITIONS, POSITIONS)).int().tolist(),
    }


def bottleneck() -> dict[str, Any]:
    """The exact match by the length of the source without attention and with it, as Why attention measured it."""
    from core.studies.why import Trial, by_length, load

    models = zip(("one_vector", "attention"), Trial().pair, strict=True)
    exact = {name: by_length(load().learned, model, "sequence_accuracy") for name, model in models}
    means = {
        name: [round(each.mean / 100, 4) for each in lengths.values()]
        for name, lengths in exact.items()
    }
    return {"lengths": list(exact["attention"]), **means}


def parameters(run: Path) -> dict[str, dict[str, int]]:
    """The parameters of each block of the encoder and decoder of the run in that folder, from its last checkpoint."""
    from safetensors.torch import load_file

    (file,) = (run / "checkpoints").glob("*.safetensors")
    counts: dict[str, dict[str, int]] = {"encoder": Counter(), "decoder": Counter()}
    block = re.compile(r"model\.(encoder\.)?layers\.\d+\.(attention|causal|cross|feed_forward)\..*")
    for name, tensor in load_file(file).items():
        if layer := block.fullmatch(name):
            counts["encoder" if layer[1] else "decoder"][layer[2]] += tensor.numel()
    return counts


def losses(run: Path) -> list[list[float]]:
    """Step and validation loss of the run in that folder."""
    from core.runs.runs import Run

    records = Run(run).records()
    return [[each.step, round(each.loss, 4)] for each in records if each.loss is not None]


def main(run: str) -> None:
    """Save the numbers of the page; `run` is the folder of the example run."""
    FILE.write_text(
        json.dumps(
            {
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
                    "transformer": parameters(Path(run)),
                    "train": losses(Path(run)),
                },
            },
            ensure_ascii=False,
        )
        + "\n",
        "utf-8",
    )
