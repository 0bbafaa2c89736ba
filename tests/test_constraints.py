"""constraints.txt: one version of every package, for every platform, and the one that the tests run with."""

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = {
    name: [*map(Requirement, lines)] for name, lines in PROJECT["optional-dependencies"].items()
}
PLATFORMS = {
    "linux": ("Linux", "x86_64"),
    "darwin": ("Darwin", "arm64"),
    "win32": ("Windows", "AMD64"),
}
ENVIRONMENTS = [
    {
        **default_environment(),
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.9",
        "implementation_version": f"3.{minor}.9",
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine,
        "os_name": "nt" if platform == "win32" else "posix",
    }
    for platform, (system, machine) in PLATFORMS.items()
    for minor in (11, 12, 13)
]


def lines_of(name: str) -> list[str]:
    lines = (
        line.partition("#")[0].strip() for line in (ROOT / name).read_text("utf-8").splitlines()
    )
    return [line for line in lines if line]


CONSTRAINTS = [Requirement(line) for line in lines_of("constraints.txt")]
REQUIREMENTS = [
    Requirement(line) for line in lines_of("requirements.txt") if not line.startswith("-")
]


def pinned(environment: Mapping[str, Any]) -> dict[str, str]:
    """The versions that constraints.txt pins in an environment, by package."""
    return {
        canonicalize_name(one.name): next(iter(one.specifier)).version
        for one in CONSTRAINTS
        if one.marker is None or one.marker.evaluate(environment)
    }


@cache
def required_by(package: str) -> list[Requirement]:
    """What an installed package requires; nothing of one that is not installed."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return [*map(Requirement, importlib.metadata.distribution(package).requires or ())]
    return []


def needs(environment: Mapping[str, Any]) -> Iterator[tuple[Requirement, str]]:
    """What follows from requirements.txt and dev, as far as packages are installed, and whose requirement it is."""
    waiting = [(one, "requirements.txt") for one in REQUIREMENTS] + [
        (one, "dev") for one in EXTRAS["dev"]
    ]
    seen = set()
    while waiting:
        need, whose = waiting.pop()
        if canonicalize_name(need.name) == PROJECT["name"]:
            waiting += [(one, extra) for extra in need.extras for one in EXTRAS[extra]]
            continue
        yield need, whose
        if (key := (canonicalize_name(need.name), frozenset(need.extras))) not in seen:
            seen.add(key)
            waiting += [
                (one, need.name)
                for one in required_by(need.name)
                if one.marker is None
                or any(
                    one.marker.evaluate({**environment, "extra": extra})
                    for extra in ("", *need.extras)
                )
            ]


def test_requirements_name_the_constraints():
    assert lines_of("requirements.txt")[0] == "-c constraints.txt"
    assert lines_of("dashboard/requirements.txt")[-1] == "-r ../requirements.txt"


def test_every_constraint_is_one_version_that_every_index_has():
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in CONSTRAINTS), (
        "no ranges, no local versions"
    )
    names = [canonicalize_name(one.name) for one in CONSTRAINTS]
    assert names == sorted(set(names))


@each("file", ["requirements.txt", *EXTRAS])
def test_what_is_named_has_the_version_of_the_constraints(file):
    named = REQUIREMENTS if file == "requirements.txt" else EXTRAS[file]
    versions = pinned(default_environment() | {"extra": ""})
    assert not [
        str(one)
        for one in named
        if canonicalize_name(one.name) != PROJECT["name"]
        and str(one.specifier) != f"=={versions.get(canonicalize_name(one.name))}"
    ], "run make lock"


@each("environment", ENVIRONMENTS)
def test_every_package_that_is_needed_is_pinned(environment):
    versions = pinned(environment)
    missing = [
        f"{whose} needs {need}"
        for need, whose in needs(environment)
        if (version := versions.get(canonicalize_name(need.name))) is None
        or not need.specifier.contains(version, prereleases=True)
    ]
    assert not missing and len(versions) > 200, "run make lock"


def test_what_is_installed_is_what_is_pinned():
    here = default_environment()
    versions, other = pinned(here), {}
    for need, _ in needs(here):
        name = canonicalize_name(need.name)
        try:
            version = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
        if version != versions.get(name):
            other[name] = (version, versions.get(name))
    assert not other, "(installed, pinned): install again, or run make lock"


def test_no_project_of_another_name_is_asked_for():
    """A requirement that needs CUDA itself would add several GB to every plain install."""
    assert not [
        str(one)
        for one in REQUIREMENTS
        if re.search("nvidia|torchvision|torchaudio|triton|cuda", one.name)
    ]
    assert not any("+cu" in str(one) for one in REQUIREMENTS)


def test_workflows_may_only_read_and_name_actions_by_their_commit():
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        workflow = yaml.safe_load(file.read_text("utf-8"))
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        assert workflow["permissions"] == {"contents": "read"} and not any(
            "permissions" in job for job in workflow["jobs"].values()
        ), file.name
        actions = [step["uses"] for step in steps if "uses" in step]
        assert actions and not [one for one in actions if not re.fullmatch(r".+@[0-9a-f]{40}", one)]
        assert not [step["run"] for step in steps if "pip install" in step.get("run", "")], (
            "make installs the pins"
        )


def test_a_page_of_a_fresh_install_is_opened_every_day():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "weather.yml").read_text("utf-8"))
    assert workflow[True]["schedule"] and any(
        "make fresh" in step.get("run", "")  # YAML 1.1 reads `on` as true
        for step in workflow["jobs"]["install"]["steps"]
    )


# dashboard/requirements.txt takes PyTorch's CPU build and nothing else from PyTorch's server, by pip and by uv.


WHEELS = "https://download.pytorch.org/whl/cpu"
PINS = {"torch": "2.13.0", "numpy": "2.4.6", "nvidia-cublas": "13.1.1.3"}


def write_wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """An empty wheel in the folder of its project, and the page that lists it."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + f"Requires-Dist: {needs}\n" * bool(needs)
    )
    files = {
        "METADATA": metadata,
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{stem}.dist-info/{file},sha256={digest_of(text)},{len(text)}\n"
        for file, text in files.items()
    )
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, "RECORD": record + f"{stem}.dist-info/RECORD,,\n"}.items():
            wheel.writestr(f"{stem}.dist-info/{file}", text)
    links = [
        f'<a href="{one.name.replace("+", "%2B")}">{one.name}</a>'
        for one in sorted(folder.glob("*.whl"))
    ]
    (folder / "index.html").write_text(
        f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>", "utf-8"
    )


