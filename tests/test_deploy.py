"""What docs/deploy.md and the citation promise: the image's parts are there and its command serves the lab."""

import importlib.metadata
import inspect
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from datetime import date
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn.config
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from streamlit import config
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from benchmarks.load import Arrival, with_arrival
from benchmarks.sizing import (
    READERS,
    SCALING,
    Costs,
    need,
    read_costs,
    table,
    with_costs,
    with_table,
)
from core.runs import executor
from core.settings import PREFIX, LabSettings
from dashboard.server import health, visitors
from dashboard.server.hosting import NO_SERVER
from dashboard.server.visitors import UNKNOWN_NAME
from tests.cases import PATIENCE, each, wait_for

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
TEXT = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
FOLDER = ROOT / ".devcontainer"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, in order."""
    lines = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, rest in pairs]


def test_the_image_is_made_of_what_is_there():
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}
    steps = instructions()
    assert steps[0][0] == "FROM" and steps[-1][0] == "CMD" and {name for name, _ in steps} <= known
    for name, rest in steps:
        if name == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1])
    ignored = set((FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines())
    assert not ignored & {
        "core",
        "dashboard",
        "pages",
        "requirements.txt",
        "streamlit_app.py",
        ".streamlit",
    }
    assert {".venv", ".git", "node_modules", ".streamlit/secrets.toml"} <= ignored
    container = json.loads((FOLDER / "devcontainer.json").read_text(encoding="utf-8"))
    assert (FOLDER / container["build"]["dockerfile"]).exists() and container[
        "containerUser"
    ] == "root"


def test_the_command_of_the_image_serves_the_lab(tmp_path):
    steps, log, secret = dict(instructions()), tmp_path / "log", "zq7secret"
    assert (
        f"localhost:{steps['EXPOSE']}/" in steps["HEALTHCHECK"]
        and f"-p {steps['EXPOSE']}:{steps['EXPOSE']}" in TEXT
    )
    with started(*json.loads(steps["CMD"]), log=log, ATTENTION_LAB_LOG="json") as port:
        check = shlex.split(
            steps["HEALTHCHECK"].partition("CMD ")[2].replace(steps["EXPOSE"], str(port))
        )
        assert check[0] == "python"
        assert subprocess.run([sys.executable, *check[1:]], timeout=PATIENCE).returncode == 0
        assert not sys.platform.startswith("linux") or reachable(port, "127.0.0.9"), (
            "from outside of the container"
        )
        page, health, metrics = (
            opened(f"http://127.0.0.1:{port}/{path}")
            for path in (f"heads?text={secret}", "health", "_stcore/metrics")
        )
        assert {"status": "ok", "queue": 0}.items() <= json.load(health).items()
        server = r'(?s)active_sessions.*lab_memory_pss_bytes{process="server"} [1-9]\d{7}'
        assert re.search(server, metrics.read().decode())
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Content-Security-Policy"]
    assert (
        subprocess.run(
            [sys.executable, *check[1:]], timeout=PATIENCE, capture_output=True
        ).returncode
        != 0
    )
    lines = log.read_text(encoding="utf-8").splitlines()
    # Streamlit's, before it loads the app
    welcome = [line.startswith("{") for line in lines].index(True)
    events = [json.loads(line)["event"] for line in lines[welcome:]]
    assert {"start", "request", "end"} <= set(events) and not [
        line for line in lines if secret in line
    ]


OPTION = re.compile(r"--(?:server|runner|client|global|browser|logger)\.\w+|STREAMLIT_[A-Z_]+")


def test_servers_of_tests_are_those_of_make_run():
    folders = ["tests", "benchmarks", "Makefile", ".github", ".ci"]
    listed = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, encoding="utf-8")
    given = {
        name: set(OPTION.findall((ROOT / name).read_text("utf-8")))
        for name in listed.split()
        if name.endswith((".py", ".yml", ".yaml", "Makefile", ".sh", "browser"))
    }
    # of the examples
    allowed = {"--server.port", "--server.address", "--server.headless", "--server.allowedHosts"}
    assert {name: options - allowed for name, options in given.items() if options - allowed} == {}
    assert "--server.port" in given["tests/browser/conftest.py"]
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["fileWatcherType"] == "none", (
        "a watcher holds up every session whenever one begins"
    )


def opened(address: str, **headers: str) -> Any:
    return urllib.request.urlopen(
        urllib.request.Request(address, headers=headers), timeout=PATIENCE
    )


def reachable(port: int, address: str) -> bool:
    with socket.socket() as reader:
        return reader.connect_ex((address, port)) == 0


@contextmanager
def started(
    *command: str | Path,
    log: Path = Path(os.devnull),
    run_by: Sequence[str] = (sys.executable, "-m"),
    cwd: Path = ROOT,
    **environment: str,
) -> Iterator[int]:
    """The port of a server that a command starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*run_by, *command, f"--server.port={port}"],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=out,
            stderr=out,
        )
    try:
        wait_for(lambda: server.poll() is not None or reachable(port, "127.0.0.1"))
        assert server.poll() is None
        yield port
    finally:
        server.terminate()
        server.wait(timeout=PATIENCE)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs Linux's addresses 127.0.0.x"
)
def test_a_lab_at_home_listens_on_its_own_computer():
    with started("dashboard", "run", "--server.headless=true") as port:
        assert not reachable(port, "127.0.0.9"), "only the address of localhost"
        stream = f"ws://127.0.0.1:{port}/_stcore/stream"
        with connect(
            stream, subprotocols=[Subprotocol("streamlit")], proxy=None, open_timeout=PATIENCE
        ):
            pass
        home = f"http://127.0.0.1:{port}/heads"
        assert "HttpOnly" not in opened(home).headers.get("Set-Cookie", ""), "nobody is a stranger"
        foreign = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
        with pytest.raises(urllib.error.HTTPError, match="421") as refused:
            opened(home, **foreign)
        assert refused.value.read().decode() == UNKNOWN_NAME
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw:
            raw.sendall(
                "\r\n".join(
                    [
                        "GET /_stcore/stream HTTP/1.1",
                        *(
                            f"{name}: {value}"
                            for name, value in {
                                **foreign,
                                "Upgrade": "websocket",
                                "Connection": "Upgrade",
                                "Sec-WebSocket-Version": "13",
                                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                                "Sec-WebSocket-Protocol": "streamlit",
                            }.items()
                        ),
                        "",
                        "",
                    ]
                ).encode()
            )
            assert raw.recv(4096).startswith(b"HTTP/1.1 421")


