"""Implements bench/long-context; the comment at the top of that script describes it."""
import statistics
import sys

import cpu_peers_setup as peers
import random_q4
from cpu_peers import Child, program
from options import THREADS, count, option_parser
from serving import machine, quiet, spread

ROWS, STEPS, LAYERS = 512, 8, 4  # LAYERS: number of layers in which attention alone is measured, because it takes longest
ROOM = 64  # number of tokens behind the position
BAR = 1.3
COLUMNS = {"chunk": f"the last {ROWS} tokens, s", "linears": "the matrices alone, s", "attention": "attention alone, s",
           "prompt bound": "times both", "decode": "a token behind it, ms", "read": "its bytes by the read bandwidth, ms",
           "decode bound": "times these"}


def one_round(child, info, options, bytes_per_token):
    """Measures every figure once. Prompt and decode are also given as multiples of their bounds."""
    begin = options.position - ROWS
    linears, chunk = child.ask(f"linears {ROWS} 1"), child.ask(f"chunk {ROWS} {begin}")
    attention = child.ask(f"attention {ROWS} {begin} {LAYERS}")
    read = child.ask(f"read {options.threads}")["bytes_per_second"]
    decode = child.ask(f"decode-at {STEPS} {options.position}")
    alone = attention["seconds"] / attention["layers"] * (info["layers"] - 1)  # in the last layer only one row attends
    token, kv = decode["seconds"] / STEPS, info["kv_token_bytes"] * options.position
    bound = (bytes_per_token + kv) / read
    return {"chunk": chunk["seconds"], "linears": linears["seconds"], "attention": alone,
            "prompt bound": chunk["seconds"] / (linears["seconds"] + alone),
            "decode": token * 1e3, "read": bound * 1e3, "decode bound": token / bound,
            "GFLOP/s of linears": linears["flops"] / linears["seconds"] / 1e9,
            "GFLOP/s of attention": attention["flops"] / attention["seconds"] / 1e9, "GB/s": read / 1e9}


def whole(child, options):
    """Computes a whole prompt; prints its seconds, and those of its first and last chunk."""
    seconds = [child.ask(f"chunk {min(ROWS, options.position - at)} {at}")["seconds"] for at in range(0, options.position, ROWS)]
    print(f"a whole prompt of {options.position}: {sum(seconds):.1f} s, {options.position / sum(seconds):.1f} tokens/s; "
          f"its first {ROWS} tokens {seconds[0]:.2f} s, its last {seconds[-1]:.2f} s", flush=True)


def main():
    parser = option_parser("long-context")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--position", type=count(ROWS, random_q4.LONG - ROOM), default=32768)
    parser.add_argument("--threads", type=count(1, THREADS), default=2)
    parser.add_argument("--isa", choices=("native", "avx2"), default="native")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    path = random_q4.gguf_file()
    child = Child([program(), path, options.threads, "auto" if options.isa == "native" else options.isa, options.position + ROOM])
    try:
        info = child.ask("info")
        print(f"{machine()}; {info['device']}, KV {info['kv']}, {info['kv_token_bytes']} bytes of it a token; position {options.position}", flush=True)
        child.ask(f"fill {options.position}")
        child.ask(f"chunk {ROWS} 0")  # the first chunk warms up: the program uses its memory for the first time
        child.ask(f"read {options.threads}")
        child.ask(f"fill {options.position}")
        rounds = []
        for i in range(1 if options.quick else options.rounds):
            with quiet():
                rounds.append(one_round(child, info, options, peers.bytes_per_token(path)))
            peers.say(f"round {i + 1}: " + ", ".join(f"{k} {v:.2f}" for k, v in rounds[-1].items()))
        if options.whole:
            whole(child, options)
    finally:
        child.close()
    return show(rounds)


def show(rounds):
    columns = {title: [r[key] for r in rounds] for key, title in COLUMNS.items()}
    print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    print("| " + " | ".join(spread(values, "%.2f") for values in columns.values()) + " |")
    print("rates alone: " + ", ".join(f"{name} {statistics.median(r[name] for r in rounds):.1f}" for name in rounds[0] if "/s" in name))
    missed = 0
    for key, what in (("prompt bound", "the prompt's end"), ("decode bound", "decode")):
        ratio = statistics.median(r[key] for r in rounds)
        missed += ratio > BAR
        print(f"{what}: {ratio:.2f} times its bound (bar {BAR:g}): {'held' if ratio <= BAR else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
