"""Tests document 002: Phi-3-mini with thirteen lines of code for SageMaker. `cox plan` does its arithmetic, its environment starts
`cox serve`, and its notebook's cells send requests."""
import json

import pytest
from cluster import BIN
from hub_server import Hub, tiny_model
from seeds import in_order, line, needs_clients, notebook, path_of, type_line
from test_sagemaker import Container

NAME = "microsoft/Phi-3-mini-4k-instruct"
ENV = {
    "HF_MODEL_ID": NAME,
    "OPTION_ROLLING_BATCH": "vllm",
    "TENSOR_PARALLEL_DEGREE": "max",
    "OPTION_MAX_ROLLING_BATCH_SIZE": "2",
    "OPTION_DTYPE": "fp16",
}
DOCUMENT = path_of("002")


@line("4", "Model loading size: 3.8 * 2 (fp16) = 7.6 GB", "2 (key and value matrices) * 2 (fp16) * 32 (number of layers) * 4096 (hidden size) = 524288 bytes per token",
      "Total model size for inference = 7.6 + 8.5 = ~16.1 GB", "We chose g5.4xlarge instance that has 24GiB GPU memory.")
def test_instance_type():
    """`cox plan` gives the document's figures. The document's cache is 8.52 GB because it rounds a token's bytes to 0.00052 GB."""
    said = type_line("cox plan --params 3.8e9 --dtype fp16 --layers 32 --hidden 4096 --batch 4 --max-model-len 4096 --instance ml.g5.4xlarge")
    in_order(said, "weights      7.60 GB", "524288 bytes a token; 4 sequences of 4096: 8.59 GB", "together     16.19 GB", "fits         yes: ml.g5.4xlarge with --tp 1")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """Yields a container with the document's environment and a hub with a model of that name. The null device makes the tokens."""
    folder = tmp_path_factory.mktemp("002")
    with Hub({NAME: tiny_model()}) as hub:
        c = Container(**ENV, HF_ENDPOINT=hub.url, COX_CACHE=str(folder / "cache"), HF_HOME=str(folder / "hf"))
        c.command += ["--device", "null"]
        with c:
            yield c


@line("6", "HF_MODEL_ID", "OPTION_ROLLING_BATCH", "TENSOR_PARALLEL_DEGREE", "OPTION_MAX_ROLLING_BATCH_SIZE", "OPTION_DTYPE")
def test_environment(endpoint):
    said = type_line(f"curl -s {endpoint.url}/v1/models")
    assert json.loads(said)["data"][0]["max_model_len"] == 512
    in_order(endpoint.log(), "    HF_MODEL_ID: " + NAME, "rolling_batch: vllm")


@line("predictor", "outputs = predictor.predict(", '"parameters": {"do_sample": True, "max_new_tokens": 256},', 'outputs["generated_text"]')
@needs_clients
def test_predictor(endpoint):
    assert len(notebook(endpoint.url, "predict").rstrip("\n")) > 200


@line("stream", "class LineIterator:", "resp = smr_client.invoke_endpoint_with_response_stream(", "for line in LineIterator(event_stream):",
      'if data["token"]["text"] != stop_token:', '"max_new_tokens": 400,')
@needs_clients
def test_streaming_output(endpoint):
    """The printed pieces together are the whole answer. The document's own class is used if the document is available."""
    said = notebook(endpoint.url, "stream", *([DOCUMENT] if DOCUMENT else []))
    body = {"inputs": "The meaning of life", "parameters": {"max_new_tokens": 400}}
    whole = json.loads(type_line(f"curl -s {endpoint.url}/invocations -H 'Content-Type: application/json' -d '{json.dumps(body)}'"))
    assert said == whole["generated_text"] and len(said) == 400
