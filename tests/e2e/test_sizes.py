"""Tests that no process is larger than its bound, when idle and after work that used every KV block. bench/sizes measures times and
CPU use."""
import asyncio
import json

import httpx
import pytest
from cluster import SANITIZED, wait_for
from completions import run
from footprint import bounds, sizes, tables
from real_model import body_of, cpu_cluster, needs_model

pytestmark = [needs_model, pytest.mark.skipif(SANITIZED, reason="sanitizers change sizes")]

KV_BYTES = 32 << 20  # bytes of KV cache, so few that many requests use all blocks and the worker's bound is tight
SEA = "The sea was calm and the boat went out. "


def check(cluster, **how):
    for name, what, n_bytes, bound in bounds(cluster, **how):
        assert n_bytes <= bound, f"{name}: {what} is {n_bytes >> 10} KiB, {bound >> 10} may be"


@pytest.mark.parametrize("tp", [1, 2])
def test_sizes(tp):
    with cpu_cluster("--max-model-len", 512, "--kv-cache-memory-bytes", KV_BYTES, tp=tp) as c:
        table = tables(c)
        assert set(table) == {f"worker-{i}" for i in range(tp)}
        for rows in table.values():
            assert (rows["collectives"] > 4 << 20) == (tp > 1)  # 3 MiB are for KV blocks in transfer
            assert 0 < rows["KV cache"] <= KV_BYTES
        check(c, kv_used=False)
        run(c, [body_of(f"{i}. " + 10 * SEA) for i in range(16)])
        c.wait_idle()
        # Rank 0 makes the vocabulary during the first steps, and frees more memory than it keeps.
        wait_for("the vocabulary of grammars is made", lambda: "grammar_vocabulary" in c.log())
        wait_for("its tokenizer is freed", lambda: all(n <= bound for _, _, n, bound in bounds(c)), seconds=5)
        check(c)
        assert sizes(c)["cox"].rss < 25 * 10**6


def test_what_a_burst_took_goes_back():
    """Several bodies near the limit (10 MB) arrive at once, and their memory is returned afterwards."""
    with cpu_cluster("--kv-cache-memory-bytes", KV_BYTES, "--max-model-len", 512) as c:
        before = sizes(c)["gateway-0"]

        async def all_at_once():
            body = json.dumps({"model": "m", "prompt": SEA * 220_000})
            async with httpx.AsyncClient(base_url=c.url, timeout=60) as client:
                return await asyncio.gather(*(client.post("/v1/completions", content=body) for _ in range(8)))

        assert {r.status_code for r in asyncio.run(all_at_once())} == {400}
        assert sizes(c)["gateway-0"].peak > before.peak + (20 << 20)
        # The last answers reach the client before the gateway has freed their requests.
        wait_for("the gateway is small again", lambda: sizes(c)["gateway-0"].rss < before.rss + (10 << 20))
