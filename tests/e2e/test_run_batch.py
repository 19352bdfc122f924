"""Tests that `cox run-batch` sends a file of requests to a running cluster and writes a file of answers in the same order. An
interrupted run can be resumed."""
import json
import os
import signal
import subprocess

import null_oracle as oracle
import pytest
from cluster import BIN, SLOW, Cluster, alive, free_ports, run_cox, wait_for
from hub_server import Server

KEY = "sk-run-batch"


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--api-key", KEY, "--null-step-us", "2000") as c:
        yield c


def line(name, url="/v1/completions", **body):
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": {"model": "null", **body}}) + "\n"


def completions(n, n_tokens=8):
    return "".join(line(f"line {i}", prompt=f"Once {i}", max_tokens=n_tokens, temperature=0) for i in range(n))


def arguments(cluster, folder, *more):
    return ["run-batch", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl", "--url", cluster.url + "/v1", *more]


def run(cluster, folder, *more, key=KEY, timeout=60):
    return run_cox(*arguments(cluster, folder, *more), timeout=timeout, env={**os.environ, "COX_API_KEY": key})


def rows(folder):
    return [json.loads(s) for s in (folder / "out.jsonl").read_text().splitlines()]


def assert_answers(folder, n, n_tokens=8):
    got = rows(folder)
    assert sorted(r["custom_id"] for r in got) == sorted(f"line {i}" for i in range(n))
    for r in got:
        i = r["custom_id"].split()[1]
        assert r["error"] is None and r["response"]["status_code"] == 200
        assert r["response"]["body"]["choices"][0]["text"] == oracle.text(f"Once {i}", n_tokens, temperature=0)
    assert len({r["id"] for r in got}) == n


def test_answers_in_order(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(100) + "\n")
    done = run(cluster, tmp_path, "--concurrency", 7)
    assert done.returncode == 0 and "100 of 100 answered, 0 with an error" in done.stderr, done.stderr
    assert [r["custom_id"] for r in rows(tmp_path)] == [f"line {i}" for i in range(100)]
    assert_answers(tmp_path, 100)


def test_every_url_and_errors(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(
        line("chat", "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=5)
        + line("vector", "/v1/embeddings", input="abc") + line("wrong", prompt="x", temperature=9) + line("nobody", model="nobody", prompt="x"))
    done = run(cluster, tmp_path)
    assert done.returncode == 0 and "4 of 4 answered, 2 with an error" in done.stderr, done.stderr
    chat, vector, wrong, nobody = rows(tmp_path)
    assert chat["response"]["body"]["usage"]["completion_tokens"] == 5
    assert vector["response"]["body"]["data"][0]["embedding"] == [float(ord("c") >> i & 1) for i in range(8)]
    assert (wrong["response"]["status_code"], wrong["response"]["body"], wrong["error"]["param"]) == (400, None, "temperature")
    assert (nobody["response"]["status_code"], nobody["error"]["code"]) == (404, "model_not_found")
    (tmp_path / "out.jsonl").unlink()
    assert run(cluster, tmp_path, "--fail-on-error").returncode == 1


def test_resume_asks_for_what_is_not_there(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(20))
    assert run(cluster, tmp_path).returncode == 0
    out = tmp_path / "out.jsonl"
    lines = out.read_text().splitlines(keepends=True)
    kept = "".join(lines[:5] + lines[9:12])
    out.write_text(kept + lines[12][:40])  # the last line is incomplete
    refused = run(cluster, tmp_path)
    assert refused.returncode == 2 and "--resume" in refused.stderr and out.read_text().startswith(kept)
    done = run(cluster, tmp_path, "--resume")
    assert done.returncode == 0 and "20 of 20 answered" in done.stderr, done.stderr
    assert out.read_text().startswith(kept)
    assert_answers(tmp_path, 20)
    assert run(cluster, tmp_path, "--resume").returncode == 0 and len(rows(tmp_path)) == 20


def start(cluster, folder, *more):
    return subprocess.Popen([str(BIN / "cox"), *map(str, arguments(cluster, folder, *more))], stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "COX_API_KEY": KEY})


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
def test_broken_off_and_gone_on_with(cluster, tmp_path, sig):
    (tmp_path / "in.jsonl").write_text(completions(60, 40))
    p = start(cluster, tmp_path, "--concurrency", 4)
    wait_for("ten answers", lambda: (tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").read_text().count("\n") >= 10)
    p.send_signal(sig)
    said = p.communicate(timeout=30 * SLOW)[1]
    assert p.returncode == (1 if sig == signal.SIGINT else -9)
    n = (tmp_path / "out.jsonl").read_text().count("\n")
    assert 10 <= n < 60, n
    if sig == signal.SIGINT:
        assert "interrupted" in said and f"{n} of 60 answered" in said, said
    assert run(cluster, tmp_path, "--resume").returncode == 0
    assert_answers(tmp_path, 60, 40)


def test_a_gateway_that_dies_is_waited_for(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(60, 40))
    p = start(cluster, tmp_path, "--concurrency", 4)
    wait_for("ten answers", lambda: (tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").read_text().count("\n") >= 10)
    os.kill(cluster.pid("gateway-0"), signal.SIGKILL)
    said = p.communicate(timeout=60 * SLOW)[1]
    assert p.returncode == 0, said
    assert_answers(tmp_path, 60, 40)
    cluster.wait_ready()


REFUSED = [("{\n", None, "not JSON"), ('{"custom_id": ""}\n', None, "custom_id"), (line("files", "/v1/files"), "files", 'The url "/v1/files" is not supported. Use /v1'),
           (line("score", "/v1/score"), "score", "is not supported: scores, reranking and audio are not available"),
           (line("rerank", "/rerank"), "rerank", "is not supported: scores, reranking"), (line("hear", "/v1/audio/transcriptions"), "hear", "audio"),
           (line("stream", stream=True), "stream", "does not stream its answers"), (line("get", prompt="y").replace("POST", "GET"), "get", 'method must be "POST"')]


def test_a_line_that_is_none_has_an_error_and_the_rest_an_answer(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(2) + "".join(text for text, _, _ in REFUSED) + completions(3))
    done = run(cluster, tmp_path)
    assert done.returncode == 0 and f"{len(REFUSED) + 5} of {len(REFUSED) + 5} answered, {len(REFUSED)} with an error" in done.stderr, done.stderr
    assert "2 lines repeat the custom_id of an earlier line" in done.stderr
    got = rows(tmp_path)
    assert [r["custom_id"] for r in got] == ["line 0", "line 1", *(name for _, name, _ in REFUSED), "line 0", "line 1", "line 2"]
    assert all(r["error"] is None for r in got[:2] + got[-3:])
    for (_, name, words), r in zip(REFUSED, got[2:-3]):
        assert (r["response"]["status_code"], r["response"]["body"], r["error"]["type"]) == (400, None, "invalid_request_error")
        assert words in r["error"]["message"], (name, r)
    whole = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_text("".join(whole[:3]))  # the file ends before the first line without a custom_id
    assert run(cluster, tmp_path, "--resume").returncode == 0
    assert [r["custom_id"] for r in rows(tmp_path)] == [r["custom_id"] for r in got]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_has_an_empty_output(tmp_path, text):
    (tmp_path / "in.jsonl").write_text(text)
    for model in ([], ["--model", "no-such-model"]):  # the command starts no cluster in either case
        done = run_cox("run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", *model)
        assert (done.returncode, done.stderr) == (0, "cox run-batch: 0 of 0 answered, 0 with an error\n")
        assert (tmp_path / "out.jsonl").read_text() == ""


class Store(Server):
    """`Store` is a web server that has in.jsonl and accepts out.jsonl."""

    def __init__(self):
        super().__init__()
        self.given, self.taken, self.code = b"", None, 200

    def answer(self, h, path, action):
        return h.say(200, self.given) if path == "/in.jsonl" else h.say(403, b"no")

    def put(self, h, path):
        self.taken = h.rfile.read(int(h.headers["Content-Length"]))
        return h.say(self.code, b"")


def test_files_that_are_urls(cluster, tmp_path):
    env = {**os.environ, "COX_API_KEY": KEY, "TMPDIR": str(tmp_path)}
    with Store() as store:
        def both(source, to, *more):
            return run_cox("run-batch", "-i", f"{store.url}{source}?sig=secret", "-o", f"{store.url}{to}?sig=secret", "--url", cluster.url, *more, env=env)
        store.given = completions(3).encode()
        done = both("/in.jsonl", "/out.jsonl")
        assert done.returncode == 0 and list(tmp_path.iterdir()) == [], done.stderr
        assert [json.loads(s)["custom_id"] for s in store.taken.splitlines()] == ["line 0", "line 1", "line 2"]
        store.given = b""
        assert both("/in.jsonl", "/out.jsonl").returncode == 0 and store.taken == b""
        store.given = completions(3).encode()
        done = both("/nothing", "/out.jsonl")
        assert done.returncode == 2 and done.stderr == f"cox run-batch: -i {store.url}/nothing: the server answered with status 403 to GET. Check that the URL is valid and allows this method\n"
        done = both("/in.jsonl", "/out.jsonl", "--resume")
        assert done.returncode == 2 and "-o is a URL" in done.stderr
        store.code = 500
        done = both("/in.jsonl", "/out.jsonl")
        assert done.returncode == 1 and f"-o {store.url}/out.jsonl: the server answered with status 500 to PUT" in done.stderr and "secret" not in done.stderr
        kept, = tmp_path.iterdir()
        assert f"the answers are kept in {kept}" in done.stderr and kept.read_text().count("\n") == 3
        kept.unlink()
        done = run_cox("run-batch", "-i", "http://127.0.0.1:1/in?sig=secret", "-o", tmp_path / "x", env=env)
        assert done.returncode == 2 and "-i: cannot connect to http://127.0.0.1:1/in (" in done.stderr and "secret" not in done.stderr


def test_what_cannot_be_asked(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(3))
    done = run(cluster, tmp_path, key="wrong")
    assert done.returncode == 1 and "--api-key" in done.stderr and rows(tmp_path) == []
    port = free_ports(1)[0]
    done = run(cluster, tmp_path, "--url", f"http://127.0.0.1:{port}", "--retry-timeout", 1)
    assert done.returncode == 1 and "cannot connect" in done.stderr and "0 of 3 answered" in done.stderr
    for args, words in ((["-i", "s3://x/y", "-o", "z"], "only a local file or an http:// or https:// URL is supported"), (["-i", tmp_path / "in.jsonl"], "-o FILE"),
                        (["-i", tmp_path / "nothing", "-o", "z"], "No such file"),
                        (["-i", tmp_path / "in.jsonl", "-o", tmp_path / "in.jsonl"], "is both the input and the output")):
        done = run_cox("run-batch", *args)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    (tmp_path / "out.jsonl").write_text('{"custom_id":"else"}\n')
    done = run(cluster, tmp_path, "--resume")
    assert done.returncode == 2 and "belongs to no line of the input" in done.stderr


def up_options():
    """Returns options for a separate cluster beside others, so no port is the default one."""
    head, admin, *workers = free_ports(34)
    return ["--", "--tp", 2, "--head-port", head, "--admin-port", admin, "--worker-http-port", workers[0]]


def left(folder):
    return [p.name for p in folder.glob("cox-batch-*")]


def test_a_cluster_for_the_file(tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(20))
    _, *options = up_options()  # the options are given without `--`, as in vLLM
    done = run_cox("run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", *options, "--max-model-len", 4096, "--reasoning-parser", "qwen3",
                   "--no-enable-prefix-caching", "--enable-metrics", "--disable-log-requests", "--model", "null", timeout=60,
                   env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0 and "20 of 20 answered, 0 with an error" in done.stderr, done.stderr
    assert_answers(tmp_path, 20)
    assert left(tmp_path) == []


def test_a_cluster_that_cannot_start(tmp_path):
    (tmp_path / "in.jsonl").write_text(completions(2))
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    files = ["-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl"]
    for args, words in ((["--model", tmp_path / "nothing", *files], "has ended"),
                        (["null", *files, "--", "--no-such-flag"], "--no-such-flag"),
                        ([*files, "--max-model-len", 4096], "--max-model-len is an option of `cox up`, but no MODEL is given"),
                        (["null", *files, "--", "--ssl-certfile", "x"], "--ssl-certfile is not allowed here"),
                        (["null", *files, "--uds", "/x"], "Give only one of the two")):
        done = run_cox("run-batch", *args, timeout=60, env=env)
        assert done.returncode == 1 and words in done.stderr, done.stderr
        assert left(tmp_path) == [] and rows(tmp_path) == []


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_its_cluster_ends_with_it(tmp_path, sig):
    (tmp_path / "in.jsonl").write_text(completions(500, 400))
    pids = tmp_path / "pids"
    words = ["run-batch", "null", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--concurrency", 1, *up_options(),
             "--print-pids", pids, "--null-step-us", 2000]
    p = subprocess.Popen([str(BIN / "cox"), *map(str, words)], stderr=subprocess.DEVNULL,
                         env={**os.environ, "TMPDIR": str(tmp_path)})
    wait_for("an answer", lambda: (tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").read_text().count("\n") >= 1)
    children = [int(line.split()[1]) for line in pids.read_text().splitlines()]
    assert len(children) >= 4
    p.send_signal(sig)
    assert p.wait(timeout=30 * SLOW) == (1 if sig == signal.SIGTERM else -9)
    wait_for("they are gone", lambda: not any(alive(n) for n in children))
    assert sig == signal.SIGKILL or left(tmp_path) == []
