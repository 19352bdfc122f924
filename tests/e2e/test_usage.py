"""Tests who used what: GET /api/usage, `cox usage` and the series of /metrics, with 20 API keys at once and a worker that is killed in
between. The sums over the tenants equal the totals, and the tokens equal what the clients received. COX_USAGE_REQUESTS sets the number of
requests (the test usage_whole: 10,000)."""
import asyncio
import collections
import json
import os
import random
import signal

import httpx
import pytest

from cluster import SHORT, SLOW, Cluster, get, run_cox, wait_for

N_REQUESTS = int(os.environ.get("COX_USAGE_REQUESTS") or (120 if SHORT else 400))
N_TENANTS, N_USERS = 20, 48
COUNTS = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens", "block_ms", "step_ns")
HOSTILE = 'a"b\\c'


def name_of(i):
    return HOSTILE if i == 3 else f"team-{i}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("usage") / "keys"
    path.write_text("".join(f"key-{i} {name_of(i)} priority={i % 2}\n" for i in range(N_TENANTS)) + "key-quits quits\nkey-unnamed\n")
    return path


def usage_of(cluster):
    code, body = get(cluster.admin + "/api/usage")
    assert code == 200, body
    return json.loads(body)


def assert_sums(usage):
    for count in COUNTS:
        assert sum(t[count] for t in usage["tenants"]) == usage["totals"][count], count
    steps = [t["step_ns"] for t in usage["tenants"]]
    assert steps == sorted(steps, reverse=True)


def metrics_of(cluster):
    """Returns {name without labels: {tenant or "": value}} of the head."""
    found = collections.defaultdict(dict)
    for line in get(cluster.admin + "/metrics")[1].splitlines():
        if line.startswith("#"):
            continue
        series, value = line.rsplit(" ", 1)
        name, _, labels = series.partition("{")
        tenant = labels.partition('tenant="')[2].rpartition('"')[0] if "tenant=" in labels else ""
        found[name][tenant] = float(value)
    return found


class Load:
    """Sends requests of all tenants with random lengths and counts what their answers say."""

    def __init__(self, cluster, n):
        self.cluster, self.n, self.sent, self.done = cluster, n, 0, 0
        self.counts = collections.defaultdict(lambda: collections.Counter())
        self.rng = random.Random(5)

    async def one(self, client, i):
        tenant = name_of(i % N_TENANTS)
        shared = [1 + i % N_TENANTS] * 64  # each tenant's prompts have a common beginning
        body = {"model": "null", "prompt": shared[:self.rng.choice((1, 20, 64))] + [self.rng.randrange(1, 250) for _ in range(self.rng.randrange(1, 90))],
                "max_tokens": self.rng.randrange(1, 40), "ignore_eos": True}
        headers = {"Authorization": f"Bearer key-{i % N_TENANTS}"}
        r = await client.post("/v1/completions", json=body, headers=headers)
        assert r.status_code == 200, r.text
        usage = r.json()["usage"]
        assert usage["prompt_tokens"] == len(body["prompt"]) and usage["completion_tokens"] == body["max_tokens"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.counts[tenant].update(requests=1, cached_tokens=cached, prompt_tokens=usage["prompt_tokens"] - cached,
                                   generated_tokens=usage["completion_tokens"])
        self.done += 1

    async def quit_early(self, client):
        """Closes a stream after its first token."""
        body = {"model": "null", "prompt": [7] * 40, "max_tokens": 200, "ignore_eos": True, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body, headers={"Authorization": "Bearer key-quits"}) as r:
            assert r.status_code == 200
            async for line in r.aiter_lines():
                if line.startswith("data: {"):
                    return

    async def user(self, client):
        while self.sent < self.n:
            i, self.sent = self.sent, self.sent + 1
            await self.one(client, i)
            if i % 40 == 0:
                await self.quit_early(client)

    async def kill_a_worker(self):
        while self.done < self.n // 2:
            await asyncio.sleep(0.01)
        os.kill(self.cluster.pid("worker-0"), signal.SIGKILL)
        assert_sums(usage_of(self.cluster))  # also while requests run

    async def main(self):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self.cluster.url, timeout=120 * SLOW, limits=limits, trust_env=False) as client:
            await asyncio.gather(self.kill_a_worker(), *(self.user(client) for _ in range(N_USERS)))


