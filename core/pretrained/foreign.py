"""A model that a person wrote, in a Python file: its attention is read, and becomes a file that any copy of the lab opens.

The Python file runs with all rights of this process. The file of maps is data alone: a zip of safetensors, one for the
maps of each size, as `read_arrays` opens them, of a JSON on them, and of the picture that was read.
"""

import importlib.util
import io
import json
import re
import shutil
import sys
import threading
import traceback
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import isqrt
from operator import index
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
import typer
from PIL import Image
from safetensors.torch import save
from torch import nn

from core import command_line
from core.files import write_atomically
from core.interpret.activations import PARTS, activation_bytes, activations_file
from core.interpret.trace import AttentionMap, to_numpy, why_not_weights
from core.memory import format_bytes
from core.plugins import describe
from core.pretrained.base import (
    Array,
    Line,
    ModelInputs,
    PretrainedError,
    Reading,
    reject_if,
    wrap_errors,
)
from core.pretrained.finetune import folder_of, name_of, resolve
from core.pretrained.hub import COMMIT
from core.pretrained.load import load_folder
from core.pretrained.maps import KINDS
from core.pretrained.model_inputs import (
    MAX_HEADER,
    MAX_NUMBERS,
    TEXT,
    decode_picture,
    read_arrays,
    small,
)
from core.pretrained.module_reader import (
    MAX_WHOLE,
    ModuleCall,
    ModuleReading,
    block_names,
    numbered,
    read_module,
)
from core.pretrained.reading import read_lines

ABOUT, PICTURE = (
    "attention-maps.json",
    "picture.png",
)  # in the zip, beside 0.safetensors, 1.safetensors, …
MODULE = "attention_lab_model"  # the name under which a person's file is imported
NAMED = 3  # modules of a list that are named; the others are counted
NUMBERS = {
    "ROW": "the place of a sequence in the batch, such as 0",
    "HEADS": "numbers of heads, such as [0, 1]",
    "GRID": "rows and columns of patches, such as (14, 14)",
}
FEWER = "Give the model a shorter input, or name the heads, as HEADS = [0, 1]."
Grid = tuple[int, int] | None  # rows and columns of a picture's patches
Words = tuple[str, ...]
Side = tuple[Words, Grid]  # the tokens of rows or of columns
Read = tuple[ModuleCall, AttentionMap, tuple[Side, Side]]


@dataclass(frozen=True)
class Part:
    """Of the maps of one size: a module, a function and an error for each, and the patches of rows and of columns."""

    modules: tuple[tuple[str, str, float], ...]
    queries: Grid = None
    keys: Grid = None


