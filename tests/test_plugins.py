"""A folder of plug-ins: a worker, pytest -k and the pages know those of docs/plugins; a broken file costs itself alone."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core import plugins
from core.attention import ConfigError, register
from core.entries import Entry
from core.runs.runs import create_run
from core.training import RunConfig
from tests.pages.app import html_text, open_at, page_text, set_control
from tests.training.small import small_run

ROOT = Path(__file__).resolve().parents[1]
WORKED = ROOT / "docs" / "plugins"
BROKEN = {
    "a_raises.py": "import torch\n\nheads = 1 / 0\n",
    "b_syntax.py": "def score(q, k:\n    return q\n",
    "c_known.py": "from core.attention import entry, register\n\nregister('score', entry('score', 'dot'))\n",
    "d_nan.py": "from ._parts import variant\n\n\ndef score(q, k):\n    return (q @ k.mT).log()\n\n\n"
    "variant('nan', score)\n",
    "e_exits.py": "import sys\n\nsys.exit('no')\n",
    "f_good.py": "from ._parts import variant\n\nvariant('plain', lambda q, k: q @ k.mT)\n",
    "_parts.py": "from core.attention import Entry, register\n\n\ndef variant(key, score):\n"
    "    register('score', Entry(key, key, build=lambda config: score, latex='x', "
    "meaning='A variant for the tests alone.', paper='', year=2026))\n",
}


LOADED = """
import json, os, sys, torch

for folder in sys.argv[1:]:
    if (child := os.fork()) == 0:
        os.environ["ATTENTION_LAB_PLUGINS"] = folder
        from core import plugins
        from core.attention import AXES
        from core.claims.catalogue import CLAIMS
        keys = [entry.key for entry in AXES["score"] if entry.source]
        claims = [claim.name for claim in CLAIMS if "plug-in" in claim.name]
        print(json.dumps([keys, claims, plugins.problems]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
MECHANISM = """from core.attention import AttentionConfig, Entry, register
{needs}
register('score', Entry('{key}', '{key}', build=lambda config: lambda q, k: q @ k.mT, latex='x',
                        meaning='A variant for the tests alone.', paper='', year=2026))
"""
NEEDS = {
    "a": ("first", "second"),
    "b": ("third", "first"),
    "c": ("second", "dot"),
    "x": ("round", "about"),
    "y": ("about", "round"),
    "z": ("lonely", "nobody"),
}


def run(folder, *command, **how):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "ATTENTION_LAB_PLUGINS": str(folder)},
        capture_output=True,
        encoding="utf-8",
        **how,
    )


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    text = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
    (claim,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "register_claim" in block
    )
    waits = "AttentionConfig(12, 3, score='{}')".format
    one, two, three = (MECHANISM.format(key=key, needs="") for key in ("one", "two", "three"))
    folders = {
        "broken": BROKEN,
        "needs": {
            f"{file}.py": MECHANISM.format(key=key, needs=waits(needed))
            for file, (key, needed) in NEEDS.items()
        },
        "again": {"a.py": f"{one}{claim}\n{waits('two')}\n", "b.py": two, "c.py": three * 2},
    }
    paths = {name: tmp_path_factory.mktemp(name) for name in folders}
    for name, files in folders.items():
        for file, text in files.items():
            (paths[name] / file).write_text(text, encoding="utf-8")
    done = run("", "-c", LOADED, *paths.values(), check=True)
    return dict(zip(folders, map(json.loads, done.stdout.splitlines()), strict=True)), done.stderr


@pytest.mark.first
def test_a_broken_file_is_named_with_its_line(loaded):
    (keys, _, problems), said = loaded[0]["broken"], loaded[1]
    starts = [
        "Plug-in a_raises.py, line 3: ZeroDivisionError: division by zero",
        "Plug-in b_syntax.py, line 1: SyntaxError: ",
        "Plug-in c_known.py, line 3: score = dot is one of the lab's own; take another key.",
        "Plug-in d_nan.py, line 8: score = nan was not added. Its output is not finite",
        "Plug-in e_exits.py, line 3: SystemExit: no",
    ]
    assert keys == ["plain"] and len(problems) == len(starts)
    for problem, start in zip(problems, starts, strict=True):
        assert problem.startswith(start), problems
    assert "RuntimeWarning: Plug-in a_raises.py" in said, (
        "a notebook and a worker's log tell it too"
    )


