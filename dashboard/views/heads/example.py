"""Save MiniLM's queries, keys and values on the page's sentence: python -m dashboard.views.heads.example."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import torch
from safetensors.torch import save_file

from core.pretrained import layer_qkv, load_minilm
from core.pretrained.load import MINILM, MINILM_SHA256
from dashboard.views.heads.minilm import LAYERS, QKV, SAVED, TEXT, computed_lengths


def main() -> None:
    """Write q, k and v, each (layers, heads, tokens, head size), what each head adds, and where they come from."""
    model = load_minilm()
    layers = [layer_qkv(model, TEXT, layer) for layer in range(LAYERS)]
    tensors = {
        name: torch.cat([getattr(layer, name) for layer in layers]).contiguous() for name in "qkv"
    }
    tensors["lengths"] = torch.stack(
        [
            torch.from_numpy(
                computed_lengths(QKV(one.tokens, one.q[0], one.k[0], one.v[0]), model, number)
            )
            for number, one in enumerate(layers)
        ]
    )
    metadata = {
        "tokens": json.dumps(layers[0].tokens),
        "text": TEXT,
        "model": MINILM,
        "sha256": MINILM_SHA256,
        "date": datetime.now(UTC).date().isoformat(),
    }
    save_file(tensors, SAVED, metadata=metadata)


if __name__ == "__main__":
    main()
