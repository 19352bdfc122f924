"""Tests the checker of chaos runs. A gateway that loses, repeats, swaps, changes or cuts off text fails the run. Only a killed
gateway is excused. A seed always gives the same schedule."""
import asyncio
import json
import types

import chaos_faults
import chaos_streams
import pytest
from chaos_net import SLOW

WANT = "abcdefghijkl"
PIECES = ["abcd", "efgh", "ijkl"]
BODY = {"prompt": "p", "n": 1, "max_tokens": 12}
NAMES = ["head", "standby", "redis", "gateway0", "gateway1", *(f"worker{i}" for i in range(5))]


def event(text, finish=None):
    return f"data: {json.dumps({'choices': [{'index': 0, 'text': text, 'finish_reason': finish}]})}\n\n"


def answer(pieces, done=True):
    text = [event(p) for p in pieces] + [": alive\n\n", event("", "length")] + (["data: [DONE]\n\n"] if done else [])
    return text


async def attempt(monkeypatch, events, ends_well=True, status="200 OK"):
    """Returns the checker's result for an answer."""
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for e in events:
            for piece in (e[:7], e[7:]):  # events may be split over chunks
                writer.write(f"{len(piece):x}\r\n{piece}\r\n".encode() if piece else b"")
        writer.write(b"0\r\n\r\n" if ends_well else b"")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    monkeypatch.setattr(chaos_streams, "HTTP_PORT", server.sockets[0].getsockname()[1])
    monkeypatch.setattr(chaos_streams, "address", lambda host: "127.0.0.1")
    streams = chaos_streams.Streams(None, None, 1)
    async with server:
        await streams.attempt("gateway0", BODY, [WANT], 0)
    return streams.counts["tokens"]


def test_a_right_answer(monkeypatch):
    assert asyncio.run(attempt(monkeypatch, answer(PIECES))) == 12


@pytest.mark.parametrize("pieces, said", [
    (["abcd", "ijkl"], "wrong text in choice 0 at 4: 'ijkl'"),
    (["abcd", "abcd", "efgh", "ijkl"], "wrong text in choice 0 at 4: 'abcd'"),
    (["abcd", "ijkl", "efgh"], "found later in the right answer at 8"),
    (["abcd", "efgX", "ijkl"], "'efgX', must be 'efghijkl'"),
    (["abcd", "efgh"], "after .8. of .12. characters"),
    (["abcd", "efgh", "ijklm"], "wrong text in choice 0 at 8"),
])
def test_lost_doubled_swapped_changed_cut(monkeypatch, pieces, said):
    with pytest.raises(chaos_streams.Wrong, match=said):
        asyncio.run(attempt(monkeypatch, answer(pieces)))


def test_ends(monkeypatch):
    with pytest.raises(chaos_streams.Wrong, match="without .DONE"):
        asyncio.run(attempt(monkeypatch, answer(PIECES, done=False)))
    with pytest.raises(chaos_streams.Wrong, match="503"):
        asyncio.run(attempt(monkeypatch, [], status="503 Service Unavailable"))
    with pytest.raises(chaos_streams.Wrong, match="an error inside the stream"):
        asyncio.run(attempt(monkeypatch, [event("abcd"), 'data: {"error": {"message": "no"}}\n\n']))
    with pytest.raises((chaos_streams.Broken, asyncio.IncompleteReadError)):
        asyncio.run(attempt(monkeypatch, answer(PIECES, done=False), ends_well=False))


def test_only_a_death_excuses():
    gateway = types.SimpleNamespace(killed_at=[100.0], alive=lambda: True, started=101.0, n_starts=2)
    streams = chaos_streams.Streams(types.SimpleNamespace(processes={"gateway0": gateway}), None, 1)
    assert streams.was_killed("gateway0", 99.0) and streams.was_killed("gateway0", 100.5)
    assert not streams.was_killed("gateway0", 102.0 + 5 * SLOW)
    gateway.killed_at, gateway.n_starts = [], 1
    assert not streams.was_killed("gateway0", 99.0)


def test_a_seed_is_a_schedule():
    first = chaos_faults.make_schedule(3, 600, NAMES, None)
    assert first == chaos_faults.make_schedule(3, 600, NAMES, None) != chaos_faults.make_schedule(4, 600, NAMES, None)
    assert {f["kind"] for f in first} == set(chaos_faults.DECK)
    assert all(f["at"] + f.get("for", 0) <= 592 for f in first)
    assert all(hasattr(chaos_faults.Hands, "do_" + k.split("_")[0]) for k in chaos_faults.DECK)
    only = chaos_faults.make_schedule(3, 600, ["head", "gateway0", "worker0"], ["kill_head", "kill_standby", "redis_killed"])
    assert {f["kind"] for f in only} == {"kill_head"}
