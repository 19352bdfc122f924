"""Runs the polite tenant: streams in one thread, and the gaps between their tokens."""
import dataclasses
import time

from shots import Connection, Engine, Shot


class Stream(Connection):
    """Records when each token of a stream arrived. Anything other than tokens and a complete end is a fault."""

    def __init__(self, engine, shot, done):
        self.marks, self.rest, self.ended_well, self.fault = [], b"", False, ""
        self.asked, self.first, self.is_begun = time.monotonic(), None, False
        super().__init__(engine, shot, done)

    def take(self, data):
        now = time.monotonic()
        super().take(data)
        n = data.count(b"data: {")
        if n:
            self.first = self.first or now
            self.marks.append((now, n))
        self.rest = (self.rest + data)[-400:]
        self.ended_well = self.ended_well or b"data: [DONE]" in self.rest
        if b'"error"' in data:
            self.fault = data[data.index(b'"error"'):][:200].decode(errors="replace")


class Polite:
    """Keeps n streams running. When a stream has ended, the next stream starts."""

    def __init__(self, t, n=16, tokens=256):
        self.t, self.n, self.tokens = t, n, tokens
        self.engine = Engine(t.host, t.port)
        self.failures, self.n_done, self.n_asked = [], 0, 0
        self.live = {}
        self.gaps = []  # gaps between tokens, as (time, seconds)
        self.firsts = []  # times to the first token, as (time, seconds from the request to the token)
        self.n_tokens = 0

    def ask(self):
        self.n_asked += 1
        k = self.n_asked
        body = {"model": self.t.model, "prompt": f"Story {k} of the harbour:", "max_tokens": self.tokens, "ignore_eos": True,
                "stream": True, "temperature": 1, "seed": k}
        shot = self.t.post("/v1/completions", body, hold_s=600)

        def done(r):
            s = self.live.pop(k)
            self.keep(s)
            self.n_done += 1
            if r.status != 200 or not s.ended_well or s.fault:
                self.failures.append({"at": round(time.monotonic(), 1), "status": r.status, "error": r.error or s.fault,
                                      "body": r.text()[:200].decode(errors="replace") if r.status != 200 else ""})

        self.live[k] = None
        self.engine.n_open += 1
        self.live[k] = Stream(self.engine, shot, done)

    def run(self, seconds, each_second=lambda: None):
        """Runs the streams for a time, and returns the figures of this time."""
        self.collect()
        begin, before = time.monotonic(), self.n_tokens
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
        seen = Seen([g for at, g in self.gaps if begin <= at <= end], [s for at, s in self.firsts if begin <= at <= end],
                    self.n_tokens - before, time.monotonic() - begin)
        self.gaps, self.firsts = [], []
        return seen

    def collect(self):
        """Collects the gaps of the running streams. Two tokens of one read have a gap of 0 between them, because their reader gets
        them at once."""
        for s in list(self.live.values()):
            self.keep(s)

    def keep(self, s):
        if s.marks and not s.is_begun:
            s.is_begun = True
            self.firsts.append((s.first, s.first - s.asked))
            self.n_tokens += s.marks[0][1]
        for (a, _), (b, n) in zip(s.marks, s.marks[1:]):
            self.gaps.append((b, b - a))
            self.gaps.extend((b, 0.0) for _ in range(n - 1))
            self.n_tokens += n
        s.marks = s.marks[-1:]

    def close(self):
        """Ends the streams that are still open. Such streams are no failures."""
        failures = list(self.failures)
        for s in list(self.live.values()):
            s.end()
        self.failures = failures


def percentile(values, q):
    v = sorted(values)
    return v[min(len(v) - 1, int(len(v) * q))] if v else 0.0


@dataclasses.dataclass
class Seen:
    """Holds the figures of a period: the gaps between tokens and the times to the first token, in seconds, and the number of tokens."""

    gaps: list = dataclasses.field(default_factory=list)
    firsts: list = dataclasses.field(default_factory=list)
    n_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other):
        return Seen(self.gaps + other.gaps, self.firsts + other.firsts, self.n_tokens + other.n_tokens, self.seconds + other.seconds)


def in_ms(values, name, q):
    return {name: round(percentile(values, q) * 1000, 1)}


def summary(seen):
    """Returns the figures of a period. Gaps alone would hide requests that wait to begin, and streams that never begin."""
    return {"gaps": len(seen.gaps), **in_ms(seen.gaps, "p50_ms", 0.5), **in_ms(seen.gaps, "p99_ms", 0.99),
            **in_ms(seen.gaps, "p99_9_ms", 0.999), "max_ms": round(max(seen.gaps, default=0) * 1000, 1),
            "tokens_per_s": round(seen.n_tokens / max(seen.seconds, 1e-9), 1), "first_tokens": len(seen.firsts),
            **in_ms(seen.firsts, "first_p50_ms", 0.5), **in_ms(seen.firsts, "first_p99_ms", 0.99)}
