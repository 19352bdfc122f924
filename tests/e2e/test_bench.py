"""Tests `cox bench` against null clusters, whose answers have known lengths, and against a server that offers completions only."""
import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import threading
import xml.etree.ElementTree as ElementTree
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cluster import BIN, ROOT, SLOW, Cluster, free_ports, run_cox, wait_for

KEY = "sk-bench"
NAME = "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"
STEP_MS = 2
TINY = ROOT / "build/goldens/gemma3_tiny_gguf_q4_0"


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--api-key", KEY, "--null-step-us", str(STEP_MS * 1000), "--served-model-name", NAME) as c:
        yield c


def serve(url, *args, key=KEY, timeout=60):
    env = {k: v for k, v in os.environ.items() if k not in ("COX_API_KEY", "VLLM_API_KEY", "OPENAI_API_KEY")}
    return run_cox("bench", "serve", "--base-url", url, *args, timeout=timeout, env={**env, **({"OPENAI_API_KEY": key} if key else {})})


def figures(text):
    """Returns {name: number} of the table."""
    return {m[1]: float(m[2]) for m in re.finditer(r"^(.+):\s+([\d.]+)\s*$", text, re.MULTILINE)}


def sharegpt(path):
    """Writes a ShareGPT file with three usable conversations (one token per byte) and two unusable ones."""
    def talk(ask, answer):
        return {"id": "x", "conversations": [{"from": "human", "value": ask}, {"from": "gpt", "value": answer}]}
    path.write_text(json.dumps([talk("Say it once", "once"), talk("a", "b"), talk("Say é twice", "twice, twice"),
                                {"conversations": []}, talk("Say nothing", "nothing at all")]))
    return 11 + 12 + 11, 4 + 12 + 14


