"""Tests that costly grammars use no more of a worker's memory than --grammar-room. Requests that do not fit wait and are not
refused, and another request is answered meanwhile."""
import asyncio
import json

import httpx
import pytest
from cluster import SANITIZED, get
from completions import complete
from footprint import size_of
from real_model import cpu_cluster, needs_model

pytestmark = [needs_model, pytest.mark.skipif(SANITIZED, reason="sanitizers change sizes")]

MIB = 1 << 20
ROOM = 32
# BESIDE is MiB beyond --grammar-room. One compile of such a grammar takes 20 MB, and the allocator keeps some freed memory. Measured: 85 MiB, and
# 161 MiB with memory for all grammars.
BESIDE = 72
N = 24


def words(i):
    """Returns a pattern of 14,000 words, different for each i. The grammar of the pattern and one matcher take 10 MB."""
    return {"regex": "(" + "|".join(f"{(k * 7919 + i * 104729) % 10**9:09d}word" for k in range(14000)) + ")( x)*"}


async def all_at_once(url, bodies):
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        return await asyncio.gather(*(client.post("/v1/completions", json=b) for b in bodies))


def test_costly_grammars_stay_in_their_room():
    with cpu_cluster("--max-model-len", 256, "--grammar-room", f"{ROOM}Mi") as c:
        small = {"model": "m", "prompt": "Say it:", "max_tokens": 8, "temperature": 0, "structured_outputs": {"choice": ["yes", "no"]}}
        assert complete(c, **small)["choices"][0]["text"] in ("yes", "no")
        pid = next(p for name, p in c.pids().items() if name.startswith("worker"))
        before = size_of(pid).rss
        bodies = [{"model": "m", "prompt": f"{i}. Say it:", "max_tokens": 12, "temperature": 1, "seed": i, "structured_outputs": words(i)}
                  for i in range(N)]
        answers = asyncio.run(all_at_once(c.url, [*bodies, small]))
        assert [r.status_code for r in answers] == [200] * (N + 1), next(r.text for r in answers if r.status_code != 200)
        assert answers[-1].json()["choices"][0]["text"] in ("yes", "no")
        grown = size_of(pid).peak - before
        assert grown <= (ROOM + BESIDE) * MIB, f"{grown >> 20} MiB"
        code, text = get(c.admin + "/api/debug")
        assert code == 200 and json.loads(text)["counts"]["requests_awaiting_grammar"] == 0
