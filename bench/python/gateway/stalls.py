"""Implements bench/stalls; the comment at the top of that script describes it."""
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import BIN, Cluster
from options import count, names, option_parser
from serving import PROGRAMS, build, machine

BAR_MS = 50
MEASURED = struct.Struct("ddd")  # three doubles that bench/gateway_load/stalls_turns.c writes: own time, clock, sum
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses",
         "embeddings": "/v1/embeddings", "messages": "/v1/messages", "tokenize": "/tokenize", "detokenize": "/detokenize",
         "invocations": "/invocations", "files": "/v1/files", "batches": "/v1/batches", "adapters": "/v1/load_lora_adapter"}
SAGEMAKER = ("invocations",)
FORM = "multipart/form-data; boundary=frontier"
ADMIN_KEY = "a-key-for-the-bench"


# ---- bodies of about n bytes ----

def field_of(endpoint):
    """Returns the name of the field for the prompt, and a function that writes a text into that field."""
    chat = {"chat": "messages", "messages": "messages"}.get(endpoint)
    if chat:
        return chat, lambda text: f'[{{"role":"user","content":{text}}}]'
    return {"responses": "input", "embeddings": "input", "invocations": "inputs", "detokenize": "tokens"}.get(endpoint, "prompt"), str


def with_text(endpoint, text, more=""):
    name, form = field_of(endpoint)
    return f'{{"model":"null","max_tokens":1,"{name}":{form(text)}{more}}}'


