"""Attacks with large amounts of allowed work: prompts that make steps long, many requests, and files until the disk or the limit is
full."""
import itertools
import json

from attacks import Attack, answered, anything
from shots import Engine, Shot

number = itertools.count()


def words(n):
    """Returns a new prompt each time, so that no part of it is cached."""
    k = next(number)
    return f"{k} " + " ".join(f"w{(k * 7919 + i * 104729) % 9973}" for i in range(n))


def load(name, make, n=8, seconds=120.0):
    def shots(t):
        found = [make(t) for _ in range(n)]
        for s in found:
            s.hold_s = seconds
        return found
    return Attack(f"load/{name}", "load", shots, answered, seconds=seconds + 5)


LOAD = [
    load("prompts_of_400", lambda t: t.complete(prompt=words(130), max_tokens=1)),
    load("prompts_of_1500", lambda t: t.complete(prompt=words(500), max_tokens=1), 4),
    load("prompts_too_long", lambda t: t.complete(prompt=words(60000), max_tokens=1), 2),
    load("arrays_of_prompts", lambda t: t.complete(prompt=[words(20) for _ in range(64)], max_tokens=1), 2),
    load("prompts_of_ids", lambda t: t.complete(prompt=[i % 1000 + 1 for i in range(900)], max_tokens=1), 4),
    load("n_of_64", lambda t: t.complete(n=64, max_tokens=8), 2),
    load("best_of", lambda t: t.complete(best_of=16, n=1, max_tokens=8), 2),
    load("echo_and_logprobs", lambda t: t.complete(prompt=words(100), echo=True, logprobs=5, max_tokens=1), 4),
    load("prompt_logprobs", lambda t: t.complete(prompt=words(100), prompt_logprobs=20, max_tokens=1), 4),
    load("stop_strings", lambda t: t.complete(stop=["x" * 100 + str(i) for i in range(1000)], max_tokens=8), 4),
    load("logit_bias", lambda t: t.complete(logit_bias={str(i): 1 for i in range(1000)}, max_tokens=8), 4),
    load("bad_words", lambda t: t.complete(bad_words=[f"word{i}" for i in range(1000)], max_tokens=8), 4),
    load("long_streams", lambda t: t.complete(stream=True, max_tokens=200, ignore_eos=True), 8),
    load("cancelled_at_once", lambda t: t.complete(stream=True, max_tokens=4000, ignore_eos=True), 8, 1.0),
]
LOAD[-1].holds = anything


def form(t, n, key=True):
    body = (b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--B\r\nContent-Disposition: form-data; name="file"; '
            b'filename="x.jsonl"\r\n\r\n' + b"x" * n + b"\r\n--B--\r\n")
    return Shot(t.head("POST", "/v1/files", len(body), key, ("Content-Type: multipart/form-data; boundary=B",)) + body)


def ids(results):
    return [json.loads(r.text())["id"] for r in results if r.status == 200]


def files_go(results, t):
    """Checks that every accepted file can be deleted."""
    if why := answered(results, t):
        return why
    gone = Engine(t.host, t.port).run([Shot(t.head("DELETE", f"/v1/files/{i}")) for i in ids(results)], 60)
    bad = [r.status for r in gone if r.status != 200]
    return f"DELETE: {bad}" if bad else ""


def every_one_is_told(results, t):
    """Checks that each answer is a 200, a 404, or a 503 with retry-after."""
    bad = [r.status for r in results if r.status not in (200, 404) and not (r.status == 503 and b"retry-after:" in r.body.lower())]
    return f"statuses {sorted(set(bad))} of {len(bad)}" if bad else ""


def store(name, shots, holds=files_go):
    return Attack(f"disk/{name}", "disk", shots, holds, ("state",), 60)


DISK = [
    store("uploads_of_1_mib", lambda t: [form(t, 1 << 20) for _ in range(12)]),
    store("uploads_of_8_mib", lambda t: [form(t, 8 << 20) for _ in range(5)]),
    store("uploads_of_nothing", lambda t: [form(t, 0) for _ in range(50)]),
    store("no_form", lambda t: [t.post("/v1/files", b"x" * 100000, more=("Content-Type: multipart/form-data; boundary=B",))] * 8, answered),
    store("parts_without_end", lambda t: [t.post("/v1/files", b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" * 5000,
                                                 more=("Content-Type: multipart/form-data; boundary=B",))] * 4, answered),
    store("batch_of_no_file", lambda t: [t.post("/v1/batches", {"input_file_id": "file-0", "endpoint": "/v1/completions",
                                                                "completion_window": "24h"})] * 8, answered),
    store("batch_of_a_foreign_file", lambda t: [t.post("/v1/batches", {"input_file_id": t.file_id, "endpoint": "/v1/completions",
                                                                       "completion_window": "24h"})] * 2, answered),
    store("list_of_10000", lambda t: [t.get("/v1/files?limit=10000")] * 20, answered),
    store("delete_what_is_not", lambda t: [Shot(t.head("DELETE", "/v1/files/file-" + "0" * 32))] * 50, answered),
    store("crowd_of_lists", lambda t: [t.get("/v1/files")] * 600, every_one_is_told),
    store("crowd_of_deletions", lambda t: [Shot(t.head("DELETE", "/v1/files/file-" + "0" * 32))] * 600, every_one_is_told),
    store("names_of_200", lambda t: [t.get("/v1/files/" + "a" * 200 + str(i)) for i in range(50)], answered),
    store("metadata", lambda t: [t.post("/v1/batches", {"input_file_id": t.file_id, "endpoint": "/v1/completions", "completion_window": "24h",
                                                        "metadata": {str(i): "x" * 10000 for i in range(100)}})] * 4, answered),
]
ATTACKS = LOAD + DISK
