"""Tests document 001: a VESSL run that serves with vLLM, with Prometheus and a benchmark. `cox run` accepts the file, and `cox bench
serve` replaces the benchmark's command."""
import json
import re
import shlex
import subprocess
import sys

import pytest
import scripted_model
from cluster import BIN, ROOT, Cluster, free_ports, get, wait_for
from hub_server import Hub
from runs import Runs
from seeds import in_order, line, type_line
from test_runs import repository

NAME = "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"
FILE = ROOT / "tests/e2e/runs/vessl.yaml"  # the document's run file, and a command that the document leaves out


@pytest.fixture
def runs(tmp_path):
    with Runs(tmp_path, {"PATH": f"{BIN}:/usr/bin:/bin"}) as r:
        yield r


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--served-model-name", NAME, "--max-model-len", 1024) as c:
        yield c


@line("vllm-run.yaml", "name: vllm-server", "description: LLM server with vLLM and Prometheus monitoring", "  cluster: vessl-gcp-oregon", "      url: github.com/vessl-ai/examples.git",
      "    workdir: /code/vllm-run", "    port: 9090", "  HF_TOKEN: HF_TOKEN # Your Huggingface API token")
def test_the_file(runs):
    done = runs.cox("--check", "-f", FILE)
    assert done.returncode == 0 and "is valid" in done.stdout


@line("run create", "vessl run create -f vllm-run.yaml", "$ vessl run list", " ID            Name           Type         Status      Created                    Description",
      "vessl run terminate 369367189168", "Terminated '#369367189168'.")
def test_create_list_terminate(runs):
    """The document's file can be created, listed and terminated, with a local repository, local ports and the null
    model. `vessl` becomes `cox`."""
    api, head, admin, worker, prometheus = free_ports(5)
    repo = repository(runs.folder / "examples.git", {"README.md": "the folder vllm-run is made by workdir\n"})
    command = f'cox serve null --served-model-name $MODEL_NAME --port {api} --head-port {head} --admin-port {admin} --worker-http-port {worker}'
    text = (FILE.read_text().replace("github.com/vessl-ai/examples.git", str(repo)).replace("port: 8000", f"port: {api}")
            .replace("port: 9090", f"port: {prometheus}"))
    text = re.sub(r"cox up demo .*", command, text)
    (runs.folder / "vllm-run.yaml").write_text(text)
    env = {**runs.env, "HF_TOKEN": "hf_mine"}
    run = type_line("cox run create -f vllm-run.yaml", env=env, cwd=runs.folder).split()[0]
    wait_for("it serves", lambda: get(f"http://127.0.0.1:{api}/health")[0] == 200)
    assert get(f"http://127.0.0.1:{api}/v1/models")[1].count(NAME) >= 1
    rows = type_line("cox run list", env=env).splitlines()
    assert rows[0].split() == ["ID", "Name", "Type", "Status", "Created", "Description"]
    assert re.fullmatch(rf"{run}  vllm-server +command +running +[-\d]+ [:\d]+\+00:00  LLM server with vLLM and Prometheus monitoring", rows[1])
    assert "hf_mine" not in type_line(f"cox run show {run}", env=env)
    assert type_line(f"cox run terminate {run}", env=env) == f"Terminated '#{run}'.\n"


# API_TEST does the part of the script that the document shows. The document does not have the script's text.
API_TEST = """
import argparse, openai
p = argparse.ArgumentParser()
p.add_argument("--base-url"); p.add_argument("--model-name"); p.add_argument("--api-key", default="none")
a = p.parse_args()
client = openai.OpenAI(base_url=a.base_url + "/v1", api_key=a.api_key)
print(client.chat.completions.create(model=a.model_name, messages=[{"role": "user", "content": "What is the capital of South Korea?"}]).choices[0].message)
"""


@line("api-test.py", "$ python vllm-run/api-test.py", "ChatCompletionMessage(content=")
def test_api(cluster, tmp_path):
    (tmp_path / "vllm-run").mkdir()
    (tmp_path / "vllm-run/api-test.py").write_text(API_TEST)
    said = type_line(f"{sys.executable} vllm-run/api-test.py --base-url {cluster.url} --model-name {NAME}", cwd=tmp_path)
    assert re.match(r"ChatCompletionMessage\(content='[a-z]+', .*role='assistant'", said), said


