"""Implements the clients of a chaos run. Each client requests streams one after the other at a gateway of its choice, and compares
the bytes with the expected bytes as they arrive. A stream may break only when its gateway dies. The stream is then requested
again at the other gateway, and that answer must be right."""
import asyncio
import json
import random
import socket
import time
from collections import Counter

import null_oracle as oracle
from chaos_net import HTTP_PORT, KEY, SLOW, address

STALL_S = 45.0 * SLOW  # longest time without a token under any fault: the longest faults, plus twice the time to detect one
PREFIXES = ["", "A common beginning shared by many requests. " * 3, "Another one, " * 20]
GATEWAYS = {"gateway0": "b", "gateway1": "c"}


class Wrong(Exception):
    """`Wrong` is raised for a wrong stream that no fault excuses."""


class Refused(Wrong):
    """`Refused` is raised for an error, a refusal or a stall: the answer is missing, but no token is wrong."""


class Broken(Exception):
    """`Broken` is raised when the connection ended, or could not be made."""


def make_body(rng, most):
    prompt = rng.choice(PREFIXES) + f"request {rng.randrange(10**6)}"
    return {"model": "m", "prompt": prompt, "max_tokens": rng.randrange(20, most), "temperature": rng.choice([0, 1]),
            "seed": rng.randrange(2**40), "n": rng.choice([1, 1, 1, 2]), "ignore_eos": True}


class Formula:
    """Computes expected texts by docs/develop/null-worker.md; every request is a new one."""

    def __init__(self, most):
        self.most = most

    def draw(self, rng):
        body = make_body(rng, self.most)
        return body, [oracle.text(body["prompt"], body["max_tokens"], seed=body["seed"], i_choice=i,
                                  temperature=body["temperature"]) for i in range(body["n"])]


class Quiet:
    """Takes expected texts from the cluster itself, which answered each request alone before the first fault."""

    def __init__(self, most):
        self.most, self.known = most, []

    async def ask(self, streams, seed, n=12):
        rng = random.Random(f"{seed}/quiet")
        for _ in range(n):
            body = make_body(rng, self.most)
            self.known.append((body, await streams.attempt("gateway0", body, None)))

    def draw(self, rng):
        return rng.choice(self.known)


