"""The modules of a component become one script: in order, each once, and nothing that cannot be joined passes."""

import re
from pathlib import Path

import pytest

from dashboard.draw.components import bundle, bundle_all

COMPONENTS = Path(__file__).resolve().parents[2] / "dashboard" / "draw" / "components"


def write(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder / "main.js"


def test_a_module_stands_once_and_before_those_that_import_it(tmp_path):
    script = bundle(write(
        tmp_path, b="export const ONE = 1;\n",
        a='import { ONE } from "./b.js";\n\nexport function twice(x) { return ONE + x; }\n',
        main='import { twice } from "./a.js";\nimport { ONE as one } from "./b.js";\n\nexport default twice(one);\n',
    ))  # fmt: skip
    assert script.count("const ONE = 1;") == 1
    assert script.index("const ONE = 1;") < script.index("function twice")
    assert "const { ONE: one } = __module0;\n" in script
    assert script.endswith("export default twice(one);\n")


@pytest.mark.parametrize(("modules", "message"), [
    ({"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\n'}, "main.js → a.js → main.js"),
    ({"main": 'import { a } from "./a.js";\n', "a": "const a = 1;\n"}, "a.js, which does not export it"),
    ({"main": 'import * as a from "./a.js";\n'}, "cannot join the line 'import \\* as a"),
    ({"main": "export let a = 1;\n"}, "cannot join the line 'export let a"),
    ({"main": 'import { a } from "./a.js";\n', "a": "export const a = 1;\nexport default a;\n"}, "only an entry may"),
])  # fmt: skip
def test_what_cannot_be_joined_is_refused(tmp_path, modules, message):
    with pytest.raises(ValueError, match=message):
        bundle(write(tmp_path, **modules))


@pytest.mark.parametrize(
    "entry", sorted(COMPONENTS.glob("*/main.js")), ids=lambda entry: entry.parent.name
)
def test_each_component_is_one_script_with_one_default_export(entry):
    script = bundle(entry)
    [line] = re.findall(r"^(?:export|import)\b.*", script, re.M)
    assert line.startswith("export default (component) => mount(component, {")


def test_all_components_are_one_expression_with_each_module_once():
    entries = {file.parent.name: file for file in COMPONENTS.glob("*/main.js")}
    script = bundle_all(entries)
    assert not re.findall(r"^(?:export|import)\b.*", script, re.M)
    modules = re.findall(r"^const __module\d+ = .*// (.*)$", script, re.M)
    assert len(modules) == len(set(modules)) > 20
    assert re.findall(r"^return \(component\) => mount", script, re.M) == [
        "return (component) => mount"
    ] * len(entries)
    assert len(script) < sum(len(bundle(file)) for file in entries.values()) / 2


def test_the_palette_stands_in_python_alone():
    script = "".join(file.read_text(encoding="utf-8") for file in COMPONENTS.glob("*/*.js"))
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", script)) == {
        "#FFFFFF",
        "#000000",
    }  # white and black on any color
