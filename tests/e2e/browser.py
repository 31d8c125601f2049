#!/usr/bin/env python3
"""Opens a page in headless Chromium, over its debugging pipe: what an expression gives there, what the console says.

browser.py URL SECONDS EXPRESSION [--until CONDITION] [--picture FILE] [--size WIDTHxHEIGHT] [--dark]
after SECONDS, and with a CONDITION as soon after that as it is true, but not later than after 40 s,
prints {"value": .., "errors": [..]} as JSON.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
]


class Browser:
    """A Chromium process of its own; its messages go to `heard`."""

    def __init__(self, program, folder):
        to_read, self.to = os.pipe()
        self.answers, to_write = os.pipe()
        for end, wanted in ((to_read, 3), (to_write, 4)):
            os.set_inheritable(end, True)
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.heard, self.rest, self.number = [], b"", 0

    def next(self, until):
        """The next message, or None when it is later than that."""
        os.set_blocking(self.answers, False)
        while b"\0" not in self.rest:
            if time.monotonic() > until:
                return None
            try:
                raw = os.read(self.answers, 1 << 20)
            except BlockingIOError:
                time.sleep(0.02)
                continue
            if not raw:
                sys.exit("browser: Chromium has ended")
            self.rest += raw
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        """What a method answers, within 30 s."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 30
        while (answer := self.next(until)) is not None:
            if answer.get("id") != self.number:
                self.heard.append(answer)
            elif "error" in answer:
                sys.exit(f"browser: {method}: {answer['error']}")
            else:
                return answer["result"]
        sys.exit(f"browser: {method}: no answer")

    def value(self, page, expression):
        """What an expression gives there, None if it throws."""
        result = self.call("Runtime.evaluate", page, expression=expression, returnByValue=True)
        return result["result"].get("value")

    def listen(self, seconds):
        until = time.monotonic() + seconds
        while (message := self.next(until)) is not None:
            self.heard.append(message)

    def errors(self):
        """What the console said that is an error or a warning."""
        found = []
        for message in self.heard:
            params = message.get("params", {})
            if message.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            if message.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(json.dumps(params["args"]))
            if message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("seconds", type=float)
    parser.add_argument("expression")
    parser.add_argument("--until")
    parser.add_argument("--picture")
    parser.add_argument("--size", default="1280x900")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        sys.exit("browser: there is no Chromium")
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            page = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                browser.call(f"{domain}.enable", page)
            browser.call("Emulation.setDeviceMetricsOverride", page, width=width, height=height,
                         deviceScaleFactor=1, mobile=width < 600)
            scheme = "dark" if options.dark else "light"
            browser.call("Emulation.setEmulatedMedia", page,
                         features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.call("Page.navigate", page, url=options.url)
            browser.listen(options.seconds)
            latest = time.monotonic() + 40
            while options.until and not browser.value(page, options.until) and time.monotonic() < latest:
                browser.listen(0.5)
            value = browser.value(page, options.expression)
            if options.picture:
                picture = browser.call("Page.captureScreenshot", page, format="png")
                with open(options.picture, "wb") as file:
                    file.write(base64.b64decode(picture["data"]))
            print(json.dumps({"value": value, "errors": browser.errors()}))
        finally:
            browser.process.terminate()
            try:
                browser.process.wait(10)
            except subprocess.TimeoutExpired:
                browser.process.kill()
                browser.process.wait()


main()