def test_a_worker_trains_what_a_plug_in_defines(tmp_path):
    # One run of all three plug-ins in a process of its own; here, where they are not loaded, its config says so.
    made = create_run(small_run())
    data = json.loads((made.path / "run.json").read_text(encoding="utf-8"))
    data["config"]["model"]["attention"] |= {
        "score": {"key": "cosine_power", "power": 2.0},
        "mask": {"key": "every_second_key"},
        "normalizer": {"key": "power_weights"},
    }
    (made.path / "run.json").write_text(json.dumps(data), encoding="utf-8")
    done = run(WORKED, "-m", "core.runs.worker", str(made.path))
    assert done.returncode == 0 and made.status().state == "finished", done.stdout + done.stderr
    assert made.records()[-1].step == 4
    pytest.raises(ConfigError, RunConfig.from_json, data["config"]).match(
        "score = 'cosine_power'; expected one of .*ATTENTION_LAB_PLUGINS is not set"
    )


def test_a_shell_trains_a_plug_ins_task(tmp_path):
    done = run(WORKED, "-m", "core.training", "recipe", "doubled", "decoder", check=True)
    config = json.loads(done.stdout) | {"steps": 2, "record_every": 1, "held_out": 60}
    (tmp_path / "doubled.json").write_text(json.dumps(config), encoding="utf-8")
    done = run(
        WORKED,
        "-m",
        "core.training",
        "train",
        str(tmp_path / "doubled.json"),
        str(tmp_path / "run"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("right letters 0.") == 4, "at each record and at the end"
    assert "accuracy on longer sources" in done.stdout
    pytest.raises(ConfigError, RunConfig.from_json, config).match(
        "task = 'doubled'; expected one of .*ATTENTION_LAB_PLUGINS is not set"
    )


def test_pytest_runs_the_contract_of_a_plug_in_by_its_key(tmp_path):
    shutil.copy(WORKED / "power_weights.py", tmp_path)
    done = run(
        tmp_path,
        "-m",
        "pytest",
        "-rp",
        "-p",
        "no:cacheprovider",
        "-k",
        "power_weights",
        "tests/attention/test_kernels.py",
        "tests/attention/test_entries.py",
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") > 15


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "No plug-in is loaded, as ATTENTION_LAB_PLUGINS is not set"),
        ("/tmp", "No plug-in that is loaded has this key. Not loaded: Plug-in a.py, line 3: x"),
    ],
)
def test_what_is_missing_is_told_by_what_is_loaded(monkeypatch, tmp_path, value, words):
    monkeypatch.setattr(plugins, "problems", ["Plug-in a.py, line 3: x"])
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", value)
    assert words in plugins.why_missing()
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", str(tmp_path / "none"))
    with pytest.warns(RuntimeWarning, match="is no folder"):
        plugins.load_plugins()
    assert len(plugins.problems) == 2


USES_ALL = """
from core.attention import Attention, AttentionConfig, Entry, register
from core.claims.base import Claim
from core.claims.catalogue import CLAIMS, register_claim
from core.claims.experiment import trained
from core.claims.run import ClaimConfig
from core.models import ModelConfig
from core.pretrained.base import Pretrained
from core.tasks import TaskConfig, make_task
from core.training import RunConfig, train
"""


