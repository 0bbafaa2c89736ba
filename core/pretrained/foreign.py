"""A model that a person wrote, in a Python file: its attention is read, and becomes a file that any copy of the lab opens.

The Python file runs with all rights of this process. The file of maps is data alone: a zip of safetensors, one for the
maps of each size, as `read_arrays` opens them, of a JSON on them, and of the picture that was read.
"""

import importlib.util
import io
import json
import sys
import threading
import traceback
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isqrt
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
from core.interpret.trace import AttentionMap, to_numpy, why_not_weights
from core.memory import format_bytes
from core.plugins import describe
from core.pretrained.base import (
    Array,
    Line,
    PretrainedError,
    Reading,
    reject_if,
    wrap_errors,
)
from core.pretrained.maps import KINDS
from core.pretrained.model_inputs import (
    MAX_HEADER,
    MAX_NUMBERS,
    decode_picture,
    read_arrays,
    small,
)
from core.pretrained.module_reader import MAX_WHOLE, ModuleCall, ModuleReading, read_module

ABOUT, PICTURE = (
    "attention-maps.json",
    "picture.png",
)  # in the zip, beside 0.safetensors, 1.safetensors, …
MODULE = "attention_lab_model"  # the name under which a person's file is imported
NAMED = 3  # modules of a list that are named; the others are counted
FEWER = "Give the model a shorter input, or name the heads, as HEADS = [0, 1]."
Grid = tuple[int, int] | None  # rows and columns of a picture's patches
Words = tuple[str, ...]
Read = tuple[ModuleCall, AttentionMap]


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
    try:
        with _imported(path) as file, torch.random.fork_rng(devices=[]):  # its seeds are its own
            for name, what in (
                ("build", "build(), which returns the nn.Module"),
                ("inputs", "INPUTS or inputs(), the example that the model reads"),
            ):
                reject_if(
                    name not in file and name.upper() not in file, f"{path.name} has no {what}."
                )
            model = file["build"]()
            reject_if(
                not isinstance(model, nn.Module),
                f"build() in {path.name} returns {type(model).__name__}; expected an nn.Module.",
            )
            inputs = file["inputs"]() if "inputs" in file else file["INPUTS"]
            read = read_module(model, inputs, row=file.get("ROW", 0), heads=file.get("HEADS"))
            return _packed(read, file, path, half)
    except PretrainedError:
        raise
    except (Exception, SystemExit) as error:
        ran = [Path(one.filename) for one in traceback.extract_tb(error.__traceback__)]
        own = [one for one in ran if one.parent == path.parent]  # the file, or one beside it
        raise PretrainedError(describe(error, own[-1] if own else path)) from error


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
    words = {name: _words(file.get(name, ())) for name in ("KEYS", "TOKENS")}
    picture = _png(file["IMAGE"], path.parent) if "IMAGE" in file else None
    maps = read.trace(words["TOKENS"], words["KEYS"]).maps
    why = [
        why_not_weights(call.name or read.source, item.weights)
        for call, item in zip(read.calls, maps, strict=True)
    ]
    drawn = [
        (call, item) for call, item, wrong in zip(read.calls, maps, why, strict=True) if not wrong
    ]
    unread = {
        reason: [name for name in read.unread if read.unread[name] == reason]
        for reason in read.unread.values()
    }
    notes = [f"Not drawn: {one.partition('; ')[0].rstrip('.')}." for one in why if one]
    notes += [f"No map of {_listed(names)}: {reason}." for reason, names in unread.items()]
    reject_if(not drawn, f"No attention of {read.source} was read. {' '.join(notes)}")
    # Lines of one length are the same tokens: the person's, the patches of the picture, or numbers.
    named = {len(one): one for one in words.values()}
    sizes = sorted({size for call, _ in drawn for size in call.shape[2:]})
    grids = {
        size: grid
        for size in sizes
        if picture and size <= MAX_WHOLE and size not in named
        if (grid := _grid_of(size, file.get("GRID")))
    }
    for size in sizes:
        patches = [f"{i},{j}" for i, j in np.ndindex(grids.get(size, (0, 0)))]
        first = ["[class]"] * (size - len(patches)) if patches else list(map(str, range(size)))
        named.setdefault(size, (*first, *patches))
    differ = [call.name for call, _ in drawn if not call.agrees]
    notes += [
        sentence
        for holds, sentence in (
            (differ, f"In {_listed(differ)} weights × values are not what the module returned."),
            (
                any(call.pool > 1 for call, _ in drawn),
                f"Maps of more than {MAX_WHOLE} tokens are drawn in blocks of tokens.",
            ),
            (
                picture and not grids,
                f"IMAGE is not drawn: none of {_listed(sizes)} is a number of its patches.",
            ),
            *(
                (
                    one and len(one) not in sizes,
                    f"{name} has {len(one)} words; maps have {_listed(sizes)} tokens.",
                )
                for name, one in words.items()
            ),
        )
        if holds
    ]
    pairs = [
        (item.queries, item.keys) if call.pool > 1 else (named[call.shape[2]], named[call.shape[3]])
        for call, item in drawn
    ]
    # Maps of one size are drawn together, and those of an encoder and a decoder with the cross-attention between them.
    kinds = {(item.kind, pair[1]) for (_, item), pair in zip(drawn, pairs, strict=True)}
    homes = {
        kind: pair
        for pair in pairs
        if (both := {("causal", pair[0]), ("self", pair[1])}) <= kinds and pair[0] != pair[1]
        for kind in both
    }
    groups = defaultdict[tuple[Words, Words], list[Read]](list)
    for one, pair in zip(drawn, pairs, strict=True):
        groups[homes.get((one[1].kind, pair[1]), pair)].append(one)
    parts, files = list[Part](), {PICTURE: picture} if picture else {}
    for (rows, columns), many in sorted(groups.items(), key=lambda one: -len(one[1])):
        many.sort(key=lambda one: KINDS.index(one[1].kind))
        arrays = {
            f"{item.kind}_{place}": torch.from_numpy(item.weights).to(
                torch.float16 if half else torch.float32
            )
            for place, (_, item) in enumerate(many)
        }
        labels = {"queries": json.dumps(rows), "keys": json.dumps(columns)}
        files[f"{len(parts)}.safetensors"] = save(arrays, labels)
        modules = tuple((call.name or read.source, call.function, call.error) for call, _ in many)
        parts.append(Part(modules, grids.get(len(rows)), grids.get(len(columns))))
    about = About(read.source, tuple(parts), tuple(notes))
    method = zipfile.ZIP_DEFLATED if half else zipfile.ZIP_STORED  # which is read at once
    with zipfile.ZipFile(out := io.BytesIO(), "w", method, compresslevel=1) as zipped:
        for name, data in {ABOUT: msgspec.json.encode(about), **files}.items():
            zipped.writestr(name, data)
    return out.getvalue()


