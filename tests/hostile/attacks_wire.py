"""Attacks on connections: answers read slowly or not at all, bodies without end, wrong host names, and bytes that are not HTTP."""
import dataclasses
import functools
import gzip

from attacks import Attack, answered, anything, let_go, named, refused
from shots import Shot

FILE_BYTES = 15 << 20


def unread(name, make, n=100, hold=8.0, needs=()):
    return Attack(f"unread/{name}", "unread", lambda t: [dataclasses.replace(make(t), read=0, hold_s=hold) for _ in range(n)],
                  anything, needs, seconds=hold + 10)


def stream(t, **fields):
    return t.complete(stream=True, max_tokens=4000, ignore_eos=True, **fields)


UNREAD = [
    unread("content", lambda t: t.get(f"/v1/files/{t.file_id}/content"), needs=("state",)),
    unread("streams", stream, 16),
    unread("streams_of_logprobs", lambda t: stream(t, logprobs=5), 16),
    unread("streams_of_8", lambda t: t.complete(stream=True, n=8, max_tokens=1000, ignore_eos=True), 8),
    unread("openapi", lambda t: t.get("/openapi.json")),
    unread("metrics", lambda t: t.get("/metrics")),
    unread("models", lambda t: t.get("/v1/models")),
    unread("echo", lambda t: t.complete(prompt="word " * 1500, echo=True, max_tokens=1), 24),
    unread("files", lambda t: t.get("/v1/files"), needs=("state",)),
    unread("tokenize", lambda t: t.post("/tokenize", {"model": t.model, "prompt": "word " * 20000}), 24),
    unread("pipelined_by_a_stranger", lambda t: Shot(t.head("GET", "/nowhere", key=False, close=False) * 4000), 50),
    unread("pipelined", lambda t: Shot(t.head("GET", "/v1/models", close=False) * 200), 50),
    unread("pipelined_content", lambda t: Shot(t.head("GET", f"/v1/files/{t.file_id}/content", close=False) * 20), 20, needs=("state",)),
]


def whole(n):
    def holds(results, t):
        for r in results:
            if r.status != 200 or r.n_bytes < n:
                return f"status {r.status}, {r.n_bytes} of {n} bytes after {r.seconds:.0f} s ({r.error or 'closed'})"
        return ""
    return holds


def slowly(name, rate, n=1, seconds=None):
    seconds = seconds or FILE_BYTES / rate + 20
    return Attack(f"slow/{name}", "slow", lambda t: [t.get(f"/v1/files/{t.file_id}/content", read=rate, hold_s=seconds) for _ in range(n)],
                  whole(FILE_BYTES), ("state",), seconds + 5)


SLOW = [slowly("40_seconds", 400_000), slowly("60_seconds", 260_000, 3), slowly("10_readers", 300_000, 10),
        Attack("slow/stream", "slow", lambda t: [t.complete(stream=True, max_tokens=400, ignore_eos=True) for _ in range(2)], answered, seconds=60),
        Attack("slow/too_slow", "slow", lambda t: [t.get(f"/v1/files/{t.file_id}/content", read=20, hold_s=100)], let_go, ("state",), 105)]

BODY = 16 * 1024 * 1024 - 1000


def upload(t, n=BODY, sent=None, key=True, path="/v1/completions", more=("Content-Type: application/json",), hold=20.0, **kwargs):
    return Shot(t.head("POST", path, n, key, more) + b"x" * (n - 400 if sent is None else sent), drip=b"x", drip_every_s=1, drip_times=400,
                hold_s=hold, **kwargs)


def keyless(name, make, n=17):
    return Attack(f"body/{name}", "body", lambda t: [make(t) for _ in range(n)], unanswered_by_401, ("keys",), 30)


def unanswered_by_401(results, t):
    """Checks that no body is read without a key: the answer arrives after the headers."""
    for r in results:
        if r.status != 401:
            return f"status {r.status or 'none'} after {r.seconds:.1f} s where 401 is wanted ({r.error})"
        if why := named(r):
            return why
    return ""


def chunked(t, key=True, **kwargs):
    return Shot(t.head("POST", "/v1/completions", None, key, ("Transfer-Encoding: chunked", "Content-Type: application/json")) +
                b"100000\r\n" + b"x" * 1000, drip=b"x", drip_times=400, hold_s=20, **kwargs)


