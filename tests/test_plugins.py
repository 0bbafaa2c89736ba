"""A folder of plug-ins: a worker and pytest -k know the three of docs/plugins; a broken file costs itself alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core import plugins
from core.attention import ConfigError
from core.training import RunConfig
from core.training.runs import create_run
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
                 "    register('score', Entry(key, key, lambda config: score, 'x', 'A variant for the tests alone.', "
                 "'', 2026))\n",
}


def run(folder, *command, **how):
    environment = {**os.environ, "ATTENTION_LAB_PLUGINS": str(folder)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, **how)


def test_a_broken_file_is_named_with_its_line_and_the_others_are_loaded(tmp_path):
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text)
    code = ("import json; from core import plugins; from core.attention import AXES; "
            "print(json.dumps([[e.key for e in AXES['score'] if e.source], plugins.problems]))")
    done = run(tmp_path, "-c", code, check=True)
    keys, problems = json.loads(done.stdout)
    assert keys == ["plain"]
    starts = ["Plug-in a_raises.py, line 3: ZeroDivisionError: division by zero",
              "Plug-in b_syntax.py, line 1: SyntaxError: ",
              "Plug-in c_known.py, line 3: score = dot is one of the lab's own; take another key.",
              "Plug-in d_nan.py, line 8: score = nan was not added. Its output is not finite",
              "Plug-in e_exits.py, line 3: SystemExit: no"]
    assert len(problems) == len(starts)
    assert all(problem.startswith(start) for problem, start in zip(problems, starts, strict=True)), problems
    assert "RuntimeWarning: Plug-in a_raises.py" in done.stderr, "a notebook and a worker's log tell it too"


def test_a_worker_trains_what_a_plug_in_defines(tmp_path):
    """One run of all three plug-ins in a process of its own; here, where they are not loaded, its config says so."""
    made = create_run(small_run())
    data = json.loads((made.path / "run.json").read_text())
    data["config"]["model"]["attention"] |= {
        "score": {"key": "cosine_power", "power": 2.0}, "mask": {"key": "every_second_key"},
        "normalizer": {"key": "power_weights"}}
    (made.path / "run.json").write_text(json.dumps(data))
    done = run(WORKED, "-m", "core.training.worker", str(made.path))
    assert done.returncode == 0 and made.status().state == "finished", done.stdout + done.stderr
    assert made.records()[-1].step == 4
    with pytest.raises(ConfigError, match="score = 'cosine_power'; expected one of .*ATTENTION_LAB_PLUGINS is not set"):
        RunConfig.from_json(data["config"])


def test_pytest_runs_the_contract_of_a_plug_in_by_its_key(tmp_path):
    shutil.copy(WORKED / "power_weights.py", tmp_path)
    done = run(tmp_path, "-m", "pytest", "-rp", "-p", "no:cacheprovider", "-k", "power_weights",
               "tests/attention/test_normalizers.py", "tests/attention/test_entries.py")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") > 15


@pytest.mark.parametrize(("value", "words"), [
    (None, "No plug-in is loaded, as ATTENTION_LAB_PLUGINS is not set"),
    ("/tmp", "No plug-in in the folder of ATTENTION_LAB_PLUGINS has this key. Not loaded: Plug-in a.py, line 3: x"),
])
def test_what_is_missing_is_told_by_what_is_loaded(monkeypatch, value, words):
    monkeypatch.setattr(plugins, "problems", ["Plug-in a.py, line 3: x"])
    monkeypatch.delenv("ATTENTION_LAB_PLUGINS", raising=False)
    if value:
        monkeypatch.setenv("ATTENTION_LAB_PLUGINS", value)
    assert words in plugins.why_missing()


def test_a_folder_that_is_none_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(plugins, "problems", [])
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", str(tmp_path / "none"))
    with pytest.warns(RuntimeWarning, match="is no folder"):
        plugins.load_plugins()
    assert len(plugins.problems) == 1
