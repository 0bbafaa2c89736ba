"""What docs/deploy.md and the citation promise: the image's parts are there and its command serves the lab."""

import inspect
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from datetime import date
from pathlib import Path

import pytest
import uvicorn.config
import yaml
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
from core.settings import PREFIX, LabSettings
from dashboard.server import health, http_guard
from dashboard.server.hosting import NO_SERVER
from dashboard.server.http_guard import UNKNOWN_NAME
from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]
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


def test_the_command_of_the_image_serves_the_lab_and_its_health_check_sees_it(tmp_path):
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
        assert subprocess.run([sys.executable, *check[1:]], timeout=60).returncode == 0
        assert not sys.platform.startswith("linux") or reachable(port, "127.0.0.9"), (
            "from outside of the container"
        )
        page, health, metrics = (
            urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60)
            for path in (f"heads?text={secret}", "health", "_stcore/metrics")
        )
        state, text = json.load(health), metrics.read().decode()
        assert state["status"] == "ok" and state["queue"] == 0
        assert "active_sessions" in text and re.search(
            r'lab_memory_pss_bytes{process="server"} [1-9]\d{7}', text
        )
        assert (
            page.headers["X-Content-Type-Options"] == "nosniff"
            and page.headers["Content-Security-Policy"]
        )
    assert (
        subprocess.run([sys.executable, *check[1:]], timeout=60, capture_output=True).returncode
        != 0
    )
    lines = log.read_text(encoding="utf-8").splitlines()
    welcome = [line.startswith("{") for line in lines].index(
        True
    )  # Streamlit's, before it loads the app
    events = [json.loads(line)["event"] for line in lines[welcome:]]
    assert {"start", "request", "end"} <= set(events) and not [
        line for line in lines if secret in line
    ]


OPTION = re.compile(r"--(?:server|runner|client|global|browser|logger)\.\w+|STREAMLIT_[A-Z_]+")


def test_the_servers_of_tests_and_benchmarks_differ_from_make_runs_in_their_address_alone():
    folders = ["tests", "benchmarks", "Makefile", ".github", ".ci"]
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    names = listed.stdout.split()
    given = {
        name: set(OPTION.findall((ROOT / name).read_text("utf-8")))
        for name in names
        if name.endswith((".py", ".yml", ".yaml", "Makefile", ".sh", "browser"))
    }
    allowed = {
        "--server.port",
        "--server.address",
        "--server.headless",
        "--server.allowedHosts",
    }  # of the examples
    assert {name: options - allowed for name, options in given.items() if options - allowed} == {}
    assert "--server.port" in given["tests/browser/conftest.py"]
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["fileWatcherType"] == "none", (
        "a watcher holds up every session whenever one begins"
    )


def reachable(port: int, address: str) -> bool:
    with socket.socket() as reader:
        return reader.connect_ex((address, port)) == 0


