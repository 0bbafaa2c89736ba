"""setuptools, for `pip install -e .`, which runs the checkout, and for a wheel, which carries the same tree as one package.

In a wheel all lies below `attention_lab`, so that no `core`, `dashboard` or `pages` stands among a person's packages;
attention_lab/__init__.py finds them there.
"""

import json
import re
import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
)

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("core", "dashboard", "pages", ".streamlit")
FILES = ("streamlit_app.py", "pyproject.toml")
# What Python, a server and a person put there.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "lock", "secrets.toml")


def requirements() -> list[str]:
    """Those of requirements.txt: the version that the lab is tested with, or a newer one before the next major one."""
    text = (ROOT / "requirements.txt").read_text("utf-8")
    pins = re.findall(r"^(\S+)==((\d+)\S*)$", text, re.MULTILINE)
    return [f"{name}>={version},<{int(major) + 1}" for name, version, major in pins]


def build_wheel(wheel_directory: str, *_: object) -> str:
    """The name of the wheel that it writes there; nothing is written into the checkout."""
    target = str(Path(wheel_directory).absolute())
    with TemporaryDirectory() as folder, chdir(folder):
        package = Path("attention_lab")
        shutil.copytree(ROOT / package, package, ignore=LEFT_OUT)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, package / name, ignore=LEFT_OUT)
        for name in FILES:
            shutil.copy(ROOT / name, package)
        for name in ("README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)
        project = (ROOT / "pyproject.toml").read_text("utf-8")
        needed = f"[project]\ndependencies = {json.dumps(requirements())}\n"
        Path("pyproject.toml").write_text(project.replace("[project]\n", needed), "utf-8")
        return build_meta.build_wheel(target)