def test_main_file_on_community_cloud_serves_lab_to_others(tmp_path):
    (main,) = re.findall(r"Main file path: `(.+?)`", TEXT)
    environment: dict[str, Any] = {
        "ATTENTION_LAB_HOSTED": "1",
        "ATTENTION_LAB_RUNS": str(tmp_path),
    }
    with started("streamlit", "run", main, "--server.headless=true", **environment) as port:
        # From a proxy of another machine.
        address = "127.0.0.9" if sys.platform.startswith("linux") else "127.0.0.1"
        headers = opened(f"http://{address}:{port}/", Host="my-lab.streamlit.app").headers
        assert headers["Content-Security-Policy"] and "HttpOnly" in headers["Set-Cookie"]
        assert json.load(opened(f"http://127.0.0.1:{port}/health"))["status"] == "ok"


AS_A_SCRIPT = """
import os, sys, torch
import streamlit.runtime as runtime
from streamlit.testing.v1 import AppTest

runtime.exists = lambda: True
for main, os.environ["ATTENTION_LAB_HOSTED"] in (("app", "1"), ("cloud", "1"), ("cloud", "")):
    if (child := os.fork()) == 0:
        app = AppTest.from_file(f"dashboard/{main}.py", default_timeout=60).run()
        errors = [error.value for error in app.error]
        print(len(app.exception), bool(app.get("html")), *errors, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_main_file_that_something_else_runs_has_its_pages():
    # Each in a process of its own: the switch is taken once.
    done = subprocess.run(
        [sys.executable, "-c", AS_A_SCRIPT],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    assert done.stdout.splitlines() == [f"0 False {NO_SERVER}"] * 2 + ["0 True"], done.stderr


def test_the_commands_of_the_page_name_what_is_there():
    (build,) = re.findall(r"docker build .*", TEXT)
    assert shlex.split(build)[-1] == "." and (ROOT / shlex.split(build)[3]).exists()
    (main,) = re.findall(r"Main file path: `(.+?)`", TEXT)
    assert (ROOT / main).exists() and "whl/cpu" in (ROOT / main).with_name(
        "requirements.txt"
    ).read_text("utf-8")
    for option in re.findall(r"`--(server\.\w+)", TEXT):
        config.get_option(option)


def test_the_citation_is_valid():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (
        {"cff-version", "message", "title", "authors"}
        <= citation.keys()
        <= {
            "cff-version",
            "message",
            "title",
            "authors",
            "type",
            "abstract",
            "version",
            "license",
            "keywords",
        }
    )
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert all(
        author.keys() <= {"name", "website", "email", "orcid"} for author in citation["authors"]
    )
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    headings = re.findall(
        r"^## (.*)$", (ROOT / "docs" / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert re.match(
        rf"{re.escape(PROJECT['version'])}\b.* \((in progress|\d{{4}}-\d\d-\d\d)\)$", headings[0]
    )
    assert not [one for one in headings[1:] if not re.search(r" \(\d{4}-\d\d-\d\d\)$", one)]


def new_environment(folder: Path) -> tuple[Path, Callable[..., None]]:
    """The programs of a new environment that sees the packages of this one but not the lab, and pip for it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    here, there = (
        sysconfig.get_path("purelib", vars={"base": base}) for base in (sys.prefix, str(folder))
    )
    (Path(there) / "shared.pth").write_text(f"{here}\n", encoding="utf-8")
    programs = Path(sysconfig.get_path("scripts", vars={"base": str(folder)}))

    def pip(*words: str | Path) -> None:
        alone = ("--no-deps", "--ignore-installed", "--no-build-isolation")
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                programs / "python",
                "install",
                *alone,
                *words,
            ],
            cwd=folder,
            check=True,
            capture_output=True,
        )

    return programs, pip


