"""Keeps a constant number of streams running while a test changes the cluster. Every stream must be complete and exact."""
import asyncio
import itertools
import threading
import time

import httpx
import null_oracle as oracle
from cluster import SLOW
from sse import Collected, events


class Steady:
    """`with Steady(urls, n) as load: ...` runs n users, each with one stream after the other, at any gateway. When a gateway refuses
    a connection, the next gateway is tried, as a load balancer does. Nothing else is retried. `headers` go with each request."""

    def __init__(self, urls, n_users=32, n_tokens=60, headers=None):
        self.urls, self.n_users, self.n_tokens, self.headers = urls, n_users, n_tokens, headers
        self.ids = itertools.count()
        self.n_done, self.n_tokens_seen, self.n_passed_by, self.wrong = 0, 0, 0, []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()))

    async def one(self, client, i, first_url):
        prompt = f"stream {i} " + "abc " * (i % 7)
        body = {"model": "null", "prompt": prompt, "max_tokens": self.n_tokens, "temperature": 0, "ignore_eos": True,
                "stream": True}
        end = time.monotonic() + 60 * SLOW
        for n in itertools.count(first_url):
            try:
                async with client.stream("POST", self.urls[n % len(self.urls)] + "/v1/completions", json=body) as r:
                    if r.status_code != 200:
                        raise AssertionError(f"{r.status_code}: {(await r.aread()).decode()}")
                    got, lines = Collected(), []
                    async for line in r.aiter_lines():
                        lines.append(line)
                        self.n_tokens_seen += line.startswith("data: {")
                for event in events(lines):
                    got.add(event)
                break
            except httpx.ConnectError:
                self.n_passed_by += 1
                if time.monotonic() > end:
                    raise AssertionError("no gateway takes connections") from None
                await asyncio.sleep(0.05)
        want = oracle.text(prompt, self.n_tokens, temperature=0)
        assert got.texts[0] == want and got.finish[0] == "length", f"{got.texts[0]!r} instead of {want!r}"

    async def user(self, client, u):
        while not self.stopping.is_set() and not self.wrong:
            i = next(self.ids)
            try:
                await self.one(client, i, u)
                self.n_done += 1
            except (AssertionError, httpx.HTTPError) as e:
                self.wrong.append(f"stream {i}: {e!r}")

    async def main(self):
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # the client opens a new connection for each stream
        async with httpx.AsyncClient(timeout=httpx.Timeout(90 * SLOW, connect=5), limits=limits, headers=self.headers) as client:
            await asyncio.gather(*(self.user(client, u) for u in range(self.n_users)))

    def check(self):
        assert not self.wrong, self.wrong
        return self

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.stopping.set()
        self.thread.join()
        if kind is None:
            self.check()
