"""Implements bench/dashboard; the comment at the top of that script describes it."""
import statistics
import sys
import time
from pathlib import Path

from browser import MISSING, Browser
from cluster import wait_for
from dashboard_fixture import Fixture, World
from options import amount, count, option_parser
from serving import machine

PERIOD_MS, LATE, MEMORY_MB = 1000 / 60, 1.5, 100
# The script scrolls at a steady pace to the end and back, one step in each frame. It returns the times between frames in ms.
SCROLL = """
const [selector, seconds, pace] = arguments, box = document.querySelector(selector);
const end = box.scrollHeight - box.clientHeight, times = [];
return new Promise(done => {
  let begin = null, last = null;
  requestAnimationFrame(function step(now) {
    begin ??= now;
    if (last !== null) times.push(now - last);
    last = now;
    const t = (now - begin) / 1000, at = t * pace % (2 * end);
    box.scrollTop = at < end ? at : 2 * end - at;
    if (t < seconds) requestAnimationFrame(step); else done(times);
  });
});"""


def durations(b):
    """Returns the CPU seconds of the page's thread so far, by kind of work."""
    found = {m["name"]: m["value"] for m in b.devtools("Performance.getMetrics")["metrics"]}
    return [found[name] for name in ("TaskDuration", "ScriptDuration", "RecalcStyleDuration", "LayoutDuration")]


def is_below(process, ancestor):
    """Returns whether the process id `process` is `ancestor` or a descendant of it."""
    while process > 1 and process != ancestor:
        process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return process == ancestor


def memory_mb(b):
    """Returns the memory after a garbage collection: JavaScript's heap, and the private memory of the page's process (with DOM,
    styles and canvases)."""
    b.devtools("HeapProfiler.collectGarbage")
    heap = b.js("return performance.memory.usedJSHeapSize") / 1e6
    private = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (process / "cmdline").read_bytes() and is_below(int(process.name), b.driver.pid):
                rows = dict(line.split(":") for line in (process / "smaps_rollup").read_text().splitlines()[1:])
                private.append(sum(int(rows[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1000)
        except OSError:
            continue  # the process has ended meanwhile
    return heap, max(private), b.devtools("Memory.getDOMCounters")


def main():
    parser = option_parser("dashboard")
    parser.add_argument("--workers", type=count(), default=500)
    parser.add_argument("--requests", type=count(), default=5000)
    parser.add_argument("--seconds", type=amount(), default=8)
    parser.add_argument("--pace", type=count(), default=12_000, help="pixels a second: a hard flick")
    parser.add_argument("--rounds", type=count(), default=3)
    parser.add_argument("--screenshots", type=Path)
    options = parser.parse_args()
    if MISSING:
        sys.exit(f"bench/dashboard: {MISSING}")
    print(f"{machine()}; {options.workers} workers, {options.requests} requests")
    short = False
    with Fixture(World(options.workers, options.requests)) as f, Browser(1500, 1000) as b:
        b.open(f.url)
        b.devtools("Performance.enable", timeDomain="threadTicks")
        wait_for("the page shows the requests", lambda: b.js("return document.querySelectorAll('#requests-table tbody tr').length") > 10)
        time.sleep(2)
        for table in ("requests", "workers", "events"):
            before = durations(b)
            rounds = [b.js(SCROLL, f"#{table}-table .scroll", options.seconds, options.pace) for _ in range(options.rounds)]
            frames = [t for r in rounds for t in r]
            work, script, styles, layout = (1000 * (y - x) / len(frames) for x, y in zip(before, durations(b)))
            late = sum(t > LATE * PERIOD_MS for t in frames)
            rate = 1000 / statistics.mean(frames)
            print(f"{table}: {rate:.1f} frames/s, {len(frames)} frames: median {statistics.median(frames):.1f} ms, "
                  f"99 % {sorted(frames)[len(frames) * 99 // 100]:.1f} ms, longest {max(frames):.1f} ms, {late} late; "
                  f"of a frame's {PERIOD_MS:.1f} ms the page works {work:.1f} (script {script:.1f}, styles {styles:.1f}, layout {layout:.1f})")
            short |= table == "requests" and late > len(frames) // 20
        heap, page, counters = memory_mb(b)
        print(f"memory: {heap:.1f} MB of JavaScript's heap, {page:.1f} MB of the page's process alone; {counters['nodes']} DOM nodes, "
              f"{counters['jsEventListeners']} listeners (at most {MEMORY_MB} MB)")
        short |= page > MEMORY_MB
        for theme in ("light", "dark") if options.screenshots else ():
            b.theme(theme)
            time.sleep(1.2)
            b.screenshot(options.screenshots / f"dashboard-big-{theme}.png")
        print(*b.log(), sep="\n", end="")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
