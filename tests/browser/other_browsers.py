"""Firefox and WebKit as Debian ships them, driven by the standards: WebDriver BiDi and WebDriver.

Playwright drives only builds of its own, which no package registry has.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.browser.helpers import ending, free_port

KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
SIZE = {"width": 1280, "height": 900}
LONG = 60  # seconds that an answer may take on a busy machine


class OtherBrowser(ABC):
    @abstractmethod
    def goto(self, url: str) -> None: ...

    @abstractmethod
    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript, by way of JSON."""

    @abstractmethod
    def act(self, actions: list[dict]) -> None:
        """Input in the form of W3C actions."""

    def press(self, *keys: str) -> None:
        for key in keys:
            value = KEYS.get(key, key)
            self.act(
                [
                    {
                        "type": "key",
                        "id": "keys",
                        "actions": [
                            {"type": kind, "value": value} for kind in ("keyDown", "keyUp")
                        ],
                    }
                ]
            )

    def click(self, x: float, y: float) -> None:
        self.act(
            [
                {
                    "type": "pointer",
                    "id": "mouse",
                    "actions": [
                        {"type": "pointerMove", "x": round(x), "y": round(y), "origin": "viewport"},
                        {"type": "pointerDown", "button": 0},
                        {"type": "pointerUp", "button": 0},
                    ],
                }
            ]
        )

    def wait(self, expression: str, seconds: float = LONG) -> Any:
        end = time.time() + seconds
        while not (value := self.run(expression)):
            assert time.time() < end, (
                f"never true: {expression}\n{self.run('document.body.innerText.slice(-2000)')}"
            )
            time.sleep(0.1)
        return value


class Firefox(OtherBrowser):
    def __init__(self, address: str) -> None:
        self._socket = connect(f"{address}/session", max_size=None, open_timeout=LONG)
        self._numbers = count(1)
        self._send("session.new", capabilities={})
        self._tab = self._send("browsingContext.getTree")["contexts"][0]["context"]
        self._send("browsingContext.setViewport", context=self._tab, viewport=SIZE)

    def _send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(self._socket.recv(timeout=LONG))).get("id") != number:
            pass  # an event
        assert answer["type"] == "success", answer
        return answer["result"]

    def goto(self, url: str) -> None:
        self._send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def run(self, expression: str) -> Any:
        answer = self._send(
            "script.evaluate",
            expression=f"JSON.stringify({expression})",
            awaitPromise=True,
            target={"context": self._tab},
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))

    def act(self, actions: list[dict]) -> None:
        self._send("input.performActions", context=self._tab, actions=actions)


class WebKit(OtherBrowser):
    def __init__(self, address: str) -> None:
        session = self._post(f"{address}/session", capabilities={})["sessionId"]
        self._session = f"{address}/session/{session}"
        self._post(f"{self._session}/window/rect", **SIZE)

    def _post(self, address: str, /, **body: Any) -> Any:
        request = urllib.request.Request(
            address, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            return json.load(answer)["value"]

    def goto(self, url: str) -> None:
        self._post(f"{self._session}/url", url=url)

    def run(self, expression: str) -> Any:
        text = self._post(
            f"{self._session}/execute/sync", script=f"return JSON.stringify({expression})", args=[]
        )
        return json.loads(text or "null")

    def act(self, actions: list[dict]) -> None:
        self._post(f"{self._session}/actions", actions=actions)


@contextlib.contextmanager
def _process(*command: str, **options: Any) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(command, encoding="utf-8", **options)
    with ending(process):
        yield process


@contextlib.contextmanager
def open_firefox(folder: Path) -> Iterator[OtherBrowser]:
    """A headless Firefox with a new profile in the folder."""
    profile = folder / "profile"
    profile.mkdir()
    with _process(
        "firefox-esr",
        "--headless",
        "--remote-debugging-port=0",
        "--profile",
        str(profile),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as firefox:
        lines = iter(firefox.stderr.readline, "")
        yield Firefox(
            next(line.split()[-1] for line in lines if "WebDriver BiDi listening on" in line)
        )


@contextlib.contextmanager
def open_webkit(folder: Path) -> Iterator[OtherBrowser]:
    """WebKitGTK's own small browser on a virtual screen."""
    from tests.cases import wait_for  # which imports PyTorch

    with _process(
        "Xvfb",
        "-displayfd",
        "1",
        "-screen",
        "0",
        "1400x1000x24",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as screen:
        env = {
            **os.environ,
            "DISPLAY": f":{screen.stdout.readline().strip()}",
            "HOME": str(folder),
            "LIBGL_ALWAYS_SOFTWARE": "1",
        }
        port = free_port()
        with _process("WebKitWebDriver", f"--port={port}", env=env):
            wait_for(lambda: _answers(port))
            yield WebKit(f"http://127.0.0.1:{port}")


def _answers(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


OPENERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[OtherBrowser]]] = {
    "Firefox": open_firefox,
    "WebKit": open_webkit,
}
PROGRAMS = {"Firefox": ("firefox-esr",), "WebKit": ("WebKitWebDriver", "Xvfb")}


def installed(name: str) -> bool:
    return all(map(shutil.which, PROGRAMS[name]))
