"""Tests that bad input in files, on command lines and from clients gives one clear error each and has no other effect.
test_bad_frames.py tests the network protocol."""
import json
import random
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bad_models
import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, SANITIZED, SLOW, Cluster, free_ports, get, run_cox, wait_for
from sse import collect

N_AT_ONCE = 4


def up(ports, model, *args):
    """Runs `cox up`, which must end by itself."""
    flags = zip(("--port", "--head-port", "--admin-port", "--worker-http-port"), ports)
    return run_cox("up", model, *(x for pair in flags for x in pair), *args, timeout=30)


def is_refused(r, words):
    """Returns true for exit code 2, with the error as the last line, after few attempts."""
    last = r.stderr.splitlines()[-1] if r.stderr else ""
    return r.returncode == 2 and last.startswith("cox up: ") and words in last and len(last) < 400 and \
        "start_failed" not in last and r.stderr.count("worker_restarted") <= 2


def all_refused(cases):
    """Checks that all cases are refused. cases: {name: (function of ports, words)}. Several cases run at once, because they mostly
    wait."""
    if SANITIZED:  # the readers have unit tests with sanitizers, and this function tests processes
        cases = dict(list(cases.items())[::4])
    ports = free_ports(4 * len(cases))

    def one(i, name):
        try:
            r = cases[name][0](ports[4 * i:4 * i + 4])
            return None if is_refused(r, cases[name][1]) else f"{name}: {r.returncode}\n{r.stderr[-600:]}"
        except Exception as e:
            return f"{name}: {e!r}"

    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        wrong = [w for w in pool.map(one, range(len(cases)), cases) if w]
    assert not wrong, "\n".join(wrong)
    listening = {line.split()[1].rsplit(":")[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
                 if line.split()[3] == "0A"}
    assert not listening & {f"{p:04X}" for p in ports}, "somebody is left behind"


needs_goldens = pytest.mark.skipif(not bad_models.FOLDER.exists(), reason="no tiny checkpoints: scripts/make-goldens")


@needs_goldens
def test_bad_ggufs(tmp_path):
    all_refused({name: (lambda ports, name=name: up(ports, bad_models.make_gguf(tmp_path, name), "--device", "cpu"),
                        words) for name, (_, words) in bad_models.GGUFS.items()})


@needs_goldens
def test_bad_folders(tmp_path):
    all_refused({name: (lambda ports, name=name: up(ports, bad_models.make_folder(tmp_path, name), "--device", "cpu"),
                        words) for name, (_, words) in bad_models.FOLDERS.items()})


@needs_goldens
@pytest.mark.parametrize("source,cases", [("llama_tiny_torch", bad_models.TORCH), ("llama_tiny_gguf_split", bad_models.SPLIT)])
def test_bad_shards(tmp_path, source, cases):
    """PyTorch's pickles may name any function, and the reader calls none."""
    owned = Path("/tmp/cox-test-owned")
    all_refused({name: (lambda ports, name=name: up(ports, bad_models.make_other(
        tmp_path, bad_models.FOLDER.parent / source, cases, name), "--device", "cpu"), words)
        for name, (_, words) in cases.items()})
    assert not owned.exists()


@needs_goldens
@pytest.mark.parametrize("seed", [1, 2])
def test_flipped_bits_of_a_header(tmp_path, seed):
    """A model with flipped bits is refused, or it loads and answers. The unit tests of the readers flip the bits at every position."""
    rng = random.Random(seed)
    good = bad_models.GGUF.read_bytes()
    n_header = good.index(b"output.weight") + 50
    places = [rng.randrange(n_header * 8) for _ in range(6)]
    names = free_ports(4 * len(places))

    def one(i):
        b = bytearray(good)
        b[places[i] // 8] ^= 1 << places[i] % 8
        path = tmp_path / f"{i}.gguf"
        path.write_bytes(b)
        c = Cluster("--device", "cpu", model=str(path), workers=1, tp=1)
        port = names[4 * i]
        flags = ("--port", "--head-port", "--admin-port", "--worker-http-port")
        for k, flag in enumerate(flags):
            c.command[c.command.index(flag) + 1] = str(port + k)
        c.ports = [port]
        c.start(wait=False)
        try:
            wait_for("an end or health", lambda: c.process.poll() is not None or get(c.url + "/health")[0] == 200)
            if c.process.poll() is not None:
                assert c.process.returncode == 2 and c.log().splitlines()[-1].startswith("cox up: "), c.log()
            else:
                r = httpx.post(c.url + "/v1/completions", json={"prompt": "ab", "max_tokens": 4}, timeout=30)
                assert r.status_code in (200, 400), r.text
                assert "process_ended" not in c.log(), c.log()
        finally:
            if c.process.poll() is None:
                c.stop()
            c.kill()

    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        list(pool.map(one, range(len(places))))


# ---- ports and keys ----

def test_wrong_files_and_addresses(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b"\xff" * (3 << 20))

    def keys(name, change):
        def start(ports):
            assert run_cox("keys", "--keys-dir", tmp_path / name).returncode == 0
            change(tmp_path / name)
            return up(ports, "null", "--keys-dir", tmp_path / name)
        return start

    def null(*args):
        return lambda ports: up(ports, "null", *args)

    cases = {
        "admin key: none": (null("--admin-key-file", tmp_path / "no"), "No such file"),
        "admin key: folder": (null("--admin-key-file", tmp_path / "folder"), "key"),
        "admin key: empty": (null("--admin-key-file", tmp_path / "empty"), "key"),
        "admin key: bytes": (null("--admin-key-file", tmp_path / "bytes"), "key"),
        "api key: none": (null("--api-key-file", tmp_path / "no"), "No such file"),
        "api key: folder": (null("--api-key-file", tmp_path / "folder"), "the key file cannot be read to its end"),
        "api key: empty": (null("--api-key-file", tmp_path / "empty"), "contains no key"),
        "template: none": (null("--chat-template", tmp_path / "no"), "there is no file"),
        "template: bytes": (null("--chat-template", tmp_path / "bytes"), "chat template"),
        "admin for all": (null("--admin-host", "0.0.0.0"), "set --admin-key-file"),
        "no address of ours": (null("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        "KV blocks at the gateway's": (lambda ports: up(ports, "null", "--kv-port", ports[0]), "used by both gateway-0 and worker-0's KV blocks"),
        "key cut": (keys("k1", lambda d: (d / "head.key").write_text("abc\n")), "head.key does not contain a key"),
        "key empty": (keys("k2", lambda d: (d / "gateway.key").write_text("")), "gateway.key does not contain a key"),
        "authorized": (keys("k3", lambda d: (d / "authorized").write_text("king x\n")), "authorized:1: the line must be"),
    }
    all_refused(cases)


def end_of(program, *args):
    """Runs a program that does not start. Returns (exit code, last line on stderr)."""
    p = subprocess.run([str(BIN / program), *map(str, args)], capture_output=True, text=True, timeout=20 * SLOW)
    return p.returncode, p.stderr.splitlines()[-1]


def test_programs_without_what_they_need(tmp_path):
    """Programs that are started without a required option or file end with exit code 2, so that a supervisor does not retry."""
    keys = tmp_path / "keys"
    assert run_cox("keys", "--keys-dir", keys).returncode == 0
    head = ["--port", 0, "--admin-port", 0]
    worker = ["--model", "null", "--device", "null", "--http-port", 0]
    gateway = ["--model", "null", "--port", 0]
    for program, args, file in (("cox-head", head, "head.key"), ("cox-head", head, "authorized"),
                                ("cox-worker", worker, "worker.key"), ("cox-worker", worker, "head.pub"),
                                ("cox-gateway", gateway, "gateway.key"), ("cox-gateway", gateway, "head.pub")):
        hidden = (keys / file).rename(tmp_path / "hidden")
        code, said = end_of(program, *args, "--keys-dir", keys)
        hidden.rename(keys / file)
        assert code == 2 and file in said and ("cox keys" in said or file == "authorized"), (program, file, said)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        for program, args in (("cox-head", ["--port", port, "--admin-port", 0]),
                              ("cox-head", ["--port", 0, "--admin-port", port]),
                              ("cox-worker", [*worker[:4], "--http-port", port]),
                              ("cox-gateway", [*gateway[:2], "--port", port])):
            code, said = end_of(program, *args, "--keys-dir", keys)
            assert code == 2 and f"port {port}" in said and "is in use" in said, (program, said)
        r = up(free_ports(4), "null", "--kv-port", port)
        assert is_refused(r, f"port {port} of worker-0's KV blocks is in use"), r.stderr
    for one, other in (("--comm-port", "--kv-port"), ("--comm-port", "--http-port"), ("--kv-port", "--http-port")):
        code, said = end_of("cox-worker", *worker[:4], "--keys-dir", keys, one, 7100, other, 7100)
        assert code == 2 and one in said and other in said and "port 7100 is set for both" in said, said
    for address in ("127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", ":7000", "a:b"):
        for program, args in (("cox-worker", worker), ("cox-gateway", gateway)):
            code, said = end_of(program, *args, "--keys-dir", keys, "--head", address)
            assert code == 2 and address in said, (program, address, said)
    for token in ("", "cox1.", "cox1.AAAA", "cox2.x", "x" * 5000):
        code, said = end_of("cox-worker", *worker, "--join", token)
        assert code == 2 and "cox join-token" in said and len(said) < 400, (token, said)


# ---- HTTP, beside a stream that must not be disturbed ----

def request(path, body, *headers, length=None):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    if length != "none":
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def talk(c, data, timeout=20.0):
    """Sends raw bytes. Returns the bytes received until the server closes or its first answer is complete."""
    with socket.create_connection(("127.0.0.1", c.ports[0]), timeout=timeout * SLOW) as s:
        try:
            s.sendall(data)
        except OSError:
            pass  # the gateway refused the request before all of it was sent
        got = b""
        try:
            while piece := s.recv(1 << 16):
                got += piece
                head, _, rest = got.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if length and len(rest) >= int(length[0].split(b":")[1]):
                    break
        except ConnectionResetError:
            pass
        return got


def check_refusal(got, status):
    """Checks that the answer has this status and OpenAI's error object."""
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), got[:300]
    error = json.loads(body)["error"]
    assert error["message"] and error["type"], error
    return error


MESSAGE = {"role": "user", "content": "hi"}
STRINGS = [("/v1/completions", {"prompt": "@"}), ("/v1/completions", {"prompt": ["a", "@"]}),
           ("/v1/completions", {"prompt": "a", "model": "@"}), ("/v1/completions", {"prompt": "a", "stop": "@"}),
           ("/v1/completions", {"prompt": "a", "stop": ["b", "@"]}), ("/v1/completions", {"prompt": "a", "user": "@"}),
           ("/v1/completions", {"prompt": "a", "@": 1}), ("/v1/completions", {"prompt": "a", "x": {"y": ["@"]}}),
           ("/v1/chat/completions", {"messages": [{"role": "@", "content": "a"}]}),
           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "@"}]}),
           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a", "name": "@"}]}),
           ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "@"}]}]}),
           ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "@", "text": "a"}]}]})]
