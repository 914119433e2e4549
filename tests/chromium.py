"""A real Chromium without a window, spoken to over its DevTools pipe: no package is needed for it, and no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = "needs Chromium: apt-get install -y chromium, or google-chrome on the PATH"
PATIENCE_S = 60.0


def chromium() -> str:
    """Its path. Skips the test without one; fails it where everything must be tested."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        (pytest.fail if os.environ.get("CUFALL_TEST_ALL") == "1" else pytest.skip)(HOW)
    return found


class Tab:
    """One page. `problems`: lines of the console that are errors, and what was thrown; `asked`: every address that
    was loaded."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._buffer = to_browser, from_browser, b""
        self._count, self._session = 0, ""
        self.problems: list[str] = []
        self.asked: list[str] = []
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path) -> None:
        """Load a page and wait until it has."""
        self._events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._note(self._next())

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def size(self, width: int, height: int, *, touch: bool = False) -> None:
        scale = 2 if touch else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch
        )
        self.settle()

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as the system would."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1, **more)
        for part in (0.25, 0.5, 0.75, 1.0):
            at = [a + (b - a) * part for a, b in zip(start, end, strict=True)]
            self.mouse("mouseMoved", *at, button="left", buttons=1, **more)
        self.mouse("mouseReleased", *end, button="left", clickCount=1, **more)
        self.settle()

    def screenshot(self, whole: bool = False) -> bytes:
        """A PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            piece = os.read(self._from, 1 << 20)
            assert piece, "Chromium has ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        method, params = event.get("method", ""), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])


@contextmanager
def tab(home: Path) -> Iterator[Tab]:
    """A tab of a browser of its own, with nothing in its profile, which `home` holds; gone afterwards."""
    to_browser_out, to_browser = os.pipe()
    from_browser, from_browser_in = os.pipe()
    words = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    words += ["--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={home}", "--remote-debugging-pipe"]
    # DevTools reads descriptor 3 and writes 4
    plumbing = f'exec "$@" 3<&{to_browser_out} 4>&{from_browser_in}'
    browser = subprocess.Popen(
        ["bash", "-c", plumbing, "bash", *words],
        pass_fds=(to_browser_out, from_browser_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser_out)
    os.close(from_browser_in)
    try:
        found = Tab(to_browser, from_browser)
        yield found
        found._session = ""
        found.call("Browser.close")
    finally:
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
        os.close(to_browser)
        os.close(from_browser)
