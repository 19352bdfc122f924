"""Serves the gateway's chat page without a gateway: the files of gateway/chat, and API answers that a test writes itself, such as
hostile texts, errors and broken connections."""
import http.server
import json
import math
import threading
import time

from cluster import ROOT
from dashboard_fixture import POLICY, TYPES

CHAT, PAGES = ROOT / "gateway/chat", ROOT / "common/pages"
SERVED = [p for folder in (CHAT, PAGES) for p in folder.iterdir() if p.suffix != ".md"]


def pieces(text):
    """Splits a text into tokens: a word with the space before it, or a punctuation mark."""
    out = []
    for c in text:
        if out and c.isalnum() and out[-1][-1:].isalnum() or out and c.isalnum() and out[-1] == " ":
            out[-1] += c
        else:
            out.append(c)
    return out


def token(text, p=0.62, others=(" a", " the", " one", " this")):
    top = [(text, p)] + [(o, (1 - p) * share) for o, share in zip([o for o in others if o != text], (0.5, 0.25, 0.12))]
    top.sort(key=lambda t: -t[1])
    return {"token": text, "logprob": math.log(p), "bytes": list(text.encode()),
            "top_logprobs": [{"token": t, "logprob": math.log(q), "bytes": list(t.encode())} for t, q in top]}


def chat_chunk(text="", reasoning=None, finish=None, p=0.62):
    delta = {"content": text} if reasoning is None else {"reasoning_content": reasoning}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish,
            "logprobs": {"content": [token(text, p)]} if text else None}]}


class Script:
    """Keeps the answers of one test. Each request takes the next of `steps`, and the last step repeats. A step is called with the
    handler and the body."""

    def __init__(self, models=("base",), steps=(), key=None):
        self.models, self.steps, self.key = [m if isinstance(m, dict) else {"id": m} for m in models], list(steps), key
        self.asked = []  # for each request: (path, body, Authorization)


def say(text, reasoning="", delay=0.0):
    def step(h, body):
        h.begin_stream()
        for piece in pieces(reasoning):
            h.event(chat_chunk(reasoning=piece))
        parts = pieces(text)
        for i, piece in enumerate(parts):
            p = (0.97, 0.62, 0.31, 0.07)[i * 7 % 4]
            if "prompt" in body:
                h.event({"object": "text_completion", "choices": [{"index": 0, "text": piece, "finish_reason": None, "logprobs": {
                    "tokens": [piece], "token_logprobs": [math.log(p)], "top_logprobs": [{piece: math.log(p), " x": math.log((1 - p) / 2)}], "text_offset": [0]}}]})
            else:
                h.event(chat_chunk(piece, p=p))
            time.sleep(delay)
        h.event(chat_chunk(finish="stop") if "messages" in body else {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        h.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(parts), "total_tokens": 9 + len(parts)}})
        h.end_stream()
    return step


def refuse(status, message, **headers):
    return lambda h, body: h.json(status, {"error": {"message": message, "type": "error", "param": None, "code": status}}, headers)


def error_after(text, message):
    """Returns a step whose stream ends in the middle with an error event."""
    def step(h, body):
        h.begin_stream()
        h.event(chat_chunk(text))
        h.event({"error": {"message": message, "type": "server_error", "code": 503}})
        h.chunk(b"")
    return step


def cut_after(text, seen):
    """Returns a step whose connection breaks in the middle, once `seen` is set."""
    def step(h, body):
        h.begin_stream()
        h.event(chat_chunk(text))
        seen.wait(30)
        h.close_connection = True
    return step


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def json(self, status, value, headers=()):
        self.file(json.dumps(value).encode(), "application/json", status, headers)

    def file(self, data, kind, status=200, headers=()):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(data), **dict(headers)}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def end_stream(self):
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def lets_in(self):
        key = self.server.script.key
        if key and self.headers.get("Authorization") != "Bearer " + key:
            self.json(401, {"error": {"message": "The API key is missing or incorrect.", "code": "invalid_api_key"}})
            return False
        return True

    def do_GET(self):
        name = self.path.removeprefix("/chat/")
        path = CHAT / ("index.html" if self.path == "/" else name)
        if not path.is_file():
            path = PAGES / path.name
        if self.path == "/v1/models":
            if self.lets_in():
                self.json(200, {"object": "list", "data": self.server.script.models})
        elif path.parent in (CHAT, PAGES) and path.suffix in TYPES and path.is_file():
            self.file(path.read_bytes(), TYPES[path.suffix] + "; charset=utf-8", headers={"Content-Security-Policy": POLICY})
        else:
            self.json(404, {"error": {"message": "Not Found", "code": 404}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script = self.server.script
        if not self.lets_in():
            return
        script.asked.append((self.path, body, self.headers.get("Authorization")))
        step = script.steps.pop(0) if len(script.steps) > 1 else script.steps[0]
        try:
            step(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page has stopped reading


class ChatFixture(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = Script()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