@dataclass(frozen=True)
class About:
    """The JSON of a file of maps: the model's class, its parts, and sentences on what was not read."""

    source: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class OwnMaps:
    """Maps that were computed elsewhere: a reading for those of one size, and what is known of them and of the picture."""

    readings: tuple[Reading, ...]
    about: About = About("", ())
    picture: Array | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Each reading by the size and the number of its maps."""
        sizes = [
            (one.trace.maps[-1].weights.shape[1:], len(one.trace.maps)) for one in self.readings
        ]
        return tuple(
            f"{place}. {queries} × {keys} tokens, {count} layer{'s' * (count > 1)}"
            for place, ((queries, keys), count) in enumerate(sizes, 1)
        )


# From a Python file to a file of maps.


def record(path: Path, half: bool = True) -> bytes:
    """The file of maps of the model in a Python file, which is run; weights are float16 if `half`, else float32.

    The Python file has `build()`, which returns the nn.Module, and `inputs()` or `INPUTS`: a tensor, a tuple or a dict.
    It may name TOKENS, the words of the queries, KEYS, those of the keys of cross-attention, ROW, the sequence of the
    batch, HEADS, the heads, IMAGE, a picture (H, W, 3) or its path, and GRID, the rows and columns of its patches.
    PretrainedError for what is missing or fails in it, with the line.
    """
    called_with = ""
    try:
        with _imported(path) as file, torch.random.fork_rng(devices=[]):  # its seeds are its own
            for names, what in (
                ({"build"}, "build(), which returns the nn.Module"),
                ({"inputs", "INPUTS"}, "INPUTS or inputs(), the example that the model reads"),
            ):
                reject_if(not names & file.keys(), f"{path.name} has no {what}.")
            model = file["build"]()
            reject_if(
                not isinstance(model, nn.Module),
                f"build() in {path.name} returns {type(model).__name__}; expected an nn.Module.",
            )
            inputs = file["inputs"]() if "inputs" in file else file["INPUTS"]
            reject_if(
                not isinstance(inputs, torch.Tensor | tuple | list | Mapping),
                f"The inputs in {path.name} are of type {type(inputs).__name__}; expected a tensor, a tuple of "
                "arguments, or a dict of them by name.",
            )
            called_with = _shapes(inputs)
            row, *_ = _numbers(file, "ROW") or (0,)
            read = read_module(model, inputs, row=row, heads=_numbers(file, "HEADS"))
            return _packed(read, file, path, half)
    except PretrainedError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        ran = [Path(one.filename) for one in traceback.extract_tb(error.__traceback__)]
        own = [one for one in ran if one.parent == path.parent]  # the file, or one beside it
        hint = called_with
        if isinstance(error, FileNotFoundError) and not Path(str(error.filename)).is_absolute():
            hint = " Paths count from the folder of the lab: name it by Path(__file__).parent."
        raise PretrainedError(describe(error, own[-1] if own else path) + hint) from error


def _shapes(inputs: Any) -> str:
    """What the model is called with, as a sentence after its error."""
    if isinstance(inputs, torch.Tensor):
        end = "." if inputs.ndim > 1 else "; is the batch missing?"
        return f" INPUTS is {tuple(inputs.shape)}{end}"
    names = [f"{name} " for name in inputs] if isinstance(inputs, Mapping) else [""] * len(inputs)
    given = inputs.values() if isinstance(inputs, Mapping) else inputs
    shapes = [
        tuple(one.shape) if isinstance(one, torch.Tensor) else type(one).__name__ for one in given
    ]
    return (
        f" INPUTS are {_listed([f'{name}{one}' for name, one in zip(names, shapes, strict=True)])}."
    )


_one_at_a_time = threading.Lock()


@contextmanager
def _imported(path: Path) -> Iterator[dict[str, Any]]:
    """What a Python file defines; while it is used, the files of its folder can be imported, each time anew."""
    with _one_at_a_time:
        spec = importlib.util.spec_from_file_location(MODULE, path)
        if spec is None or spec.loader is None:
            raise PretrainedError(f"{path.name} is no Python file, which ends with .py.")
        module, known = importlib.util.module_from_spec(spec), set(sys.modules)
        sys.modules[MODULE] = module
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(module)
            yield vars(module)
        finally:
            sys.path.remove(str(path.parent))
            for name in {*sys.modules} - known | {MODULE}:
                file = getattr(sys.modules.get(name), "__file__", None)
                # a package stays: some may not load twice
                if file and Path(file).parent == path.parent:
                    del sys.modules[name]


def _packed(read: ModuleReading, file: dict[str, Any], path: Path, half: bool) -> bytes:
    """The zip of a reading, with what the Python file says of it."""
    words = {name: _words(file, name) for name in ("KEYS", "TOKENS")}
    named = {len(one): one for one in words.values()}
    picture = _png(file["IMAGE"], path.parent) if file.get("IMAGE") is not None else None
    given = _numbers(file, "GRID")

    def side(size: int, pool: int) -> Side:
        """Lines of one length are the same tokens: the person's, the patches of the picture, or numbers."""
        grid = _grid_of(size, pool, given) if picture and size not in named else None
        if grid is None:
            return block_names(named.get(size) or [*map(str, range(size))], pool), None
        patches = [f"{i},{j}" for i, j in np.ndindex(grid)]
        return (*["[class]"][: size % len(patches)], *patches), grid

    drawn, missing = list[Read](), defaultdict[tuple[str, str], list[str]](list)
    for call, item in zip(read.calls, read.trace().maps, strict=True):
        if why := why_not_weights("the map", item.weights):
            reason = why.partition("; ")[0].rstrip(".")
            missing["No map of", reason].append(call.name or read.source)
        else:
            rows, columns = map(side, call.shape[2:], call.pool)
            drawn.append((call, item, (rows, columns)))
    known = {call.name or read.source for call, *_ in drawn}  # some of whose rows are zeros
    for name, reason in read.unread.items():
        missing["In" if name in known else "No map of", reason].append(name)
    notes = [f"{what} {_modules(names)}: {reason}." for (what, reason), names in missing.items()]
    reject_if(not drawn, f"No attention of {read.source} was read. {' '.join(notes)}")
    sizes = sorted({size for call, *_ in drawn for size in call.shape[2:]})
    if differ := [call.name for call, *_ in drawn if not call.agrees]:
        notes.append(f"In {_modules(differ)}, weights × values are not what it returned.")
    notes += [
        f"Of {size:,} tokens each row or column is a block of {pool}; a side has at most {MAX_WHOLE}."
        for size, pool in sorted(
            {both for call, *_ in drawn for both in zip(call.shape[2:], call.pool, strict=True)}
        )
        if pool > 1
    ]
    if picture and not any(grid for *_, pair in drawn for _, grid in pair):
        notes.append(f"IMAGE is not drawn: none of {_listed(sizes)} is a number of its patches.")
    notes += [
        f"{name} has {len(one):,} word{'s' * (len(one) > 1)}; maps have {_listed(sizes)} tokens."
        for name, one in words.items()
        if one and len(one) not in sizes
    ]
    # Maps of one size are drawn together, and those of an encoder and a decoder with the cross-attention between them.
    kinds = {(item.kind, pair[1]) for _, item, pair in drawn}
    homes = {
        kind: pair
        for *_, pair in drawn
        if (both := {("causal", pair[0]), ("self", pair[1])}) <= kinds and pair[0] != pair[1]
        for kind in both
    }
    groups = defaultdict[tuple[Side, Side], list[Read]](list)
    for one in drawn:
        groups[homes.get((one[1].kind, one[2][1]), one[2])].append(one)
    parts, files = list[Part](), {PICTURE: picture} if picture else {}
    dtype = torch.float16 if half else torch.float32
    for (rows, columns), many in sorted(groups.items(), key=lambda one: -len(one[1])):
        many.sort(key=lambda one: KINDS.index(one[1].kind))
        arrays = {
            f"{item.kind}_{place}": _in_blocks(item, pair).to(dtype)
            for place, (_, item, pair) in enumerate(many)
        }
        labels = {"queries": json.dumps(rows[0]), "keys": json.dumps(columns[0])}
        files[f"{len(parts)}.safetensors"] = save(arrays, labels)
        modules = tuple((call.name or read.source, call.function, call.error) for call, *_ in many)
        parts.append(Part(modules, rows[1], columns[1]))
    about = About(read.source, tuple(parts), tuple(notes))
    method = zipfile.ZIP_DEFLATED if half else zipfile.ZIP_STORED  # which is read at once
    with zipfile.ZipFile(out := io.BytesIO(), "w", method, compresslevel=1) as zipped:
        for name, data in {ABOUT: msgspec.json.encode(about), **files}.items():
            zipped.writestr(name, data)
    return out.getvalue()