NOT_UTF8 = [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\\ud800", b"\\udc00x"]
NUMBERS = ["1e999", "-1e999", "NaN", "Infinity", "1e", "0x10", "01", "+1", "1.", "99999999999999999999", "--1", "1_000"]
IMAGES = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
          {"type": "image_url", "image_url": "http://127.0.0.1:1/x.png"}, {"type": "input_image", "image_url": "x"},
          {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, {"type": "file"},
          {"type": None}, {}, 5, [], None]


def bad_texts(c):
    for path, body in STRINGS:
        for bad in NOT_UTF8:
            check_refusal(talk(c, request(path, json.dumps(body).encode().replace(b"@", bad))), 400)


def bad_numbers(c):
    for field in ("temperature", "max_tokens", "seed", "top_p", "n", "logit_bias"):
        for number in NUMBERS:
            value = f'{{"5": {number}}}' if field == "logit_bias" else number
            check_refusal(talk(c, request("/v1/completions", f'{{"prompt": "a", "{field}": {value}}}'.encode())), 400)


def bad_documents(c):
    for path in ("/v1/completions", "/v1/chat/completions"):
        for body in (b"", b"\0", b"nul", b"{" * 30000, b'{"a":' * 30000, b"[" * 200000, b'{"prompt":"a"}x', b'"' * 3,
                     b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a","x":{"y":1,"y":2}}', b"[1,2]", b"5", b"\xef\xbb\xbf{}",
                     b'{"prompt":"\x01"}', b'{"messages":{}}', b'{"messages":[]}', b'{"messages":[5]}'):
            check_refusal(talk(c, request(path, body)), 400)


def bad_contents(c):
    for part in IMAGES:
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}], "max_tokens": 1}
        error = check_refusal(talk(c, request("/v1/chat/completions", json.dumps(body).encode())), 400)
        assert error["param"], error
    for body in ({"prompt": "a" * 40000}, {"prompt": [97] * 40000}, {"prompt": "a" * 32768, "max_tokens": 1},
                 {"prompt": "a" * 32000, "max_tokens": 2000}):
        error = check_refusal(talk(c, request("/v1/completions", json.dumps(body).encode())), 400)
        assert "32768" in error["message"], error
    messages = {"messages": [MESSAGE] * 4000}
    error = check_refusal(talk(c, request("/v1/chat/completions", json.dumps(messages).encode())), 400)
    assert "32768" in error["message"], error


