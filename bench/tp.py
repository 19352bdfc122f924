"""bench/tp: see there. Both clusters stay up through a round and only one of them works at a time, so
that a machine whose speed drifts does the same to both."""
import asyncio
import time

from cluster import Cluster
from serving import load, machine, option_parser, prefill, spread

TOKENS = 64


def start(model, shape, threads):
    tp, pp = shape
    c = Cluster("--device", "cpu", "--pp", pp, *(["--threads", threads] if threads else []), model=model,
                workers=tp * pp, tp=tp)
    begin = time.perf_counter()
    c.start()
    return c, time.perf_counter() - begin


def one_round(options, rows):
    """Each shape started, all measured in turns, all ended. Ready times are taken on an idle machine."""
    clusters = {}
    try:
        for shape in rows:
            clusters[shape], seconds = start(options.model, shape, options.threads)
            rows[shape].setdefault("ready, s", []).append(seconds)
        for c in clusters.values():  # memory that is used for the first time
            asyncio.run(load(c.ports[0], max(options.streams), 16))
        for n in options.streams:
            for shape, c in clusters.items():
                rate, first = asyncio.run(load(c.ports[0], n, TOKENS))
                rows[shape].setdefault(f"{n} streams, tokens/s in all", []).append(rate)
                rows[shape].setdefault(f"{n} streams, first token, ms", []).append(first)
        for shape, c in clusters.items():
            rows[shape].setdefault("a prompt of 500 words, prompt tokens/s", []).extend(prefill(c, 1))
    finally:
        for c in clusters.values():
            c.stop()


def main():
    def numbers(text):
        return sorted({int(part) for part in text.split(",")})

    parser = option_parser("tp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--tp", type=numbers, default=[1, 2])
    parser.add_argument("--pp", type=numbers, default=[2], help="stages of one rank each; 1: none")
    parser.add_argument("--streams", type=numbers, default=[1, 8])
    parser.add_argument("--threads", type=int, help="of each worker; default: this machine's cores, shared out")
    options = parser.parse_args()
    print(f"{machine()}; {options.model}, {options.rounds} rounds: median (least … most)")
    rows = {shape: {} for shape in [(tp, 1) for tp in options.tp] + [(1, pp) for pp in options.pp if pp > 1]}
    for _ in range(options.rounds):
        one_round(options, rows)
    titles = [f"`--pp {pp}`" if pp > 1 else f"`--tp {tp}`" for tp, pp in rows]
    print("\n| | " + " | ".join(titles) + " |\n|---" + "|---" * len(titles) + "|")
    for name in next(iter(rows.values())):
        form = "%.2f" if name.startswith("ready") else "%.0f"
        print(f"| {name} | " + " | ".join(spread(r[name], form) for r in rows.values()) + " |")


if __name__ == "__main__":
    main()
