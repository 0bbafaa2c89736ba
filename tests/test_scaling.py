"""The arithmetic of docs/scaling.md, its two tables, and the examples for containers, held against the lab's code."""

import inspect
import json
import re
import shlex
from dataclasses import fields, replace
from datetime import date
from pathlib import Path

import pytest
import uvicorn.config
import yaml
from streamlit import config

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

ROOT = Path(__file__).resolve().parents[1]
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
TEXT = (ROOT / "docs" / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
PARTS = {part["kind"]: part for part in yaml.safe_load_all(TEXT)}
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
    slow = replace(arrival, in_time=0.94)
    again = with_arrival(text, slow, date(2027, 1, 3))
    assert (
        "is not reached" in again
        and "2027-01-02" not in again
        and again.count("A class that arrives") == 1
    )


SETTINGS = {field.name for field in fields(LabSettings)}


def environment() -> set[str]:
    return {*COMPOSE["services"]["lab"]["environment"], *(one["name"] for one in CONTAINER["env"])}


def test_the_settings_of_the_examples_are_read_by_the_lab():
    files = [path for folder in ("core", "dashboard") for path in (ROOT / folder).rglob("*.py")]
    code = "".join(path.read_text("utf-8") for path in files) + inspect.getsource(uvicorn.config)
    assert len(environment()) >= 4 and not [
        name
        for name in environment()
        if f'"{name}"' not in code and name.removeprefix(PREFIX).lower() not in SETTINGS
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