@line("benchmark_serving.py", "python vllm/benchmarks/benchmark_serving.py", "  --backend vllm", "  --request-rate 3", "  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json")
def test_benchmark(cluster, tmp_path):
    """The benchmark accepts the document's flags. It sends few prompts, because the document's thousand take five minutes. The data
    set has two conversations in the document's form."""
    (tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json").write_text(json.dumps([
        {"id": str(i), "conversations": [{"from": "human", "value": f"Say it {i} times"}, {"from": "gpt", "value": "and so it was said"}]} for i in range(2)]))
    said = type_line(f"cox bench serve --backend vllm --base-url {cluster.url} --model {NAME} --request-rate 3 "
                     "--dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 6", cwd=tmp_path)
    in_order(said, "Serving Benchmark Result", "Successful requests:…6", "Request throughput (req/s):", "Mean TTFT (ms):", "P99 TPOT (ms):")


@line("metrics", "* E2E request latency", "* Token throughput", "* Time per first token", "* Cache utilization")
def test_metrics(cluster):
    type_line(f"curl -sf {cluster.url}/v1/completions -H 'Content-Type: application/json' -d '{{\"prompt\": \"a\", \"max_tokens\": 4}}'")
    metrics = get(cluster.url + "/metrics")[1]
    for name in ("vllm:e2e_request_latency_seconds_count", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count", "vllm:kv_cache_usage_perc"):
        assert re.search(rf"^{name}\{{", metrics, re.M), name


@line("vllm serve", "vllm serve $MODEL_NAME --max-model-len 65536 --disable-frontend-multiprocessing", "ENV MODEL_NAME=casperhansen/llama-3-8b-instruct-awq")
def test_entrypoint(tmp_path):
    """The image's ENTRYPOINT runs in a shell, with a hub that has a small model of that name."""
    scripted_model.write(tmp_path / "model", {}, max_len=65536)
    name = "casperhansen/llama-3-8b-instruct-awq"
    with Hub({name: {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}}) as hub:
        c = Cluster(env={"MODEL_NAME": name, "HF_ENDPOINT": hub.url, "COX_CACHE": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hf")})
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "vllm").symlink_to(BIN / "cox")
        c.env["PATH"] = f"{tmp_path}/bin:{c.env['PATH']}"
        own = " ".join(map(shlex.quote, c.command[c.command.index("--host"):]))  # the cluster has its own ports, so that tests do not collide
        c.command = ["sh", "-c", f"exec vllm serve $MODEL_NAME --max-model-len 65536 --disable-frontend-multiprocessing {own}"]
        with c:
            models = json.loads(get(c.url + "/v1/models")[1])["data"]
            assert models[0]["id"] == name and models[0]["max_model_len"] == 65536
            assert "disable-frontend-multiprocessing" in c.log(), "a warning says that it has no meaning"


@line("cache", "  /root/.cache/huggingface/: vessl-artifact://{ORGANIZATION}/{PROJECT}/huggingface-models")
def test_the_cache_is_kept(runs, tmp_path):
    """Two successive runs share only the artifact: the second run fetches no weights."""
    scripted_model.write(tmp_path / "model", {})
    kept = "  /root/.cache/huggingface/: vessl-artifact://vessl-ai/llm-demo/huggingface-models\n"
    with Hub({NAME: {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}}) as hub:
        for n in (1, 2):
            own = {"HF_ENDPOINT": hub.url, "COX_CACHE": str(tmp_path / f"cache-{n}"), "COX_RETRY_WAIT": "0.01"}
            run = runs.create(f"name: fetch\nimport:\n{kept}export:\n{kept}run: cox pull $MODEL_NAME\nenv:\n  MODEL_NAME: {NAME}\n", **own)
            assert runs.wait(run, "completed", "failed")["status"] == "completed", runs.log(run)
            assert len([path for path, _ in hub.requests if path.endswith("model.safetensors")]) == 1, f"run {n}"