def test_the_seeds_command_line(cluster, tmp_path):
    """The documented command line works. The test changes only the host, the rate and the number of prompts, which would take five
    minutes."""
    n_in, n_out = sharegpt(tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json")
    done = serve(cluster.url, "--backend", "vllm", "--model", NAME, "--request-rate", 300, "--dataset-path",
                 tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json", "--num-prompts", 30, "--ignore-eos")
    assert done.returncode == 0, done.stderr
    got = figures(done.stdout)
    assert (got["Successful requests"], got["Failed requests"]) == (30, 0)
    assert (got["Total input tokens"], got["Total generated tokens"]) == (10 * n_in, 10 * n_out)
    assert got["Request rate configured (RPS)"] == 300 and got["P99 TTFT (ms)"] > 0


@pytest.mark.parametrize("chat", [False, True])
def test_counts_are_exact(cluster, tmp_path, chat):
    done = serve(cluster.url + "/v1", "--num-prompts", 40, "--random-input-len", 50, "--random-output-len", 20, "--ignore-eos",
                 "--backend", "openai-chat" if chat else "openai", "--max-concurrency", 8, "--num-warmups", 3, "--percentile-metrics",
                 "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99.9", "--goodput", "e2el:600000", "--save-result", "--save-detailed",
                 "--result-dir", tmp_path / "results", "--metadata", "tp=2", "note=a b", "--seed", 5)
    assert done.returncode == 0, done.stderr
    file, = (tmp_path / "results").iterdir()
    assert re.fullmatch(rf"openai{'-chat' if chat else ''}-infqps-concurrency8-Meta-Llama-3.1-8B-Instruct-AWQ-INT4-\d+-\d+\.json", file.name)
    r = json.loads(file.read_text())
    assert (r["completed"], r["failed"], r["total_output_tokens"]) == (40, 0, 800)
    assert r["output_lens"] == [20] * 40 and all(0 < len(g) <= 19 for g in r["itls"]) and r["errors"] == [""] * 40
    assert len(set(r["input_lens"])) == 1 and (r["input_lens"][0] > 50 if chat else r["input_lens"][0] == 50)
    assert all(len(t) == 20 for t in r["generated_texts"]) and r["max_concurrency"] == 8 and 1 < r["max_concurrent_requests"] <= 8
    assert (r["tp"], r["note"], r["request_rate"], r["num_prompts"]) == ("2", "a b", "inf", 40)
    assert r["request_goodput"] == pytest.approx(40 / r["duration"]) and r["request_throughput"] == pytest.approx(40 / r["duration"])
    assert r["median_e2el_ms"] >= 20 * STEP_MS  # each token is a step, and no step is shorter than STEP_MS
    got = figures(done.stdout)
    assert got["P99.9 E2EL (ms)"] == pytest.approx(r["p99.9_e2el_ms"], abs=0.01) and got["P50 ITL (ms)"] == pytest.approx(r["median_itl_ms"], abs=0.01)


def test_poem_and_lines(cluster, tmp_path):
    (tmp_path / "poem.txt").write_text("From fairest creatures we desire increase,\nThat thereby beauty's rose might never die,\n" * 3)
    done = serve(cluster.url, "--dataset", tmp_path / "poem.txt", "--num-prompts", 5, "--sonnet-output-len", 3, "--ignore-eos", "--sonnet-input-len", 300)
    assert done.returncode == 0 and figures(done.stdout)["Total generated tokens"] == 15, done.stderr
    assert 5 * 200 < figures(done.stdout)["Total input tokens"] <= 5 * 300
    (tmp_path / "mine.jsonl").write_text('{"prompt": "abc", "output_tokens": 2}\n{"prompt": "abcde"}\n')
    done = serve(cluster.url, "--dataset-path", tmp_path / "mine.jsonl", "--num-prompts", 4, "--ignore-eos")
    assert done.returncode == 0, done.stderr
    assert (figures(done.stdout)["Total input tokens"], figures(done.stdout)["Total generated tokens"]) == (16, 2 * 258)


class Bare(BaseHTTPRequestHandler):
    """`Bare` is a server that offers completions only, without usage and in pieces of one word. Every fourth answer is an error."""
    protocol_version = "HTTP/1.1"
    n = 0
    lock = threading.Lock()

    def log_message(self, *args):
        pass

    def answer(self, code, body, kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(404, b"{}")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/completions":
            return self.answer(404, b"not here")
        with Bare.lock:
            Bare.n += 1
            fails = Bare.n % 4 == 0
        if fails and Bare.n % 8 == 0:
            return self.answer(429, b'{"error": {"message": "too many"}}')
        events = [json.dumps({"choices": [{"index": 0, "text": t, "finish_reason": None}]}) for t in (" a", "", " b")]
        events.append(json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}))
        if not fails:
            events.append("[DONE]")
        self.answer(200, "".join(f"data: {e}\n\n" for e in events).encode(), "text/event-stream")


def test_a_server_that_has_completions_alone(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bare)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        done = serve(url, "--num-prompts", 3)
        assert done.returncode == 1 and "(name the model with --model)" in done.stderr
        done = serve(url, "--model", "m", "--num-prompts", 16, "--max-concurrency", 1, "--ready-check-timeout-sec", 0, "--random-input-len", 9,
                     "--save-result", "--save-detailed", "--result-filename", tmp_path / "r.json", "--header", "X-Tenant=a")
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 1 and "each word counts as one token" in done.stderr, done.stderr
    assert "4 of 16 requests failed:" in done.stderr and "  2: " in done.stderr
    assert "answered 429: too many" in done.stderr and "the stream ended before the answer was complete" in done.stderr
    r = json.loads((tmp_path / "r.json").read_text())
    assert (r["completed"], r["failed"], r["total_input_tokens"], r["total_output_tokens"]) == (12, 4, 12 * 9, 12 * 3)
    assert r["errors"].count("") == 12 and [len(g) for g, e in zip(r["itls"], r["errors"]) if not e] == [2] * 12


class Tokenizing(BaseHTTPRequestHandler):
    """`Tokenizing` is a server that truncates the benchmark's dataset when it gets a request to tokenize a prompt."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(404, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["prompt" if self.path == "/tokenize" else "model"].startswith("x"):
            self.server.dataset.write_text("")
        said = {"/tokenize": {"tokens": [0, 1, 2]}, "/detokenize": {"prompt": "a b c"}}
        self.answer(200 if self.path in said else 404, said.get(self.path, {}))

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_dataset_that_is_cut_short_meanwhile(tmp_path):
    """The benchmark has read the whole dataset before the server truncates it. With a mapped file, SIGBUS would end the process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tokenizing)
    server.dataset = tmp_path / "lines.jsonl"
    server.dataset.write_text("".join(json.dumps({"prompt": "x" * 200}) + "\n" for _ in range(100)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = serve(f"http://127.0.0.1:{server.server_port}", "--model", "m", "--num-prompts", 100, "--max-concurrency", 2, "--dataset-name", "custom",
                     "--dataset-path", server.dataset, "--ready-check-timeout-sec", 0)
    finally:
        server.shutdown()
        server.server_close()
    assert server.dataset.stat().st_size == 0
    assert done.returncode == 1 and "100 of 100 requests failed:" in done.stderr, (done.returncode, done.stderr)


def test_what_cannot_be_done(cluster, tmp_path):
    (tmp_path / "bad.jsonl").write_text("{\n")
    for url, key, args, code, words in (
            (cluster.url, None, [], 1, "COX_API_KEY"), (cluster.url, KEY, ["--model", "nobody"], 1, "nobody"),
            ("http://127.0.0.1:1", KEY, ["--ready-check-timeout-sec", 0], 1, "cannot connect"),
            (cluster.url, KEY, ["--dataset-path", tmp_path / "nothing"], 2, "No such file"),
            (cluster.url, KEY, ["--dataset-path", tmp_path / "bad.jsonl"], 2, "bad.jsonl:1: the line is not valid JSON"),
            (cluster.url, KEY, ["--request-rate", "-1"], 2, "--request-rate"), (cluster.url, KEY, ["--goodput", "itl:3"], 2, "--goodput"),
            (cluster.url, KEY, ["--plot", "x.png"], 2, "--plot x.png: the plot is an SVG file"),
            (cluster.url, KEY, ["--save-result", "--result-dir", "/proc/none"], 1, "--result-dir"),
            (cluster.url, KEY, ["--tokenizer", tmp_path / "none"], 2, "--tokenizer"), ("ftp://x", KEY, [], 2, "not a valid address")):
        done = serve(url, *args, "--num-prompts", 2, key=key)
        assert done.returncode == code and words in done.stderr and done.stderr.count("\n") == 1, (args, done.returncode, done.stderr)
    done = run_cox("bench", "swerve")
    assert done.returncode == 2 and "unknown benchmark \"swerve\"" in done.stderr and "serve" in done.stderr


def offline(tmp_path, *args, timeout=60):
    done = run_cox("bench", *args, timeout=timeout, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("cox-")] == []  # the benchmark's cluster left nothing behind
    return done


def test_throughput_of_a_private_cluster(tmp_path):
    """The documented command line works with a local model."""
    n_in, n_out = sharegpt(tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json")
    done = offline(tmp_path, "throughput", "--backend", "vllm", "--dataset", tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json", "--model", "null",
                   "--num-prompts=99", "--output-json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s, [\d.]+ output tokens/s$", done.stdout, re.MULTILINE)
    assert f"Total num prompt tokens:  {33 * n_in}\nTotal num output tokens:  {33 * n_out}\n" in done.stdout
    r = json.loads((tmp_path / "r.json").read_text())
    assert (r["num_requests"], r["total_num_tokens"]) == (99, 33 * (n_in + n_out))
    assert r["tokens_per_second"] == pytest.approx(r["total_num_tokens"] / r["elapsed_time"])


def test_latency_of_a_private_cluster(tmp_path):
    """The documented command line works. The test uses fewer and shorter batches. Each token of a batch is a step."""
    done = offline(tmp_path, "latency", "--tensor-parallel-size", 1, "--model", "null", "--n", 10, "--batch-size", 2, "--output-len", 20, "--num-iters", 3,
                   "--num-iters-warmup", 1, "--output-json", tmp_path / "r.json", "--null-step-us", STEP_MS * 1000)
    assert done.returncode == 0, done.stderr
    r = json.loads((tmp_path / "r.json").read_text())
    lines = [f"Avg latency: {r['avg_latency']} seconds", *(f"{p}% percentile latency: {r['percentiles'][str(p)]} seconds" for p in (10, 25, 50, 75, 90, 99))]
    numbers = [[float(x) for x in re.findall(r"\d+\.\d+", text)] for text in (done.stdout, "\n".join(lines))]
    assert [re.sub(r"\d+\.\d+", "X", line) for line in done.stdout.splitlines()] == [re.sub(r"\d+\.\d+", "X", line) for line in lines]
    assert numbers[0] == pytest.approx(numbers[1]) and len(r["latencies"]) == 3 and min(r["latencies"]) >= 20 * STEP_MS / 1000


def test_offline_against_a_running_cluster(cluster, tmp_path):
    env = {**os.environ, "COX_API_KEY": KEY}
    done = run_cox("bench", "throughput", "--base-url", cluster.url, "--backend", "vllm-chat", "--num-prompts", 10, "--input-len", 8, "--output-len", 4, "--n", 2, env=env)
    assert done.returncode == 0 and "Total num output tokens:  80\n" in done.stdout, done.stderr
    done = run_cox("bench", "latency", "--base-url", cluster.url, "--output-len", 4, "--num-iters", 2, "--num-iters-warmup", 0, env=env)
    assert done.returncode == 0 and done.stdout.count(" seconds\n") == 7, done.stderr
    for args, words in ((["throughput"], "--model MODEL"), (["latency", "--base-url", cluster.url, "--tp", 2], "Remove one of the two"),
                        (["latency", "--use-beam-search", "--model", "null"], "beam search is not supported"),
                        (["latency", "--model", tmp_path / "nothing"], f"the model {tmp_path}/nothing is not a file or folder"),
                        (["throughput", "--model", "null", "--dataset", tmp_path / "nothing"], "No such file")):
        done = run_cox("bench", *args, env=env, timeout=30)
        assert done.returncode in (1, 2) and words in done.stderr, (args, done.stderr)


def test_interrupted(cluster, tmp_path):
    """After an interrupt, open requests count as failed. Finished requests are reported and saved."""
    args = ["bench", "serve", "--base-url", cluster.url, "--num-prompts", "1000", "--random-input-len", "8", "--random-output-len", "50", "--ignore-eos",
            "--max-concurrency", "4", "--save-result", "--result-filename", str(tmp_path / "r.json")]
    p = subprocess.Popen([str(BIN / "cox"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COX_API_KEY": KEY})
    wait_for("the load runs", lambda: cluster.running() >= 4)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30 * SLOW)
    got, r = figures(out), json.loads((tmp_path / "r.json").read_text())
    assert p.returncode == 1 and err.endswith("cox bench serve: the command was interrupted by a signal\n") and "the request was not sent" in err, err
    cut_off = re.search(r"^  (\d+): interrupted$", err, re.MULTILINE)
    assert cut_off is None or 1 <= int(cut_off[1]) <= 4, err  # None: all four requests had received their last token when the load ended
    assert got["Successful requests"] + got["Failed requests"] == 1000 and r["completed"] == got["Successful requests"]
    cluster.wait_idle()


def test_a_gateway_that_dies(cluster, tmp_path):
    """Open requests at a gateway that dies count as failed and are reported. The load continues with the restarted gateway."""
    answered = cluster.status()["requests"]["finished"]
    args = ["bench", "serve", "--base-url", cluster.url, "--num-prompts", "150", "--random-input-len", "8", "--random-output-len", "100", "--ignore-eos",
            "--request-rate", "30", "--save-result", "--save-detailed", "--result-filename", str(tmp_path / "r.json")]
    p = subprocess.Popen([str(BIN / "cox"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COX_API_KEY": KEY})
    wait_for("some are answered, and some run", lambda: cluster.status()["requests"]["finished"] >= answered + 8 and cluster.running() >= 4)
    os.kill(cluster.pid("gateway-0"), signal.SIGKILL)
    out, err = p.communicate(timeout=60 * SLOW)
    r = json.loads((tmp_path / "r.json").read_text())
    assert p.returncode == 1 and r["failed"] >= 1 and r["completed"] >= 1 and r["completed"] + r["failed"] == 150, out + err
    assert f"{r['failed']} of 150 requests failed" in err and len([e for e in r["errors"] if e]) == r["failed"]
    assert r["total_output_tokens"] == 100 * r["completed"]
    cluster.wait_ready()


def test_bars_on_a_terminal(cluster):
    """Progress bars appear only on a terminal. The printed report is the same."""
    ours, theirs = os.openpty()
    p = subprocess.Popen([str(BIN / "cox"), "bench", "serve", "--base-url", cluster.url, "--num-prompts", "5", "--random-output-len", "2"],
                         stdout=subprocess.PIPE, stderr=theirs, text=True, env={**os.environ, "COX_API_KEY": KEY})
    out = p.communicate(timeout=30 * SLOW)[0]
    os.close(theirs)
    seen = ""
    try:
        while piece := os.read(ours, 1 << 16):
            seen += piece.decode()
    except OSError:  # EIO is the end of the output
        pass
    os.close(ours)
    assert p.returncode == 0 and "Successful requests:" in out and "5/5 prompts made" in seen and "5/5 requests" in seen, seen


def test_histograms(cluster, tmp_path):
    done = serve(cluster.url, "--num-prompts", 30, "--random-input-len", 8, "--random-output-len", 4, "--ignore-eos", "--percentile-metrics", "ttft,e2el",
                 "--histogram", "--plot", tmp_path / "plot.svg")
    assert done.returncode == 0, done.stderr
    bars = done.stdout[done.stdout.index("End-to-end Latency (ms), 30 values\n"):].splitlines()[1:]
    assert sum(int(line.lstrip(" >").split()[1]) for line in bars) == 30 and "Time to First Token (ms), 30 values\n" in done.stdout
    svg = ElementTree.parse(tmp_path / "plot.svg").getroot()
    charts = svg.findall("{*}g")
    assert [g.find("{*}text").text for g in charts] == ["TTFT", "E2EL"] and NAME in svg.find("{*}title").text
    for g in charts:
        counts = [int(r.find("{*}title").text.rsplit(" ", 1)[1]) for r in g.findall("{*}rect")]
        assert sum(counts) == 30
    done = serve(cluster.url, "--num-prompts", 1, "--random-output-len", 2, "--plot", "/proc/none/x.svg")
    assert done.returncode == 1 and "--plot /proc/none/x.svg" in done.stderr and "Successful requests:" in done.stdout


def in_memory(path):
    """Returns the part of a file that is in the page cache."""
    libc, size = ctypes.CDLL(None, use_errno=True), path.stat().st_size
    with open(path, "rb") as f, mmap.mmap(f.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
        view = ctypes.c_char.from_buffer(m)
        pages = ctypes.create_string_buffer((size + 4095) // 4096)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), pages) == 0
        del view
    return sum(b & 1 for b in pages.raw) / len(pages.raw)


@pytest.mark.skipif(not (TINY / "model.gguf").exists(), reason="SKIPPED: no build/goldens: scripts/make-goldens")
def test_a_cold_start_leaves_its_neighbours_alone(tmp_path):
    """A cold start drops only the model's own pages. Other models in a GGUF's folder may be in use."""
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(TINY / "model.gguf", folder / "model.gguf")
    other, probe = folder / "other.gguf", tmp_path / "probe"
    for path in (other, probe):
        path.write_bytes(os.urandom(1 << 20))
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        if path == probe:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    if in_memory(probe) > 0.5:
        pytest.skip("SKIPPED: this file system keeps its pages")
    other.read_bytes()
    assert in_memory(other) == 1
    done = offline(tmp_path, "startup", "--model", folder / "model.gguf", "--device", "cpu", "--num-iters-cold", 1, "--num-iters-warmup", 0,
                   "--num-iters-warm", 0)
    assert done.returncode == 0, done.stderr
    assert in_memory(other) > 0.9


def test_startup(tmp_path):
    done = offline(tmp_path, "startup", "--model", "null", "--num-iters-cold", 1, "--num-iters-warmup", 0, "--num-iters-warm", 2, "--output-json", tmp_path / "r.json")
    assert done.returncode == 0 and "STARTUP TIME BENCHMARK RESULTS" in done.stdout, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith("STARTUP:")] == ["COLD STARTUP:", "WARM STARTUP:"]
    r = json.loads((tmp_path / "r.json").read_text())
    assert (len(r["cold_startup_times"]), len(r["warm_startup_times"])) == (1, 2) and all(t > 0 for t in r["warm_startup_times"])
    assert r["avg_warm_startup_time"] == pytest.approx(sum(r["warm_startup_times"]) / 2) and "no files" in done.stderr
    done = offline(tmp_path, "startup", "--model", tmp_path / "nothing")
    assert done.returncode == 1 and "is not a file or folder on this machine" in done.stderr and done.stderr.count("\n") == 1, done.stderr

# Lists the flags of vLLM's client, from the tests of vLLM's Rust client, with a value where needed. A flag works (""), has no effect ("ignored"),
# or is refused because it would change the measurement ("refused").
VLLM_FLAGS = {
    "": ["--append-result", "--backend vllm", "--base-url http://127.0.0.1:1", "--burstiness 1.0", "--custom-output-len 8", "--dataset-name random",
         "--dataset-path FILE", "--disable-shuffle", "--disable-tqdm", "--endpoint /v1/completions", "--extra-body {}", "--frequency-penalty 0.1",
         "--goodput ttft:100 tpot:5", "--header A=b C=d", "--host 127.0.0.1", "--ignore-eos", "--input-len 8", "--insecure", "--label x", "--logprobs 1",
         "--lora-assignment round-robin", "--lora-modules a b", "--max-concurrency 4", "--metadata a=b c=d", "--metric-percentiles 50,99", "--min-p 0.1",
         "--model x", "--no-oversample", "--num-prompts 3", "--num-warmups 1", "--output-len 8", "--percentile-metrics ttft", "--port 8000",
         "--presence-penalty 0.1", "--ramp-up-end-rps 0", "--ramp-up-start-rps 0", "--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 2",
         "--random-input-len 8", "--random-output-len 8", "--random-prefix-len 2", "--random-range-ratio 0.1", "--ready-check-timeout-sec 0",
         "--repetition-penalty 1.1", "--request-id-prefix a-", "--request-rate 3", "--result-dir .", "--result-filename x.json", "--save-detailed",
         "--save-result", "--seed 3", "--served-model-name x", "--sharegpt-output-len 8", "--sonnet-input-len 9", "--sonnet-output-len 9",
         "--sonnet-prefix-len 3", "--temperature 0.5", "--tokenizer FILE", "--top-k 3", "--top-p 0.9"],
    "ignored": ["--asr-max-audio-len-sec 9", "--asr-min-audio-len-sec 1", "--bfcl-categories simple", "--blazedit-max-distance 1.0",
                "--blazedit-min-distance 0.0", "--custom-ensure-client-side-data", "--enable-multimodal-chat", "--hf-name a/b", "--hf-output-len 8",
                "--hf-split train", "--hf-subset x", "--no-reranker", "--no-self-timed", "--no-stream", "--plot-dataset-stats", "--plot-timeline",
                "--prefix-repetition-num-prefixes 2", "--prefix-repetition-output-len 8", "--prefix-repetition-prefix-len 8",
                "--prefix-repetition-suffix-len 8", "--random-mm-base-items-per-request 1", "--random-mm-bucket-config {(256,256,1):1.0}",
                '--random-mm-limit-mm-per-prompt {"image":3}', "--random-mm-num-mm-items-range-ratio 0.0", "--skip-chat-template",
                "--skip-tokenizer-init", "--spec-bench-category x", "--spec-bench-output-len 8", "--speed-bench-category x",
                "--speed-bench-dataset-subset x", "--speed-bench-output-len 8", "--timed-trace-chunk-hash-size 16", "--timed-trace-label-hash-ids x",
                "--timed-trace-label-input-length x", "--timed-trace-label-output-length x", "--timed-trace-label-timestamp x",
                "--timed-trace-sec-multiplier 1.0", "--timeline-itl-thresholds 25,50", "--tokenizer-mode auto", "--trust-remote-code"],
    "refused": ['--chat-template-kwargs {"thinking":true}', "--probe-request-rate 1", "--profile", "--random-batch-size 2", "--self-timed",
                "--use-beam-search"],
}


def test_every_flag_of_vllms_client_is_known(tmp_path):
    """Every accepted command line ends with exit code 1 and reports that no process listens at the address."""
    (tmp_path / "FILE").write_text('{"prompt": "x"}\n')
    assert len({f.split()[0] for flags in VLLM_FLAGS.values() for f in flags}) == 105
    for becomes, flags in VLLM_FLAGS.items():
        for flag in flags:
            words = [w.replace("FILE", str(tmp_path / "FILE")) for w in flag.split()]
            done = run_cox("bench", "serve", "--base-url", "http://127.0.0.1:1", *words, cwd=tmp_path)
            name = words[0]
            *warnings, last = done.stderr.splitlines()
            if becomes == "refused":
                assert done.returncode == 2 and last.startswith(f"cox bench serve: {name} is not supported. ") and not warnings, (flag, done.stderr)
            else:
                assert done.returncode == 1 and "cannot connect" in last, (flag, done.stderr)
                assert len(warnings) == (becomes == "ignored") and all(name in w and "ignored" in w for w in warnings), (flag, done.stderr)
    for harmless in (["--probe-request-rate", "0"], ["--random-batch-size=1"]):
        done = run_cox("bench", "serve", "--base-url", "http://127.0.0.1:1", *harmless)
        assert done.returncode == 1 and "the behaviour that is built in" in done.stderr
    done = run_cox("bench", "serve", "--dataset-name", "hf")
    assert done.returncode == 2 and "as JSON lines with --dataset-path" in done.stderr


class Asked(BaseHTTPRequestHandler):
    """Responds like a server of one model, and records the requests."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.say(b'{"data": [{"id": "m"}]}', "application/json")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "stream" not in body:
            return self.say(b'{"tokens": [1, 2]}', "application/json") if self.path == "/tokenize" else self.send_error(404)
        self.server.asked.append((self.headers.get("X-Request-Id"), body["model"]))
        events = [json.dumps({"choices": [{"index": 0, "text": t, "finish_reason": f}]}) for t, f in ((" a", None), ("", "stop"))]
        return self.say("".join(f"data: {e}\n\n" for e in [*events, "[DONE]"]).encode(), "text/event-stream")

    def say(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_ids_and_adapters_of_requests():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        def ask(*more):
            server.asked.clear()
            done = serve(f"http://127.0.0.1:{server.server_port}", "--num-prompts", 6, "--max-concurrency", 1, "--ready-check-timeout-sec", 0,
                         "--header", "X-A=b", "--random-input-len", 2, *more)
            assert done.returncode == 0, done.stderr
            return list(server.asked)
        assert ask() == [(None, "m")] * 6
        turns = ask("--request-id-prefix", "run-7-", "--lora-assignment", "round-robin", "--lora-modules", "a", "b")
        assert turns == [(f"run-7-{i}", "ab"[i % 2]) for i in range(6)]
        drawn = ask("--lora-modules", "a", "b", "--seed", 3)
        assert {name for _, name in drawn} == {"a", "b"} and drawn == ask("--lora-modules", "a", "b", "--seed", 3)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}", "http://127.1.2.3:{}/v1", "http://localhost:{}", "http://[::1]:{}", "http://user:pw@localhost:{}"])
def test_a_closed_port_of_this_machine_is_not_waited_for(url):
    done = serve(url.format(free_ports(1)[0]), "--num-prompts", 1)
    assert done.returncode == 1 and "cannot connect" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_server_that_is_not_there_yet(tmp_path):
    """With a time to wait, `cox bench` waits for a server on this machine too."""
    port = free_ports(1)[0]
    p = subprocess.Popen([str(BIN / "cox"), "bench", "serve", "--port", str(port), "--num-prompts", "2", "--ready-check-timeout-sec", "60",
                          "--random-input-len", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = p.stderr.readline()
    assert "Waiting up to 60 s (--ready-check-timeout-sec)" in line, line
    server = ThreadingHTTPServer(("127.0.0.1", port), Asked)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        said, errors = p.communicate(timeout=30 * SLOW)
    finally:
        server.shutdown()
        server.server_close()
    assert p.returncode == 0 and "Successful requests" in said, errors
