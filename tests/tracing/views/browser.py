"""A headless Chromium, driven over the DevTools protocol through two pipes: no package, no port.

    --remote-debugging-pipe    it reads commands from descriptor 3 and writes answers and events to 4, as JSON with a
                               NUL after each; it ends when the pipe closes, so it cannot outlive the tests

One page serves all tests, one after the other: each further page would be a further process to wait for.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run", "--mute-audio",
    "--no-default-browser-check", "--disable-extensions", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    # No process is started ahead for the next page, and none kept for the previous one.
    "--disable-features=SpareRendererForSitePerProcess,BackForwardCache,Translate,MediaRouter,OptimizationHints",
)  # fmt: skip
PATIENCE = 30.0  # s for one answer, on a busy machine


def find() -> str | None:
    """The browser's program, None if none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """A command failed, or had no answer in time."""


class Browser:
    """One browser process. `with` starts it, and ends it, whatever happens."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program, self._directory = program, directory
        self._answers: dict[int, dict[str, Any]] = {}
        self._calls, self._rest = 0, b""
        self.page = Page(self)

    def __enter__(self) -> Browser:
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        # Numbers above 3 and 4, which are overwritten below.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (read, write)]
        os.close(read)
        os.close(write)

        def place() -> None:
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        with (self._directory / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, *FLAGS, f"--user-data-dir={self._directory / 'profile'}", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(3, 4), preexec_fn=place,
                start_new_session=True,
            )  # fmt: skip
        for fd in theirs:
            os.close(fd)
        self.page.begin(self._directory / "first.html")
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # its own group: only it and its helpers
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of one command. BrowserError: it failed, or took too long."""
        self._calls += 1
        number = self._calls
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + PATIENCE
        while number not in self._answers:
            self.receive(end, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def receive(self, end: float, what: str) -> None:
        """Read what comes next: answers, and events of pages."""
        if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
            raise BrowserError(f"no answer to {what} in time")
        data = os.read(self._read, 1 << 20)
        if not data:
            raise BrowserError("the browser has ended: see chromium.log in its directory")
        *messages, self._rest = (self._rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") == self.page.session:
                self.page.take(message["method"], message["params"])


class Page:
    """The page: what it shows, what it requested, and the errors that it logged."""

    def __init__(self, browser: Browser) -> None:
        self.browser, self.session = browser, ""
        self.forget()

    def forget(self) -> None:
        """Forget earlier requests and complaints."""
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def begin(self, first: Path) -> None:
        """Open a file: this starts the browser's helpers, and the one process for pages from files."""
        target = self.browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        first.write_text("<!doctype html><canvas></canvas>", encoding="utf-8")
        self.open(first.as_uri())
        self.forget()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def take(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def open(self, url: str, width: int = 1280, height: int = 800, still: bool = True) -> None:
        """Open a page, and wait until it is loaded. `still`: the reader prefers reduced motion."""
        self.resize(width, height)
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}
        self.call("Emulation.setEmulatedMedia", features=[motion])
        self._loaded = False
        self.call("Page.navigate", url=url)
        end = time.monotonic() + PATIENCE
        while not self._loaded:
            self.browser.receive(end, url)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited, as from JSON. BrowserError: it threw."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(str(result["exceptionDetails"].get("exception", {}).get("description", result)))
        return result["result"].get("value")

    def read(self, id: str, name: str = "textContent") -> Any:
        """A property of an element."""
        return self.evaluate(f"document.getElementById('{id}').{name}")

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        look = f"const look = () => ({condition}) ? done() : setTimeout(look, 5);"
        self.evaluate(f"new Promise((done) => {{ {look} look(); }})")

    def press(self, key: str, **modifiers: Any) -> None:
        """A real key: it goes to the element that has the focus."""
        text = {"text": key} if len(key) == 1 else {}
        code = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27, "Tab": 9, "Enter": 13, " ": 32}
        event = {"key": key, "windowsVirtualKeyCode": code.get(key, ord(key[0])), **modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        box = f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
        x, y = self.evaluate(box + "return [b.left + b.width / 2, b.top + b.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


OpenPage = Callable[..., Page]  # the fixture `open_html`: see conftest
