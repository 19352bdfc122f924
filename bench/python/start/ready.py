"""Implements bench/ready; the comment at the top of that script describes it."""
import sys
import tempfile
import time
from pathlib import Path

from cluster import Cluster
from options import count, counts, option_parser
from serving import cold_cache, machine, spread

FIRST_S, LATER_S = 3.0, 1.0


def seconds_to_ready(model, tp, env):
    c = Cluster("--device", "cpu", model=model, workers=tp, tp=tp, env=env)
    begin = time.perf_counter()
    try:
        c.start()
        return time.perf_counter() - begin
    finally:
        c.stop()


def main():
    parser = option_parser("ready")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--model", default="demo-base")
    parser.add_argument("--tp", type=counts(1, 64), default=[1, 2])
    options = parser.parse_args()
    print(f"{machine()}; {options.model}, {options.rounds} rounds: median (least … most)")
    late = False
    for tp in options.tp:
        first, later = [], []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
                env = cold_cache(Path(folder)) if options.model == "demo-base" else None
                first.append(seconds_to_ready(options.model, tp, env))
                later.append(seconds_to_ready(options.model, tp, env))
        late |= sorted(first)[len(first) // 2] > FIRST_S or sorted(later)[len(later) // 2] > LATER_S
        print(f"--tp {tp}: first start {spread(first, '%.2f')} s (at most {FIRST_S:.0f}), "
              f"later {spread(later, '%.2f')} s (at most {LATER_S:.0f})")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