def _words(file: Mapping[str, Any], name: str) -> Words:
    """TOKENS or KEYS of the Python file."""
    words = file.get(name)
    if isinstance(words, torch.Tensor | np.ndarray):
        words = words.tolist()
    reject_if(
        not isinstance(words, str | list | tuple | None),
        f"{name} is {type(words).__name__}; expected words with spaces between them, or a list of words.",
    )
    return tuple(words.split() if isinstance(words, str) else map(str, words or ()))


def _numbers(file: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    """ROW, HEADS or GRID of the Python file; None where it names none."""
    if (value := file.get(name)) is None:
        return None
    with suppress(TypeError):
        numbers = tuple(map(index, (value,) if name == "ROW" else value))
        if name != "GRID" or (len(numbers) == 2 and min(numbers) > 0):
            return numbers
    raise PretrainedError(f"{name} is {value!r}; expected {NUMBERS[name]}.")


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        ", ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in names[:NAMED]) + more
    )


def _modules(names: Sequence[str]) -> str:
    return f"module{'s' * (len(names) > 1)} {_listed(names)}"


def _grid_of(size: int, pool: int, grid: tuple[int, ...] | None) -> Grid:
    """The patches of a picture among so many tokens, in blocks that are `pool` patches wide and as high as there must be.

    Without blocks the first token may stand for the picture's class.
    """
    rows, columns = grid or (isqrt(size),) * 2
    high = 1 << ((size // pool - 1) // MAX_WHOLE).bit_length()
    others = (0, 1) if pool == high == 1 else (0,)
    fits = size > 3 and size - rows * columns in others and rows % high == columns % pool == 0
    return (rows // high, columns // pool) if fits else None


def _in_blocks(item: AttentionMap, sides: tuple[Side, Side]) -> torch.Tensor:
    """The weights of a map whose blocks are higher than a patch: means of queries, and sums of keys."""
    weights = torch.from_numpy(item.weights)
    for axis, (names, grid) in enumerate(sides, 1):
        if grid and len(names) < weights.shape[axis]:
            weights = weights.unflatten(axis, (grid[0], -1, grid[1]))
            weights = weights.mean(2) if axis == 1 else weights.sum(3)
            weights = weights.flatten(axis, axis + 1)
    return weights


def _png(image: Any, folder: Path) -> bytes:
    """A picture (H, W, 3), or that of a path, as a PNG of at most 512 pixels an edge."""
    if isinstance(image, str | Path):
        picture = decode_picture((folder / image).read_bytes())
    else:
        pixels = to_numpy(image)
        reject_if(
            pixels.shape[2:] != (3,) or not pixels.size,
            f"IMAGE has the shape {pixels.shape}; expected (height, width, 3), uint8 or 0 to 1, or a path.",
        )
        top = 255 if np.issubdtype(pixels.dtype, np.integer) else 1
        low, high = pixels.min(), pixels.max()
        reject_if(
            not -0.01 < low <= high < top + 0.01,  # what resizing leaves
            f"IMAGE runs from {low:.3g} to {high:.3g}; expected whole numbers of 0 to 255, or fractions of 0 to 1.",
        )
        pixels = np.rint(pixels.clip(0, top) * (255 // top)).astype(np.uint8)
        picture = small(Image.fromarray(pixels))
    Image.fromarray(picture.numpy()).save(out := io.BytesIO(), "PNG")
    return out.getvalue()


# From a file to maps.


def read_maps(data: bytes, name: str, tokens: str = "") -> OwnMaps:
    """The maps in a file that `record` wrote, or in an NPZ or safetensors as `read_arrays` has it.

    PretrainedError for what does not fit. No code is run, and nothing pickled is opened.
    """
    if data[:2] != b"PK" or ABOUT.encode() not in data:
        return OwnMaps((read_arrays(data, name, tokens),))
    reject_if(tokens.strip(), f"{name} names its own tokens; leave the field of tokens empty.")
    picture: Array | None = None
    readings, room = list[Reading](), MAX_NUMBERS
    with (
        wrap_errors(f"{name} is not whole", ". Write it again by attention-lab record."),
        zipfile.ZipFile(io.BytesIO(data)) as archive,
    ):

        def member(file: str, most: int = MAX_HEADER) -> bytes:
            with archive.open(file) as stream:  # its header may lie about its size
                unpacked = stream.read(most + 1)
            reject_if(len(unpacked) > most, f"{file} in {name} has more than {most:,} bytes.")
            return unpacked

        about = msgspec.json.decode(member(ABOUT), type=About)
        reject_if(not about.parts, f"{name} holds no maps.")
        if PICTURE in archive.namelist():
            picture = decode_picture(member(PICTURE))
        for index, part in enumerate(about.parts):
            reading = read_arrays(member(f"{index}.safetensors", 4 * room + MAX_HEADER), name)
            room -= sum(item.weights.size for item in reading.trace.maps)
            reject_if(room < 0, f"{name} holds more than {MAX_NUMBERS:,} weights. {FEWER}")
            reject_if(
                len(part.modules) != len(reading.trace.maps),
                f"{name} names {len(part.modules)} modules for {len(reading.trace.maps)} maps.",
            )
            readings.append(
                replace(
                    reading,
                    trace=numbered(
                        replace(reading.trace, source=about.source),
                        [name for name, *_ in part.modules],
                    ),
                    source=_with_grid(reading.source, part.keys),
                    target=reading.target and _with_grid(reading.target, part.queries),
                    produced=reading.produced and _with_grid(reading.produced, part.queries),
                )
            )
    return OwnMaps(tuple(readings), about, picture)


def _with_grid(line: Line, grid: Grid) -> Line:
    fits = grid is not None and min(grid) > 0 and grid[0] * grid[1] <= len(line)
    return replace(line, grid=grid) if fits else line


# The shell: `attention-lab record my_model.py -o maps.zip`.


app = command_line.new_app(__doc__)


@app.command("record")
def record_file(
    source: Annotated[
        str,
        typer.Argument(
            help="a Python file with build() and INPUTS; with --activations a model: minilm, one of the lab, a folder, "
            "a hub name"
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="the file")] = None,
    activations: Annotated[
        str, typer.Option(help=f"what is written of a model: some of {','.join(PARTS)}")
    ] = "",
    text: Annotated[str, typer.Option(help="what the model reads")] = TEXT,
    layers: Annotated[str, typer.Option(help="some layers, as 0,3; else all")] = "",
    heads: Annotated[str, typer.Option(help="some heads, as 0,3; else all")] = "",
) -> None:
    """Write the attention of your own model as a file of maps, which every copy of the lab opens; a Python file is run.

    With --activations: write a model's residual stream, queries, keys, values and outputs of heads as safetensors.
    """
    reject_if(
        source.endswith(".py") == bool(activations),
        f"{source}: with --activations name a model, as minilm, a folder or owner/name; without it a Python file, whose "
        "maps are written.",
    )
    if activations:
        out = out or Path("activations.safetensors")
        parts: Any = activations.split(",")
        some = (_indices("layers", layers), _indices("heads", heads))
        folder = folder_of(name := resolve(source))
        model = load_folder(folder, name_of(name))
        lines = read_lines(model, ModelInputs(text))
        length = len(lines.source) + len(lines.target or ())
        size = activation_bytes(model, length, parts, *some)
        print(f"{length} tokens: about {format_bytes(size)}.")
        free = shutil.disk_usage(out.resolve().parent).free
        reject_if(size > free, f"The disk of {out} has {format_bytes(free)} free.")
        commit = folder.name if COMMIT.fullmatch(folder.name) else ""
        write_atomically(out, data := activations_file(model, text, parts, *some, commit))
        print(f"{out}: {format_bytes(len(data))}.")
        return
    out, file = out or Path("maps.zip"), Path(source)
    maps = read_maps(data := record(file.resolve()), file.name)
    write_atomically(out, data)
    print(f"{out}: {format_bytes(len(data))}, {maps.about.source}: {'; '.join(maps.labels)}.")
    print(*maps.about.notes, sep="\n", end="\n" if maps.about.notes else "")
    print(
        "On Pretrained models, pick Your own arrays… in the list of models, and give it this file."
    )


def _indices(name: str, text: str) -> list[int] | None:
    reject_if(
        text and not re.fullmatch(r"\d+(,\d+)*", text), f"--{name} {text}: write numbers, as 0,3."
    )
    return [int(one) for one in text.split(",")] if text else None