def test_install_with_link_to_folder_gives_command(tmp_path):
    programs, pip = new_environment(tmp_path / "venv")
    pip("-e", ROOT)
    command = [str(programs / "attention-lab"), "claims", "list", "--names"]
    assert "scaling" in subprocess.check_output(command, cwd=tmp_path, encoding="utf-8").split()
    code = "import attention_lab as lab; print(lab.ROOT)"
    printed = subprocess.check_output(
        [programs / "python", "-c", code], cwd=tmp_path, encoding="utf-8"
    )
    assert printed.strip() == str(ROOT)


# A wheel: in an environment without the lab, from a folder of a person's own.


ANYWHERE = """
import sys, importlib.util
assert not [one for one in ("core", "dashboard", "pages") if importlib.util.find_spec(one)]
import attention_lab as lab
model = lab.load_lab_model("induction")
print(lab.read(model, "the old king saw the old").trace.shape, lab.__version__)
try:
    import attention_lab.core
except ImportError as error:
    print(error)
from core import event_log, plugins
try:
    lab.Attention(64, 4)
except ValueError as error:
    print(event_log.place(error).partition(":")[0])
print(sum(one.startswith(f"{plugins.PACKAGE}.") for one in sys.modules), plugins.problems)
from streamlit.testing.v1 import AppTest
for page in ("start", "masks", "pretrained"):
    app = AppTest.from_file(lab.ROOT / "dashboard" / "app.py", default_timeout=300)
    app = app.switch_page(f"../pages/{page}.py").run()
    assert app.get("html") and not app.exception and not app.error, page
"""