class Streams:
    def __init__(self, cluster, oracle, seed):
        self.cluster, self.oracle, self.seed = cluster, oracle, seed
        self.counts, self.failures, self.stopping = Counter(), [], False
        self.pauses = []  # longest pause of each stream: (seconds, end time, gateway)
        self.slow_until = {}  # for each client, the time when its slow reading ends

    def fail(self, text):
        self.failures.append(text)
        print(f"FAILED: {text}", flush=True)

    # ---- one stream ------------------------------------------------------------------------------

    async def events(self, reader):
        """Yields the data of each event. Raises Broken unless [DONE] and the end of the body arrive."""
        rest, done = b"", False
        while True:
            size = int(await reader.readline() or b"-1", 16)
            if size < 0:
                raise Broken("the connection ended inside the answer")
            data = await reader.readexactly(size + 2)
            if size == 0:
                if not done:
                    raise Wrong("the answer ended without [DONE]")
                return
            *complete, rest = (rest + data[:-2]).split(b"\n\n")
            for event in complete:
                if event == b"data: [DONE]":
                    done = True
                elif event.startswith(b"data: "):
                    yield json.loads(event[6:])
                elif not event.startswith(b":"):
                    raise Wrong(f"no event: {event[:80]!r}")

    async def attempt(self, gateway, body, want, i_client=None):
        """Returns the texts of all choices. They are compared with `want` (None: unknown) as they arrive."""
        have, finished, last, longest = [""] * body["n"], set(), time.monotonic(), (0.0, 0.0, gateway)
        is_slow = False
        async with asyncio.timeout(None) as limit:
            limit.reschedule(asyncio.get_running_loop().time() + STALL_S)
            reader, writer = await self.connect(gateway, body)
            try:
                async for event in self.events(reader):
                    limit.reschedule(asyncio.get_running_loop().time() + STALL_S)
                    now = time.monotonic()
                    longest, last = max(longest, (now - last, now, gateway)), now
                    if "error" in event:
                        raise Refused(f"an error inside the stream: {json.dumps(event)[:300]}")
                    for choice in event["choices"]:
                        self.take(choice, have, finished, want)
                    if self.slow_until.get(i_client, 0) > now:
                        is_slow = True
                        await asyncio.sleep(0.2)
            finally:
                writer.close()
        if len(finished) != body["n"] or want and have != want:
            raise Wrong(f"[DONE] after {[len(h) for h in have]} of {[len(w) for w in want or have]} characters")
        self.counts["tokens"] += body["n"] * body["max_tokens"]
        if not is_slow and i_client is not None:
            self.pauses.append(longest)
        return have

    async def connect(self, gateway, body):
        data = json.dumps({**body, "stream": True}).encode()
        reader, writer = await asyncio.open_connection(address(GATEWAYS[gateway]), HTTP_PORT, limit=1 << 16)
        try:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: m\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n"
                         f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            head = await reader.readuntil(b"\r\n\r\n")
            if head.split()[1] != b"200":
                said = (head + await reader.read(400)).decode(errors="replace").split("\r\n")
                raise Refused(f"{said[0]}: {said[-1][:300]}")
            if b"chunked" not in head.lower():
                raise Wrong(f"no stream: {head!r}")
        except BaseException:
            writer.close()
            raise
        return reader, writer

    def take(self, choice, have, finished, want):
        i, text = choice["index"], choice["text"]
        if i in finished:
            raise Wrong(f"choice {i} goes on after its end with {text!r}")
        at = len(have[i])
        if want and want[i][at:at + len(text)] != text:
            raise Wrong(f"wrong text in choice {i} at {at}: {text!r}, must be {want[i][at:at + max(20, len(text))]!r}; "
                        f"before it: {have[i][-20:]!r}; found later in the right answer at {want[i].find(text, at)}")
        have[i] += text
        if choice.get("finish_reason"):
            finished.add(i)
            if choice["finish_reason"] != "length":
                raise Wrong(f"choice {i} ended with {choice['finish_reason']}")

    # ---- clients ---------------------------------------------------------------------------------

    def was_killed(self, gateway, since):
        """Returns whether the gateway's death excuses a connection begun at `since`: the gateway was killed since then, or did not
        serve again yet."""
        p = self.cluster.processes[gateway]
        return any(k >= since for k in p.killed_at) or not p.alive() or p.started > since - 5 * SLOW and p.n_starts > 1

    async def one_request(self, rng, i_client):
        body, want = self.oracle.draw(rng)
        gateway, again = rng.choice(sorted(GATEWAYS)), False
        while True:
            begin = time.monotonic()
            try:
                await self.attempt(gateway, body, want, i_client)
                break
            except (OSError, Broken, asyncio.IncompleteReadError, ValueError) as e:
                if isinstance(e, TimeoutError):
                    raise Wrong(f"no token for {STALL_S:g} s at {gateway}") from None
                if not self.was_killed(gateway, begin):
                    raise Wrong(f"{gateway} lives, but a connection to it ended with {e!r}") from None
            again = True
            self.counts["connections broken by a gateway's death"] += 1
            gateway = next(g for g in sorted(GATEWAYS) if g != gateway)
            await asyncio.sleep(0.2)
        self.counts["streams"] += 1
        self.counts["streams asked again"] += again

    async def one_client(self, i):
        rng = random.Random(f"{self.seed}/{i}")
        while not self.stopping:
            try:
                await self.one_request(rng, i)
            except Wrong as e:
                self.fail(f"client {i}: {e}")
                return
