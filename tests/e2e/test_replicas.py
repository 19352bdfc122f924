"""Tests replicas of different speed: a slow replica gets fewer requests, and tokens do not depend on the replica."""
import asyncio
import re
import subprocess

import httpx
import null_oracle as oracle
import pytest
from cluster import SLOW, Cluster, free_ports, get, wait_for

FAST_US, SLOW_US = 500, 2000
N_REQUESTS, N_AT_ONCE, N_TOKENS = 160, 12, 24


def second_worker(cluster, token_us):
    """Starts a second worker with the arguments of the first, but slower steps."""
    with open(f"/proc/{cluster.pid('worker-0')}/cmdline", "rb") as f:
        args = f.read().decode().rstrip("\0").split("\0")
    port, = free_ports(1)
    for flag, value in {"--ordinal": 1, "--http-port": port, "--null-token-us": token_us}.items():
        args[args.index(flag) + 1] = str(value)
    return subprocess.Popen(args, stdout=cluster.log_file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                            env=cluster.env), port


@pytest.fixture(scope="module")
def pair():
    """Yields a cluster, and the addresses at which the fast and the slow worker report their work."""
    with Cluster("--null-token-us", FAST_US, workers=1, tp=1) as c:
        worker, port = second_worker(c, SLOW_US)
        try:
            wait_for("both groups are ready",
                     lambda: [g["state"] for g in c.status()["groups"]] == ["ready", "ready"])
            yield c, c.worker_http_port, port
        finally:
            worker.terminate()
            worker.wait(timeout=20 * SLOW)


def drawn(port):
    return float(re.search(r"^coxswain_worker_tokens_drawn_total(?:\{.*\})? (\S+)$",
                           get(f"http://127.0.0.1:{port}/metrics")[1], re.M)[1])


async def ask(client, i):
    prompt = f"{i:04d}" * 16
    r = await client.post("/v1/completions", timeout=60 * SLOW, json={
        "model": "null", "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True})
    assert r.json()["choices"][0]["text"] == oracle.text(prompt, N_TOKENS, temperature=0)


def test_a_group_four_times_slower_gets_about_a_quarter(pair):
    cluster, fast, slow = pair
    before = drawn(fast), drawn(slow)

    async def main():
        left = iter(range(N_REQUESTS))

        async def user(client):
            for i in left:
                await ask(client, i)

        async with httpx.AsyncClient(base_url=cluster.url) as client:
            await asyncio.gather(*(user(client) for _ in range(N_AT_ONCE)))

    asyncio.run(main())
    n_fast, n_slow = drawn(fast) - before[0], drawn(slow) - before[1]
    print(f"fast {n_fast:.0f} slow {n_slow:.0f} tokens")
    assert n_fast + n_slow == N_REQUESTS * N_TOKENS
    assert 0.1 < n_slow / n_fast < 0.45
    cluster.wait_idle()


def test_one_prefix_stays_in_one_cache_while_nothing_else_runs(pair):
    cluster, fast, slow = pair
    text = "The whole text of a long conversation. " * 60
    before = drawn(fast), drawn(slow)
    for i in range(8):
        r = httpx.post(cluster.url + "/v1/completions", timeout=60 * SLOW,
                       json={"model": "null", "prompt": f"{text}{i}", "max_tokens": 2})
        assert r.status_code == 200, r.text
        cached = r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == 0 if i == 0 else cached > len(text) - 32
    after = drawn(fast), drawn(slow)
    assert sorted(b - a for a, b in zip(before, after)) == [0, 16]
