"""dashboard/requirements.txt takes PyTorch's CPU build and nothing else from PyTorch's server, by pip and by uv.

Two made-up servers on this machine: PyPI's, with the pinned versions, and PyTorch's, whose index has its CPU build of
torch and an old version of another package.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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
