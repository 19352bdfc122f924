"""Tests document 004: vLLM with Ray on a notebook platform, with four workers of one GPU each. Its commands for the cluster, its
request, its load and its benchmarks work. tests/examples/test_notebook_platform.py covers the platform's own calls."""
import json
import re
import shutil

import null_oracle as oracle
import pytest
import scripted_model
from cluster import Cluster, wait_for
from hub_server import Hub
from real_model import needs_model
from seeds import in_order, line, type_line

NAME = "vicuna-13b-v1.3"
REQUEST = """'{
"model": "vicuna-13b-v1.3",
"prompt": "Singapore is a",
"max_tokens": 64,
"temperature": 0
}'"""
HEY = shutil.which("hey")


@pytest.fixture(scope="module")
def cluster():
    """Yields a cluster with four workers, tensor-parallel-size=4 and gpu-memory-utilization 0.7. Its log has the format of that vLLM
    version."""
    with Cluster("--served-model-name", NAME, "--gpu-memory-utilization", "0.7", "--stats-format", "vllm0", "--null-step-us", "4000",
                 workers=4, tp=4) as c:
        yield c


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Makes the project's folder, with the cloned models and the data set."""
    at = tmp_path_factory.mktemp("004")
    for name in ("open_llama_13b", NAME):
        scripted_model.write(at / name, {})
    (at / "ShareGPT_V3_unfiltered_cleaned_split.json").write_text(json.dumps([
        {"id": str(i), "conversations": [{"from": "human", "value": f"Say it {i} times"}, {"from": "gpt", "value": "and so it was said"}]} for i in range(4)]))
    return at


@line("git-lfs clone", "git-lfs clone https://huggingface.co/lmsys/vicuna-13b-v1.3")
def test_clone(folder, tmp_path):
    with Hub({f"lmsys/{NAME}": {p.name: p.read_bytes() for p in (folder / NAME).iterdir()}}) as hub:
        said = type_line(f"cox pull https://huggingface.co/lmsys/{NAME}", env={"HF_ENDPOINT": hub.url, "COX_CACHE": str(tmp_path), "HF_HOME": str(tmp_path / "hf")})
    assert sorted(p.name for p in (tmp_path / said.strip()).iterdir() if not p.name.startswith("cox-")) == sorted(p.name for p in (folder / NAME).iterdir())


@line("ray status", "ray status --address 10.254.19.61:6379", "Active:", "Pending:", "Recent failures:", " (no failures)", "Usage:", "Demands:")
def test_status(cluster):
    said = type_line(f"cox status --address {cluster.admin.removeprefix('http://')}")
    in_order(said, "======== ", "Node status\n", "Active:\n", "4 workers", "Pending:\n", "(no pending ", "Recent failures:\n", "(no failures)", "Usage\n",
             "4/4 workers serve", " CPUs, ", " GPUs, ", " of memory", "Demands\n", "0 running, 0 waiting")


@line("curl", "/v1/completions -H \"Content-Type: application/json\" -d '{", '"prompt": "Singapore is a",', '"object":"text_completion"')
def test_curl(cluster):
    said = json.loads(type_line(f'curl -s {cluster.url}/v1/completions -H "Content-Type: application/json" -d {REQUEST}'))
    assert said["id"].startswith("cmpl-") and said["object"] == "text_completion" and said["model"] == NAME and said["created"] > 0
    [choice] = said["choices"]
    assert (choice["index"], choice["text"], choice["logprobs"], choice["finish_reason"]) == (0, oracle.text("Singapore is a", 64, temperature=0), None, "length")
    usage = said["usage"]
    assert usage["completion_tokens"] == 64 and usage["total_tokens"] == usage["prompt_tokens"] + 64


@line("curl, the demo model", "Singapore is a", "small island nation")
@needs_model
def test_curl_of_real_text():
    """Two ranks of a real model answer with words about Singapore, as in the document, not with the text of a null worker."""
    with Cluster("--device", "cpu", "--served-model-name", NAME, "--max-model-len", "2048", model="demo-base", workers=2, tp=2) as c:
        said = json.loads(type_line(f'curl -s {c.url}/v1/completions -H "Content-Type: application/json" -d {REQUEST}'))
    text = said["choices"][0]["text"]
    assert said["usage"]["completion_tokens"] == 64 and len(text.split()) > 20 and re.search(r"\b(country|city|nation|state|island)\b", text), text