@pytest.fixture(scope="module")
def from_wheel(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel, and the programs of an environment that has it and not the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    subprocess.run([sys.executable, "-m", "pip", *words, ROOT], check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    programs, pip = new_environment(folder / "venv")
    pip(wheel)
    return wheel, programs


def test_a_wheel_has_the_whole_tree_in_one_package(from_wheel):
    names = zipfile.ZipFile(from_wheel[0]).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"attention_lab"}
    parts = ["core", "dashboard", "pages", ".streamlit", "streamlit_app.py", "pyproject.toml"]
    listed = subprocess.check_output(["git", "ls-files", *parts], cwd=ROOT, encoding="utf-8")
    assert [
        one
        for one in listed.split()
        if f"attention_lab/{one}" not in names and not one.endswith("/lock")
    ] == []
    (metadata,) = [name for name in names if name.endswith("/METADATA")]
    text = zipfile.ZipFile(from_wheel[0]).read(metadata).decode()
    needed = {
        Requirement(one).name for one in re.findall(r"^Requires-Dist: ([^;\n]*)$", text, re.M)
    }
    assert needed == {one.name for one in REQUIREMENTS}
    assert "Requires-Dist: torch<3,>=2" in text, "another version of PyTorch may be there"


def test_a_wheel_reads_a_model_and_loads_plug_ins_in_any_folder(from_wheel, tmp_path):
    shutil.copytree(ROOT / "docs" / "plugins", tmp_path / "own")
    done = subprocess.run(
        [from_wheel[1] / "python", "-W", "ignore", "-c", ANYWHERE],
        cwd=tmp_path,
        env={**os.environ, "ATTENTION_LAB_PLUGINS": "own", "PYTHONPATH": ""},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.stdout.splitlines() == [
        f"(2, 4) {PROJECT['version']}",
        "After `import attention_lab`, the lab's modules are those of `core`.",
        "core/entries.py",
        f"{len([*(ROOT / 'docs' / 'plugins').glob('*.py')])} []",
    ], done.stderr


def test_a_wheel_serves_the_lab(from_wheel, tmp_path):
    command = (from_wheel[1] / "attention-lab", "run", "--server.headless=true")
    for name in ("core", "dashboard", "streamlit_app"):  # of a person's own, where it is typed
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    environment: Any = {"ATTENTION_LAB_RUNS": "runs", "PYTHONPATH": ""}
    with started(*command, run_by=(), cwd=tmp_path, **environment) as port:
        assert json.load(opened(f"http://127.0.0.1:{port}/health"))["status"] == "ok"
        assert opened(f"http://127.0.0.1:{port}/heads").headers["Content-Security-Policy"]


def test_a_worker_finds_runs_that_are_named_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_RUNS", "runs")
    monkeypatch.setattr(executor.subprocess, "Popen", lambda words, env, **other: env)
    environment: Any = executor.spawn_worker([])
    assert environment["ATTENTION_LAB_RUNS"] == str(tmp_path / "runs")


# The arithmetic of docs/scaling.md, its two tables, and the examples for containers, held against the lab's code.


COSTS = Costs(
    server_mb=500,
    session_mb=2,
    page_ms=60,
    move_ms=20,
    worker_mb=300,
    run_mb=4,
    seconds_between_pages=60,
    seconds_between_moves=5,
    training_percent=10,
    runs_per_reader=3,
    busy_percent=50,
)
DOCKERFILE = (ROOT / ".devcontainer" / "Dockerfile").read_text(encoding="utf-8")
PORT = int(re.search(r"EXPOSE (\d+)", DOCKERFILE)[1])
COMMAND = json.loads(re.search(r"^CMD (.*)", DOCKERFILE, re.M)[1])
COMPOSE = yaml.safe_load((ROOT / "docs" / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
PARTS = {
    part["kind"]: part
    for part in yaml.safe_load_all((ROOT / "docs/deploy/kubernetes.yaml").read_text("utf-8"))
}
(CONTAINER,) = PARTS["StatefulSet"]["spec"]["template"]["spec"]["containers"]


def test_by_hand_a_hundred_readers():
    # A reader takes 1 + 4 ms of a second; a hundred 0.5 cores, which one server may be busy with.
    one = need(100, COSTS)
    assert (one.servers, one.runs) == (1, 10) and one.cores == pytest.approx(0.5)
    assert one.memory_gb == pytest.approx(0.5 + 0.2 + 3.0) and one.disk_gb == pytest.approx(1.2)
    assert need(101, COSTS).servers == 2 and need(1, COSTS).servers == 1


@pytest.mark.parametrize(
    ("cost", "grows"),
    [
        ("move_ms", "cores"),
        ("page_ms", "cores"),
        ("session_mb", "memory_gb"),
        ("server_mb", "memory_gb"),
        ("worker_mb", "memory_gb"),
        ("run_mb", "disk_gb"),
        ("training_percent", "runs"),
        ("runs_per_reader", "disk_gb"),
    ],
)
def test_what_costs_more_needs_more(cost, grows):
    dearer = replace(COSTS, **{cost: 3 * getattr(COSTS, cost)})
    assert getattr(need(500, dearer), grows) > getattr(need(500, COSTS), grows)


def test_the_page_shows_what_its_costs_give():
    text = SCALING.read_text("utf-8")
    assert with_table(text) == text, "run python -m benchmarks.sizing"
    assert table(read_costs(text)).count("\n") == len(READERS) + 1
    other = with_table(
        text.replace(f"| `move_ms` | {read_costs(text).move_ms:g} |", "| `move_ms` | 4000 |")
    )
    assert other.count("\n") == text.count("\n") and other != text


def test_a_measurement_is_written_with_its_day():
    measured = {"move_ms": 60.04, "page_ms": 240.2, "run_mb": 1.26}
    text = with_costs(SCALING.read_text("utf-8"), measured, date(2027, 1, 2))
    assert (
        (costs := read_costs(text)).move_ms == 60 and costs.page_ms == 240 and costs.run_mb == 1.3
    )
    assert "sizing measure` on 2027-01-02 on" in text and "8.0 ms a second" in with_table(text)


def test_table_of_class_that_arrives_replaces_one_before():
    arrival = Arrival(30, 120, 300, 0, 0.5, 1.5, 0.1, 0.94, 0.962, 0.4)
    text = with_arrival(SCALING.read_text("utf-8"), arrival, date(2027, 1, 2))
    assert (
        arrival.markdown() in text
        and "2027-01-02" in text
        and "95 % of the moves under 1 s, is reached" in text
    )
    again = with_arrival(text, replace(arrival, in_time=0.94), date(2027, 1, 3))
    assert (
        "is not reached" in again
        and "2027-01-02" not in again
        and again.count("A class that arrives") == 1
    )


def test_the_settings_of_the_examples_are_read_by_the_lab():
    files = [path for folder in ("core", "dashboard") for path in (ROOT / folder).rglob("*.py")]
    code = "".join(path.read_text("utf-8") for path in files) + inspect.getsource(uvicorn.config)
    given = {*COMPOSE["services"]["lab"]["environment"], *(one["name"] for one in CONTAINER["env"])}
    assert len(given) >= 4 and not [
        name
        for name in given
        if f'"{name}"' not in code
        and name.removeprefix(PREFIX).lower() not in {field.name for field in fields(LabSettings)}
    ]


def test_the_compose_example_starts_the_image_on_its_port():
    lab = COMPOSE["services"]["lab"]
    assert lab["ports"] == [f"{PORT}:{PORT}"] and lab["init"]
    folder = ROOT / "docs" / "deploy"
    assert (folder / lab["build"]["context"] / lab["build"]["dockerfile"]).exists()
    assert f":{PORT}{health.PATH}" in " ".join(lab["healthcheck"]["test"])
    volume, _, place = lab["volumes"][0].partition(":")
    assert volume in COMPOSE["volumes"] and place == home()


def home() -> str:
    """The folder that holds runs and models, as docs/deploy.md mounts it and the image's user has it."""
    mounted = re.search(
        r"-v attention-lab:(\S+)", (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    )[1]
    assert f"useradd --create-home {Path(mounted).name}" in DOCKERFILE
    return mounted


def test_the_servers_of_kubernetes_run_the_images_command():
    assert CONTAINER["args"][: len(COMMAND)] == COMMAND
    for option in CONTAINER["args"][len(COMMAND) :]:
        assert config.get_option(option.removeprefix("--").partition("=")[0]) is not None
    assert CONTAINER["ports"] == [{"containerPort": PORT}]
    probes = {
        kind: CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    }
    assert {probe["port"] for probe in probes.values()} == {PORT}
    assert (
        probes["readiness"]["path"] == health.PATH
        and probes["liveness"]["path"] == "/_stcore/health"
    )
    assert {probe["path"] for probe in probes.values()} <= set(visitors.PROBES), (
        "whatever hosts are allowed"
    )
    assert CONTAINER["volumeMounts"] == [{"name": "home", "mountPath": home()}]


def test_reader_comes_back_to_server_that_has_their_runs():
    servers, service = PARTS["StatefulSet"]["spec"], PARTS["Service"]["spec"]
    ingress = PARTS["Ingress"]
    assert (
        servers["replicas"] > 1 and servers["volumeClaimTemplates"][0]["metadata"]["name"] == "home"
    )
    assert (
        servers["template"]["metadata"]["labels"]
        == servers["selector"]["matchLabels"]
        == service["selector"]
    )
    assert service["sessionAffinity"] == "ClientIP" and service["ports"][0]["targetPort"] == PORT
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/affinity"] == "cookie"
    (rule,) = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend == {
        "name": PARTS["Service"]["metadata"]["name"],
        "port": {"number": service["ports"][0]["port"]},
    }
    assert f"--server.allowedHosts={rule['host']}" in shlex.join(CONTAINER["args"])


# constraints.txt: one version of every package, for every platform, and the one that the tests run with.


EXTRAS = {
    name: [*map(Requirement, lines)] for name, lines in PROJECT["optional-dependencies"].items()
}
MODELS = [*map(Requirement, PYPROJECT["dependency-groups"]["models"])]
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
    for platform, system, machine in (
        ("linux", "Linux", "x86_64"),
        ("darwin", "Darwin", "arm64"),
        ("win32", "Windows", "AMD64"),
    )
    for minor in (11, 12, 13)
]


def lines_of(name: str) -> list[str]:
    lines = (
        line.partition("#")[0].strip() for line in (ROOT / name).read_text("utf-8").splitlines()
    )
    return [line for line in lines if line]


CONSTRAINTS = [Requirement(line) for line in lines_of("constraints.txt")]
# What the models of other packages need beside these, in an environment of their own.
BESIDE = [Requirement(line) for line in lines_of("tests/constraints-models.txt")]
REQUIREMENTS = [
    Requirement(line) for line in lines_of("requirements.txt") if not line.startswith("-")
]


def pinned(environment: Mapping[str, Any]) -> dict[str, str]:
    """The versions that constraints.txt and tests/constraints-models.txt pin in an environment, by package."""
    return {
        canonicalize_name(one.name): next(iter(one.specifier)).version
        for one in CONSTRAINTS + BESIDE
        if one.marker is None or one.marker.evaluate(environment)
    }


@cache
def required_by(package: str) -> list[Requirement]:
    """What an installed package requires; nothing of one that is not installed."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return [*map(Requirement, importlib.metadata.distribution(package).requires or ())]
    return []


def needs(environment: Mapping[str, Any]) -> Iterator[tuple[Requirement, str]]:
    """What follows from requirements.txt, dev and models, as far as packages are installed, and whose requirement it is."""
    waiting = [
        *((one, "requirements.txt") for one in REQUIREMENTS),
        *((one, "dev") for one in EXTRAS["dev"]),
        *((one, "models") for one in MODELS),
    ]
    seen = set()
    while waiting:
        package, whose = waiting.pop()
        if canonicalize_name(package.name) == PROJECT["name"]:
            waiting += [(one, extra) for extra in package.extras for one in EXTRAS[extra]]
            continue
        yield package, whose
        if (key := (canonicalize_name(package.name), frozenset(package.extras))) not in seen:
            seen.add(key)
            waiting += [
                (one, package.name)
                for one in required_by(package.name)
                if one.marker is None
                or any(
                    one.marker.evaluate({**environment, "extra": extra})
                    for extra in ("", *package.extras)
                )
            ]


def test_requirements_name_the_constraints():
    assert lines_of("requirements.txt")[0] == "-c constraints.txt"
    assert lines_of("dashboard/requirements.txt")[-1] == "-r ../requirements.txt"
    # A requirement that needs CUDA itself would add several GB to every plain install.
    other = re.compile("nvidia|torchvision|torchaudio|triton|cuda")
    assert not [one for one in REQUIREMENTS if other.search(one.name) or "+cu" in str(one)]


def test_nothing_says_to_install_the_lab_from_an_index():
    # It is on none, where its name may be another's; pip takes a folder or a wheel.
    files = [one for part in ("core", "dashboard", "pages") for one in (ROOT / part).rglob("*.py")]
    texts = {one: one.read_text("utf-8") for one in [*files, *(ROOT / "docs").glob("[a-z]*.md")]}
    assert not [one for one, text in texts.items() if re.search(r"install \W*attention-lab", text)]


def test_every_constraint_is_one_version():
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in CONSTRAINTS + BESIDE), (
        "no ranges, no local versions"
    )
    names, beside = (
        [canonicalize_name(one.name) for one in file] for file in (CONSTRAINTS, BESIDE)
    )
    assert names == sorted(set(names)) and beside == sorted(set(beside) - set(names))


@each("file", ["requirements.txt", "models", *EXTRAS])
def test_what_is_named_has_the_version_of_the_constraints(file):
    named = {**EXTRAS, "requirements.txt": REQUIREMENTS, "models": MODELS}[file]
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
        f"{whose} needs {package}"
        for package, whose in needs(environment)
        if (whose, package.name) != ("litgpt", "huggingface-hub")  # which it reads well without
        and (
            (version := versions.get(canonicalize_name(package.name))) is None
            or not package.specifier.contains(version, prereleases=True)
        )
    ]
    assert not missing and len(versions) > 200, "run make lock"


def test_what_is_installed_is_what_is_pinned():
    here = default_environment()
    # As an import finds them, the first of a name: setuptools puts copies of its own at the end of the path.
    versions, packages = pinned(here), reversed([*importlib.metadata.distributions()])
    installed = {canonicalize_name(one.name): one.version.partition("+")[0] for one in packages}
    names = {canonicalize_name(package.name) for package, _ in needs(here)} & installed.keys()
    assert {name: installed[name] for name in names} == {name: versions.get(name) for name in names}


def test_workflows_may_only_read_name_actions():
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
    # A page of a fresh install is opened every day.
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
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(f"{stem}.dist-info/{file}", text)
    links = [
        f'<a href="{one.name.replace("+", "%2B")}">{one.name}</a>'
        for one in sorted(folder.glob("*.whl"))
    ]
    (folder / "index.html").write_text(
        f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>", "utf-8"
    )


@pytest.fixture
def checkout(tmp_path):
    """The lab's own file of the CPU build beside two requirements, and the addresses of servers for PyPI's and PyTorch's."""
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
    text = (ROOT / "dashboard" / "requirements.txt").read_text("utf-8")
    assert WHEELS in text
    files = {
        "dashboard/requirements.txt": text.replace(WHEELS, f"{address}/whl/cpu"),
        "requirements.txt": f"-c constraints.txt\ntorch=={PINS['torch']}\nnumpy\n",
        "constraints.txt": "".join(f"{name}=={version}\n" for name, version in PINS.items()),
    }
    (tmp_path / "lab" / "dashboard").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "lab" / name).write_text(content, "utf-8")
    yield tmp_path / "lab", f"{address}/pypi/", f"{address}/whl/cpu"
    server.shutdown()
    server.server_close()


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
        timeout=PATIENCE,
    )


def by_uv(folder: Path, file: str, index: str) -> subprocess.CompletedProcess:
    here = Path(sys.executable).parent
    if (uv := shutil.which("uv", path=f"{here}{os.pathsep}{os.environ['PATH']}")) is None:
        pytest.skip("uv is not installed; it is in the extra dev")
    words = ("pip", "compile", "--no-header", "--no-annotate", "--default-index", index, file)
    return run([uv, *words], folder)


@pytest.mark.parametrize(
    "file, torch",
    [
        ("dashboard/requirements.txt", [f"torch=={PINS['torch']}+cpu"]),
        (
            "requirements.txt",
            [f"nvidia-cublas=={PINS['nvidia-cublas']}", f"torch=={PINS['torch']}"],
        ),
    ],
)
def test_uv_takes_the_pinned_versions(file, torch, checkout):
    folder, pypi, _ = checkout
    done = by_uv(folder, file, pypi)
    chosen = [line for line in done.stdout.splitlines() if "==" in line]
    assert chosen == [f"numpy=={PINS['numpy']}", *torch], done.stderr


def test_pip_takes_the_cpu_build_and_the_pinned_versions(checkout):
    folder, pypi, _ = checkout
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--ignore-installed"]
    words = ["--quiet", "--report", "-", "--index-url", pypi, "-r", "dashboard/requirements.txt"]
    done = run([*pip, *words], folder)
    assert done.returncode == 0, done.stderr
    chosen = [one["metadata"] for one in json.loads(done.stdout)["install"]]
    assert {one["name"]: one["version"] for one in chosen} == {
        "numpy": PINS["numpy"],
        "torch": f"{PINS['torch']}+cpu",
    }


def test_the_whole_index_of_pytorch_would_fail_by_uv(checkout):
    folder, pypi, pytorch = checkout
    whole = f"--extra-index-url {pytorch}\n-r ../requirements.txt\n"
    (folder / "dashboard" / "requirements.txt").write_text(whole, "utf-8")
    done = by_uv(folder, "dashboard/requirements.txt", pypi)
    assert done.returncode and f"numpy=={PINS['numpy']}" in done.stderr


# Which Python: those that are tested, which the Makefile lists alone, and the newest of them that runs.


PYTHONS = re.search("^PYTHONS := (.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)[1]


def test_pythons_that_are_named_are_those_that_are_tested():
    newest, *_, oldest = tested = PYTHONS.split()
    classifiers = [one.rpartition(" ")[2] for one in PROJECT["classifiers"]]
    assert classifiers == tested[::-1] and PROJECT["requires-python"] == f">={oldest}"
    named = f"Python {', '.join(classifiers[:-1])} or {newest}"
    for file in ("README.md", "docs/install.md", "docs/deploy.md", ".ci/run"):
        assert named in (ROOT / file).read_text(encoding="utf-8"), file
    for file in ("test.yml", "weather.yml"):
        jobs = yaml.safe_load((ROOT / ".github" / "workflows" / file).read_text("utf-8"))["jobs"]
        several = [job["strategy"] for job in jobs.values() if "strategy" in job]
        rows = [one["matrix"].get("python", classifiers) for one in several]
        assert all(row == classifiers for row in rows), file


def make(folder: Path, *words: str, **runs: str) -> str:
    """What make says and would do, where these commands are on the path, each a script of the shell."""
    tools = folder / "tools"
    tools.mkdir()
    for name, text in runs.items():
        tool = tools / name
        tool.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        tool.chmod(0o755)
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "PYTHON"))}
    done = subprocess.run(
        ["make", *words],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={**plain, "PATH": f"{tools}:{plain['PATH']}"},
        timeout=PATIENCE,
    )
    return done.stdout + done.stderr


