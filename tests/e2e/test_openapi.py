"""Tests that GET /openapi.json is valid OpenAPI 3.1, its examples are answered as documented, and schemathesis finds no undocumented
behaviour in a real cluster. COX_API_EXAMPLES is the number of random cases for each operation beside those at every bound
(default 2), COX_API_SEED their seed."""
import json
import os
import re
import subprocess

import httpx
import pytest
from cluster import BIN, ROOT, SHORT, SLOW, Cluster

PYTHON = ROOT / ".deps/api-venv/bin/python"
KEY = "sk-e2e-test"
N_EXAMPLES = int(os.environ.get("COX_API_EXAMPLES", "2"))
needs_tools = pytest.mark.skipif(not PYTHON.exists(), reason="no .deps/api-venv: scripts/setup --api makes it")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster("--api-key", KEY, "--served-model-name", "null", "--max-model-len", "256", "--reasoning-parser", "qwen3",
                 "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                 "--state-dir", tmp_path_factory.mktemp("state"), workers=1, tp=1) as c:
        yield c


@pytest.fixture(scope="module")
def document(cluster):
    r = httpx.get(cluster.url + "/openapi.json", headers={"x-api-key": KEY})
    assert r.status_code == 200 and r.headers["content-type"] == "application/json"
    return r.json()


def test_it_wants_a_key_and_is_what_the_program_writes(cluster, document):
    assert httpx.get(cluster.url + "/openapi.json").status_code == 401
    said = subprocess.run([str(BIN / "cox-gateway"), "openapi", "--api-key", KEY, "--state-dir", "there"],
                          capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == document
    said = subprocess.run([str(BIN / "cox-gateway"), "openapi"], capture_output=True, text=True, check=True).stdout
    bare = json.loads(said)
    assert set(document["paths"]) - set(bare["paths"]) == {p for p in document["paths"] if re.match("/v1/(files|batches)", p)}
    assert document["paths"]["/v1/models"]["get"]["security"] and not bare["paths"]["/v1/models"]["get"]["security"]


CHECK = """
import json, sys
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from jsonschema import Draft202012Validator
document, answers = json.load(sys.stdin)
validate(document, cls=OpenAPIV31SpecValidator)
for name, answer in answers:
    Draft202012Validator({"$ref": "#/components/schemas/" + name, "components": document["components"]}).validate(answer)
"""


@needs_tools
def test_it_is_openapi_and_says_what_is_answered(cluster, document):
    answers = []
    for path, operations in document["paths"].items():
        for method, op in operations.items():
            if method == "parameters" or "{" in path:
                continue
            body = op.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
            schema = document["components"]["schemas"].get(body.rpartition("/")[2], {})
            content = op["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref")
            if content and (method == "get" or "examples" in schema):
                r = httpx.request(method, cluster.url + path, headers={"x-api-key": KEY}, timeout=30 * SLOW,
                                  **({"json": schema["examples"][0]} if body else {}))
                assert r.status_code == 200, (path, r.text)
                answers.append((content.rpartition("/")[2], r.json()))
    assert len(answers) >= 11
    done = subprocess.run([str(PYTHON), "-c", CHECK], input=json.dumps([document, answers]), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


@needs_tools
@pytest.mark.timeout(7200)
def test_schemathesis(cluster, tmp_path, capsys):
    """schemathesis finds no 5xx except 503, no undocumented status, content type or body, and no invalid data accepted. Other
    methods get 405, and requests without a key get 401."""
    done = subprocess.run(
        [str(PYTHON), "-m", "schemathesis.cli", "--config-file", str(ROOT / "tests/e2e/schemathesis.toml"), "run", cluster.url + "/openapi.json",
         "-H", f"Authorization: Bearer {KEY}", "--seed", os.environ.get("COX_API_SEED", "1"), "-n", str(N_EXAMPLES),
         "--phases", "fuzzing" if SHORT else "examples,coverage,fuzzing", "--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", str(60 * SLOW), "--no-color"],
        cwd=tmp_path, capture_output=True, text=True)
    cases = re.search(r"([\d,]+) generated", done.stdout)
    with capsys.disabled():
        print(f"schemathesis: {cases.group(1) if cases else 'no'} cases")
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    assert cases and int(cases.group(1).replace(",", "")) > (60 if SHORT else 500)
    cluster.wait_idle()
