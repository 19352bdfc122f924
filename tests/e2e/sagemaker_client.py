"""Makes the calls of notebooks with boto3 and the sagemaker package. test_sagemaker_clients.py runs it in .venv-clients:
sagemaker_client.py URL KEY SCENARIO prints the answers as JSON. The script is the same for every server."""
import json
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from line_iterator import LineIterator

URL, KEY, SCENARIO = sys.argv[1:]
ENDPOINT = "deepseek-lite-v2-endpoint-2024"
BODY = {"inputs": "The meaning of life is", "parameters": {"max_new_tokens": 40}}


def open_client(**config):
    client = boto3.client("sagemaker-runtime", endpoint_url=URL, region_name="us-east-1",
                          aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key="secret",
                          config=Config(retries={"total_max_attempts": 1}, **config))
    if KEY:
        client.meta.events.register("before-call.sagemaker-runtime",
                                    lambda params, **_: params["headers"].update({"x-api-key": KEY}))
    return client


def failure(call):
    try:
        call()
    except ClientError as e:
        return {"class": type(e).__name__, "code": e.response["Error"]["Code"],
                "status": e.response["ResponseMetadata"]["HTTPStatusCode"],
                "original": e.response.get("OriginalStatusCode"), "message": e.response.get("OriginalMessage")}
    return None


def predict():
    got = open_client().invoke_endpoint(EndpointName=ENDPOINT, ContentType="application/json", Body=json.dumps(BODY),
                                        InferenceId="my-id-1", CustomAttributes="c000b4f9-df62-4c85-a0bf-7c525f9104a4")
    return {"body": json.load(got["Body"]), "type": got["ContentType"], "variant": got["InvokedProductionVariant"],
            "headers": got["ResponseMetadata"]["HTTPHeaders"]}


def stream(client=None, **body):
    client = client or open_client()
    got = client.invoke_endpoint_with_response_stream(EndpointName=ENDPOINT, ContentType="application/json",
                                                      Body=json.dumps({**BODY, "stream": True, **body}))
    return {"lines": [json.loads(line) for line in LineIterator(got["Body"])], "type": got["ContentType"]}


def whole_as_stream():
    return stream(stream=False, parameters={"details": True, "max_new_tokens": 40, "return_full_text": True})


def chat():
    messages = [{"role": "user", "content": "hi"}]
    got = open_client().invoke_endpoint_with_response_stream(
        EndpointName=ENDPOINT, ContentType="application/json",
        Body=json.dumps({"messages": messages, "max_tokens": 8, "temperature": 0, "stream": True}))
    return {"lines": [json.loads(line) for line in LineIterator(got["Body"])]}


def errors():
    def ask(body=BODY, **more):
        client = open_client()
        call = client.invoke_endpoint_with_response_stream if more.pop("as_stream", False) else client.invoke_endpoint
        return failure(lambda: call(EndpointName=ENDPOINT, ContentType="application/json", Body=json.dumps(body), **more))

    return {"inputs": ask({"inputs": 5}), "inputs_streamed": ask({"inputs": 5, "stream": True}, as_stream=True),
            "handler": ask(CustomAttributes="handler=x"), "component": ask(InferenceComponentName="nobody"),
            "target": ask(TargetModel="nobody.tar.gz"), "variant": ask(TargetVariant="other"),
            "known": ask(InferenceComponentName="null", TargetModel="null.tar.gz", TargetVariant="AllTraffic")}


def no_key():
    global KEY
    KEY = ""
    body = json.dumps(BODY)
    signed = failure(lambda: open_client().invoke_endpoint(EndpointName=ENDPOINT, Body=body))
    KEY = "wrong"
    return [signed, failure(lambda: open_client().invoke_endpoint(EndpointName=ENDPOINT, Body=body))]


def broken():
    """Reads a stream whose model stops sending."""
    lines = 0
    got = open_client(read_timeout=60).invoke_endpoint_with_response_stream(
        EndpointName=ENDPOINT, ContentType="application/json",
        Body=json.dumps({**BODY, "parameters": {"max_new_tokens": 1000}, "stream": True}))
    print("begun", flush=True)
    try:
        for _ in got["Body"]:
            lines += 1
    except EventStreamError as e:
        return {"lines": lines, "code": e.response["Error"]["Code"], "error": e.response.get("ErrorCode"),
                "text": str(e)}
    return {"lines": lines}


def predictor():
    import sagemaker
    session = sagemaker.Session(boto_session=boto3.Session("AKIAEXAMPLE", "secret", region_name="us-east-1"),
                                sagemaker_runtime_client=open_client(), sagemaker_client=boto3.client(
                                    "sagemaker", endpoint_url=URL, region_name="us-east-1", aws_access_key_id="a",
                                    aws_secret_access_key="b"))
    p = sagemaker.Predictor(endpoint_name=ENDPOINT, sagemaker_session=session,
                            serializer=sagemaker.serializers.JSONSerializer(),
                            deserializer=sagemaker.deserializers.JSONDeserializer())
    got = p.predict_stream({**BODY, "stream": True})
    return {"body": p.predict(BODY), "texts": "".join(json.loads(x)["token"]["text"]
                                                      for x in b"".join(got).splitlines())}


SCENARIOS = {f.__name__: f for f in (predict, stream, whole_as_stream, chat, errors, no_key, broken, predictor)}
print(json.dumps(SCENARIOS[SCENARIO]()))
