"""Tests a gateway's end under many streams: clients that switch to another gateway continue, and no connection is cut."""
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx
import null_oracle as oracle
from cluster import SLOW, Cluster, get, wait_for

N = 16
ENDED = {"ServiceUnavailableError": 503}


class Streams:
    """Runs N streams at once, over several dialects. Each stream has begun when the constructor returns."""

    def __init__(self, urls, n_tokens):
        self.n_tokens = n_tokens
        self.begun = Barrier(N + 1)
        self.threads = ThreadPoolExecutor(N)
        self.all = [self.threads.submit(self.one, urls[i % len(urls)], i) for i in range(N)]
        self.begun.wait(60 * SLOW)

    def one(self, url, i):
        """Returns (prompt, text, "whole" or the error's type). httpx raises when a body breaks off."""
        prompt, anthropic = f"stream {i}", i % 4 == 3
        path = "/v1/messages" if anthropic else "/v1/completions"
        body = {"model": "null", "max_tokens": self.n_tokens, "temperature": 0, "stream": True}
        body |= {"messages": [{"role": "user", "content": prompt}]} if anthropic else {"prompt": prompt, "ignore_eos": True}
        text, end = "", None
        with httpx.stream("POST", url + path, json=body, timeout=120 * SLOW) as r:
            assert r.status_code == 200
            for n, line in enumerate(r.iter_lines()):
                if n == 0:
                    self.begun.wait(60 * SLOW)
                if not line.startswith("data: "):
                    continue
                if line == "data: [DONE]":
                    end = end or "whole"
                    continue
                data = json.loads(line[6:])
                if "error" in data:
                    end = data["error"]["type"]
                    assert anthropic or data["error"]["code"] == ENDED[end]
                elif data.get("type") == "message_stop":
                    end = "whole"
                elif not anthropic:
                    text += data["choices"][0]["text"]
        return None if anthropic else prompt, text, end

    def results(self):
        return [f.result() for f in self.all]

    def all_whole(self):
        for prompt, text, end in self.results():
            assert end == "whole" and (prompt is None or text == oracle.text(prompt, self.n_tokens, temperature=0))

    def all_told(self):
        for prompt, text, end in self.results():
            assert end == ("ServiceUnavailableError" if prompt else "overloaded_error")
            assert prompt is None or oracle.text(prompt, self.n_tokens, temperature=0).startswith(text)


def gateway_has_ended(c, name):
    return f"process_ended name={name} " in c.log()


def test_streams_outlast_the_signal_that_ends_their_gateway():
    """After SIGTERM the streams run to their end. After a second SIGTERM each stream gets an error event."""
    with Cluster("--null-step-us", 10000, gateways=2) as c:
        streams = Streams([c.url], 300)
        os.kill(c.pid("gateway-0"), signal.SIGTERM)
        streams.all_whole()
        wait_for("it has ended, and is started again", lambda: gateway_has_ended(c, "gateway-0") and get(c.url + "/health")[0] == 200)
        streams = Streams([c.url], 5000)
        os.kill(c.pid("gateway-0"), signal.SIGTERM)
        wait_for("it drains", lambda: c.log().count(" draining open_requests=16") == 2)
        os.kill(c.pid("gateway-0"), signal.SIGTERM)
        streams.all_told()

        # `cox up` also sends the streams an error event, although it does not wait without --shutdown-timeout.
        wait_for("it is back", lambda: get(c.url + "/health")[0] == 200)
        streams = Streams([f"http://127.0.0.1:{p}" for p in c.ports], 5000)
        c.process.send_signal(signal.SIGTERM)
        streams.all_told()
        assert c.process.wait(30 * SLOW) == 0
