"""Sends completions over HTTP, many at once. `body_of` and `ids` help tests that compare tokens."""
import asyncio
import json
import threading
import time

import httpx
from cluster import SHORT, SLOW, get
from sse import Collected

N_TOKENS = 6 if SHORT else 16


def body_of(prompt, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True, **more}


async def stream(client, body, on_event=None):
    got = Collected()
    async with client.stream("POST", "/v1/completions", json={"model": "null", **body, "stream": True}) as r:
        assert r.status_code == 200, (await r.aread()).decode()
        async for line in r.aiter_lines():
            if line.startswith("data: {"):
                got.add(json.loads(line[6:]))
                if on_event:
                    on_event(got)
            elif line == "data: [DONE]":
                return got
    raise AssertionError("no [DONE]")


def run(cluster, bodies, on_event=None):
    """Sends all bodies at once. Returns their results in order."""
    async def main():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=cluster.url, timeout=60 * SLOW, limits=limits) as client:
            return await asyncio.gather(*(stream(client, b, on_event) for b in bodies))
    return asyncio.run(main())


def run_under_strike(cluster, bodies, when, strike):
    """Repeats each body until strike(status) has returned. Returns a list of results for each body. `strike` is called once, on a
    thread, when the head's status reports generated tokens and when(status) is true. A tiny model's streams may end before a busy
    client reads them or before the thread reads the status. The strike then hits later streams."""
    over, failures = threading.Event(), []

    def watch():
        began, end = None, time.monotonic() + 60 * SLOW
        while not over.is_set():
            assert time.monotonic() < end, f"not within {60 * SLOW} s: a status to strike at"
            code, text = get(cluster.admin + "/api/status")
            status = json.loads(text) if code == 200 else {"groups": []}
            steps = sum(g["steps"] for g in status["groups"])
            began = steps if began is None else began
            if steps >= began + 10 and when(status):
                return strike(status)
            time.sleep(0.005)

    def guarded():
        try:
            watch()
        except BaseException as e:
            failures.append(e)
        over.set()

    async def user(client, body):
        results = []
        while not (results and over.is_set()):
            results.append(await stream(client, body))
        return results

    async def main():
        async with httpx.AsyncClient(base_url=cluster.url, timeout=60 * SLOW, limits=httpx.Limits(max_connections=None)) as client:
            return await asyncio.gather(*(user(client, b) for b in bodies))

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        return asyncio.run(main())
    finally:
        over.set()
        thread.join()
        if failures:
            raise failures[0]


def ids(got, i=0):
    return got.ids[i]


def complete(cluster, **body):
    r = httpx.post(cluster.url + "/v1/completions", json=body, timeout=60 * SLOW)
    assert r.status_code == 200, r.text
    return r.json()