BODIES = [
    keyless("without_a_key", lambda t: upload(t, key=False)),
    keyless("small_without_a_key", lambda t: upload(t, 65000, key=False), 300),
    keyless("a_byte_without_a_key", lambda t: upload(t, 1, sent=0, key=False)),
    keyless("a_wrong_key", lambda t: upload(t, key=False, more=("Authorization: Bearer wrong", "Content-Type: application/json"))),
    keyless("chunked_without_a_key", lambda t: chunked(t, key=False)),
    keyless("a_form_without_a_key", lambda t: upload(t, key=False, path="/v1/files", more=("Content-Type: multipart/form-data; boundary=B",))),
    keyless("gzip_without_a_key", lambda t: upload(t, key=False, more=("Content-Encoding: gzip", "Content-Type: application/json"))),
    keyless("expect_without_a_key", lambda t: upload(t, sent=0, key=False, more=("Expect: 100-continue", "Content-Type: application/json"))),
    Attack("body/of_a_ping", "body", lambda t: [upload(t, 65536, sent=0, key=False, path="/ping")] * 200, refused(200)),
    Attack("body/of_a_probe", "body", lambda t: [Shot(t.head("GET", path, 65536, False), hold_s=20) for path in
                                                 ("/health", "/ready", "/accepting", "/ping")] * 50, refused(200)),
    # all but 400 bytes are sent at once, so the second window of 30 s is the first window with too few bytes
    Attack("body/slower_than_a_reader", "body", lambda t: [upload(t, hold=75) for _ in range(17)], let_go, seconds=80),
    Attack("body/nothing_behind_the_head", "body", lambda t: [upload(t, sent=0, hold=45) for _ in range(50)], let_go, seconds=50),
    Attack("body/chunks_of_a_byte", "body", lambda t: [chunked(t) for _ in range(50)], anything, seconds=25),
    Attack("body/head_by_letters", "body", lambda t: [Shot(b"GET /v1/models HTTP/1.1\r\n", drip=b"a", drip_every_s=0.5, drip_times=400, hold_s=20)
                                                      for _ in range(100)], let_go, seconds=25),
    Attack("body/silent", "body", lambda t: [Shot(b"", hold_s=15) for _ in range(300)], anything, seconds=20),
    Attack("body/half_closed", "body", lambda t: [Shot(t.head("POST", "/v1/completions", 5000) + b"{", shutdown=True, hold_s=10) for _ in range(50)], let_go),
    Attack("body/larger_than_said", "body", lambda t: [Shot(t.head("POST", "/v1/completions", 2) + b"{}" + b"x" * 100000) for _ in range(8)], anything),
    Attack("body/too_large", "body", lambda t: [Shot(t.head("POST", "/v1/completions", 1 << 40))] * 4, refused(413)),
    Attack("body/gzip_bomb", "body", lambda t: [bomb(t) for _ in range(4)], answered),
]


@functools.cache
def zeros():
    return gzip.compress(b'{"model":"x","prompt":"' + b"a" * (200 << 20) + b'"}', 6)


def bomb(t):
    return Shot(t.head("POST", "/v1/completions", len(zeros()), more=("Content-Encoding: gzip", "Content-Type: application/json")) + zeros())


def rebind(name, host, path="/v1/models", method="GET", body=b"", more=()):
    return Attack(f"host/{name}", "host", lambda t: [Shot(t.head(method, path, len(body) if body else None, host=host, more=more) + body)],
                  refused(400, 403, 421), ("no_keys",))


PAGE = ("Origin: http://attacker.example", "Content-Type: text/plain")
HOSTS = [
    rebind("models", "attacker.example"),
    rebind("with_a_port", "attacker.example:18000"),
    rebind("post", "attacker.example", "/v1/completions", "POST", b'{"model":"null","prompt":"x","max_tokens":4}', PAGE),
    rebind("files", "attacker.example", "/v1/files"),
    rebind("metrics", "attacker.example", "/metrics"),
    rebind("openapi", "attacker.example", "/openapi.json"),
    rebind("below_localhost", "localhost.attacker.example"),
    rebind("before_localhost", "attacker.example.localhost.example"),
    rebind("address_in_a_name", "127.0.0.1.attacker.example"),
    rebind("user", "127.0.0.1@attacker.example"),
    rebind("upper_case", "ATTACKER.EXAMPLE"),
    rebind("dot_behind", "attacker.example."),
    rebind("tokenize", "attacker.example", "/tokenize", "POST", b'{"model":"null","prompt":"x"}', PAGE),
    rebind("private_address", "192.168.7.7"),
    Attack("host/two", "host", lambda t: [Shot(t.head("GET", "/v1/models", more=("Host: attacker.example",)))], refused(400, 403, 421)),
    Attack("host/in_the_target", "host", lambda t: [Shot(t.head("GET", "http://attacker.example/v1/models"))], refused(400, 403, 421), ("no_keys",)),
]


def bytes_of(name, make, holds):
    return Attack(f"bytes/{name}", "bytes", lambda t: [Shot(make(t), hold_s=15)], holds)


BYTES = [
    bytes_of("folded_line", lambda t: t.head("GET", "/v1/models", more=("X-A: b\r\n c: d",)), refused(400)),
    bytes_of("folded_key", lambda t: t.head("GET", "/v1/models", key=False, more=(f"Authorization:\r\n Bearer {t.key or 'k'}",)), refused(400)),
    bytes_of("two_lengths", lambda t: t.head("POST", "/v1/completions", 2, more=("Content-Length: 3",)) + b"{}x", refused(400)),
    bytes_of("length_and_chunks", lambda t: t.head("POST", "/v1/completions", 5, more=("Transfer-Encoding: chunked",)) + b"0\r\n\r\n", refused(400)),
    bytes_of("bad_chunk", lambda t: t.head("POST", "/v1/completions", more=("Transfer-Encoding: chunked",)) + b"zz\r\n", refused(400)),
    bytes_of("nul_in_a_header", lambda t: t.head("GET", "/v1/models", more=("X-A: a\0b",)), refused(400)),
    bytes_of("blank_before_colon", lambda t: t.head("GET", "/v1/models", more=("X-A : b",)), refused(400)),
    bytes_of("head_of_1_mib", lambda t: t.head("GET", "/v1/models", more=("X-A: " + "b" * (1 << 20),)), refused(400, 431)),
    bytes_of("10000_headers", lambda t: t.head("GET", "/v1/models", more=[f"X-{i}: b" for i in range(10000)]), refused(400, 431)),
    bytes_of("target_of_100_kib", lambda t: t.head("GET", "/" + "a" * 100000), refused(400, 404, 414, 431)),
    bytes_of("no_http", lambda t: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), refused(400, 0)),
    bytes_of("deep_json", lambda t: t.post("/v1/completions", b"[" * 1_000_000).data, answered),
    bytes_of("not_utf8", lambda t: t.post("/v1/completions", b'{"model":"demo","prompt":"\xff\xfe"}').data, refused(400)),
]
ATTACKS = UNREAD + SLOW + BODIES + HOSTS + BYTES
