"""The lock file: every pin and all that they need, each with one hash; and how it is written."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    """The versions of the lock by package."""
    lines = [line for line in (ROOT / "requirements-linux-cpu.lock").read_text(encoding="utf-8").splitlines()
             if not line.startswith(("#", "--extra-index-url "))]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), "each line is a package, its version and a hash"
    versions = {match[1]: match[2] for match in found if match}
    assert len(versions) == len(lines) and [*versions] == sorted(versions)
    return versions


def test_it_holds_every_pin():
    pins = [Requirement(line) for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
            if line and not line.startswith("#")]
    versions = locked()
    assert len(pins) > 20 and not [str(pin) for pin in pins if versions.get(normal(pin.name)) is None
                                   or not pin.specifier.contains(versions[normal(pin.name)], prereleases=True)]
    assert versions["torch"].endswith("+cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux needs is locked")
def test_it_holds_what_every_package_needs():
    versions = locked()
    missing = []
    installed = {normal(one.metadata["Name"]) for one in importlib.metadata.distributions()}
    assert len(installed & versions.keys()) > 60
    for name in installed & versions.keys():
        for need in map(Requirement, importlib.metadata.requires(name) or ()):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                version = versions.get(normal(need.name))
                if version is None or not need.specifier.contains(version, prereleases=True):
                    missing.append(f"{name} needs {need}, and the lock has {version}")
    assert not missing, "run make lock"


def test_what_pip_reports_becomes_a_line_with_its_hash():
    def package(name: str, version: str, digest: str) -> dict:
        return {"metadata": {"name": name, "version": version},
                "download_info": {"archive_info": {"hashes": {"sha256": digest}}}}

    machine = {"python_full_version": "3.11.7", "platform_system": "Linux", "platform_machine": "x86_64"}
    report = {"environment": machine,
              "install": [package("Zed_Two.x", "2", "b" * 64), package("Abc", "1.0", "a" * 64)]}
    done = subprocess.run([sys.executable, ROOT / ".ci" / "lock"], input=json.dumps(report), capture_output=True,
                          encoding="utf-8", check=True)
    lines = done.stdout.splitlines()
    assert lines[-2:] == [f"abc==1.0 --hash=sha256:{'a' * 64}", f"zed-two-x==2 --hash=sha256:{'b' * 64}"]
    assert "3.11.7 on Linux x86_64" in done.stdout
