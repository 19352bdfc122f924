"""Tests that the memory that the head uses for prompts is bounded in bytes, even when one body multiplies them, and is shared
between tenants."""
import json
import re
import socket
import threading
from pathlib import Path

from cluster import SANITIZED, Cluster, get, wait_for

MIB = 1 << 20
ROOM = 64 * MIB
UNDER_WAY = 32 * MIB  # most bytes that one gateway may have sent before the head reads them (docs/develop/head.md)
ALICE, BOB = "sk-memory-alice", "sk-memory-bob"
N_BODIES, N_CHOICES, N_PROMPT = 60, 128, 4000  # an id takes 5 bytes, so the prompts take 156 MB


def of_head(c, field):
    text = Path(f"/proc/{c.pid('head')}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) << 10


def held(c):
    return float(re.search(r"^coxswain_request_bytes\{.*\} (\S+)$", get(c.admin + "/metrics")[1], re.M)[1])


def ask(c, key, **body):
    """Returns (status, JSON) of one completion."""
    data = json.dumps({"model": "null", **body}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n" \
           f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", c.ports[0]), timeout=120) as s:
        s.sendall(head.encode() + data)
        got = b""
        while more := s.recv(65536):
            got += more
    top, _, text = got.partition(b"\r\n\r\n")
    return int(top.split()[1]), text.decode(errors="replace")


def test_choices_of_long_prompts(tmp_path):
    (tmp_path / "keys").write_text(f"{ALICE} alice\n{BOB} bob\n")
    with Cluster("--api-key-file", tmp_path / "keys", "--max-request-bytes", ROOM, "--max-model-len", 8192,
                 "--null-step-us", 100000, workers=1, tp=1) as c:
        before, answers = of_head(c, "VmRSS"), []

        def flood():
            answers.append(ask(c, ALICE, prompt=[7] * N_PROMPT, n=N_CHOICES, max_tokens=4))

        threads = [threading.Thread(target=flood) for _ in range(N_BODIES)]
        for t in threads:
            t.start()
        wait_for("some were refused", lambda: sum(status == 429 for status, _ in answers) > 5, 60)
        status, text = ask(c, BOB, prompt=[9] * N_PROMPT, max_tokens=2)
        assert status == 200, text
        for t in threads:
            t.join()
        refused = [text for status, text in answers if status == 429]
        assert len(refused) + sum(status == 200 for status, _ in answers) == N_BODIES
        assert all("leave no memory for another one of 4000 tokens" in text for text in refused)
        assert sum(status == 200 for status, _ in answers) >= 5  # Alice may use half of the memory
        if not SANITIZED:  # a sanitizer's allocator keeps freed memory
            assert of_head(c, "VmHWM") - before < ROOM + UNDER_WAY
        wait_for("nothing is held", lambda: held(c) == 0)
        assert ask(c, ALICE, prompt=[7] * N_PROMPT, n=N_CHOICES, max_tokens=1)[0] == 200
