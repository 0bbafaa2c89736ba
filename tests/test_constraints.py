"""constraints.txt: one version of every package, for every platform, and the one that the tests run with."""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
            try:
                found = importlib.metadata.distribution(need.name).requires or ()
            except importlib.metadata.PackageNotFoundError:
                continue
            waiting += [
                (one, need.name)
                for one in map(Requirement, found)
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
