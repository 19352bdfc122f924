"""Reads streams of completions strictly: any deviation from the form is an error."""
import json


def events(lines):
    """Yields the JSON of each data line. Raises an exception unless [DONE] is the end of the stream."""
    done = False
    for line in lines:
        if line == "" or line.startswith(":"):
            continue
        assert not done, f"after [DONE]: {line!r}"
        assert line.startswith("data: "), f"not a data line: {line!r}"
        if line == "data: [DONE]":
            done = True
        else:
            yield json.loads(line[6:])
    assert done, "the stream ended without [DONE]"


class Collected:
    """Collects the contents of a stream of /v1/completions or /v1/chat/completions, for each choice."""

    def __init__(self):
        self.texts, self.finish, self.stop_reason, self.ids = {}, {}, {}, {}
        self.usage, self.n_chunks = None, 0

    def add(self, event):
        assert "error" not in event, event
        self.n_chunks += 1
        if event.get("usage"):
            self.usage = event["usage"]
        for choice in event["choices"]:
            i = choice["index"]
            assert i not in self.finish, f"choice {i} goes on after its finish_reason"
            piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            self.texts[i] = self.texts.get(i, "") + piece
            self.ids.setdefault(i, []).extend(choice.get("token_ids") or [])
            if choice.get("finish_reason"):
                self.finish[i] = choice["finish_reason"]
                self.stop_reason[i] = choice.get("stop_reason")


def collect(client, path, body):
    """Sends a streamed request through an httpx client and collects its events."""
    got = Collected()
    with client.stream("POST", path, json={**body, "stream": True}) as r:
        if r.status_code != 200:
            raise AssertionError(f"{r.status_code}: {r.read().decode()}")
        assert r.headers["content-type"].startswith("text/event-stream"), r.headers
        for event in events(r.iter_lines()):
            got.add(event)
    return got
