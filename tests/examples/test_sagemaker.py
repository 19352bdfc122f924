"""Tests that deploy/examples/sagemaker works block by block. The runtime calls of boto3 go to a local `cox serve`. Calls that create
resources at Amazon go to moto, which simulates that API."""
import json

import null_oracle as oracle
import pytest
from cluster import ROOT
from readme import SERVED, Readme, Shells, needs_hosts

CLIENTS = ROOT / ".venv-clients/bin"
pytestmark = [needs_hosts, pytest.mark.skipif(not (CLIENTS / "python").exists(),
                                              reason="no .venv-clients: scripts/setup --clients makes it")]
MOTO = "http://127.0.0.1:5000"
# ACCOUNT is the environment of an AWS user, except that the endpoint of the API is moto's.
ACCOUNT = (f"export AWS_ENDPOINT_URL_SAGEMAKER={MOTO} AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b "
           "AWS_EC2_METADATA_DISABLED=true; ")
DESCRIBE = """
import boto3, json, sys
c = boto3.client("sagemaker")
n = sys.argv[1]
print(json.dumps([c.describe_model(ModelName=n)["PrimaryContainer"], c.describe_endpoint_config(EndpointConfigName=n)["ProductionVariants"],
                  c.describe_endpoint(EndpointName=n)["EndpointStatus"]]))
"""
COUNT = """
import boto3
c = boto3.client("sagemaker")
print(len(c.list_models()["Models"]) + len(c.list_endpoint_configs()["EndpointConfigs"]) + len(c.list_endpoints()["Endpoints"]))
"""


@pytest.fixture
def shells(tmp_path):
    readme = Readme("sagemaker", tmp_path)
    with Shells(tmp_path, readme) as s:
        s.add("one")
        s.before += f"PATH={CLIENTS}:$PATH; "
        yield s


def test_the_calls_of_a_client(shells):
    readme, host = shells.readme, shells.hosts["one"]
    shells.leave(host, "serve", "serve")
    shells.wait_seen("serve", "serve")
    shells.wait_served(host, "http://127.0.0.1:8080/ping")
    readme.shown["local"] = readme.shown["local"].replace("demo", SERVED)
    said = shells.type(host, "local")
    readme.saw("local", said)
    answers = said[said.index("}\n}\n") + 4:].strip("\n")
    whole = answers[:len(answers) // 2]
    assert answers == f"{whole}\n{whole}" and len(whole) >= 40, "the streamed one is another"
    assert SERVED != "null" or whole == oracle.text("The meaning of life is", 40, temperature=0)
    shells.end("serve")


def test_what_is_created_at_amazon(shells):
    readme, host = shells.readme, shells.hosts["one"]
    shells.start_shell(host, "moto", f"exec {CLIENTS}/moto_server -H 127.0.0.1 -p 5000")
    shells.wait("moto listens", lambda: host.curl(MOTO + "/moto-api/data.json").startswith("{"))
    shells.before += ACCOUNT
    readme.saw("create", shells.type(host, "create"))

    def ask(script, *args):
        return json.loads(host.run("sh", "-c", f'{shells.before}python3 -c "$0" {" ".join(args)}', script))

    model, (variant,), status = ask(DESCRIBE, "my-endpoint")
    told = dict(line.split("=", 1) for line in (readme.folder / "environment").read_text().splitlines() if line[0] != "#")
    assert told["OPTION_ROLLING_BATCH"] == "vllm" and model["Environment"] == told
    assert model["Image"].endswith("/my-endpoint:1") and "ModelDataSource" not in model
    assert (variant["VariantName"], variant["InstanceType"], status) == ("AllTraffic", "ml.c5.2xlarge", "InService")
    shells.type(host, "delete")
    assert ask(COUNT) == 0
    readme.commands["create"] = readme.commands["create"].replace("create my", "create --model-data s3://bucket/folder/ my")
    shells.type(host, "create")
    model, _, _ = ask(DESCRIBE, "my-endpoint")
    assert model["ModelDataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/folder/"
    assert "HF_MODEL_ID" not in model["Environment"]

