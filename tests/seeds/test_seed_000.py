"""Tests document 000: DeepSeek-Coder-V2 in DJL's LMI container on SageMaker. Its environment starts `cox serve`, and the log has the
lines that the document searches for in CloudWatch."""
import json
import re
import shlex
import shutil
import subprocess

import httpx
import pytest
import scripted_model
from cluster import BIN, ROOT, SANITIZED, SLOW, get, wait_for
from hub_server import Hub
from seeds import PYTHON, in_order, line, needs_clients, notebook
from test_sagemaker import Container

NAME = "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct"
DEPLOY_ENV = {
    "OPTION_ROLLING_BATCH": "vllm",
    "OPTION_TENSOR_PARALLEL_DEGREE": "max",
    "OPTION_MAX_ROLLING_BATCH_SIZE": "2",
    "OPTION_DTYPE": "fp16",
    "OPTION_TRUST_REMOTE_CODE": "true",
    "OPTION_MAX_MODEL_LEN": "8192",
    "VLLM_ATTENTION_BACKEND": "XFORMERS",
    "OPTION_GPU_MEMORY_UTILIZATION": "0.9",
    "VLLM_MAX_NUM_SEQS": "16",
}
# IMAGE_ENV has variables that the container's image also sets, according to the document's log.
IMAGE_ENV = {
    "HF_HUB_ENABLE_HF_TRANSFER": "1",
    "HF_HOME": "/tmp/.cache/huggingface",
    "OMP_NUM_THREADS": "1",
    "SAGEMAKER_SAFE_PORT_RANGE": "29000-29999",
    "SERVING_FEATURES": "vllm,lmi-dist",
    "DJL_CACHE_DIR": "/tmp/.djl.ai",
}
EMULATED = BIN.parent / "tests/cox-worker-emulated"


@pytest.fixture(scope="module")
def container():
    """Yields the container with its weights mounted in the model store, as in the document's log (Model Store: /opt/ml/model)."""
    c = Container(**DEPLOY_ENV, **IMAGE_ENV)
    del c.env["HF_MODEL_ID"]
    scripted_model.write(c.store, {})
    with c:
        wait_for("the log says that it serves", lambda: "ready in" in c.log())  # requests may be served before the log has the line
        yield c


@line("4.1", *(f'"{name}": "{value}"' for name, value in DEPLOY_ENV.items() if name != "OPTION_DTYPE"), '"OPTION_DTYPE":"fp16"')
def test_deploy_env(container):
    assert get(container.url + "/ping")[0] == 200


@line("4.3.1", "Default job_queue_size: 1000", "Default batch_size: 1", "Default max_batch_delay: 100", "Default max_idle_time: 60",
      "Initial Models: ALL", "Netty threads: 0", "Maximum Request Size: 67108864", "Environment variables:",
      *(f"    {name}: {value}" for name, value in IMAGE_ENV.items()))
def test_settings_in_the_log(container):
    address = f"http://0.0.0.0:{container.ports[0]}"
    in_order(container.log(), f"Inference address: {address}", f"Management address: {address}", "Default job_queue_size: 1000",
             "Default batch_size: 1", "Default max_batch_delay: 100", "Default max_idle_time: 60", f"Model Store: {container.store}",
             "Initial Models: ALL", "Netty threads: 0", "Maximum Request Size: 67108864", "Environment variables:\n")
    shown = {**IMAGE_ENV, **{name: value for name, value in DEPLOY_ENV.items() if name.startswith("OPTION_")}}
    assert not [name for name, value in shown.items() if f"    {name}: {value}\n" not in container.log()]


@line("4.3.2", "[INFO ] LmiUtils - Detected mpi_mode: null, rolling_batch: vllm, tensor_parallel_degree:", "[INFO ] ModelInfo - M-0001: Apply per model settings:",
      "    job_queue_size: 1000", "    max_dynamic_batch_size: 1", "    load_on_devices: *", "    option.dtype: fp16", "    option.max_model_len: 8192",
      "    option.max_rolling_batch_size: 2", "    option.rolling_batch: vllm")
def test_model_settings_in_the_log(container):
    log = container.log()
    in_order(log, "[INFO ] LmiUtils - Detected mpi_mode: null, rolling_batch: vllm, tensor_parallel_degree: 1, for modelType: llama\n")
    in_order(log, "[INFO ] ModelInfo - M-0001: Apply per model settings:\n", "    job_queue_size: 1000\n", "    max_dynamic_batch_size: 1\n",
             "    max_batch_delay: 100\n", "    max_idle_time: 60\n", "    load_on_devices: *\n")
    for name, value in DEPLOY_ENV.items():
        assert not name.startswith("OPTION_") or f"    option.{name[7:].lower()}: {value}\n" in log, name


