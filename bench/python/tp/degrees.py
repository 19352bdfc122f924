"""Implements bench/degrees; the comment at the top of that script describes it."""
import re
import statistics
import subprocess

from cluster import BIN
from options import count, counts, option_parser
from serving import machine


def figures(options, degree):
    """Returns (requests/s, tokens/s, seconds), read from the lines that users see."""
    lengths = ["--input-len", options.input_len, "--output-len", options.output_len]
    said = []
    for command, more in (("throughput", ["--num-prompts", options.num_prompts]), ("latency", ["--num-iters", "5", "--num-iters-warmup", "1"])):
        words = [BIN / "cox", "bench", command, "--model", options.model, "--device", "cpu", "--tensor-parallel-size", degree, *lengths, *more]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"cox bench {command}: {done.stderr[-2000:]}")
        said.append(done.stdout)
    throughput = re.search(r"^Throughput: ([\d.]+) requests/s, ([\d.]+) total tokens/s", said[0], re.MULTILINE) \
        or re.search(r"^Throughput: ([\d.]+) requests/s, ([\d.]+) tokens/s", said[0], re.MULTILINE)
    latency = re.search(r"^Avg latency: ([\d.]+) seconds", said[1], re.MULTILINE)
    return float(throughput[1]), float(throughput[2]), float(latency[1])


def main():
    parser = option_parser("degrees")
    parser.add_argument("--model", default="demo-base")
    parser.add_argument("--degrees", type=counts(1, 64), default=[1, 2, 4])
    parser.add_argument("--rounds", type=count(), default=3)
    parser.add_argument("--num-prompts", type=count(), default=48)
    parser.add_argument("--input-len", type=count(), default=64)
    parser.add_argument("--output-len", type=count(), default=32)
    options = parser.parse_args()
    degrees = options.degrees
    found = {d: [] for d in degrees}
    print(f"{machine()}; {options.model}, {options.num_prompts} prompts of {options.input_len} tokens, {options.output_len} each; "
          f"latency: 8 at once; {options.rounds} rounds, medians")
    for _ in range(options.rounds):
        for d in degrees:
            found[d].append(figures(options, d))
    print("\n| tensor-parallel-size | requests/s | tokens/s | Avg latency, s |\n|---|---|---|---|")
    for d in degrees:
        rate, tokens, seconds = (statistics.median(f[i] for f in found[d]) for i in range(3))
        print(f"| {d} | {rate:.2f} | {tokens:.2f} | {seconds:.3f} |")


if __name__ == "__main__":
    main()