@contextmanager
def started(*command: str, log: Path = Path(os.devnull), **environment: str) -> Iterator[int]:
    """The port of a server that a command starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, f"--server.port={port}"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=out,
            stderr=out,
        )
    try:
        # Until the server answers.
        for _ in range(600):
            with suppress(urllib.error.URLError, TimeoutError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5)
                break
            assert server.poll() is None
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(timeout=20)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs Linux's addresses 127.0.0.x"
)
@pytest.mark.parametrize(
    "command",
    [
        ("streamlit", "run", "--server.headless=true"),
        ("dashboard", "run", "--server.headless=true"),
    ],
)
def test_a_lab_at_home_listens_on_its_own_computer_and_refuses_foreign_names(command):
    with started(*command) as port:
        assert not reachable(port, "127.0.0.9"), "only the address of localhost"
        stream = f"ws://127.0.0.1:{port}/_stcore/stream"
        with connect(stream, subprotocols=[Subprotocol("streamlit")], proxy=None):
            pass
        foreign = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
        page = urllib.request.Request(f"http://127.0.0.1:{port}/heads", headers=foreign)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(page, timeout=60)
        assert refused.value.code == 421 and refused.value.read().decode() == UNKNOWN_NAME
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
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


@each("hosted", ["1", ""])
def test_the_main_file_on_community_cloud_serves_the_lab_to_others(hosted, tmp_path):
    (main,) = re.findall(r"Main file path: `(.+?)`", TEXT)
    environment = {"ATTENTION_LAB_HOSTED": hosted, "ATTENTION_LAB_RUNS": str(tmp_path)}
    with started("streamlit", "run", main, "--server.headless=true", **environment) as port:
        address = (
            "127.0.0.9" if sys.platform.startswith("linux") else "127.0.0.1"
        )  # a proxy of another machine
        asked = urllib.request.Request(
            f"http://{address}:{port}/", headers={"Host": "my-lab.streamlit.app"}
        )
        page = urllib.request.urlopen(asked, timeout=60)
        assert page.headers["Content-Security-Policy"]
        assert ("HttpOnly" in page.headers.get("Set-Cookie", "")) == bool(hosted), (
            "strangers are kept apart"
        )
        assert (
            json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60))[
                "status"
            ]
            == "ok"
        )


@each("main, hosted", [("app.py", True), ("cloud.py", True), ("cloud.py", False)])
def test_a_main_file_that_something_else_runs_has_its_pages_but_is_no_public_copy(
    main, hosted, tmp_path
):
    """In a process of its own: the switch is taken once."""
    code = (
        "from streamlit.testing.v1 import AppTest; import streamlit.runtime as runtime; "
        f"runtime.exists = lambda: True; app = AppTest.from_file('dashboard/{main}', default_timeout=60).run(); "
        "print(len(app.exception), bool(app.get('html')), *[error.value for error in app.error])"
    )
    env = {
        **os.environ,
        "ATTENTION_LAB_HOSTED": "1" if hosted else "",
        "ATTENTION_LAB_RUNS": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    printed = done.stdout.strip()
    assert printed == (f"0 False {NO_SERVER}" if hosted else "0 True"), printed + done.stderr


def test_the_commands_of_the_page_name_what_is_there():
    (build,) = re.findall(r"docker build .*", TEXT)
    assert shlex.split(build)[-1] == "." and (ROOT / shlex.split(build)[3]).exists()
    (main,) = re.findall(r"Main file path: `(.+?)`", TEXT)
    assert (ROOT / main).exists() and "whl/cpu" in (ROOT / main).with_name(
        "requirements.txt"
    ).read_text("utf-8")
    for option in re.findall(r"`--(server\.\w+)", TEXT):
        config.get_option(option)


def test_the_citation_is_valid_and_of_this_version():
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_the_changelog_begins_with_this_version_and_dates_the_others():
    headings = re.findall(
        r"^## (.*)$", (ROOT / "docs" / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.match(rf"{re.escape(version)}\b.* \((in progress|\d{{4}}-\d\d-\d\d)\)$", headings[0])
    assert not [one for one in headings[1:] if not re.search(r" \(\d{4}-\d\d-\d\d\)$", one)]


def test_an_install_with_a_link_to_the_folder_gives_the_command_and_another_is_refused(tmp_path):
    """Into a new environment that sees the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    here, there = (
        sysconfig.get_path("purelib", vars={"base": base})
        for base in (sys.prefix, str(tmp_path / "venv"))
    )
    (Path(there) / "shared.pth").write_text(f"{here}\n", encoding="utf-8")
    programs = Path(sysconfig.get_path("scripts", vars={"base": str(tmp_path / "venv")}))

    def pip(*words: str | Path) -> subprocess.CompletedProcess:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                programs / "python",
                "install",
                "--no-deps",
                "--no-build-isolation",
                *words,
            ],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
        )

    refused = pip(ROOT)
    assert (
        refused.returncode
        and "pip install -r requirements.txt -e ." in refused.stdout + refused.stderr
    )
    assert not (programs / "attention-lab").exists()
    done = pip("-e", ROOT)
    assert done.returncode == 0, done.stderr
    env = {**os.environ, "ATTENTION_LAB_RUNS": str(tmp_path / "runs")}
    listed = subprocess.run(
        [programs / "attention-lab", "claims", "list", "--names"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        encoding="utf-8",
    )
    assert listed.returncode == 0 and "scaling" in listed.stdout.split(), listed.stderr


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
KUBERNETES = (ROOT / "docs" / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
PARTS = {part["kind"]: part for part in yaml.safe_load_all(KUBERNETES)}
(CONTAINER,) = PARTS["StatefulSet"]["spec"]["template"]["spec"]["containers"]


def test_by_hand_a_hundred_readers():
    """A reader takes 1 + 4 ms of a second; a hundred 0.5 cores, which one server may be busy with."""
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


def test_a_measurement_is_written_with_its_day_and_what_follows():
    measured = {"move_ms": 60.04, "page_ms": 240.2, "run_mb": 1.26}
    text = with_costs(SCALING.read_text("utf-8"), measured, date(2027, 1, 2))
    assert (
        (costs := read_costs(text)).move_ms == 60 and costs.page_ms == 240 and costs.run_mb == 1.3
    )
    assert "sizing measure` on 2027-01-02 on" in text and "8.0 ms a second" in with_table(text)


def test_the_table_of_a_class_that_arrives_replaces_the_one_before():
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


def test_the_servers_of_kubernetes_run_the_images_command_and_answer_their_probes():
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
    assert {probe["path"] for probe in probes.values()} <= set(http_guard.PROBES), (
        "whatever hosts are allowed"
    )
    assert CONTAINER["volumeMounts"] == [{"name": "home", "mountPath": home()}]


def test_a_reader_comes_back_to_the_server_that_has_their_runs():
    servers, service, ingress = (
        PARTS["StatefulSet"]["spec"],
        PARTS["Service"]["spec"],
        PARTS["Ingress"],
    )
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
