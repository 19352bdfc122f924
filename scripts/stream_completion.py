#!/usr/bin/env python3
"""Streams one completion and prints each token when it arrives. Uses only the standard library."""
import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request


def stream(url, body):
    headers = {"Content-Type": "application/json"}
    if os.environ.get("COX_API_KEY"):  # the gateway reads this variable too; the first of several keys is used
        headers["Authorization"] = "Bearer " + os.environ["COX_API_KEY"].split(",")[0]
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the gateway (default %(default)s)")
    parser.add_argument("--prompt", required=True, help="text that the model continues")
    parser.add_argument("--max-tokens", type=int, default=48, help="maximum number of generated tokens (default %(default)s)")
    options = parser.parse_args()
    body = {"prompt": options.prompt, "max_tokens": options.max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    begin, first, usage = time.monotonic(), None, {}
    print("\n" + options.prompt, end="", flush=True)
    try:
        for event in stream(options.url, body):
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                first = first or time.monotonic()
                print(choice["text"], end="", flush=True)
    except urllib.error.HTTPError as e:
        sys.exit(f"\nstream_completion: the gateway at {options.url} refused the request with status {e.code}: {e.read().decode(errors='replace')}")
    except OSError as e:
        sys.exit(f"\nstream_completion: the connection to {options.url} failed: {e}. Run cox status to see whether the cluster is healthy.")
    n = usage.get("completion_tokens", 0)
    if not n:
        sys.exit(f"\nstream_completion: the answer of {options.url} has no tokens. Read the log of the cluster (cox logs).")
    seconds = max(time.monotonic() - first, 1e-9)
    rate = f", then {(n - 1) / seconds:.0f} tokens/s" if n > 1 else ""
    print(f"\n\n{n} tokens; the first after {(first - begin) * 1000:.0f} ms{rate}")


if __name__ == "__main__":
    main()
