"""Implements the client of bench/tp. The client is a separate process, because it may have to run inside a network namespace. It
answers each line on stdin with a line of JSON: `decode PORT STREAMS TOKENS` or `prompt PORT TOKENS VOCABULARY`."""
import asyncio
import json
import random
import sys

from serving import load, stream


def answer(line):
    name, *numbers = line.split()
    port, n, more = map(int, numbers)
    if name == "decode":
        rate, first_ms = asyncio.run(load(port, n, more))
        return {"rate": rate, "first_ms": first_ms}
    ids = [random.randrange(300, more) for _ in range(n)]  # the ids are new, so that no part of the prompt is in the prefix cache
    return {"rate": n / asyncio.run(stream(port, 0, 1, ids))}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)