def digest_of(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def servers(tmp_path):
    """The addresses of both."""
    pypi, pytorch = tmp_path / "pypi", tmp_path / "whl" / "cpu"
    write_wheel(pypi, "torch", PINS["torch"], "nvidia-cublas")
    write_wheel(pypi, "nvidia-cublas", PINS["nvidia-cublas"])
    write_wheel(pypi, "numpy", PINS["numpy"])
    write_wheel(pytorch, "torch", "2.9.0+cpu")
    write_wheel(pytorch, "torch", f"{PINS['torch']}+cpu")
    write_wheel(pytorch, "numpy", "1.26.0")
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    yield f"{address}/pypi/", f"{address}/whl/cpu"
    server.shutdown()
    server.server_close()


@pytest.fixture
def checkout(tmp_path, servers):
    """The lab's own file of the CPU build beside two requirements, with the address of PyTorch's server here."""
    (tmp_path / "lab" / "dashboard").mkdir(parents=True)
    text = (ROOT / "dashboard" / "requirements.txt").read_text("utf-8")
    assert WHEELS in text
    (tmp_path / "lab" / "dashboard" / "requirements.txt").write_text(
        text.replace(WHEELS, servers[1]), "utf-8"
    )
    (tmp_path / "lab" / "requirements.txt").write_text(
        f"-c constraints.txt\ntorch=={PINS['torch']}\nnumpy\n", "utf-8"
    )
    pins = "".join(f"{name}=={version}\n" for name, version in PINS.items())
    (tmp_path / "lab" / "constraints.txt").write_text(pins, "utf-8")
    return tmp_path / "lab"


def run(command: list, folder: Path) -> subprocess.CompletedProcess:
    """From the root of the checkout, as Community Cloud does, with no setting of this machine."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_")) and not name.lower().endswith("_proxy")
    }
    return subprocess.run(
        command,
        cwd=folder,
        env={**plain, "UV_NO_CACHE": "1", "UV_NO_CONFIG": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def by_uv(folder: Path, file: str, index: str) -> subprocess.CompletedProcess:
    here = Path(sys.executable).parent
    if (uv := shutil.which("uv", path=f"{here}{os.pathsep}{os.environ['PATH']}")) is None:
        pytest.skip("uv is not installed; it is in the extra dev")
    return run(
        [uv, "pip", "compile", "--no-header", "--no-annotate", "--default-index", index, file],
        folder,
    )


def test_uv_takes_the_cpu_build_and_the_pinned_versions(checkout, servers):
    done = by_uv(checkout, "dashboard/requirements.txt", servers[0])
    assert [line for line in done.stdout.splitlines() if "==" in line] == [
        f"numpy=={PINS['numpy']}",
        f"torch=={PINS['torch']}+cpu",
    ], done.stderr


def test_pip_takes_the_cpu_build_and_the_pinned_versions(checkout, servers):
    done = run(
        [
            sys.executable,
            "-m",
            "pip",
            "--isolated",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--report",
            "-",
            "--index-url",
            servers[0],
            "-r",
            "dashboard/requirements.txt",
        ],
        checkout,
    )
    assert done.returncode == 0, done.stderr
    chosen = {
        one["metadata"]["name"]: one["metadata"]["version"]
        for one in json.loads(done.stdout)["install"]
    }
    assert chosen == {"numpy": PINS["numpy"], "torch": f"{PINS['torch']}+cpu"}


def test_without_the_file_it_is_the_build_of_pypi(checkout, servers):
    done = by_uv(checkout, "requirements.txt", servers[0])
    assert [*done.stdout.split()] == [
        f"numpy=={PINS['numpy']}",
        f"nvidia-cublas=={PINS['nvidia-cublas']}",
        f"torch=={PINS['torch']}",
    ], done.stderr


def test_the_whole_index_of_pytorch_would_fail_by_uv(checkout, servers):
    (checkout / "dashboard" / "requirements.txt").write_text(
        f"--extra-index-url {servers[1]}\n-r ../requirements.txt\n", "utf-8"
    )
    done = by_uv(checkout, "dashboard/requirements.txt", servers[0])
    assert done.returncode and f"numpy=={PINS['numpy']}" in done.stderr


# `make test` runs all of its parts, and names at its end which of them failed.


@pytest.mark.parametrize(
    "fails, parts",
    [
        ("nothing", ""),
        ("ruff", "check"),
        ("--ignore=tests/browser ", "beside"),
        (" tests/browser ", "in-browser"),
        ("pytest", "beside in-browser"),
        ("tests.leftovers", "leftovers"),
    ],
)
def test_every_part_runs_whichever_fails(fails, parts):
    """With tools that only write down how they were called; those whose call holds `fails` end in 1."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # whose path has no space
        tools = Path(folder) / "bin"
        tools.mkdir()
        for name in ("python", "ruff", "mypy"):
            tool = tools / name
            tool.write_text(
                f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n'
                f'case "{name} $* " in *"{fails}"*) exit 1;; esac\n',
                encoding="utf-8",
            )
            tool.chmod(0o755)
        for mark in (".installed", ".installed-dev"):
            (Path(folder) / mark).touch()
        done = subprocess.run(
            ["make", "test", f"VENV={folder}"],
            cwd=ROOT,
            capture_output=True,
            encoding="utf-8",
            env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
            timeout=60,
        )
        calls = (Path(folder) / "calls").read_text(encoding="utf-8").splitlines()
    assert (done.returncode != 0) == bool(parts)
    tests = [call for call in calls if "pytest" in call and "playwright" not in call]
    assert [call.split()[:3] for call in tests] == [["python", "-m", "pytest"]] * 2
    assert (
        done.stdout.splitlines()[-1:] == [f"make test failed in: {parts}"]
        if parts
        else "failed" not in done.stdout
    )


def test_what_quick_runs_is_there():
    listed = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").split()
    assert listed and not [item for item in listed if not (ROOT / item.partition("::")[0]).exists()]
