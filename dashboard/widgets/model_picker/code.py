"""The model of the picker and its inputs as Python."""

from __future__ import annotations

import sys
from dataclasses import fields

from core.interpret.evidence import Question
from core.pretrained import Array, ModelInputs, example_inputs
from core.pretrained.reading import sampling_rate
from dashboard.draw.scripts import Cell, source_of
from dashboard.ui.model_folders import folder_of
from dashboard.ui.run_data import path_code
from dashboard.widgets.model_picker import uploads
from dashboard.widgets.model_picker.models import ModelRef, load_model

Lines = tuple[set[str], str]  # imports, and the code that needs them


def model_cell(ref: ModelRef, inputs: ModelInputs | None = None, reads: bool = True) -> Cell:
    """A cell of `model_code`, with the model's name in words."""
    more = (
        ""
        if inputs is None
        else ", reads the inputs of the page"
        if reads
        else ", and the inputs of the page"
    )
    return Cell(
        f"The model, {ref.name.rstrip('/').rpartition('/')[2]}{more}.",
        model_code(ref, inputs, reads),
    )


def model_code(ref: ModelRef, inputs: ModelInputs | None = None, reads: bool = True) -> str:
    """Python that loads the model as `model` and, with inputs, makes `inputs` and where it reads its `reading` of them.

    An uploaded array is a reading without a model.
    """
    if ref.source == "array":
        return _array(ref)
    imports, code = model_lines(ref)
    if inputs is not None:
        more, made = inputs_lines(ref, inputs)
        imports |= more | ({"from core.pretrained import read"} if reads else set())
        code += f"\ninputs = {made}" + ("\nreading = read(model, inputs)" if reads else "")
    return f"{import_block(imports)}\n\n{code}"


def model_lines(ref: ModelRef, name: str = "model") -> Lines:
    """The imports of a model, and the line that loads it by that name."""
    if ref.source == "embedded":
        return {"from core.pretrained import load_minilm"}, f"{name} = load_minilm()"
    if ref.source == "lab":
        return {
            "from core.pretrained import load_lab_model"
        }, f"{name} = load_lab_model({ref.name!r})"
    if ref.source == "hub":
        load = f"{name} = hub.open_model({ref.name!r}, {ref.revision or 'main'!r})  # downloads it where it is missing"
        return {"from core.pretrained import hub"}, load
    folder = folder_of(ref.name)
    load = f"{name} = load_folder(Path({path_code(folder)}), {folder.name!r})"
    return {"from pathlib import Path", "from core.pretrained import load_folder"}, load


def inputs_lines(ref: ModelRef, inputs: ModelInputs) -> Lines:
    """The imports of inputs, and the expression that makes them."""
    imports = {"from core.pretrained import ModelInputs"}
    target = "" if inputs.target is None else f", target={inputs.target!r}"
    if inputs.picture is not None:
        more, value = _picture(ref, inputs.picture)
        return imports | more, f"ModelInputs(picture={value}{target})"
    if inputs.sound is not None:
        more, value = _sound(ref, inputs.sound)
        return imports | more, f"ModelInputs(sound={value}{target})"
    made, start = source_of(inputs), "ModelInputs(text="
    return imports, made.replace(start, "ModelInputs(", 1) if made.startswith(start) else made


def question_code(question: Question) -> str:
    """A question about `inputs`."""
    named = {item.name: getattr(question, item.name) for item in fields(question)[1:]}
    changed = [f"{name}={value!r}" for name, value in named.items() if value not in (None, "")]
    return f"Question({', '.join(['inputs', *changed])})"


def import_block(imports: set[str]) -> str:
    """Imports in order, one line for each module: the standard library, then others, then core."""
    names: dict[str, set[str]] = {}
    for line in imports:
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, set()).add(name)
    lines = [
        f"from {module} import {', '.join(sorted(each, key=_isort))}" if "" not in each else module
        for module, each in sorted(names.items())
    ]
    parts = ([line for line in lines if _group(line) == group] for group in range(3))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _group(line: str) -> int:
    module = line.split()[1].partition(".")[0]
    return 2 if module == "core" else 0 if module in sys.stdlib_module_names else 1


def _isort(name: str) -> tuple[bool, bool, str]:
    return not name.isupper(), not name[0].isupper(), name


def _array(ref: ModelRef) -> str:
    file, tokens = uploads.file_of(ref.name)
    more = f", {tokens!r}" if tokens.strip() else ""
    return f"""
from pathlib import Path

from core.pretrained.arrays import read_arrays

file = Path({file!r})  # your own file
reading = read_arrays(file.read_bytes(), file.name{more})
"""


def _picture(ref: ModelRef, picture: Array) -> Lines:
    """One of the examples by its name, else the reader's own file."""
    channels = int(getattr(load_model(ref).model.config, "num_channels", 3))
    for name in example_inputs.pictures(channels):
        if example_inputs.picture(name) == picture:
            return {"from core.pretrained.example_inputs import picture"}, f"picture({name!r})"
    return (
        {"from pathlib import Path", "from core.pretrained.example_inputs import decode_picture"},
        "decode_picture(Path('your picture.png').read_bytes())",
    )


def _sound(ref: ModelRef, sound: Array) -> Lines:
    rate = sampling_rate(load_model(ref))
    for name in example_inputs.SOUNDS:
        if example_inputs.sound(name, rate) == sound:
            return {"from core.pretrained.example_inputs import sound"}, f"sound({name!r}, {rate})"
    return (
        {"from pathlib import Path", "from core.pretrained.example_inputs import decode_wav"},
        f"decode_wav(Path('your sound.wav').read_bytes(), {rate})",
    )
