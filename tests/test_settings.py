"""What the environment sets, typed; what cannot be read names its variable."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from core.settings import PREFIX, LabSettings, Limits, RayWorker, check_names, settings

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for field in fields(LabSettings):
        monkeypatch.delenv(PREFIX + field.name.upper(), raising=False)


def test_without_a_variable_everything_is_usual():
    now = settings()
    assert now.limits == Limits() and now.ray_worker == RayWorker() and not now.hosted
    assert not any((now.runs, now.store, now.frames, now.hosted_limits, now.hosted_models))


def test_names_and_values_part_at_spaces_or_commas(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "max_runs=5, disk_mb=1.5  memory_mb=800")
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_MODELS", "a/b, c/d,")
    assert settings().limits == Limits(max_runs=5, disk_mb=1.5, memory_mb=800)
    assert settings().hosted_models == ("a/b", "c/d")


@pytest.mark.parametrize("text", ["", "0", "false", "No"])
def test_a_public_copy_is_switched_off(monkeypatch, text):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", text)
    assert not settings().hosted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("500", "takes name=value with spaces between, but has '500'"),
        ("disk=500", "has max_runs, disk_mb, .*, but no 'disk'"),
        ("disk_mb=some", "disk_mb = 'some' is no number above 0"),
        ("disk_mb=0", "disk_mb = '0' is no number above 0"),
        ("disk_mb=inf", "disk_mb = 'inf' is no number above 0"),
    ],
)
def test_what_cannot_be_read_is_refused(monkeypatch, text, problem):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", text)
    with pytest.raises(ValueError, match=f"ATTENTION_LAB_LIMITS:? {problem}"):
        settings()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("DISK_MB", "disk_mb=… in ATTENTION_LAB_LIMITS"),
        ("RAY_CPUS", "cpus=… in ATTENTION_LAB_RAY_WORKER"),
        ("HOSTED_STEPS", "steps=… in ATTENTION_LAB_HOSTED_LIMITS"),
    ],
)
def test_an_earlier_variable_is_not_passed_over(monkeypatch, name, place):
    check_names()
    monkeypatch.setenv(PREFIX + name, "5")
    with pytest.raises(ValueError, match=re.escape(f"{PREFIX}{name} is now {place}")):
        check_names()


def test_every_variable_and_limit_is_documented():
    text = "".join(
        (ROOT / "docs" / name).read_text("utf-8") for name in ("install.md", "scaling.md")
    )
    wanted = {PREFIX + field.name.upper() for field in fields(LabSettings)}
    wanted |= {field.name for kind in (Limits, RayWorker) for field in fields(kind)}
    assert not {name for name in wanted if f"`{name}" not in text}


def test_nothing_else_reads_a_variable_of_the_lab():
    """A plug-in's folder is written back for the workers, and secrets of Streamlit become variables."""
    reads = re.compile(r"environ(\.get\(|\[)[^\n]*(ATTENTION_LAB|VARIABLE|HOSTED)")
    found = {
        str(path.relative_to(ROOT))
        for top in ("core", "dashboard")
        for path in (ROOT / top).rglob("*.py")
        if reads.search(path.read_text("utf-8"))
    }
    assert found <= {"core/plugins.py", "core/settings.py"}
