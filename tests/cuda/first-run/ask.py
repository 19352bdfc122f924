"""Requests one greedy answer from a server until it arrives, or until the process PID has ended.
  ask.py PORT SECONDS TOKENS PID
Prints the seconds until the answer, then its text. Exit status 1 means no answer; the last line gives the reason."""
import json
import sys
import time
import urllib.request

port, limit, tokens, pid = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
BODY = json.dumps({"model": "m", "prompt": "the quick brown fox jumps over the lazy dog and on", "max_tokens": tokens,
                   "temperature": 0, "ignore_eos": True}).encode()


def is_alive():
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def ask():
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", BODY, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=limit) as answer:
        return json.load(answer)["choices"][0]["text"]


begin, why = time.monotonic(), ""
while time.monotonic() - begin < limit and is_alive():
    try:
        text = ask()
        print(f"{time.monotonic() - begin:.2f}\n{text}")
        sys.exit(0)
    except Exception as e:  # the server does not listen yet, or is not ready
        why = str(e)
        time.sleep(0.1)
print(f"no answer in {time.monotonic() - begin:.0f} s{'' if is_alive() else ', because cox up has ended'}; last error: {why}")
sys.exit(1)
