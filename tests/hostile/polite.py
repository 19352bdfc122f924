"""The polite tenant: streams, one thread, and the gaps between their tokens."""
import time

from shots import Connection, Engine, Shot


class Stream(Connection):
    """A stream that notes when each token came. A fault is anything but tokens and a whole end."""

    def __init__(self, engine, shot, done):
        self.marks, self.rest, self.ended_well, self.fault = [], b"", False, ""
        super().__init__(engine, shot, done)

    def take(self, data):
        now = time.monotonic()
        super().take(data)
        n = data.count(b"data: {")
        if n:
            self.marks.append((now, n))
        self.rest = (self.rest + data)[-400:]
        self.ended_well = self.ended_well or b"data: [DONE]" in self.rest
        if b'"error"' in data:
            self.fault = data[data.index(b'"error"'):][:200].decode(errors="replace")


class Polite:
    """n streams at any time; a stream that has ended is followed by the next one."""

    def __init__(self, t, n=16, tokens=256):
        self.t, self.n, self.tokens = t, n, tokens
        self.engine = Engine(t.host, t.port)
        self.failures, self.n_done, self.n_asked = [], 0, 0
        self.live = {}
        self.gaps = []  # (when, seconds)

    def ask(self):
        self.n_asked += 1
        k = self.n_asked
        body = {"model": self.t.model, "prompt": f"Story {k} of the harbour:", "max_tokens": self.tokens, "ignore_eos": True,
                "stream": True, "temperature": 1, "seed": k}
        shot = self.t.post("/v1/completions", body, hold_s=600)

        def done(r):
            s = self.live.pop(k)
            self.n_done += 1
            if r.status != 200 or not s.ended_well or s.fault:
                self.failures.append({"at": round(time.monotonic(), 1), "status": r.status, "error": r.error or s.fault,
                                      "body": r.text()[:200].decode(errors="replace") if r.status != 200 else ""})

        self.live[k] = None
        self.engine.n_open += 1
        self.live[k] = Stream(self.engine, shot, done)

    def run(self, seconds, each_second=lambda: None):
        """Streams for so long; the gaps between tokens in it, in seconds."""
        begin = time.monotonic()
        end, tick = begin + seconds, begin
        while (now := time.monotonic()) < end:
            while len(self.live) < self.n and len(self.failures) < 1000:
                self.ask()
            self.engine.poll(min(0.1, end - now))
            if time.monotonic() - tick >= 1:
                tick += 1
                each_second()
            self.collect()
        self.collect()
        found, self.gaps = [g for at, g in self.gaps if begin <= at <= end], []
        return found

    def collect(self):
        """Two tokens of one read have a gap of 0 between them, as their reader sees it."""
        for s in list(self.live.values()):
            if len(s.marks) < 2:
                continue
            for (a, _), (b, n) in zip(s.marks, s.marks[1:]):
                self.gaps.append((b, b - a))
                self.gaps.extend((b, 0.0) for _ in range(n - 1))
            s.marks = s.marks[-1:]

    def close(self):
        """Streams that are still on their way are given up, and are no failures."""
        failures = list(self.failures)
        for s in list(self.live.values()):
            s.end()
        self.failures = failures


def percentile(values, q):
    v = sorted(values)
    return v[min(len(v) - 1, int(len(v) * q))] if v else 0.0


def summary(gaps):
    return {"gaps": len(gaps), **{f"p{name}_ms": round(percentile(gaps, q) * 1000, 1) for name, q in (("50", 0.5), ("99", 0.99), ("99_9", 0.999))},
            "max_ms": round(max(gaps, default=0) * 1000, 1)}
