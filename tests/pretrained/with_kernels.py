"""Every architecture whose code takes kernels of other packages, run on the CPU: prints its packages, or its error.

    PYTHONPATH=folder/of/packages python -m tests.pretrained.with_kernels

Here those packages are imported before transformers is, as nowhere else in the tests.
"""

import inspect
import json
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from core.pretrained.attention_recorder import record_attention, state_kernels
from core.pretrained.load import prepare_model
from tests.tiny_architectures import ARCHITECTURES, class_of, shrunk


def main() -> None:
    answers = {}
    for family in ARCHITECTURES:
        config = CONFIG_MAPPING[family]
        home = Path(inspect.getfile(config).replace("configuration_", "modeling_"))
        if not home.exists() or "from_hub_with_fallback" not in home.read_text(encoding="utf-8"):
            continue
        kind: Any = class_of(family)
        if "input_ids" not in inspect.signature(kind.forward).parameters:
            continue
        try:
            torch.manual_seed(5)
            pretrained = prepare_model(kind(shrunk(config)), None, family)
            ids = torch.tensor([[5, 6, 7, 8, 9]])
            with torch.inference_mode():
                cache = pretrained.model(input_ids=ids, use_cache=True)
                name = next(name for name in ("past_key_values", "cache_params") if name in cache)
                pretrained.model(input_ids=ids[:, :1], use_cache=True, **{name: cache[name]})
                with record_attention(pretrained.model) as recorder:
                    pretrained.model(input_ids=ids, use_cache=False)
            # Its layers without softmax are recorded, and another model of the family takes the same packages.
            states = any(state_kernels(one.__class__) for one in pretrained.model.modules())
            assert states == any(call.state for call in recorder.calls), "not recorded"
            again = prepare_model(kind(shrunk(config)), None, family)
            assert again.kernels == pretrained.kernels, "other packages"
            answers[family] = " ".join(pretrained.kernels)
        except Exception as error:
            answers[family] = f"{type(error).__name__}: {error}"
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
