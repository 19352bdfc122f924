"""Tests /v1/batches with the openai package. When a process dies during a batch, no line is lost or repeated."""
import json
import os
import signal

import null_oracle as oracle
import openai
import pytest
from cluster import SLOW, Cluster, get, wait_for

MINE, OTHER, BOUNDED = "sk-batch-mine", "sk-batch-other", "sk-batch-bounded"
END = {"completed", "failed", "cancelled", "expired"}


def cluster(folder, *args, env=None):
    keys = folder / "keys"
    keys.write_text(f"{MINE} alice\n{OTHER} bob\n{BOUNDED} carol models=null\n")
    return Cluster("--state-dir", folder / "state", "--api-key-file", keys, *args, env=env)


def client(c, key=MINE):
    return openai.OpenAI(base_url=c.url + "/v1", api_key=key, max_retries=0, timeout=30 * SLOW)


def line(name, url="/v1/completions", **body):
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}) + "\n"


def completion(i, n=8):
    return line(f"line {i}", model="null", prompt=f"Once {i}", max_tokens=n, temperature=0)


def make(ai, text, endpoint="/v1/completions", **more):
    f = ai.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    return ai.batches.create(input_file_id=f.id, endpoint=endpoint, completion_window="24h", **more)


def ended(ai, b, seconds=60):
    def look():
        try:
            got = ai.batches.retrieve(b.id)
        except openai.APIConnectionError:
            return None  # the client's gateway is being restarted
        return got if got.status in END else None

    return wait_for("the batch's end", look, seconds)


def lines(ai, file_id):
    return [json.loads(s) for s in ai.files.content(file_id).read().decode().splitlines()] if file_id else []


def assert_all_once(ai, b, n, n_tokens=8):
    got = ended(ai, b)
    assert (got.status, got.error_file_id) == ("completed", None), got
    assert (got.request_counts.total, got.request_counts.completed, got.request_counts.failed) == (n, n, 0)
    rows = lines(ai, got.output_file_id)
    assert [r["custom_id"] for r in rows] == [f"line {i}" for i in range(n)]
    for i, r in enumerate(rows):
        assert r["error"] is None and r["response"]["status_code"] == 200
        assert r["response"]["body"]["choices"][0]["text"] == oracle.text(f"Once {i}", n_tokens, temperature=0)


def test_batches(tmp_path):
    with cluster(tmp_path) as c:
        ai, other = client(c), client(c, OTHER)
        b = make(ai, "".join(completion(i) for i in range(150)), metadata={"who": "a test"})
        assert b.metadata == {"who": "a test"} and b.request_counts.total == 150
        assert_all_once(ai, b, 150)

        chat = make(ai, line("ok", "/v1/chat/completions", model="null", max_tokens=5,
                             messages=[{"role": "user", "content": "Hi"}])
                    + line("no such model", "/v1/chat/completions", model="x", messages=[]),
                    "/v1/chat/completions")
        got = ended(ai, chat)
        assert got.status == "completed" and (got.request_counts.completed, got.request_counts.failed) == (1, 1)
        (good,), (bad,) = lines(ai, got.output_file_id), lines(ai, got.error_file_id)
        assert good["custom_id"] == "ok" and len(good["response"]["body"]["choices"][0]["message"]["content"]) == 5
        assert bad["custom_id"] == "no such model" and bad["response"]["status_code"] in (400, 404)
        assert "error" in bad["response"]["body"]

        vectors = make(ai, line("ok", "/v1/embeddings", model="null", input=["abc", "d"])
                       + line("none", "/v1/embeddings", model="null", input=[]), "/v1/embeddings")
        got = ended(ai, vectors)
        (good,), (bad,) = lines(ai, got.output_file_id), lines(ai, got.error_file_id)
        assert [d["embedding"] for d in good["response"]["body"]["data"]] == [[float(ord(c) >> i & 1) for i in range(8)] for c in "cd"]
        assert bad["response"]["status_code"] == 400 and bad["response"]["body"]["error"]["param"] == "input"

        wrong = make(ai, completion(0) + "nonsense\n")
        assert wrong.status == "failed" and wrong.errors.data[0].line == 2

        assert [x.id for x in ai.batches.list()] == [wrong.id, vectors.id, chat.id, b.id]
        assert [x.id for x in other.batches.list()] == []
        for call in (other.batches.retrieve, other.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                call(b.id)
        with pytest.raises(openai.NotFoundError):
            other.batches.create(input_file_id=b.input_file_id, endpoint="/v1/completions", completion_window="24h")
        with pytest.raises(openai.BadRequestError, match="endpoint"):
            make(ai, completion(0), "/v1/models")
        with pytest.raises(openai.ConflictError):
            ai.batches.cancel(b.id)
        with pytest.raises(openai.PermissionDeniedError, match="has limits"):
            make(client(c, BOUNDED), completion(0))
        assert get(c.url + "/v1/batches")[0] == 401


def test_cancel(tmp_path):
    with cluster(tmp_path, "--null-step-us", "20000") as c:
        ai = client(c)
        b = make(ai, completion(0, 1) + completion(1, 1_000_000 // 250))
        wait_for("the first line", lambda: ai.batches.retrieve(b.id).request_counts.completed == 1)
        got = ai.batches.cancel(b.id)
        assert got.status == "cancelled"
        assert [r["custom_id"] for r in lines(ai, got.output_file_id)] == ["line 0"]
        (late,) = lines(ai, got.error_file_id)
        assert late["custom_id"] == "line 1" and late["error"]["code"] == "batch_cancelled"
        c.wait_idle()  # the cancelled line does not continue to run


@pytest.mark.parametrize("who", ["gateway-0", "head", "worker-0"])
def test_killed_in_the_middle(tmp_path, who):
    with cluster(tmp_path, "--null-step-us", "20000") as c:
        ai = client(c)
        b = make(ai, "".join(completion(i, 30) for i in range(200)))
        wait_for("some lines", lambda: ai.batches.retrieve(b.id).request_counts.completed > 5)
        assert ai.batches.retrieve(b.id).status == "in_progress"
        os.kill(c.pid(who), signal.SIGKILL)
        assert_all_once(ai, b, 200, 30)


def test_lines_that_are_refused_for_now_wait_again(tmp_path):
    with cluster(tmp_path, "--null-step-us", "5000", env={"COX_MAX_OPEN_CHOICES": "10"}) as c:
        ai = client(c)
        assert_all_once(ai, make(ai, "".join(completion(i) for i in range(30))), 30)


def test_another_cluster_goes_on(tmp_path):
    with cluster(tmp_path, "--null-step-us", "20000") as c:
        b = make(client(c), "".join(completion(i, 30) for i in range(200)))
        wait_for("some lines", lambda: client(c).batches.retrieve(b.id).request_counts.completed > 5)
    with cluster(tmp_path) as c:
        assert_all_once(client(c), b, 200, 30)