@pytest.mark.first
def test_a_plug_in_meets_whole_modules(tmp_path):
    # Every package of core, and every module that is a command, as the first import of its process.
    (tmp_path / "uses_all.py").write_text(USES_ALL, encoding="utf-8")
    firsts = [
        *(
            path.parent.relative_to(ROOT).as_posix().replace("/", ".")
            for path in (ROOT / "core").rglob("__init__.py")
        ),
        *("core.runs.worker", "core.files", "core.entries", "core.interpret.trace"),
    ]
    code = """
import importlib, os, sys
import einops, jaxtyping, msgspec, psutil, safetensors, torch, typer

for name in sys.argv[1:]:
    if (child := os.fork()) == 0:
        importlib.import_module(name)
        from core import plugins
        print(name, plugins.problems, "attention_lab_plugins.uses_all" in sys.modules, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = run(tmp_path, "-c", code, *firsts, check=True)
    assert done.stdout.splitlines() == [f"{name} [] True" for name in firsts], (
        done.stdout + done.stderr
    )


def test_plug_in_that_needs_key_waits_for_one_that_has_it(loaded):
    # Whatever the files are called; where two need each other the message says so, and no more than is true.
    keys, _, problems = loaded[0]["needs"]
    assert sorted(keys) == ["first", "second", "third"] and len(problems) == 3
    for problem, file in zip(problems, "xyz", strict=True):
        assert problem.startswith(
            f"Plug-in {file}.py, line 2: score = '{NEEDS[file][1]}'; expected one of "
        ), problem
        assert problem.endswith("No plug-in that is loaded has this key."), problem


def test_a_file_that_is_tried_again_may_register_again(loaded):
    # It fails behind its own registrations until another file is there, and once in vain.
    keys, claims, (problem,) = loaded[0]["again"]
    assert sorted(keys) == ["one", "two"] and len(claims) == 1
    assert problem.startswith("Plug-in c.py, ") and "registered already" in problem


def test_a_public_copy_by_its_secrets_loads_none(tmp_path):
    # The switch may stand in Streamlit's secrets, which are read before any module of core is.
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text(
        'ATTENTION_LAB_HOSTED = "1"\n', encoding="utf-8"
    )
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "speaks.py").write_text("print('loaded')\n", encoding="utf-8")
    code = "import runpy; runpy.run_path('streamlit_app.py'); import core.attention; print('done')"
    for home, printed in (("", ["loaded", "done"]), (str(tmp_path), ["done"])):
        change = f"import os; os.environ['HOME'] = {home!r} or os.environ['HOME']; "
        assert run(tmp_path / "plugins", "-c", change + code, check=True).stdout.split() == printed


# On the pages: listed with a mark beside the lab's own, and a sentence where one could not be loaded.


@pytest.fixture
def worked(without_new_entries):
    for file in sorted(WORKED.glob("*.py")):
        runpy.run_path(str(file))


def test_a_page_lists_plug_ins_with_a_mark(worked):
    app = open_at("scores")
    assert not app.exception
    row = html_text(app).split("</span>Cosine power (plug-in)</th>")[1].split("</tr>")[0]
    assert row.count("–") == 3 and "cos(q, k)^p" in row


def test_a_score_that_fails_later_is_left_out(worked):
    working = [True]

    def score(q, k):
        if not working:
            raise OSError("the table is gone")
        return q @ k.mT

    register(
        "score",
        Entry(
            "from_table",
            "From a table",
            build=lambda config: score,
            latex="q^T k",
            meaning="A product that needs a table.",
            paper="Someone",
            year=2026,
            url="https://example.org",
        ),
    )
    working.clear()
    app = open_at("scores", "scores:", equation="from_table")
    assert not app.exception and app.selectbox(key="scores:equation").value == "scaled_dot"
    assert "score = from_table failed. test_plugins.py, line" in page_text(app)
    assert "OSError: the table is gone. It is left out." in page_text(app)
    assert "From a table (plug-in)</th>" not in html_text(app)


def test_all_mechanisms_says_what_check_finds(worked, monkeypatch):
    with pytest.warns(RuntimeWarning, match="score = by_d was added. At head sizes"):
        exec(
            MECHANISM.format(key="by_d", needs="").replace("q @ k.mT", "q @ k.mT / q.shape[-1]"), {}
        )
    monkeypatch.delitem(
        sys.modules, "pages.mechanisms", raising=False
    )  # its lists are of its import
    link = {"axis": "Scores", "score": "by_d (plug-in) · 2026"}
    app = open_at("mechanisms", "mechanisms:", **link)
    assert not app.exception
    text = page_text(app)
    assert "## Is it right?" in text and "0.25 and 0.0625 times as far as q·k / √D" in text
    assert (
        "They agree up to the keys (projected and rotated); the first difference is in q·k, by up to"
        in text
        and "0.25 times Scaled dot product" in text
    )
    app = set_control("mechanisms:", app, "selectbox", "beside", "cosine")
    assert not app.exception and "0.25 times Scaled dot product" not in page_text(app)
    monkeypatch.delitem(sys.modules, "pages.mechanisms")
    assert "Is it right?" not in page_text(open_at("mechanisms", "mechanisms:", axis="Scores"))


def test_all_three_are_drawn_together(worked):
    app = open_at(
        "one_query",
        "one:",
        score="cosine_power(power=2.0)",
        mask="every_second_key",
        normalizer="power_weights",
    )
    assert not app.exception and not app.error and not app.warning
    assert (
        app.session_state["one:score"] == "cosine_power"
        and app.session_state["one:mask"] == "every_second_key"
    )


def test_a_broken_plug_in_is_named_above_every_page(monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, str(WORKED))
    monkeypatch.setattr(
        plugins, "problems", ["Plug-in a.py, line 3: ZeroDivisionError: division by zero."]
    )
    for page in ("start", "masks"):
        assert "Plug-in a.py, line 3: ZeroDivisionError: division by zero. Correct it" in page_text(
            open_at(page)
        )
    monkeypatch.delenv(plugins.VARIABLE)
    assert "Plug-in a.py" not in page_text(open_at("masks"))
