"""Tests `cox serve` as a container of SageMaker's other kinds of inference: batch transform, asynchronous, serverless. The agents
below simulate Amazon's side (its queue and its objects in S3) and send the same requests."""
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import null_oracle as oracle
import pytest
import scripted_model
from cluster import SANITIZED, SLOW, get, wait_for
from test_sagemaker import Container

PROMPTS = [f"({i}) The meaning of life is" for i in range(40)]


# ---- batch transform ----


class TransformAgent:
    """Splits a file into lines, sends each record as one request, and joins the answers in the file's order."""

    def __init__(self, url):
        self.client = httpx.Client(base_url=url, timeout=60 * SLOW)
        assert self.client.get("/ping").status_code == 200
        said = self.client.get("/execution-parameters")
        assert said.status_code == 200 and said.headers["content-type"] == "application/json"
        self.parameters = said.json()

    def invoke(self, body):
        assert len(body) <= self.parameters["MaxPayloadInMB"] << 20
        r = self.client.post("/invocations", content=body, headers={"Content-Type": "application/jsonlines", "Accept": "application/jsonlines"})
        assert r.status_code == 200, r.text
        return r.text

    def transform(self, text):
        with ThreadPoolExecutor(self.parameters["MaxConcurrentTransforms"]) as pool:
            return "".join(answer.rstrip("\n") + "\n" for answer in pool.map(self.invoke, text.splitlines(keepends=True)))


@pytest.fixture(scope="module")
def batch():
    """The container works with the variables that Amazon sets in a job's container besides the settings. A payload limit of 0 means
    no limit."""
    with Container(OPTION_ROLLING_BATCH="vllm", OPTION_MAX_ROLLING_BATCH_SIZE="8", OPTION_MAX_MODEL_LEN="4096", SAGEMAKER_BATCH="true",
                   SAGEMAKER_MAX_PAYLOAD_IN_MB="0", SAGEMAKER_BATCH_STRATEGY="SINGLE_RECORD", SAGEMAKER_MAX_CONCURRENT_TRANSFORMS="16") as c:
        yield c


def test_batch_transform(batch):
    agent = TransformAgent(batch.url)
    assert agent.parameters == {"MaxConcurrentTransforms": 100, "BatchStrategy": "SingleRecord", "MaxPayloadInMB": 1}
    lines = agent.transform("".join(json.dumps({"inputs": p, "parameters": {"max_new_tokens": 12}}) + "\n" for p in PROMPTS)).splitlines()
    assert [json.loads(line) for line in lines] == [{"generated_text": oracle.text(p, 12, temperature=0)} for p in PROMPTS]


def test_several_records_in_one_body_are_refused(batch):
    """No record of such a body is answered: the job must be configured to split its file."""
    body = "".join(json.dumps({"inputs": p}) + "\n" for p in PROMPTS[:3])
    r = httpx.post(batch.url + "/invocations", content=body, headers={"Content-Type": "application/jsonlines"})
    assert r.status_code == 424 and "SplitType Line, BatchStrategy SingleRecord" in r.json()["error"]


def test_a_payload_holds_the_longest_prompt():
    c = Container(HF_MODEL_ID="")
    scripted_model.write(c.store, {}, max_len=131072)
    c.command += ["--device", "null"]
    with c:
        said = httpx.get(c.url + "/execution-parameters").json()
    assert said["MaxPayloadInMB"] == 2 and said["MaxConcurrentTransforms"] == 50, "their product may be 100"


# ---- asynchronous ----


def test_asynchronous():
    """Each object is one request. MaxConcurrentInvocationsPerInstance of them arrive at once, which are more than can run. Each
    request is answered completely, with the identifier of its answer."""
    with Container(OPTION_ROLLING_BATCH="vllm", OPTION_MAX_ROLLING_BATCH_SIZE="2", SERVING_CHUNKED_READ_TIMEOUT="3600",
                   COX_NULL_STEP_US="2000") as c:
        def invoke(i):
            return httpx.post(c.url + "/invocations", json={"inputs": PROMPTS[i], "parameters": {"max_new_tokens": 200}},
                              headers={"X-Amzn-SageMaker-Inference-Id": f"object-{i}"}, timeout=3600)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(invoke, range(8)))
    for i, r in enumerate(answers):
        assert r.status_code == 200 and r.headers["x-request-id"] == f"object-{i}"
        assert r.json() == {"generated_text": oracle.text(PROMPTS[i], 200, temperature=0)}


# ---- serverless ----

# LOCK makes every mount read-only except /tmp and the kernel's own. Shared memory is read-only too, because such a container may have none.
LOCK = r"""
set -e
mount --make-rprivate /
mount --bind "$TMPDIR" "$TMPDIR"
while read -r what at rest; do
    case $at in "$TMPDIR" | /proc | /proc/* | /sys | /sys/*) ;;
    /dev/shm) mount -o remount,bind,ro "$at" ;;
    /dev | /dev/*) ;;
    *) mount -o remount,bind,ro "$at" 2>/dev/null || true ;;
    esac
done </proc/self/mounts
if touch "$PROBE" /dev/shm/probe 2>/dev/null; then echo "the root can still be written to" >&2; exit 9; fi
exec "$@"
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
MEGABYTES = 1024  # smallest memory of a serverless endpoint, in MB


def why_not():
    done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"no user namespaces here: {done.stderr.strip()}"


def resident_bytes(pids):
    """Returns the resident bytes of the processes. Shared pages count once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


@pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}")
def test_serverless():
    """The container serves without a GPU, a home or a writable folder except /tmp, within the memory of the smallest endpoint."""
    c = Container(OPTION_ROLLING_BATCH="vllm", OPTION_MAX_ROLLING_BATCH_SIZE="2", OPTION_MAX_MODEL_LEN="2048", HOME="/nonexistent",
                  PROBE=os.path.join(os.path.dirname(__file__), "probe"), TENSOR_PARALLEL_DEGREE="max")
    del c.env["HF_MODEL_ID"]
    scripted_model.write(c.store, {})
    c.pids_file = c.tmp / "pids"
    c.command[c.command.index("--print-pids") + 1] = str(c.pids_file)
    c.command = [*UNSHARE, "sh", "-c", LOCK, "lock", *c.command]
    with c:
        assert get(c.url + "/ping")[1].split() == ['{', '"model":', '{', '"status":', '"Healthy"', '}', '}']
        r = httpx.post(c.url + "/invocations", json={"messages": [{"role": "user", "content": "hi"}]}, timeout=60 * SLOW)
        assert r.status_code == 200 and r.json()["choices"][0]["message"]["content"] == scripted_model.HELLO
        assert SANITIZED or resident_bytes(c.pids().values()) < MEGABYTES << 20
        wait_for("the log says that it serves", lambda: "on device cpu()" in c.log())
