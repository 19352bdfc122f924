"""Tests far more requests than the KV blocks can hold, many of them cancelled. The other requests get exactly their tokens, and at
the end no block and no byte of a request is kept in the head. Runs on null workers, or on the demo model with
COX_OVERLOAD_MODEL=demo (scripts/acceptance b4)."""
import asyncio
import json
import os
import random
import re
import resource

import httpx
import null_oracle
import pytest
from cluster import SANITIZED, SHORT, SLOW, Cluster, get, wait_for
from footprint import size_of
from real_model import SENTENCES, needs_model

DEMO = os.environ.get("COX_OVERLOAD_MODEL") == "demo"
pytestmark = needs_model if DEMO else []
N = 300 if SHORT else 2000
BLOCKS, BLOCK = (48, 16) if DEMO else (96, 16)
ON = {"model": "demo-base", "workers": 1, "tp": 1} if DEMO else {"model": "null"}
LIMITS = (["--max-model-len", 128, "--max-num-seqs", 64, "--device", "cpu", "--served-model-name", "null"] if DEMO else
          ["--max-model-len", 512, "--max-num-seqs", 64, "--max-num-batched-tokens", 256, "--null-step-us", 200])
MAX_ROUNDS = 10
SLACK = 1 << 19  # bytes that an allocator may keep, which are less than 300 for each request


@pytest.fixture(scope="module", params=([[]] if DEMO else [[], ["--num-speculative-tokens", 4]]),
                ids=lambda args: "drafts" if args else "plain")
def cluster(request):
    """Yields a cluster in which one stream takes up to a quarter of the blocks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the gateway inherits the limit
    try:
        with Cluster("--num-gpu-blocks-override", BLOCKS, "--block-size", BLOCK, "--max-waiting", 2 * N, *LIMITS,
                     *request.param, **ON) as c:
            yield c
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def draw_request(rng):
    """Returns a request with a shared prefix, so that blocks are shared. Some prompts are equal to the end."""
    text = "abcdefgh"[rng.randrange(8)] * 300
    prompt = text[:rng.choice([40, 100, 250])] + rng.choice(["", "", str(rng.randrange(1000))])
    body = {"model": "null", "prompt": prompt, "max_tokens": rng.randint(4, 120), "seed": rng.randrange(100),
            "n": rng.choice([1, 1, 1, 2])}
    if DEMO:
        prompt = SENTENCES[0][:rng.choice([20, 40, 80])] + rng.choice(["", "Then", "But"])
        body |= {"prompt": prompt, "max_tokens": rng.choice([2, 4, 8, 40]), "temperature": 0, "ignore_eos": True}
    return body, rng.choice([None, None, "waiting", "streaming"])


async def ask(port, body, stream, opening):
    text = json.dumps({**body, "stream": stream}).encode()
    async with opening:  # few clients connect at once, because a connection that stays silent for long is closed
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(text) + text)
        await writer.drain()
    return reader, writer


def expected(body, i_choice, got, known={}):
    """Returns the expected answer. For a real model it is the earlier answer to the same request."""
    if DEMO:
        return known.setdefault((body["prompt"], body["max_tokens"]), got)
    return null_oracle.text(body["prompt"], body["max_tokens"], seed=body["seed"], i_choice=i_choice)


async def stay(port, body, opening):
    reader, writer = await ask(port, body, False, opening)
    head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200"), (head, answer)
    choices = sorted(json.loads(answer)["choices"], key=lambda c: c["index"])
    for i, choice in enumerate(choices):
        assert choice["text"] == expected(body, i, choice["text"])
    return len(choices)


async def leave(port, body, opening, how, rng):
    """Sends a request and hangs up while it waits, or after some events."""
    reader, writer = await ask(port, body, how == "streaming", opening)
    if how == "waiting":
        await asyncio.sleep(rng.random() / 2)
    else:
        for _ in range(rng.randrange(1, 40)):
            if not await reader.readline():
                break
    writer.transport.abort()
    return 0


async def one_round(cluster, seed):
    """Runs one round. Returns the number of choices that were answered in full."""
    rng, port, opening, tasks = random.Random(seed), cluster.ports[0], asyncio.Semaphore(32), []
    for _ in range(N):
        body, how = draw_request(rng)
        tasks.append(asyncio.create_task(leave(port, body, opening, how, rng) if how else stay(port, body, opening)))
    return sum(await asyncio.gather(*tasks))


def metrics(cluster, name):
    return sum(float(v) for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", get(cluster.admin + "/metrics")[1], re.M))


def is_flat(sizes):
    """Returns true when one of the last two rounds left no more memory than some earlier round, because a leak would add up. The
    memory that an allocator returns depends on the queue's length. AddressSanitizer keeps freed memory, so there only
    LeakSanitizer finds leaks, at the head's end."""
    return len(sizes) >= 3 and (SANITIZED or min(sizes[-2:]) <= max(sizes[:-2]) + SLACK)


def test_nothing_is_left_of_them(cluster):
    n_answered, sizes = 0, []
    before = cluster.status()["requests"]
    while not is_flat(sizes):
        assert len(sizes) < MAX_ROUNDS, f"the head grows: {sizes}"
        n_answered += asyncio.run(one_round(cluster, len(sizes)))
        wait_for("all are gone", lambda: cluster.running() == 0, 600 if DEMO else 60)
        wait_for("all blocks are free", lambda: cluster.status()["kv"]["blocks_used"] == 0)
        assert metrics(cluster, "coxswain_kv_blocks_used") == 0
        assert metrics(cluster, "vllm:num_requests_running") == metrics(cluster, "vllm:num_requests_waiting") == 0
        sizes.append(size_of(cluster.pid("head")).rss)
    status = cluster.status()
    requests = status["requests"]
    assert requests["failed"] == before["failed"] and requests["preemptions"] > 0
    assert requests["finished"] >= n_answered > 0 and requests["cancelled"] > 0
    assert status["kv"]["evictions"] > 0 and status["kv"]["prefix_hit_rate"] > 0
    print(f"{len(sizes)} rounds of {N}: {requests}; rss of the head after each: {[s >> 10 for s in sizes]} KiB")


