"""Keeps 16 streams of the null model running at the given gateways until SIGTERM. Each answer is checked against the model's own rule.

streams.py URL...

packaging/try-upgrade runs it beside an upgrade. The last line counts the streams; the exit status is 1 when a stream failed.
"""
import signal
import sys
import time

from steady import Steady


def main(urls):
    stop = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))
    load = Steady(urls, n_users=16)
    try:
        with load:
            while not stop and not load.wrong:
                time.sleep(0.1)
    except AssertionError:
        pass
    print(f"streams: {load.n_done} complete and exact, {len(load.wrong)} failed", *load.wrong, sep="\n")
    return 1 if load.wrong or load.n_done < 2 * load.n_users else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
