"""Runs headless Chromium for tests of the dashboard and the chat page, driven only through chromedriver's WebDriver (scripts/setup
--ui)."""
import base64
import contextlib
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
# PALE finds visible texts with a contrast below WCAG's 4.5 (3 for large texts).
PALE = """
    const rgb = s => { const m = s.match(/[\\d.]+/g).map(Number); return [...m.slice(0, 3), m[3] ?? 1]; };
    const over = (top, below) => below.map((b, i) => i < 3 ? top[i] * top[3] + b * (1 - top[3]) : 1);
    const behind = e => {
        const layers = [];
        for (; e; e = e.parentElement) layers.push(rgb(getComputedStyle(e).backgroundColor));
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
    };
    const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const pale = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const e = walker.currentNode.parentElement, style = getComputedStyle(e);
        if (!walker.currentNode.data.trim() || !e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) || e.closest("noscript, .hidden, :disabled")) continue;
        const back = behind(e), front = over(rgb(style.color), back), [a, b] = [light(front), light(back)].sort((x, y) => y - x);
        const isLarge = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700;
        const contrast = (a + .05) / (b + .05);
        if (contrast < (isLarge ? 3 : 4.5)) pale.push([walker.currentNode.data.trim().slice(0, 30), contrast.toFixed(2)]);
    }
    return pale;
"""
# WIDE finds elements beyond the page's right edge, except inside a box that scrolls or clips them.
WIDE = """
    const width = document.documentElement.clientWidth; // a phone's innerWidth grows with a page that is too wide
    const clips = e => { for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== "visible" && p !== document.body && p !== document.documentElement) return true; };
    return [...document.body.querySelectorAll("*")].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > width + 1 && !e.closest(".hidden, .skip") && !clips(e))
        .map(e => e.tagName + "#" + e.id + "." + e.className + " " + Math.round(e.getBoundingClientRect().right))
        .concat(document.documentElement.scrollWidth > width ? ["the page scrolls: " + document.documentElement.scrollWidth] : []);
"""
BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
    Object.defineProperty(window, name, {get() { throw new DOMException("Access is denied for this document.", "SecurityError"); }});"""


class Browser:
    """`Browser` is a browser window. Leaving it ends the browser and chromedriver."""

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
                pass  # chromedriver has ended already
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
        # HOME is a separate folder, so chromedriver and the browser leave nothing in the user's home.
        env = {**os.environ, "HOME": self.folder.name, "TMPDIR": self.folder.name}
        self.driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=log, stderr=subprocess.STDOUT, env=env)
        log.close()
        wait_for("chromedriver answers", lambda: get(self.at + "/status")[0] == 200, 60)
        flags = [*FLAGS, *self.flags, f"--user-data-dir={self.folder.name}/profile", "--window-size=%d,%d" % self.size]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": CHROMIUM, "args": flags},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            session = self.new_session(wanted)
        except (OSError, AssertionError):  # chromedriver gives Chromium's start one minute, and a busy machine may need more
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
        """Runs `script`, the body of a function, and returns its result. A promise is awaited."""
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

    def resize(self, width, height):
        """Sets the viewport in CSS pixels, as on a device. A phone has 390 by 844."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def resize_back(self):
        self.devtools("Emulation.clearDeviceMetricsOverride")

    @contextlib.contextmanager
    def without_storage(self):
        """Blocks the page's storage as a browser does without cookies: any access to the storage raises an exception."""
        script = self.devtools("Page.addScriptToEvaluateOnNewDocument", source=BLOCKED)["identifier"]
        try:
            yield
        finally:
            self.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=script)

    def pale(self):
        """Returns [(text, contrast)] of the visible texts with too little contrast."""
        return self.js(PALE)

    def wide(self):
        """Returns the elements that do not fit into the page's width."""
        return self.js(WIDE)

    def log(self):
        """Returns the console's lines since the last call. A refusal by the security policy appears there as an error."""
        return [f"{x['level']} {x['message']}" for x in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("GET", "/screenshot")))