@pytest.mark.timeout((60 + N_REQUESTS // 10) * SLOW)
def test_tenants_sum_to_the_totals(keys):
    # With these steps 8 sequences run for 0.2 s each, so that requests wait and some are preempted even where the client is slow.
    options = ("--api-key-file", keys, "--scheduling-policy", "priority", "--max-num-seqs", 4, "--null-step-us", 10000)
    with Cluster(*options, workers=2, tp=1) as c:
        load = Load(c, N_REQUESTS)
        asyncio.run(load.main())
        c.wait_idle(30)
        usage, status = usage_of(c), c.status()
        by_name = {t["name"]: t for t in usage["tenants"]}
        assert_sums(usage)
        assert usage["model"] == "null" and len(by_name) == N_TENANTS + 1
        for name, counts in load.counts.items():
            assert {k: by_name[name][k] for k in counts} == dict(counts), name
            assert by_name[name]["block_ms"] > 0 and by_name[name]["step_ns"] > 0
        assert by_name["quits"]["requests"] == (N_REQUESTS + 39) // 40
        ends = status["requests"]
        assert ends["finished"] + ends["cancelled"] == usage["totals"]["requests"] and ends["failed"] == 0
        assert ends["preemptions"] > 0 and status["recent_failures"]

        # independent counters of the head
        metrics = metrics_of(c)
        assert metrics["vllm:generation_tokens_total"][""] == usage["totals"]["generated_tokens"]
        names = {HOSTILE.replace("\\", "\\\\").replace('"', '\\"') if n == HOSTILE else n for n in by_name}
        for series in ("requests", "prompt_tokens", "cached_tokens", "generated_tokens"):
            values = metrics[f"coxswain_tenant_{series}_total"]
            assert set(values) == names and sum(values.values()) == usage["totals"][series]
        assert sum(metrics["coxswain_tenant_step_seconds_total"].values()) == pytest.approx(usage["totals"]["step_ns"] / 1e9)
        assert sum(metrics["coxswain_tenant_block_seconds_total"].values()) == pytest.approx(usage["totals"]["block_ms"] / 1e3)

        # the command
        done = run_cox("usage", "--address", f"127.0.0.1:{c.admin_port}", "--json")
        assert done.returncode == 0 and json.loads(done.stdout) == usage_of(c)
        lines = run_cox("usage", "--address", f"127.0.0.1:{c.admin_port}").stdout.splitlines()
        assert lines[1].startswith("key ") and lines[2].split()[:2] == ["TOTAL", str(usage["totals"]["requests"])]
        assert [line.split()[0] for line in lines[3:]] == [t["name"] for t in usage["tenants"]]


def test_an_answer_says_what_it_used():
    chat = {"model": "null", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 60}
    header = {"x-coxswain-usage": "full"}

    def post(path, body, headers=header):
        r = httpx.post(c.url + path, json=body, headers=headers, timeout=30)
        assert r.status_code == 200, r.text
        if not body.get("stream"):
            return r.json()["usage"]
        events = [json.loads(line[6:]) for line in r.text.splitlines() if line.startswith("data: {")]
        found = [e.get("usage") or e.get("response", {}).get("usage") for e in events]
        assert all("coxswain" not in u for u in filter(None, found[:-2]))
        return [u for u in found if u][-1]

    with Cluster("--null-step-us", 2000, workers=1, tp=1) as c:
        many = {"model": "null", "prompt": "abc", "max_tokens": 60, "n": 2, "ignore_eos": True}
        answers = [post("/v1/completions", many), post("/v1/chat/completions", chat),
                   post("/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}}),
                   post("/v1/responses", {"model": "null", "input": "hello", "max_output_tokens": 60}),
                   post("/v1/responses", {"model": "null", "input": "hello", "max_output_tokens": 60, "stream": True}),
                   post("/v1/messages", chat), post("/v1/messages", {**chat, "stream": True})]
        for usage in answers:
            own = usage["coxswain"]
            assert set(own) == {"block_seconds", "step_seconds", "queue_seconds"}
            assert own["block_seconds"] > 0 and own["step_seconds"] > 0.1 and own["queue_seconds"] >= 0
        c.wait_idle()
        # choices of other requests never ran in the same steps, so all time of steps is theirs, beside the steps that ran in vain
        totals = usage_of(c)["totals"]
        assert sum(u["coxswain"]["step_seconds"] for u in answers) <= totals["step_ns"] / 1e9 + 1e-6
        assert sum(u["coxswain"]["step_seconds"] for u in answers) > 0.9 * totals["step_ns"] / 1e9
        # a stop string ends a choice without a last message from the head
        text = httpx.post(c.url + "/v1/completions", json={**many, "n": 1, "temperature": 0}, timeout=30).json()["choices"][0]["text"]
        stopped = post("/v1/completions", {**many, "n": 1, "temperature": 0, "stop": text[20:26]})
        assert stopped["completion_tokens"] < 60 and stopped["coxswain"]["step_seconds"] > 0.03
        for headers in ({}, {"x-coxswain-usage": "brief"}):
            assert "coxswain" not in post("/v1/completions", many, headers)


def test_keys_without_a_name_and_requests_without_a_key(keys):
    body = {"model": "null", "prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": True}
    with Cluster("--api-key-file", keys, workers=1, tp=1) as c:
        r = httpx.post(c.url + "/v1/completions", json=body, headers={"Authorization": "Bearer key-unnamed"}, timeout=30)
        assert r.status_code == 200, r.text
        wait_for("the request counts", lambda: usage_of(c)["totals"]["generated_tokens"] == 2)
        (tenant,) = usage_of(c)["tenants"]
        assert tenant["name"].startswith("sha256:") and "key-unnamed" not in json.dumps(usage_of(c))
    with Cluster(workers=1, tp=1) as c:
        assert usage_of(c)["tenants"] == []
        httpx.post(c.url + "/v1/completions", json=body, timeout=30).raise_for_status()
        wait_for("the request counts", lambda: usage_of(c)["totals"]["generated_tokens"] == 2)
        (tenant,) = usage_of(c)["tenants"]
        assert tenant["name"] is None and tenant["tenant"] == "0" * 16
        assert set(metrics_of(c)["coxswain_tenant_requests_total"]) == {"no-key"}
        assert "(no key)" in run_cox("usage", "--address", f"127.0.0.1:{c.admin_port}").stdout
