"""Serves the head's dashboard without a cluster: the files of head/admin/dashboard, and a stream /api/stream in the form of
docs/reference/admin-api.md with invented figures for any number of workers and requests."""
import http.server
import json
import math
import random
import threading
import time
from urllib.parse import parse_qsl, urlsplit

from cluster import ROOT

FILES, PAGES = ROOT / "head/admin/dashboard", ROOT / "common/pages"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; "
          "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'")
PAGE_MAX = 200
TP = 4


class World:
    """`World` is the state that a head with so many workers and requests would report. Except for the time, this state depends on
    the seed only."""

    def __init__(self, n_workers=500, n_requests=5000, seed=1, node="node-{:03}".format, per_node=8, is_new=False):
        draw = random.Random(seed)
        self.began = time.time()
        self.n_groups = n_workers // TP
        self.node, self.per_node, self.is_new = node, per_node, is_new  # is_new: the head has no events yet
        self.workers = [self.worker(i, draw) for i in range(n_workers)]
        self.requests = [self.request(i, draw) for i in range(n_requests)]
        self.ended = [self.request(n_requests + i, draw, ended=True) for i in range(0 if is_new else 1024)]
        self.events = [[i + 1, int((self.began - 300 + i) * 1000), 2 if i % 17 == 0 else 1, "worker_suspect" if i % 17 == 0 else "worker_joined",
                        {"node": node(i // per_node), "instance": f"{draw.getrandbits(64):016x}", "device": "cuda"}] for i in range(0 if is_new else 100)]
        self.blocks = [draw.random() for _ in range(2048)]
        self.samples = [self.sample(self.began - 600 + i) for i in range(600)]

    def worker(self, i, draw):
        state = draw.choices(["ready", "suspect", "draining", "loading"], [97, 1, 1, 1])[0]
        group = i // TP
        return [f"{draw.getrandbits(64):016x}", self.node(i // self.per_node), state, group, 0, i % TP, i, "NVIDIA H100 80GB HBM3", 90_000 + i, draw.randrange(250),
                draw.randrange(9_000, 11_000), int(i == 77), int(state == "draining"), draw.randrange(1000) if state == "loading" else None,
                [draw.randrange(80, 100), draw.randrange(60, 79) << 30, 80 << 30, draw.randrange(50, 78), draw.randrange(400, 690)],
                [16, draw.randrange(500, 4_000), draw.randrange(8, 40) << 28], 512 << 30]

    def request(self, i, draw, ended=False):
        running = ended or draw.random() < 0.85
        queue, prefill, prompt = draw.expovariate(1 / 40e3), draw.expovariate(1 / 180e3), draw.randrange(20, 4000)
        return {"id": f"{draw.getrandbits(128):032x}", "state": "finished" if ended else "running" if running else "queued",
                "group": draw.randrange(self.n_groups), "age": draw.random() * 30e6 + 1e6, "queue": queue, "prefill": prefill,
                "prompt": prompt, "cached": prompt // 2 if i % 3 == 0 else 0, "max": draw.randrange(64, 2048), "i": i}

    def row(self, r, now):
        age = r["age"] + (0 if r["state"] == "finished" else (now - self.began) * 1e6)
        if r["state"] == "queued":
            return [r["id"], "queued", None, int(now * 1000 - age / 1000), int(age), None, None, r["prompt"], 0, 0, r["max"], 0, None]
        queue, prefill = min(r["queue"], age), min(r["prefill"], max(0, age - r["queue"]))
        decode = max(0, age - queue - prefill)
        return [r["id"], r["state"], r["group"], int(now * 1000 - age / 1000), int(queue), int(prefill), int(decode), r["prompt"], r["cached"],
                min(r["max"], 1 + int(decode / 22e3)), r["max"], 0, "stop" if r["state"] == "finished" else None]

    def page(self, q, now):
        show, offset, limit = q.get("show", "live"), int(q.get("offset", 0)), min(int(q.get("limit", 0)), PAGE_MAX)
        state = {"waiting": "queued", "running": "running"}.get(show)
        rows = [self.row(r, now) for r in (self.ended if show == "ended" else self.requests) if state in (None, r["state"])]
        column = {"arrival": 3, "queue": 4, "prefill": 5, "decode": 6, "prompt": 7, "generated": 9, "group": 2}[q.get("sort", "arrival")]
        rows.sort(key=lambda r: (r[column] is not None, r[column] or 0, r[0]), reverse=q.get("desc") == "1")
        offset = max(0, min(offset, len(rows) - limit))
        return {"here": len(self.requests), "looked_at": len(self.requests), "matching": len(rows), "offset": offset, "rows": rows[offset:offset + limit]}

    def sample(self, t):
        wave = math.sin(t / 45) + 0.4 * math.sin(t / 7)
        n = len(self.requests)
        return [int(t * 1000), int(0.85 * n), int(0.15 * n), 61_000 + 9000 * wave, 182_000 + 20_000 * wave, 0.71 + 0.05 * wave, 0.44, 0.21 + 0.05 * wave,
                0.55 + 0.1 * wave, 0.022, 0.031 + 0.002 * wave, 8.1, 21 + wave, 90, 0, 1, 0]

    def groups(self):
        return [[i, "ready", "both", f"1.{i + 1}", TP, TP, 1, 34 + i % 7, 6 + i % 3, 5200 + 31 * (i % 80), 8192, 90_000 + i, i % 3 == 0, 0]
                for i in range(self.n_groups)]

    def kv(self, group, now):
        cells = "".join("900" if (b + group / 97) % 1 < 0.12 else "090" if (b * 7 + now / 60) % 1 < 0.6 else "009" if b < 0.8 else "000" for b in self.blocks)
        parts = [cells[i:i + 3] for i in range(0, len(cells), 3)]
        return {"group": group, "kv": 0, "n_kv": 1, "block_tokens": 16, "blocks": 8192, "per_cell": 4, "stride": 1, "cells": cells,
                **{name: 4 * parts.count(cell) for name, cell in (("shared", "900"), ("owned", "090"), ("cached", "009"), ("empty", "000"))}}

    def summary(self, now):
        n = len(self.requests)
        return {"version": "0.1.0", "term": 3, "uptime_s": 86_400 + now - self.began, "healthy": True, "resting": False, "draining": False, "role": "serving",
                "tp": TP, "pp": 1, "model": {"name": "llama-3.3-70b", "max_model_len": 131_072, "vocab_size": 128_256},
                "gateways": [{"instance": "0" * 16, "node": "gw", "connected": True, "open_requests": n, "last_seen_ms": 3}],
                "requests": {"running": int(0.85 * n), "waiting": n - int(0.85 * n), "finished": 1_204_331, "failed": 12, "cancelled": 4411, "preemptions": 318},
                "kv": {"blocks_total": 8192 * self.n_groups, "blocks_used": int(8192 * self.n_groups * 0.71), "usage": 0.71 if self.n_groups else 0, "prefix_hit_rate": 0.44,
                       "evictions": 0, "copied_blocks": 0},
                "throughput": {"rank_wait_s": 0, "prompt_tokens_per_s": 61_000.0, "generation_tokens_per_s": 182_000.0},
                "recent_failures": [] if self.is_new else [{"time": now - 40, "node": self.node(9), "what": "worker_lost", "reason": "silent for 1.5 s"}],
                "warnings": [] if self.is_new else ["replica 3 serves with tp 2 of 4: it needs 2 more workers to be whole"]}

    def update(self, q, number):
        now = time.time()
        samples, events = int(q.get("samples", 0)), int(q.get("events", 0))
        while len(self.samples) < 600 + int(now - self.began):
            self.samples.append(self.sample(self.began + len(self.samples) - 600))
        walk = 1 + int(now - self.began)
        parts = {"summary": self.summary(now), "groups": {"total": self.n_groups, "rows": self.groups()},
                 "workers": {"total": len(self.workers), "rows": self.workers},
                 "samples": {"rows": self.samples[samples:], "next": len(self.samples)},
                 "events": {"rows": [e for e in self.events if e[0] >= events], "next": len(self.events) + 1},
                 "requests": self.page(q, now), "kv": self.kv(int(q.get("group", 0)), now) if self.n_groups else None,
                 "done": {"walk": walk, "number": number, "took_us": 900, "listeners": 1, "skipped": 0, "left_out": 0, "now_ms": int(now * 1000)}}
        if int(q.get("walk", 0)) == walk:
            for name in ("summary", "groups", "workers"):
                del parts[name]
        q.update(walk=walk, samples=len(self.samples), events=len(self.events) + 1)
        return "".join(f"event: {name}\ndata: {json.dumps(part, separators=(',', ':'))}\n\n" for name, part in parts.items()).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        at = urlsplit(self.path)
        file = FILES / ("index.html" if at.path == "/" else at.path.removeprefix("/dashboard/"))
        if not file.is_file():
            file = PAGES / file.name
        if at.path == "/api/stream":
            self.stream(dict(parse_qsl(at.query)))
        elif file.parent in (FILES, PAGES) and file.suffix in TYPES and file.is_file():
            self.send_response(200)
            self.send_header("Content-Type", TYPES[file.suffix] + "; charset=utf-8")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(file.read_bytes())
        else:
            self.send_error(404)

    def stream(self, q):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number = 0
        try:
            while not self.server.ending.is_set():
                self.wfile.write(self.server.world.update(q, number))
                number += 1
                self.server.ending.wait(1)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the page has opened another stream


class Fixture(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, world):
        super().__init__(("127.0.0.1", 0), Handler)
        self.world, self.ending = world, threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.shutdown()
        self.server_close()
