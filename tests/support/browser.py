"""A headless Chromium, driven through its own protocol on a pipe: no package is needed for it.

Pages are opened from the disk, or from `serve`, without a network. What a page throws, logs as an
error or asks the network for is kept in `problems`.
"""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["ISOLATED", "Browser", "find_chromium", "serve"]

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe"),
    *("--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
)


ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
"""Headers of pages that may share memory between threads, and get finer clocks."""


def find_chromium() -> str | None:
    """The command of the browser, or None where there is none."""
    names = (os.environ.get("INGOT_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@contextmanager
def serve(folder: Path, headers: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL, without a slash at its end, of a folder, as `python -m http.server` serves it, with
    further headers."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Browser:
    """One page. `with Browser() as browser: browser.open(path)`."""

    def __init__(self, width: int = 1440, height: int = 900, *, dark: bool = False) -> None:
        self.size = (width, height)
        self.dark = dark
        self.problems: list[str] = []
        self._count = 0
        self._session = ""

    def __enter__(self) -> Browser:
        command = find_chromium()
        assert command is not None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        self._rest = b""
        # The browser reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        flags = [*_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", command, *flags],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        pages = self._call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in pages if each["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        width, height = self.size
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[theme])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def open(self, page: Path | str, ready: str = "Boolean(window.explorer)") -> None:
        """Opens a file or a URL, and waits until it is ready; without `ready`, until the explorer
        in it has begun."""
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self._call("Page.navigate", url=url)
        self.wait(ready)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited. AssertionError: it throws."""
        answer = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 120.0) -> None:
        """Until the condition holds, at most so long."""
        script = (
            f"new Promise((done) => {{ const end = Date.now() + {seconds * 1000};"
            f"const look = () => {{ const is = {condition};"
            "if (is || Date.now() > end) done(is); else setTimeout(look, 20); }; look(); })"
        )
        assert self.evaluate(script), f"it never came to {condition}"

    def follow(self, link: str, seconds: float = 120.0) -> None:
        """Clicks on a link, an expression, and waits for the page that it leads to."""
        self.evaluate("window.isOld = true")
        self.evaluate(f"{link}.click()")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(AssertionError):  # between the pages there is none to ask
                if self.evaluate("!window.isOld && document.readyState === 'complete'"):
                    return
            time.sleep(0.02)
        raise AssertionError(f"{link} leads nowhere")

    def click(self, x: float, y: float) -> None:
        """Moves the mouse there and clicks."""
        where = {"x": x, "y": y}
        self._call("Input.dispatchMouseEvent", type="mouseMoved", **where)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """Draws a line with the left button held."""
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1)]
        for kind, (x, y) in zip(kinds, points, strict=True):
            self._mouse(kind, x, y)
        self._mouse("mouseReleased", *points[-1])

    def _mouse(self, kind: str, x: float, y: float) -> None:
        where = {"x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type=kind, **where)

    def click_on(self, selector: str) -> None:
        """Clicks on the middle of the first element that the selector finds."""
        box = self.evaluate(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.click(*box)

    def wheel(self, x: float, y: float, delta: float) -> None:
        where = {"x": x, "y": y, "deltaX": 0, "deltaY": delta}
        self._call("Input.dispatchMouseEvent", type="mouseWheel", **where)

    def press(self, key: str) -> None:
        """A key by its name, such as "Enter", or by what it types."""
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """Writes what is seen, as PNG."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        answer = self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog: {parameters['message']}")
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            own = ("file:", "blob:", "data:", "about:", "http://127.0.0.1:")
            if not url.startswith(own):
                self.problems.append(f"a request of {url}")