@line("4.3.3", "Initializing a V0 LLM engine (v", "with config: model='/opt/ml/model'", "max_seq_len=8192", "tensor_parallel_size=")
def test_engine_settings_in_the_log(container):
    [said] = re.findall(r"Initializing an? .*LLM engine \(v[^\n]*", container.log())
    for word in (f"model='{container.store}'", "max_seq_len=8192", "tensor_parallel_size=1"):
        assert word in said


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory):
    """Returns the log of the same deployment on an emulated GPU, after it has answered a request."""
    if SANITIZED or not EMULATED.exists():
        pytest.skip("no emulated GPU in this build")
    programs = tmp_path_factory.mktemp("bin")
    for name in ("cox", "cox-head", "cox-gateway"):
        shutil.copy(BIN / name, programs / name)
    shutil.copy(EMULATED, programs / "cox-worker")
    c = Container(**DEPLOY_ENV, LD_LIBRARY_PATH=str(BIN.parent / "tests/nvml"))
    del c.env["HF_MODEL_ID"]
    scripted_model.write(c.store, {})
    c.command = [str(programs / "cox"), *c.command[1:], "--device", "cuda", "--nccl-library", str(BIN.parent / "tests/libfakenccl_emulated.so"),
                 "--num-gpu-blocks-override", "96", "--max-model-len", "512", "--max-num-batched-tokens", "64"]
    with c:
        body = {"inputs": "hi", "parameters": {"max_new_tokens": 6, "ignore_eos_token": True}}
        assert httpx.post(c.url + "/invocations", json=body, timeout=60 * SLOW).status_code == 200
        wait_for("a pass was recorded", lambda: "Graph capturing" in c.log())
        yield c.log()


@line("4.3.4", "the current vLLM instance can use total_gpu_memory (39.39GiB) x gpu_memory_utilization (0.90) = 35.45GiB",
      "model weights take 3.97GiB; non_torch_memory takes 2.10GiB; PyTorch activation peak memory takes 0.36GiB; "
      "the rest of the memory reserved for KV Cache is 29.02GiB.")
def test_memory_in_the_log(on_gpu):
    """The log shows how the GPU's memory is divided. tests/unit/worker/executor/device/gpu_log_test.c checks the document's own figures."""
    total, share, budget = map(float, re.search(
        r"the current vLLM instance can use total_gpu_memory \(([\d.]+)GiB\) x gpu_memory_utilization \(([\d.]+)\) = ([\d.]+)GiB", on_gpu).groups())
    parts = re.search(r"model weights take ([\d.]+)GiB; non_torch_memory takes ([\d.]+)GiB; PyTorch activation peak memory takes ([\d.]+)GiB; "
                      r"the rest of the memory reserved for KV Cache is ([\d.]+)GiB", on_gpu).groups()
    assert share == 0.9 and abs(total * share - budget) < 0.02 and abs(sum(map(float, parts)) - budget) < 0.03


@line("4.3.5, graphs", "Graph capturing finished in 5 secs, took 0.47 GiB", "init engine (profile, create kv cache, warmup model) took 15.79 seconds")
def test_graphs_in_the_log(on_gpu):
    """The line about graphs is after the engine's, because passes are recorded while the first requests run."""
    in_order(on_gpu, "init engine (profile, create kv cache, warmup model) took … seconds", "Graph capturing finished in … secs, took … GiB")


@line("4.3.5", "Model [model] initialized.", "Starting worker thread WT-0001 for model model (M-0001, READY) on device",
      "[INFO ] ModelServer - Initialize BOTH server", "[INFO ] ModelServer - BOTH API bind to: http://0.0.0.0:8080")
def test_started(container):
    in_order(container.log(), "Model [model] initialized.\n", "[INFO ] WorkerThread - Starting worker thread WT-0001 for model model (M-0001, READY) on device cpu()\n",
             "[INFO ] ModelServer - Initialize BOTH server", f"[INFO ] ModelServer - BOTH API bind to: http://0.0.0.0:{container.ports[0]}\n")


@line("message prompt", "invoke_endpoint_with_response_stream")
@needs_clients
def test_message_prompt(container):
    assert notebook(container.url, "messages") == scripted_model.HELLO