@line("hey", '$ hey -c 5 -m POST -n 50 -H "Content-Type: application/json" -d \'{', "  [200]	50 responses")
@pytest.mark.skipif(not HEY, reason="no hey on this machine: the line below does the same")
def test_hey(cluster):
    said = type_line(f'hey -c 5 -m POST -n 50 -H "Content-Type: application/json" -d {REQUEST} {cluster.url}/v1/completions')
    in_order(said, "Summary:", "Requests/sec:", "Status code distribution:", "[200]	50 responses")


@line("hey, as cox bench serve", "hey -c 5 -m POST -n 50")
def test_load(cluster, tmp_path):
    """`cox bench serve` sends the same 50 requests, five at a time."""
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "Singapore is a"}) + "\n")
    said = type_line(f"cox bench serve --base-url {cluster.url} --model {NAME} --max-concurrency 5 --num-prompts 50 --dataset-name custom "
                     "--dataset-path prompts.jsonl --custom-output-len 64 --temperature 0", cwd=tmp_path)
    in_order(said, "Successful requests:…50", "Failed requests:…0", "Total generated tokens:…3200", "Request throughput (req/s):", "Mean TTFT (ms):")


@line("log", "Avg prompt throughput: 1.6 tokens/s, Avg generation throughput: 43.1 tokens/s, Running: 4 reqs, Swapped: 0 reqs, Pending: 0 reqs, "
      "GPU KV cache usage: 0.2%, CPU KV cache usage: 0.0%")
def test_log(cluster):
    test_curl(cluster)
    number = r"\d+\.\d"
    wanted = re.compile(rf"Avg prompt throughput: {number} tokens/s, Avg generation throughput: {number} tokens/s, Running: \d+ reqs, Swapped: 0 reqs, "
                        rf"Pending: \d+ reqs, GPU KV cache usage: {number}%, CPU KV cache usage: 0\.0%")
    wait_for("the line of throughput", lambda: wanted.search(cluster.log()), 30)


@line("benchmark_throughput.py", "!python benchmark_throughput.py --backend vllm --dataset ./ShareGPT_V3_unfiltered_cleaned_split.json --model open_llama_13b  --num-prompts=100",
      "Throughput: 2.32 requests/s, 1056.36 tokens/s")
def test_throughput(folder):
    said = type_line("cox bench throughput --backend vllm --dataset ./ShareGPT_V3_unfiltered_cleaned_split.json --model open_llama_13b  --num-prompts=100", cwd=folder)
    assert re.search(r"^Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s", said, re.M), said


@line("benchmark_latency.py", "!python benchmark_latency.py --tensor-parallel-size 1 --model vicuna-13b-v1.3  --n 10", "Avg latency: 4.545180882016818 seconds")
def test_latency(folder):
    """The benchmark runs three iterations, as in the document's output."""
    said = type_line("cox bench latency --tensor-parallel-size 1 --model vicuna-13b-v1.3  --n 10 --num-iters 3 --num-iters-warmup 1 --output-len 16", cwd=folder)
    assert re.search(r"^Avg latency: [\d.]+ seconds$", said, re.M), said


@line("tensor-parallel-size", "#### <a name=\"toc_12\"></a>6.2 tensor-parallel-size=2", "#### <a name=\"toc_13\"></a>6.3 tensor-parallel-size=4")
@pytest.mark.parametrize("ranks", [2, 4])
def test_latency_at_other_sizes(folder, ranks):
    said = type_line(f"cox bench latency --tensor-parallel-size {ranks} --model vicuna-13b-v1.3  --n 10 --num-iters 1 --num-iters-warmup 0 --output-len 8 "
                     f"-- --workers {ranks}", cwd=folder)
    assert re.search(r"^Avg latency: [\d.]+ seconds$", said, re.M), said