SHIM, REFUSES = "echo 1", "exit 127"  # a command that runs, and one that is there and does not


@pytest.mark.parametrize(
    "runs, chosen",
    [
        ({"python3.13": SHIM, "python3.12": SHIM, "python3.11": SHIM}, "python3.13"),
        ({"python3.13": REFUSES, "python3.12": SHIM, "python3.11": SHIM}, "python3.12"),
        ({"python3.13": REFUSES, "python3.12": REFUSES, "python3.11": SHIM}, "python3.11"),
        (dict.fromkeys(("python3.13", "python3.12", "python3.11"), REFUSES), "python3"),
    ],
)
def test_make_takes_the_newest_tested_python_that_runs(runs, chosen, tmp_path):
    said = make(tmp_path, "-n", "run", f"VENV={tmp_path}/v", **runs)
    assert f"\n{chosen} -m venv {tmp_path}/v" in said


def test_make_keeps_an_environment_that_is_there(tmp_path):
    (tmp_path / "v" / "bin").mkdir(parents=True)
    (tmp_path / "v" / "bin" / "python").touch()
    said = make(tmp_path, "-n", "run", f"VENV={tmp_path}/v", **{"python3.13": SHIM})
    assert "streamlit run" in said and "-m venv" not in said


@pytest.mark.parametrize(
    "version, says, makes",
    [
        ("3.10.9", "Python 3.11 or newer is needed; this is 3.10.9.", False),
        ("3.14.1", "Python 3.14.1 is newer than those that the lab is tested on", True),
        ("3.12.4", "", True),
    ],
)
def test_make_says_that_a_python_is_too_old_or_newer(version, says, makes, tmp_path):
    info = tuple(map(int, version.split(".")))
    other = f"import sys; sys.version_info, sys.version = {info}, '{version} x'; exec(sys.argv[1])"
    tool = (
        f'test "$1" = -m && echo made >> {tmp_path}/made || exec {sys.executable} -c "{other}" "$2"'
    )
    target = f"{tmp_path}/v/bin/python"
    said = make(tmp_path, target, f"VENV={tmp_path}/v", "PYTHON=other", other=tool)
    assert says in said and ("newer" in said) == bool(says)
    assert (tmp_path / "made").exists() == makes


def test_weather_says_which_python_it_did_not_find(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3.99").write_text(f"#!/bin/sh\n{REFUSES}\n", encoding="utf-8")
    (tools / "python3.99").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tests.weather", "3.98-cpu", "3.99-default"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and done.stdout.splitlines() == [
        "3.98-cpu: left out, no python3.98 runs here",
        "3.99-default: left out, no python3.99 runs here",
    ]


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
    # With tools that only write down how they were called; those whose call holds `fails` end in 1.
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
            timeout=PATIENCE,
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
