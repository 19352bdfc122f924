"""Headless Chromium for tests of the dashboard, through chromedriver's WebDriver and nothing else (scripts/setup --ui)."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from cluster import free_ports, get, wait_for

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = None if CHROMIUM and DRIVER else "no chromium and chromedriver here: scripts/setup --ui installs them"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--enable-precise-memory-info", "--js-flags=--expose-gc"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window. Ended with all that belongs to it."""

    def __init__(self, width=1500, height=1000, flags=()):
        self.size = width, height
        self.flags = list(flags)
        self.folder = tempfile.TemporaryDirectory(prefix="coxtest-browser-")
        self.driver = self.session = None

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.session:
            try:
                self.call("DELETE", "")
            except (OSError, AssertionError):
                pass  # it has ended by itself
        if self.driver:
            self.driver.terminate()
            try:
                self.driver.wait(10)
            except subprocess.TimeoutExpired:
                self.driver.kill()
                self.driver.wait()
        self.folder.cleanup()

    def start(self):
        port = free_ports(1)[0]
        self.at = f"http://127.0.0.1:{port}"
        log = open(Path(self.folder.name) / "log", "wb")
        # A home of its own: chromedriver and the browser leave nothing in the user's.
        env = {**os.environ, "HOME": self.folder.name, "TMPDIR": self.folder.name}
        self.driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=log, stderr=subprocess.STDOUT, env=env)
        log.close()
        wait_for("chromedriver answers", lambda: get(self.at + "/status")[0] == 200, 60)
        flags = [*FLAGS, *self.flags, f"--user-data-dir={self.folder.name}/profile", "--window-size=%d,%d" % self.size]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": CHROMIUM, "args": flags},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            session = self.new_session(wanted)
        except (OSError, AssertionError):  # chromedriver gives a start of Chromium a minute, which a machine may need all of
            session = self.new_session(wanted)
        self.session = session["sessionId"]
        return self

    def new_session(self, wanted):
        return self.request("POST", "/session", {"capabilities": {"alwaysMatch": wanted}}, timeout=90)

    def request(self, method, path, body=None, timeout=60):
        data = None if body is None else json.dumps(body).encode()
        r = urllib.request.Request(self.at + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(r, timeout=timeout) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{method} {path}: {e.read().decode()[:2000]}") from None

    def call(self, method, path, body=None):
        return self.request(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def js(self, script, *args):
        """What `script`, a function's body, returns; its promise is awaited."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.innerText ?? null", selector)

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def devtools(self, command, **params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def theme(self, name):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def log(self):
        """What the page said on its console since the last call: refusals of the security policy are errors there."""
        return [f"{x['level']} {x['message']}" for x in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("GET", "/screenshot")))