def big_bodies(c):
    ten = b'{"prompt": "' + b"a" * 10_000_000 + b'"}'
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (ten[i:i + 65536] for i in range(0, len(ten), 65536)))
    for _ in range(2):
        check_refusal(talk(c, request("/v1/completions", ten)), 400)
        check_refusal(talk(c, request("/v1/completions", chunked + b"0\r\n\r\n", "Transfer-Encoding: chunked",
                                      length="none")), 400)
        check_refusal(talk(c, request("/v1/completions", b"[" + b"0," * 5_000_000 + b"0]")), 413)
        check_refusal(talk(c, request("/v1/completions", json.dumps({"prompt": "a", "stop": ["b" * 9_000_000]}).encode())),
                      400)
    check_refusal(talk(c, request("/v1/completions", b" " * 100, length=1 << 40)), 413)
    check_refusal(talk(c, request("/v1/completions", b" " * 100, length=1 << 70)), 400)


def bad_heads(c):
    check_refusal(talk(c, request("/v1/completions", b"{}", "X: " + "y" * 100_000)), 431)
    check_refusal(talk(c, request("/v1/completions", b"{}", *(f"X-{i}: y" for i in range(200)))), 431)
    check_refusal(talk(c, request("/" + "v" * 100_000, b"{}")), 414)
    for head in (b"\0\0\0\0", b"POST\r\n\r\n", b"POST /v1/completions HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc",
                 b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
                 b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
        assert talk(c, head + b"\r\n").startswith((b"HTTP/1.1 400", b"HTTP/1.1 505")), head


def pipelined(c):
    """Sends twenty requests in one piece, valid and invalid in turn. The twenty answers arrive in order."""
    good, bad = (json.dumps({"prompt": "a", "max_tokens": n, "temperature": 0}).encode() for n in (3, -1))
    data = b"".join(request("/v1/completions", bad if i % 2 else good) for i in range(19))
    data += request("/v1/completions", bad, "Connection: close")
    with socket.create_connection(("127.0.0.1", c.ports[0]), timeout=20 * SLOW) as s:
        s.sendall(data)
        got = b""
        while piece := s.recv(1 << 16):
            got += piece
    answers = got.split(b"HTTP/1.1 ")[1:]
    assert [a[:3] for a in answers] == [b"200", b"400"] * 10, got[:300]
    want = oracle.text("a", 3, temperature=0).encode()
    assert all(want in a for a in answers[::2])


def slow_bodies(c):
    """Sends bodies that do not end. Their connections stay open until the client drops them. The bodies announce less than a client
    without a key may have in total, because big_bodies runs at the same time as the same client."""
    held = []
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", c.ports[0]), timeout=20 * SLOW)
        s.sendall(request("/v1/completions", b'{"prompt": "' + b"a" * 50_000, length=1_000_000))
        held.append(s)
    check_refusal(talk(c, request("/v1/completions", b"{")), 400)
    for s in held:
        s.close()


def memory_mib(pid):
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmRSS")) / 1024


def test_clients_that_send_anything():
    prompt, n = "a stream beside all this", 700
    with Cluster("--null-step-us", 8000) as c, httpx.Client(base_url=c.url, timeout=120 * SLOW) as http:
        pids, streams = c.pids(), []
        memory = memory_mib(pids["gateway-0"])

        def stream():
            streams.append(collect(http, "/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 0}))

        beside = threading.Thread(target=stream)
        beside.start()
        with ThreadPoolExecutor(2) as pool:
            attacks = [pool.submit(f, c) for f in (bad_texts, bad_numbers, bad_documents, bad_contents, big_bodies, bad_heads,
                                                   pipelined, slow_bodies)]
            for a in attacks:
                a.result()
        beside.join()
        assert streams[0].texts == {0: oracle.text(prompt, n, temperature=0)} and streams[0].finish == {0: "length"}
        c.wait_idle()
        assert c.pids() == pids and "process_ended" not in c.log()
        if not SANITIZED:
            wait_for("the gateway gave the memory back", lambda: memory_mib(pids["gateway-0"]) < memory + 32)
