"""The real server and a real browser, one of each for all browser tests."""

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.helpers import (
    assert_no_exception,
    ending,
    free_port,
    save_screenshot,
)
from tests.browser.other_browsers import OPENERS, installed

ROOT = Path(__file__).resolve().parents[2]
# Without these Chromium asks for hosts of its own at each start, and as root it needs --no-sandbox.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A page of a test lives for seconds: optimizing its code takes a sixth of Chromium's time and saves less.
UNOPTIMIZED = "--js-flags=--no-turbofan --no-maglev"

expect.set_options(timeout=60_000)  # a small machine that does other things too


@dataclass(frozen=True)
class Server:
    url: str
    runs: Path
    log: Path


APP = ROOT / "streamlit_app.py"


def start_server(folder: Path, script: Path = APP) -> tuple[subprocess.Popen, Server]:
    """Starts `streamlit run` on a free loopback port and waits until it answers."""
    from tests.cases import wait_for  # which imports PyTorch

    port, runs, log = free_port(), folder / "runs", folder / "server.log"
    runs.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(script),
        "--server.port",
        str(port),
        "--server.address",
        "127.0.0.1",
        "--server.headless",
        "true",
    ]
    env = {"HF_HUB_OFFLINE": "1", **os.environ, "ATTENTION_LAB_RUNS": str(runs)}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return process.poll() is not None

    wait_for(answers)
    assert process.poll() is None, log.read_text("utf-8")
    return process, Server(url, runs, log)


@contextmanager
def running(folder: Path, script: Path = APP) -> Iterator[Server]:
    process, server = start_server(folder, script)
    with ending(process):
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def demos(tmp_path_factory) -> Iterator[Server]:
    """A server of the components alone, for tests that need nothing of the app itself."""
    with running(
        tmp_path_factory.mktemp("demos"), Path(__file__).with_name("demo_app.py")
    ) as server:
        yield server


@contextmanager
def open_browser(*more: str) -> Iterator[Browser]:
    """The machine's Chromium, else the one Playwright brought; the shell has no window of its own to draw.

    `more` are flags beside those that any machine needs.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    executable = next((path for name in names if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*FLAGS, *more])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with open_browser(UNOPTIMIZED) as browser:
        yield browser


@pytest.fixture
def width() -> int:
    """Override by parametrizing: 390 is a phone."""
    return 1280


@pytest.fixture
def scheme() -> str:
    """Override by parametrizing: "light" or "dark"."""
    return "light"


@pytest.fixture(scope="session")
def tabs(browser: Browser) -> dict[str, Page]:
    """One tab per server, by its address. A new one would fetch and compile Streamlit's bundle: 2 s of a core."""
    return {}


@pytest.fixture
def page(
    browser: Browser, server: Server, tabs: dict[str, Page], width: int, scheme: str, request
) -> Iterator[Page]:
    """The server's tab, emptied; its base address is the server's. A traceback on the page fails the test, and what its
    policy of content blocks."""
    if server.url not in tabs:
        context = browser.new_context(base_url=server.url)
        context.set_default_timeout(60_000)
        tabs[server.url] = context.new_page()
    page = tabs[server.url]
    page.set_viewport_size({"width": width, "height": 900})
    # what moves is drawn sixty times a second
    page.emulate_media(
        color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce"
    )
    blocked: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            blocked.append(message.text)

    page.on("console", note)
    yield page
    page.remove_listener("console", note)
    try:
        assert_no_exception(page)
        assert not blocked
    except AssertionError:
        request.node.failed = True
        raise
    finally:
        failed = getattr(request.node, "failed", False)
        # for a person to look at: one takes up to a second
        if failed or "ATTENTION_LAB_SHOTS" in os.environ:
            save_screenshot(page, request.node.name)
        if failed:
            tabs.pop(server.url).context.close()
        else:
            clear(page)


def clear(page: Page) -> None:
    """Leaves nothing for the next test: no other tab, no storage, the pointer in the corner."""
    for other in page.context.pages:
        if other != page:
            other.close()
    page.mouse.move(0, 0)
    if page.url != "about:blank":
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
    page.context.clear_cookies()
    page.goto("about:blank")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    earlier = call.when != "setup" and getattr(item, "failed", False)  # not that of the run before
    item.failed = earlier or report.failed
    return report


def pytest_terminal_summary(terminalreporter):
    ids = [
        report.nodeid
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, ())
    ]
    ran = {name: any(f"[{name}]" in one for one in ids) for name in OPENERS}
    ran["Chromium"] = any("/browser/" in one and "test_other_browsers" not in one for one in ids)
    missing = [name for name in OPENERS if not installed(name)]
    line = f"Browsers that ran: {', '.join(sorted(name for name in ran if ran[name])) or 'none'}."
    terminalreporter.write_line(
        line + (f" Not on this machine: {', '.join(missing)}." if missing else "")
    )
