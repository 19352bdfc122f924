"""Draws the pictures for scripts/screenshots."""
import base64
import struct
import sys
import zlib
from pathlib import Path

from browser import Browser
from chat_fixture import ChatFixture, Script, say
from cluster import wait_for
from dashboard_fixture import Fixture, World

MAX_BYTES = 150_000
ENTER, RIGHT = "\ue007", "\ue014"
ANSWER = """With an offshore wind **one** line does the work. In short:

1. Come in slowly, at a steep angle.
2. Put the `bow line` ashore and make it fast.
3. Motor ahead against it, and the stern comes in by itself.

```python
def approach(wind, speed):
    return max(0.5, speed - wind / 10)
```
Then set the other lines, and let nobody jump."""


# QUANTISE reduces a picture to 256 colours: the most frequent colour of each of the 256 fullest cells of the colour space, and for each pixel the
# nearest of these colours. A browser runs this script, because Python has no PNG decoder.
QUANTISE = """
    const [png, done] = arguments, image = new Image();
    image.onload = () => {
        const w = image.width, h = image.height, canvas = new OffscreenCanvas(w, h), pen = canvas.getContext("2d");
        pen.drawImage(image, 0, 0);
        const p = pen.getImageData(0, 0, w, h).data, counts = new Map();
        for (let i = 0; i < p.length; i += 4) {
            const c = p[i] << 16 | p[i + 1] << 8 | p[i + 2];
            counts.set(c, (counts.get(c) ?? 0) + 1);
        }
        const cells = new Map();
        for (const [c, n] of [...counts].sort((x, y) => y[1] - x[1])) {
            const cell = c & 0xf0f0f0, held = cells.get(cell);
            if (held) held.n += n;
            else cells.set(cell, { c, n });
        }
        const palette = [...cells.values()].sort((x, y) => y.n - x.n).slice(0, 256).map(x => x.c), known = new Map(palette.map((c, i) => [c, i]));
        const far = (c, d) => ((c >> 16) - (d >> 16)) ** 2 + ((c >> 8 & 255) - (d >> 8 & 255)) ** 2 + ((c & 255) - (d & 255)) ** 2;
        const rows = new Uint8Array((w + 1) * h);
        for (let y = 0, i = 0; y < h; y++)
            for (let x = 0; x < w; x++, i += 4) {
                const c = p[i] << 16 | p[i + 1] << 8 | p[i + 2];
                if (!known.has(c)) known.set(c, palette.reduce((best, d, k) => far(c, d) < far(c, palette[best]) ? k : best, 0));
                rows[y * (w + 1) + 1 + x] = known.get(c);
            }
        const reader = new FileReader();
        reader.onload = () => done([w, h, palette, reader.result.split(",")[1]]);
        reader.readAsDataURL(new Blob([rows]));
    };
    image.src = "data:image/png;base64," + png;
"""


def quantised(tool, png):
    w, h, palette, rows = tool.call("POST", "/execute/async", {"script": QUANTISE, "args": [base64.b64encode(png).decode()]})

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    colours = b"".join(struct.pack(">I", c)[1:] for c in palette)
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 3, 0, 0, 0)) + part(b"PLTE", colours) +
            part(b"IDAT", zlib.compress(base64.b64decode(rows), 9)) + part(b"IEND", b""))


def save(b, folder, name):
    path = folder / f"{name}.png"
    png = quantised(b.tool, base64.b64decode(b.call("GET", "/screenshot")))
    path.write_bytes(png)
    print(f"{path}  {len(png) // 1000} KB")
    if len(png) > MAX_BYTES:
        raise SystemExit(f"{path} has {len(png)} bytes, more than {MAX_BYTES}: draw less")


def dashboard(b, folder):
    with Fixture(World(64, 600, node="cox-worker-{}".format, per_node=1)) as f:
        for name, theme, width, height in (("light", "light", 1500, 1900), ("dark", "dark", 1500, 1900), ("phone", "light", 390, 844),
                                           ("top-light", "light", 1500, 825), ("top-dark", "dark", 1500, 825)):  # README.md and docs/index.md show these pictures
            b.theme(theme)
            b.resize(width, height)
            b.open(f.url)
            wait_for("the dashboard is there", lambda: b.text("#requests-count") == "600")
            settle(b)
            save(b, folder, f"dashboard-{name}")
        b.theme("light")
        b.resize(1500, 640)
        settle(b)
    wait_for("the head is away", lambda: not b.js("return document.querySelector('#away').hidden"))
    settle(b)
    save(b, folder, "dashboard-away")


def chat(b, folder):
    with ChatFixture() as f:
        for name, theme, width, height in (("light", "light", 1200, 760), ("dark", "dark", 1200, 760), ("phone", "dark", 390, 760)):
            f.script = Script(models=["qwen3-8b", {"id": "harbour-pilot", "parent": "qwen3-8b"}],
                              steps=[say(ANSWER, reasoning="The person asks about mooring.", delay=0.01)])
            b.theme(theme)
            b.resize(width, height)
            b.open(f.url)
            wait_for("the page is ready", lambda: b.text("#state") == "ready")
            b.type("#prompt", "How do I moor a boat with an offshore wind?" + ENTER)
            wait_for("the answer is there", lambda: b.js("return document.querySelector('.turn.model') && !document.querySelector('.working')"))
            b.js("document.querySelector('.turn.model .body').focus()")
            b.press(*[RIGHT] * 6)
            settle(b)
            save(b, folder, f"chat-{name}")


def settle(b):
    """Waits for two frames, so that canvases are drawn and resized."""
    b.call("POST", "/execute/async", {"script": "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done())), 300)",
                                      "args": []})


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with Browser(1500, 1400) as b, Browser() as b.tool:
        dashboard(b, folder)
        chat(b, folder)


main()