def _words(words: str | Sequence[object]) -> Words:
    return tuple(words.split() if isinstance(words, str) else map(str, words))


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(str, names[:NAMED])) + more


def _grid_of(size: int, grid: Grid) -> Grid:
    """The patches of a picture among so many tokens, of which the first may stand for its class."""
    rows, columns = grid or (isqrt(size),) * 2
    return (rows, columns) if size > 3 and size - rows * columns in (0, 1) else None


def _png(image: Any, folder: Path) -> bytes:
    """A picture (H, W, 3), or that of a path, as a PNG of at most 512 pixels an edge."""
    if isinstance(image, str | Path):
        picture = decode_picture((folder / image).read_bytes())
    else:
        pixels = to_numpy(image)
        reject_if(
            pixels.shape[2:] != (3,),
            f"IMAGE has the shape {pixels.shape}; expected (height, width, 3), uint8 or 0 to 1, or a path.",
        )
        if pixels.dtype != np.uint8:
            pixels = np.rint(pixels.clip(0, 1) * 255).astype(np.uint8)
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
                    trace=replace(reading.trace, source=about.source),
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
    file: Annotated[Path, typer.Argument(help="a Python file with build() and INPUTS")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the file of maps")] = Path("maps.zip"),
) -> None:
    """Run a Python file and write the attention of its model as a file of maps, which every copy of the lab opens."""
    maps = read_maps(data := record(file.resolve()), file.name)
    write_atomically(out, data)
    print(f"{out}: {format_bytes(len(data))}, {maps.about.source}: {'; '.join(maps.labels)}.")
    print(*maps.about.notes, sep="\n", end="\n" if maps.about.notes else "")