def text(endpoint, n):
    return with_text(endpoint, '"' + "word " * (n // 5) + '"')


def escaped(endpoint, n):
    return with_text(endpoint, '"' + "\\u0041" * (n // 6) + '"')


def wide(endpoint, n):
    return with_text(endpoint, '"' + "é€😀" * (n // 9) + '"')


def fields(endpoint, n):
    """Makes a body with as many unknown fields as the limit on values allows."""
    return with_text(endpoint, '"a"', "".join(f',"field_{i}":0' for i in range(min(499_000, n // 16))))


def members(endpoint, n):
    """Makes a body with unknown members in one message, or in stream_options."""
    more = ",".join(f'"field_{i}":0' for i in range(min(499_000, n // 16)))
    if endpoint in ("chat", "messages"):
        return f'{{"model":"null","max_tokens":1,"messages":[{{"role":"user","content":"a",{more}}}]}}'
    return with_text(endpoint, '"a"', f',"stream":true,"stream_options":{{{more}}}')


def listed(endpoint, n):
    """Makes a body with a list of up to 190,000 messages, items or prompts."""
    item = {"completions": '"a"', "embeddings": '"a"', "detokenize": "1", "invocations": '"a"', "tokenize": '"a"'}.get(
        endpoint, '{"role":"user","content":"a"}')
    name, _ = field_of(endpoint)
    return f'{{"model":"null","max_tokens":1,"{name}":[{",".join([item] * min(190_000, n // 32))}]}}'


def ids(endpoint, n):
    """Makes a body with almost a million ids."""
    name, _ = field_of(endpoint)
    return f'{{"model":"null","max_tokens":1,"{name}":[{",".join(["97"] * min(990_000, n // 3))}]}}'


def bias(endpoint, n):
    return with_text(endpoint, '"a"', ',"logit_bias":{' + ",".join(f'"{i}":1' for i in range(min(495_000, n // 10))) + "}")


def tools(endpoint, n):
    form = {"messages": '{{"name":"t{}","input_schema":{{}}}}', "responses": '{{"type":"web_search_{}"}}'}.get(
        endpoint, '{{"type":"function","function":{{"name":"t{}"}}}}')
    return with_text(endpoint, '"a"', ',"tools":[' + ",".join(form.format(i) for i in range(min(100_000, n // 60))) + "]")


def deep(endpoint, n):
    return with_text(endpoint, "[" * (n // 2) + "]" * (n // 2))


def values(endpoint, n):
    """Makes a body with more values than the limit."""
    return with_text(endpoint, "[" + "1," * (n // 2) + "1]")


def broken(endpoint, n):
    """Makes a body that is not JSON, because its last byte is missing."""
    return with_text(endpoint, '"' + "word " * (n // 5) + '"')[:-1]


def model(endpoint, n):
    return with_text(endpoint, '"a"').replace('"null"', '"' + "m" * n + '"')


BODIES = {f.__name__: f for f in (text, escaped, wide, fields, members, listed, ids, bias, tools, deep, values, broken, model)}


def make(endpoint, body, n):
    data = BODIES[body](endpoint, n)
    if endpoint == "files":
        data = ('--frontier\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--frontier\r\n'
                f'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n{data}\r\n--frontier--\r\n')
    return data.encode()


# ---- one request ----

def read_answer(s):
    """Returns (status, bytes) of an answer with a length, or up to the end of the connection."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = s.recv(1 << 16)
        if not piece:
            return 0, b""
        got += piece
    head, body = got.split(b"\r\n\r\n", 1)
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None)
    while length is None or len(body) < length:
        piece = s.recv(1 << 20)
        if not piece:
            break
        body += piece
    return int(head.split()[1]), body


def probe(port):
    """Requests /health until stdin ends, then prints the longest time of an answer in ms. It runs in a separate process."""
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    os.set_blocking(0, False)
    longest = 0.0
    while not ended():
        begin = time.perf_counter()
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_answer(s)
        longest = max(longest, time.perf_counter() - begin)
        time.sleep(0.0005)
    print(longest * 1e3)


def ended():
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


class Gateway:
    def __init__(self, *args):
        self.folder = tempfile.TemporaryDirectory(prefix="coxbench-")
        turns, key = Path(self.folder.name) / "turns", Path(self.folder.name) / "key"
        key.write_text(ADMIN_KEY + "\n")
        turns.write_bytes(bytes(MEASURED.size))
        self.turns = open(turns, "r+b", buffering=0)
        self.cluster = Cluster("--state-dir", f"{self.folder.name}/state", "--enable-lora", "--lora-root", self.folder.name,
                               "--admin-key-file", key, *args, workers=1, tp=1,
                               env={"LD_PRELOAD": str(BIN.parent / "bench/stalls_turns.so"), "COX_TURNS": str(turns)})
        self.cluster.start()
        self.port = self.cluster.ports[0]

    def measured(self):
        self.turns.seek(0)
        return MEASURED.unpack(self.turns.read())

    def ask(self, endpoint, body):
        """Sends one request. Returns {status, wait, turn, loop}."""
        head = (f"POST {PATHS[endpoint]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
                f"Content-Type: {FORM if endpoint == 'files' else 'application/json'}\r\nConnection: close\r\n\r\n").encode()
        prober = subprocess.Popen([sys.executable, __file__, "--probe", str(self.port)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        time.sleep(0.2)
        self.turns.seek(0)
        self.turns.write(bytes(MEASURED.size))
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.settimeout(60)
            try:
                s.sendall(head + body)
                status, answer = read_answer(s)
            except OSError as why:  # the gateway refused the request before it was read completely, or never answered
                status, answer = 0, str(why).encode()
        time.sleep(0.3)  # the measured time includes the work of freeing the request after the answer
        wait = float(prober.communicate()[0])
        turn, _, loop = self.measured()
        return {"status": status, "answer": answer, "wait": wait, "turn": turn, "loop": loop}

    def stop(self):
        self.cluster.stop()
        self.folder.cleanup()


def main():
    parser = option_parser("stalls")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--only", type=names(PATHS), default=list(PATHS))
    parser.add_argument("--bodies", type=names(BODIES), default=list(BODIES))
    parser.add_argument("--megabytes", type=count(1, 15), default=12)
    parser.add_argument("--said", action="store_true", help="print the beginning of each answer")
    o = parser.parse_args()
    build(*PROGRAMS, "stalls_turns")
    print(f"{machine()}; {o.megabytes} MB, medians of {o.rounds} (most)", flush=True)
    late = False
    for sagemaker in (False, True):
        mine = [e for e in o.only if (e in SAGEMAKER) == sagemaker]
        if not mine:
            continue
        gateway = Gateway(*(["--sagemaker"] if sagemaker else []))
        try:
            for endpoint in mine:
                for body in o.bodies:
                    sent = make(endpoint, body, o.megabytes * 1_000_000)
                    all_of = [gateway.ask(endpoint, sent) for _ in range(o.rounds)]
                    row = {k: [one[k] for one in all_of] for k in ("wait", "turn", "loop")}
                    late |= statistics.median(row["turn"]) > BAR_MS
                    print(f"{endpoint:12} {body:8} {len(sent) / 1e6:5.1f} MB {all_of[0]['status']:3} " + " ".join(
                        f"{k} {statistics.median(v):6.1f} ({max(v):6.1f})" for k, v in row.items()), flush=True)
                    if o.said:
                        print("   ", json.dumps(all_of[0]["answer"][:200].decode(errors="replace")))
        finally:
            gateway.stop()
    return 1 if late else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        probe(int(sys.argv[2]))
    else:
        sys.exit(main())
