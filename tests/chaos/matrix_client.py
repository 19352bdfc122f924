"""Runs the client of a matrix run. The client is a process in a separate session, controlled by the lines `go` and `rest` on its
input.

It compares every answer as it arrives (chaos_streams.py) and writes one line of JSON per event to its output:
  stream   a right answer: begin, gateway, and its longest pause in seconds (`pause`), which ended at `at`
  lost     a connection that ended or could not be made: begin, gateway, `answered` (part of the answer had arrived), why.
           The client requests again at the other gateway. The parent judges whether a strike excuses the loss
  wrong    a byte that no expected text allows;  failed   an error, a refusal, or no token for too long
  late     this process was off the processor for `seconds`: the client itself caused a pause of that length
  rested   no stream is open any more
With a model other than the null model, the first `go` requests a dozen answers one after the other. These are the expected
answers. All times are CLOCK_MONOTONIC in seconds, which both processes share.
Usage: matrix_client.py STREAMS SEED MOST_TOKENS MODEL"""
import asyncio
import json
import random
import sys
import time

from chaos_streams import GATEWAYS, STALL_S, Broken, Formula, Quiet, Refused, Streams, Wrong

TICK_S, LATE_S = 0.05, 0.1
GIVE_UP_S = 60.0  # time limit of a request whose connections are lost again and again
LOST = (OSError, Broken, asyncio.IncompleteReadError, ValueError)


def say(kind, **more):
    print(json.dumps({"kind": kind, "at": time.monotonic(), **more}), flush=True)


class NoAnswer(Exception):
    """`NoAnswer` is raised when the connection ended before the answer's first byte, or could not be made."""


class Client(Streams):
    def __init__(self, seed, most, model):
        super().__init__(None, (Formula if model == "null" else Quiet)(most), seed)
        self.going, self.n_open = asyncio.Event(), 0

    async def connect(self, gateway, body):
        try:
            return await super().connect(gateway, body)
        except LOST as e:
            if isinstance(e, TimeoutError):
                raise
            raise NoAnswer(repr(e)) from None

    async def one_request(self, rng, i_client):
        body, want = self.oracle.draw(rng)
        gateway, begun = rng.choice(sorted(GATEWAYS)), time.monotonic()
        while True:
            begin = time.monotonic()
            try:
                await self.attempt(gateway, body, want, i_client)
                break
            except (NoAnswer, *LOST) as e:
                if isinstance(e, TimeoutError):
                    raise Refused(f"no token for {STALL_S:g} s at {gateway}") from None
                say("lost", gateway=gateway, begin=begin, answered=not isinstance(e, NoAnswer), why=str(e) or repr(e))
            if time.monotonic() - begun > GIVE_UP_S:
                raise Refused(f"not answered within {GIVE_UP_S:g} s by either gateway")
            gateway = next(g for g in sorted(GATEWAYS) if g != gateway)
            await asyncio.sleep(0.2)
        pause, end, _ = self.pauses.pop()  # attempt() has appended this pause, and no other task has run since
        say("stream", begin=begin, gateway=gateway, pause=pause, pause_end=end)

    async def one_client(self, i):
        rng = random.Random(f"{self.seed}/{i}")
        while True:
            await self.going.wait()
            self.n_open += 1
            try:
                await self.one_request(rng, i)
            except Wrong as e:
                say("failed" if isinstance(e, Refused) else "wrong", text=f"client {i}: {e}")
                await asyncio.sleep(1)
            self.n_open -= 1
            self.rested()

    def rested(self):
        if not self.going.is_set() and not self.n_open:
            say("rested")

    async def watch_itself(self):
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if now - last - TICK_S > LATE_S:
                say("late", seconds=now - last - TICK_S)
            last = now

    async def begin(self):
        if isinstance(self.oracle, Quiet) and not self.oracle.known:
            await self.oracle.ask(self, self.seed)
        say("going")
        self.going.set()

    async def main(self, n):
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.beginning = None

        def told():
            line = sys.stdin.readline()
            if line == "go\n":
                self.beginning = asyncio.create_task(self.begin())
            elif line == "rest\n":
                self.going.clear()
                self.rested()
            else:
                ended.set()

        loop.add_reader(sys.stdin, told)
        tasks = [asyncio.create_task(self.one_client(i)) for i in range(n)] + [asyncio.create_task(self.watch_itself())]
        done, _ = await asyncio.wait([*tasks, asyncio.create_task(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # an unexpected error in one client ends all clients, and is reported


if __name__ == "__main__":
    asyncio.run(Client(sys.argv[2], int(sys.argv[3]), sys.argv[4]).main(int(sys.argv[1])))