async def fill(cluster, n):
    """Opens n requests, of which one runs and the others wait. Returns their connections, which no client reads."""
    body, opened = {"model": "null", "prompt": "long", "max_tokens": 400, "temperature": 0}, []
    for i in range(n):
        opened.append(await ask(cluster.ports[0], body, True, asyncio.Semaphore(1)))
        await asyncio.to_thread(wait_for, "it runs or waits", lambda: cluster.running() == i + 1)
    requests = cluster.status()["requests"]
    assert (requests["running"], requests["waiting"]) == (1, n - 1)
    return opened


async def refusals(cluster, n_waiting):
    opened = await fill(cluster, 1 + n_waiting)
    async with httpx.AsyncClient(base_url=cluster.url, timeout=30 * SLOW) as client:
        chat = {"messages": [{"role": "user", "content": "short"}]}
        answers = [await client.post(path, json={"model": "null", "max_tokens": 4, "stream": stream, **body})
                   for stream in (False, True)
                   for path, body in (("/v1/completions", {"prompt": "short"}), ("/v1/chat/completions", chat))]
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.to_thread(cluster.wait_idle)
        again = await client.post("/v1/completions", json={"model": "null", "prompt": "short", "max_tokens": 4,
                                                           "temperature": 0})
    return answers, again


@pytest.mark.skipif(DEMO, reason="the model does not matter")
def test_who_is_refused_is_told_when_to_come_back():
    """A full queue answers 429 at once, with Retry-After, also for streams, as OpenAI does. Queued requests are not disturbed, and
    when the queue is empty all requests are served."""
    with Cluster("--max-num-seqs", 1, "--max-waiting", 2, "--null-step-us", 50000, workers=1, tp=1) as c:
        before = c.status()["requests"]["failed"]
        answers, again = asyncio.run(refusals(c, 2))
        assert c.status()["requests"]["failed"] == before + len(answers)
    for r in answers:
        assert r.status_code == 429, (r.status_code, r.text)
        assert 1 <= int(r.headers["retry-after"]) <= 60
        error = r.json()["error"]
        assert r.headers["content-type"] == "application/json" and error["message"] and error["code"] == 429
    assert again.status_code == 200
    assert again.json()["choices"][0]["text"] == null_oracle.text("short", 4, temperature=0)


SLOTS, QUEUE, CLIENTS = 16, 16, 200


async def once(port, body, opening):
    """Returns (status, answer). A refused request must have Retry-After."""
    reader, writer = await ask(port, body, False, opening)
    head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status = int(head.split()[1])
    assert status in (200, 429), (head, answer)
    assert (b"retry-after: 1" in head.lower()) == (status == 429)
    return status, json.loads(answer)


async def storm(port, n_each):
    """Every client retries at once, whatever Retry-After says. Returns how often each status was given."""
    counts, opening = {200: 0, 429: 0}, asyncio.Semaphore(64)

    async def client(i):
        body = {"model": "null", "prompt": f"{i % 7} and some words", "max_tokens": 20, "temperature": 0}
        for _ in range(n_each):
            status, answer = await once(port, body, opening)
            counts[status] += 1
            if status == 200:
                assert answer["choices"][0]["text"] == null_oracle.text(body["prompt"], 20, temperature=0)

    await asyncio.gather(*(client(i) for i in range(CLIENTS)))
    return counts


async def burst(port, n):
    body = {"model": "null", "prompt": "afterwards", "max_tokens": 4, "temperature": 0}
    return [status for status, _ in await asyncio.gather(*(once(port, body, asyncio.Semaphore(n)) for _ in range(n)))]


@pytest.mark.skipif(DEMO, reason="the model does not matter")
def test_a_storm_is_refused_and_leaves_nothing():
    """Ten times as many clients as slots and queue places send requests, and none of them waits. Accepted requests get their tokens,
    and the others get 429. The memory of head and gateway does not grow, and afterwards every request that fits is accepted."""
    sizes = {"head": [], "gateway-0": []}
    with Cluster("--null-step-us", 1000, "--max-num-seqs", SLOTS, "--max-num-queued-reqs", QUEUE) as c:
        while not all(is_flat(s) for s in sizes.values()):
            assert len(sizes["head"]) < MAX_ROUNDS, f"they grow: {sizes}"
            counts = asyncio.run(storm(c.ports[0], 4 if SHORT else 15))
            assert min(counts.values()) > 0, counts
            c.wait_idle(30 * SLOW)
            assert set(asyncio.run(burst(c.ports[0], SLOTS + QUEUE))) == {200}
            for name, found in sizes.items():
                found.append(size_of(c.pid(name)).rss)
        requests = c.status()["requests"]
        assert requests["running"] == requests["waiting"] == 0 and metrics(c, "coxswain_kv_blocks_used") == 0
    print(f"{len(sizes['head'])} rounds, the last {counts}; rss after each, KiB: "
          f"{ {n: [b >> 10 for b in found] for n, found in sizes.items()} }")
