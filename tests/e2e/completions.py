"""Completions over HTTP, many at once; body_of and ids for tests that compare tokens."""
import asyncio
import json
import threading
import time

import httpx
from cluster import SHORT, SLOW
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
    """All bodies at once; their results in order."""
    async def main():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=cluster.url, timeout=60 * SLOW, limits=limits) as client:
            return await asyncio.gather(*(stream(client, b, on_event) for b in bodies))
    return asyncio.run(main())


def strike_while_all_run(cluster, bodies, n, strike):
    """The results of all bodies at once. strike(status) is called once, on a thread, when the head has said that n of them run and
    has run STEPS more steps since. It asks the head because a client reads late: a busy machine's client may read the first tokens
    of the last stream when a tiny model has already made all the others."""
    STEPS, ended, failures, struck = 10, threading.Event(), [], []

    def watch():
        began = None
        while not struck and not ended.is_set():
            status = cluster.status()
            steps = sum(g["steps"] for g in status["groups"])
            if status["requests"]["running"] >= n:
                began = steps if began is None else began
                if steps >= began + STEPS:
                    struck.append(status)
                    strike(status)
            time.sleep(0.005)

    def guarded():
        try:
            watch()
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        results = run(cluster, bodies)
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]
    assert struck, f"the streams ended before {n} of them had run for {STEPS} steps"
    return results


def ids(got, i=0):
    return got.ids[i]


def complete(cluster, **body):
    r = httpx.post(cluster.url + "/v1/completions", json=body, timeout=60 * SLOW)
    assert r.status_code == 200, r.text
    return r.json()
