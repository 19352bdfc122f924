"""bench/tp: see there. All clusters stay up through a round and only one of them works at a time, in an order that
alternates, so that a machine whose speed drifts does the same to all."""
import contextlib
import os
import signal
import statistics
import sys

import hosts
import tp_hey
from options import THREADS, count, counts, names, option_parser
from serving import machine, quiet, spread
from tp_places import MODELS, DistributedLlama, Here, TwoHosts, model_path

TOKENS = {"demo": 96, "1b": 48}  # of each stream
PROMPT = 512
BARS = {"`--tp 2`": 0.95, TwoHosts.name: 0.90}  # of the first place's figures
PEER_BAR = 1.6
PEER_TOKENS = 128, 32  # of its prompt, and decoded


class Table:
    """{figure: {place: [a value of each round]}}."""

    def __init__(self, model):
        self.model, self.figures, self.places = model, {}, []

    def add(self, figure, place, value):
        self.figures.setdefault(figure, {}).setdefault(place, []).append(value)
        if place not in self.places:
            self.places.append(place)

    def show(self):
        print(f"\n| {self.model} | " + " | ".join(self.places) + " |\n|---" + "|---" * len(self.places) + "|")
        for figure, rows in self.figures.items():
            form = "%.2f" if figure.startswith("ready") else "%.1f"
            print(f"| {figure} | " + " | ".join(spread(rows[p], form) if p in rows else "" for p in self.places) + " |")

    def ratio(self, figure, ours, theirs):
        """In the median round; None: one of them has no such figure."""
        rows = self.figures[figure]
        if ours not in rows or theirs not in rows:
            return None
        return statistics.median(a / b for a, b in zip(rows[ours], rows[theirs]))

    def verdicts(self):
        """[(words, how much of the bar is reached)]."""
        wanted = [(place, self.places[0], bar) for place, bar in BARS.items() if place in self.places]
        if DistributedLlama.name in self.places:
            wanted.append((TwoHosts.name, DistributedLlama.name, PEER_BAR))
        for ours, theirs, bar in wanted:
            for figure in self.figures:
                if not figure.startswith("ready") and (ratio := self.ratio(figure, ours, theirs)) is not None:
                    yield f"{self.model}, {figure}: {ours} to {theirs} {ratio:.2f} (bar {bar:g})", ratio / bar


def measure_all(table, places, options, i_round):
    def turns(figure, take):
        for place in (places + places[::-1] if i_round % 2 == 0 else places[::-1] + places):
            values[place.name] = values.get(place.name, []) + [take(place)]
        for place in places:
            table.add(figure, place.name, statistics.fmean(values[place.name]))

    for place in places:  # memory that is used for the first time
        place.decode(max(options.streams), 8)
        place.prompt(PROMPT)
    for n in options.streams:
        values = {}
        with quiet():
            turns(f"{n} streams, tokens/s in all", lambda place: place.decode(n, TOKENS[table.model]))
    values = {}
    with quiet():
        turns(f"a prompt of {PROMPT}, tokens/s", lambda place: place.prompt(PROMPT))


def measure_peer(table, two, options):
    """Nothing else works meanwhile. Its prompts are in batches of 32 as it has them by default."""
    peer = DistributedLlama(options.peer, two.pair)
    with quiet():
        prompt, decoded = peer.run(*PEER_TOKENS)
    table.add("1 streams, tokens/s in all", peer.name, decoded)
    table.add(f"a prompt of {PROMPT}, tokens/s", peer.name, prompt)


def measure(name, options, cores):
    table, path = Table(name), model_path(name)
    shapes = [(tp, 1) for tp in options.tp] + [(1, pp) for pp in options.pp if pp > 1]
    for i in range(options.rounds):
        with contextlib.ExitStack() as stack:
            places = [stack.enter_context(Here(path, tp, pp, cores, options.threads)) for tp, pp in shapes]
            if options.hosts:
                places.append(stack.enter_context(TwoHosts(path, cores)))
            for place in places:
                table.add("ready, s", place.name, place.ready_s)
            measure_all(table, places, options, i)
            if options.peer and name == "1b":
                measure_peer(table, places[-1], options)
        print(f"{name}, round {i + 1}: " + "; ".join(words for words, _ in table.verdicts()), file=sys.stderr, flush=True)
    return table


def arguments():
    n_cores = len(os.sched_getaffinity(0))
    parser = option_parser("tp")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS))
    parser.add_argument("--tp", type=counts(1, 16))
    parser.add_argument("--pp", type=counts(1, 16), default=[1], help="stages of one rank each; 1: none")
    parser.add_argument("--streams", type=counts(1, 256), default=[1, 8])
    parser.add_argument("--threads", type=count(1, THREADS), help="of each worker; default: the cores, shared out")
    parser.add_argument("--cores", type=count(1, n_cores), default=min(2, n_cores))
    parser.add_argument("--hosts", action="store_true", help="two ranks on two hosts as well")
    parser.add_argument("--peer", help="the folder of distributed-llama's dllama; with --hosts")
    parser.add_argument("--hey", action="store_true", help="requests/s as hey has them")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-bars", action="store_true")
    options = parser.parse_args()
    options.tp = options.tp or ([1, 2, 4] if options.hey else [1, 2])
    options.rounds = 1 if options.quick else options.rounds
    options.hosts |= options.peer is not None
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and what was started is ended
    cores = sorted(os.sched_getaffinity(0))[:options.cores]
    if options.hosts and (reason := hosts.why_not()):
        sys.exit(f"two hosts: {reason}")
    print(f"{machine()}; cores {','.join(map(str, cores))}; {options.rounds} rounds: median (least … most)", flush=True)
    verdicts = []
    for name in options.models:
        table = tp_hey.measure(name, options, cores) if options.hey else measure(name, options, cores)
        table.show()
        verdicts += table.verdicts()
    print()
    for words, reached in verdicts:
        print(f"{words}: {'held' if reached >= 1 else 'MISSED'}")
    missed = sum(reached < 1 for _, reached in verdicts)
    print(f"bars: {len(verdicts) - missed} held, {missed} missed")
    return 1 if missed and not options.no_bars else 0


if __name__ == "__main__":
    sys.exit(main())
