"""Implements bench/tp; the comment at the top of that script describes it. All clusters stay up through a round, and only one works
at a time, in alternating order. A machine whose speed drifts then affects all of them alike."""
import contextlib
import os
import signal
import statistics
import sys

import cpu_peers_setup as peers
import hosts
import tp_hey
import tp_peer
from cluster import BIN
from options import THREADS, count, counts, names, option_parser
from serving import machine, quiet, spread
from tp_places import MODELS, Here, TwoHosts, model_path

TOKENS = {"demo": 96, "1b": 48}  # tokens of each stream, by model
PROMPT = 512
BARS = {"`--tp 2`": 0.95, TwoHosts.name: 0.90}  # least ratio of a place's figures to the first place's
PEER_BAR = 1.6  # least ratio of Coxswain's figure to the better figure of the peer on one node and on two nodes
ONE_STREAM, PROMPTS = "1 streams, tokens/s in all", f"a prompt of {PROMPT}, tokens/s"


class Table:
    """Keeps the figures: {figure: {place: [one value for each round]}}."""

    def __init__(self, model):
        self.model, self.figures, self.places, self.others = model, {}, [], []

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
        """Returns the ratio in the median round; None when one of the places has no value of the figure."""
        rows = self.figures[figure]
        if ours not in rows or theirs not in rows:
            return None
        return statistics.median(a / b for a, b in zip(rows[ours], rows[theirs]))

    def verdicts(self):
        """Returns [(words, fraction of the bar that is reached)]. The fraction is None when the figure cannot be judged."""
        for ours, bar in BARS.items():
            for figure in self.figures if ours in self.places[1:] else ():
                if not figure.startswith("ready") and (ratio := self.ratio(figure, ours, self.places[0])) is not None:
                    yield f"{self.model}, {figure}: {ours} to {self.places[0]} {ratio:.2f} (bar {bar:g})", ratio / bar
        for figure in (ONE_STREAM, PROMPTS) if self.others else ():
            yield self.beside_peer(figure)

    def beside_peer(self, figure):
        rows = self.figures[figure]
        ratio = statistics.median(a / max(b, c) for a, b, c in zip(rows[TwoHosts.name], rows[tp_peer.ONE], rows[tp_peer.TWO]))
        words = f"{self.model}, {figure}: {TwoHosts.name} to distributed-llama's better one {ratio:.2f} (bar {PEER_BAR:g}); " \
                f"its two nodes to its one {self.ratio(figure, tp_peer.TWO, tp_peer.ONE):.2f}"
        if max(self.others) > tp_peer.QUIET:
            return words + f"; others took up to {max(self.others):.0%} of the machine beside it", None
        return words, ratio / PEER_BAR


def measure_all(table, places, options, i_round):
    def turns(figure, take):
        for place in (places + places[::-1] if i_round % 2 == 0 else places[::-1] + places):
            values[place.name] = values.get(place.name, []) + [take(place)]
        for place in places:
            table.add(figure, place.name, statistics.fmean(values[place.name]))

    for place in places:  # the first requests warm up: the processes use their memory for the first time
        place.decode(max(options.streams), 8)
        place.prompt(PROMPT)
    for n in options.streams:
        values = {}
        with quiet():
            turns(f"{n} streams, tokens/s in all", lambda place: place.decode(n, TOKENS[table.model]))
    values = {}
    with quiet():
        turns(PROMPTS, lambda place: place.prompt(PROMPT))


def round_of_ours(table, options, cores, i_round):
    path = model_path(table.model)
    shapes = [(tp, 1) for tp in options.tp] + [(1, pp) for pp in options.pp if pp > 1]
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(Here(path, tp, pp, cores, options.threads)) for tp, pp in shapes]
        if options.hosts:
            places.append(stack.enter_context(TwoHosts(path, cores)))
        for place in places:
            table.add("ready, s", place.name, place.ready_s)
        measure_all(table, places, options, i_round)


def round_of_peer(table, options, cores, i_round):
    with tp_peer.DistributedLlama(options.peer, cores) as peer, quiet():
        for name, nodes in ((tp_peer.ONE, 1), (tp_peer.TWO, 2)):
            prompt, decoded = peer.run(nodes)
            table.add(ONE_STREAM, name, decoded)
            table.add(PROMPTS, name, prompt)
    table.others += peer.others
    if i_round == 0:
        print(peer.describe(), flush=True)


def measure(name, options, cores):
    table = Table(name)
    for i in range(options.rounds):
        turns = [round_of_ours, round_of_peer] if options.peer and name == "1b" else [round_of_ours]
        for turn in turns[::1 if i % 2 == 0 else -1]:
            turn(table, options, cores, i)
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
    if why := refused(options):
        parser.error(why)
    return options


def refused(options):
    """Returns the reason why these options cannot be measured; None when they can be measured."""
    if options.hey and (options.hosts or options.pp != [1]):
        return "--hey is of ranks on this machine: not with --hosts, --peer or --pp"
    if options.peer and not tp_peer.program(options.peer):
        return f"--peer: there is no program dllama in {options.peer!r}: build distributed-llama there"
    if options.peer and not ("1b" in options.models and 1 in options.streams):
        return "--peer is measured with one stream of the model 1b: --models and --streams leave it out"
    if options.hosts and options.cores < 2:
        return "two hosts want two cores"
    if options.hosts and (reason := hosts.why_not()):
        return f"two hosts: {reason}"
    if options.hey and not tp_hey.program():
        return "there is no hey: scripts/setup --clients"
    return None


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the script then exits normally, so that the processes that it started are ended
    cores = sorted(os.sched_getaffinity(0))[:options.cores]
    peers.check_models(options.models)
    if not (BIN / "cox").exists():
        sys.exit(f"there is no {BIN / 'cox'}: scripts/build")
    print(f"{machine()}; cores {','.join(map(str, cores))}; {options.rounds} rounds: median (least … most)", flush=True)
    verdicts = []
    for name in options.models:
        table = tp_hey.measure(name, options, cores) if options.hey else measure(name, options, cores)
        table.show()
        verdicts += table.verdicts()
    print()
    said = ["NOT JUDGED" if reached is None else "held" if reached >= 1 else "MISSED" for _, reached in verdicts]
    for (words, _), verdict in zip(verdicts, said):
        print(f"{words}: {verdict}")
    n_held, n_missed = said.count("held"), said.count("MISSED")
    print(f"bars: {n_held} held, {n_missed} missed, {len(said) - n_held - n_missed} not judged")
    return 1 if n_held < len(said) and not options.no_bars else 0


if __name__ == "__main__":
    sys.exit(main())