@line("4.3.6", "Avg prompt throughput: 11.4 tokens/s, Avg generation throughput: 73.7 tokens/s, Running: 1 reqs, Swapped: 0 reqs, "
      "Pending: 0 reqs, GPU KV cache usage: 0.0%, CPU KV cache usage: 0.0%.")
def test_throughput_in_the_log(container):
    """The log has a line of throughput every five seconds while requests run."""
    assert httpx.post(container.url + "/invocations", timeout=60 * SLOW, json={
        "messages": [{"role": "user", "content": "hi"}]}).status_code == 200
    number = r"\d+\.\d"
    wanted = re.compile(rf"Avg prompt throughput: {number} tokens/s, Avg generation throughput: {number} tokens/s, Running: \d+ reqs, Swapped: 0 reqs, "
                        rf"Pending: \d+ reqs, GPU KV cache usage: {number}%, CPU KV cache usage: 0\.0%\.")
    wait_for("the line of throughput", lambda: wanted.search(container.log()), 30)


@line("5", "## 5.")
def test_monitoring(container):
    """docs/reference/sagemaker.md maps Amazon's metrics to Coxswain's. All metrics that need no GPU exist."""
    page = (ROOT / "docs/reference/sagemaker.md").read_text()
    table = page[page.index("## CloudWatch"):page.index("Under load the log has a line of throughput")]
    httpx.post(container.url + "/invocations", json={"messages": [{"role": "user", "content": "hi"}]}, timeout=60 * SLOW)
    metrics = get(container.url + "/metrics")[1]
    names = set(re.findall(r"`((?:vllm:|http_)\w+)(?:\{|`)", table))
    assert len(names) >= 5 and not [n for n in names if not re.search(rf"^{n}(_count)?\{{", metrics, re.M)]
    assert re.search(r'http_requests_total\{.*handler="/invocations".*status="2xx".*\} [1-9]', metrics)


# ---- autoscaling, and the model from the hub ----

AUTOSCALING = """
import boto3, json, sys
from botocore.validate import validate_parameters
client = boto3.client("application-autoscaling", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
api = client.meta.service_model
shape = api.shape_for
for call, arguments in json.load(sys.stdin):
    validate_parameters(arguments, api.operation_model(client.meta.method_to_api_mapping[call]).input_shape)
    assert arguments["ScalableDimension"] in shape("ScalableDimension").enum
    if call == "put_scaling_policy":
        assert arguments["PolicyType"] in shape("PolicyType").enum
        metric = arguments["TargetTrackingScalingPolicyConfiguration"]["PredefinedMetricSpecification"]["PredefinedMetricType"]
        assert metric in shape("MetricType").enum, metric
"""


def calls_of(text):
    """Yields commands of AWS's CLI as boto3 calls: an option becomes an argument, JSON and numbers become values."""
    for command in re.findall(r"^```sh\n(aws application-autoscaling .*?)^```", text, re.M | re.S):
        _, _, call, *options = shlex.split(command.replace("\\\n", " "))
        names = ["".join(part.capitalize() for part in name.removeprefix("--").split("-")) for name in options[::2]]
        values = [json.loads(v) if v[0] == "{" else int(v) if v.isdigit() else v for v in options[1::2]]
        yield call.replace("-", "_"), dict(zip(names, values))


@line("autoscaling", "Real-time Inference Autoscaling")
@needs_clients
def test_autoscaling():
    """boto3's description of Amazon's API accepts the commands of docs/reference/sagemaker.md."""
    calls = list(calls_of((ROOT / "docs/reference/sagemaker.md").read_text()))
    assert [call for call, _ in calls] == ["register_scalable_target", "put_scaling_policy", "put_scaling_policy"]
    done = subprocess.run([PYTHON, "-c", AUTOSCALING], input=json.dumps(calls), capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr


@line("hub", NAME)
def test_model_from_the_hub(tmp_path):
    """With a model's name in HF_MODEL_ID and an empty cache, the container fetches the model from the tests' hub once."""
    scripted_model.write(tmp_path / "model", {})
    files = {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    with Hub({NAME: files}) as hub:
        c = Container(NAME, **DEPLOY_ENV, HF_ENDPOINT=hub.url, COX_CACHE=str(tmp_path / "cache"), HF_HOME=str(tmp_path / "hf"))
        with c:
            r = httpx.post(c.url + "/invocations", timeout=60 * SLOW, json={"messages": [{"role": "user", "content": "hi"}]})
            assert r.status_code == 200 and r.json()["choices"][0]["message"]["content"] == scripted_model.HELLO
        assert len([path for path, _ in hub.requests if path.endswith("model.safetensors")]) == 1, "fetched once"
