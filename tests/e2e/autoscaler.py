"""Stands in for KEDA and the controller of a StatefulSet. It asks the head's `/scale` for a number of workers, and starts and ends
processes to match that number."""
import json
import threading
import time
import urllib.error
import urllib.request

from cluster import SLOW, end_all


class Autoscaler(threading.Thread):
    """Keeps between `least` and `most` workers, as many as the head wants. With idle_replicas 0 it acts like KEDA with
    idleReplicaCount 0: it starts `least` workers as soon as the number is above 0, and ends all workers after `cooldown_s`
    seconds of 0. An answer that is not a number changes nothing. `start(i)` starts worker i and returns its Popen. The highest
    worker ends first, by SIGTERM."""

    def __init__(self, url, start, least, most, poll_s=0.2, cooldown_s=0.5):
        super().__init__(daemon=True)
        self.url, self.start_worker, self.least, self.most = url, start, least, most
        self.poll_s, self.cooldown_s = poll_s, cooldown_s
        self.workers, self.leaving, self.log, self.failure = [], [], [], None
        self.over, self.active_at = threading.Event(), time.monotonic()
        self.paused = threading.Event()

    def ask(self):
        try:
            with urllib.request.urlopen(self.url, timeout=5) as r:
                return json.loads(r.read())["desired_workers"]
        except (urllib.error.URLError, OSError):
            return None

    def set(self, n):
        if n == len(self.workers):
            return
        self.log.append((time.monotonic(), n))
        while len(self.workers) > n:
            p = self.workers.pop()
            p.terminate()
            self.leaving.append(p)
        while len(self.workers) < n:
            self.workers.append(self.start_worker(len(self.workers)))

    def turn(self):
        self.leaving = [p for p in self.leaving if p.poll() is None]
        wanted = self.ask()
        if wanted is None or self.leaving:  # a new pod waits until the previous pod has ended
            return
        if wanted > 0:
            self.active_at = time.monotonic()
            self.set(min(max(wanted, self.least), self.most))
        elif time.monotonic() - self.active_at >= self.cooldown_s:
            self.set(0)

    def run(self):
        try:
            while not self.over.wait(self.poll_s):
                if not self.paused.is_set():
                    self.turn()
        except Exception as e:  # the test reads the exception
            self.failure = e

    def end(self):
        self.over.set()
        self.join(10 * SLOW)
        end_all(self.workers + self.leaving)
        assert self.failure is None, self.failure
