"""Keeps the figures of bench/cpu-peers and their bars, and prints the table."""
import math
import statistics
from dataclasses import dataclass, field

# The bars are given by (model, threads): the least ratio of Coxswain's figure to the peer's. "or read": alternatively, this fraction of the read
# bandwidth. "read": this fraction of the read bandwidth in addition.
QUANTISED = {"decode 1": 1.35, "or read": 0.90, "prompt": 2.0, "decode 32": 1.8}
DEMO = {"decode 1": 1.5, "prompt": 2.5, "decode 8": 2.0, "decode 32": 2.0}
LLAMA_BARS = {
    ("demo", 1): DEMO,
    ("demo", 2): DEMO,
    ("bf16", 2): {"decode 1": 0.97, "read": 0.85, "prompt": 1.2, "decode 8": 1.3, "decode 32": 1.3},
    ("q8_0", 2): {**QUANTISED, "read": 0.85},
    ("q4_0", 2): {**QUANTISED, "read": 0.85},
    ("q4_k_m", 2): QUANTISED,
}
SERVED = {"8 streams, served tokens/s": 1.5, "8 streams, TTFT p99, ms": 1.0, "8 streams, ITL p99, ms": 1.0}
VLLM_BARS = {("bf16", 2): {"decode 1": 1.2, "8 streams, served tokens/s": 1.4, "32 streams, served tokens/s": 1.4,
                           "32 streams, longest gap, ms": 4.0}}
BARS = {"llama.cpp": LLAMA_BARS, "vLLM": VLLM_BARS, "llama-server": dict.fromkeys(LLAMA_BARS, SERVED)}


@dataclass
class Row:
    """Holds one figure of one model and number of threads, with one value for each round."""
    model: str
    threads: int
    work: str
    peer: str
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)
    read: list = field(default_factory=list)  # the memory's read bandwidth in bytes/s
    bytes: int = 0  # bytes that a token reads, when these bytes limit the rate; else 0
    skipped: str = ""
    less_is_more: bool = False

    @property
    def ratio(self):
        """Returns how many times better Coxswain's figure is than the peer's, in the median round."""
        if not self.ours or not self.theirs:
            return None
        pairs = zip(self.ours, self.theirs)
        return statistics.median(b / a if self.less_is_more else a / b for a, b in pairs)

    def share(self, rates):
        """Returns `rates` as a fraction of the read bandwidth of the same round, in the median round."""
        if not self.bytes or not rates:
            return None
        return statistics.median(rate * self.bytes / read for rate, read in zip(rates, self.read))

    def judge(self):
        """Returns (the bar in words, the fraction of the bar that is reached). The fraction is None when there is no bar, and nan
        when the figure was not measured."""
        bar = BARS[self.peer].get((self.model, self.threads), {})
        if self.work not in bar:
            return "", None
        text, share = f"{bar[self.work]:g}", self.share(self.ours)
        reached = self.ratio / bar[self.work] if self.ratio else math.nan
        if self.work == "decode 1" and "or read" in bar:
            text += f" or {bar['or read']:.0%} of read"
            reached = max(reached, share / bar["or read"] if share else 0)
        if self.work == "decode 1" and "read" in bar:
            text += f"; {bar['read']:.0%} of read"
            reached = min(reached, share / bar["read"] if share else 0)
        return text, reached


def number(values):
    return f"{statistics.median(values):.1f}" if values else "–"


def percent(v):
    return "" if v is None else f"{v:.0%}"


def show(rows):
    print("\n| model | threads | tokens/s, or as it says | ours | of read | peer | theirs | of read | ratio | bar | |")
    print("|---" * 11 + "|")
    for row in rows:
        bar, reached = row.judge()
        verdict = f"skipped: {row.skipped}" if row.skipped else ""
        if not verdict and reached is not None:
            verdict = "held" if reached >= 1 else f"{reached:.2f} of it"
        cells = [row.model, str(row.threads), row.work, number(row.ours), percent(row.share(row.ours)), row.peer,
                 number(row.theirs), percent(row.share(row.theirs)), f"{row.ratio:.2f}" if row.ratio else "–", bar, verdict]
        print("| " + " | ".join(cells) + " |")


def conclude(rows):
    """Prints the last lines. Returns True when every bar was measured and none is missed."""
    judged = [(row, row.judge()[1]) for row in rows if row.judge()[1] is not None]
    measured = [(row, reached) for row, reached in judged if not math.isnan(reached)]
    held = [row for row, reached in measured if reached >= 1]
    print(f"bars: {len(held)} held, {len(measured) - len(held)} missed, {len(judged) - len(measured)} not measured")

    def name(row):
        return f"{row.model}, {row.threads} threads, {row.work}, beside {row.peer}"

    if measured:
        row, reached = min(measured, key=lambda x: x[1])
        print(f"furthest from its bar: {name(row)}: {reached:.2f} of it")
    if rows := [row for row in rows if row.ratio]:
        row = min(rows, key=lambda r: r.ratio)
        print(f"{name(row)}:\nworst ratio {row.ratio:.2f}")
    else:
        print("nothing was measured beside a peer")
    return len(held) == len(judged) > 0
