"""Runs cells of the notebooks of documents 000 and 002 in .venv-clients: notebook.py URL CELL [DOCUMENT] prints the output of the
cell.

`class LineIterator` is that of the document when DOCUMENT, its file, is given. Otherwise, it is that of
tests/e2e/line_iterator.py."""
import io
import json
import sys

import boto3
import line_iterator

URL, CELL = sys.argv[1:3]
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "secret", "region_name": "us-west-2"}
endpoint_name = "phi-3-mini-4k-instruct"
smr_client = boto3.client("sagemaker-runtime", endpoint_url=URL, **KEYS)

# DEPTHS is the indentation of each line of the class, which the document's text has lost. Comments and empty lines are left out.
DEPTHS = [0, *map(int, "1 2 2 2 1 2 1 2 3 3 3 4 4 3 4 3 4 5 4 3 4 4 3 3".split())]


def documents_class(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin = text.index("class LineIterator:")
    end = text.index('self.buffer.write(chunk["PayloadPart"]["Bytes"])', begin)
    head, _, code = text[begin:text.index("\n", end)].split('"""')
    lines = [x for x in (head + code).splitlines() if x.strip()]
    assert len(lines) == len(DEPTHS), lines
    names = {"io": io}
    exec("\n".join("    " * depth + x for depth, x in zip(DEPTHS, lines)), names)  # the class is typed as a reader would type it
    return names["LineIterator"]


LineIterator = documents_class(sys.argv[3]) if len(sys.argv) > 3 else line_iterator.LineIterator


def predict():
    import sagemaker  # imported late, because the import takes seconds
    sagemaker_session = sagemaker.Session(boto_session=boto3.Session(**KEYS), sagemaker_runtime_client=smr_client,
                                          sagemaker_client=boto3.client("sagemaker", endpoint_url=URL, **KEYS))
    predictor = sagemaker.Predictor(
        endpoint_name=endpoint_name,
        sagemaker_session=sagemaker_session,
        serializer=sagemaker.serializers.JSONSerializer(),
        deserializer=sagemaker.deserializers.JSONDeserializer(),
    )
    outputs = predictor.predict(
        {
            "inputs": "The meaning of life is",
            "parameters": {"do_sample": True, "max_new_tokens": 256},
        }
    )
    print(outputs["generated_text"])


def stream():
    stop_token = "\n"
    body = {
        "inputs": "The meaning of life",
        "parameters": {
            "max_new_tokens": 400,
        },
        "stream": True,
    }
    resp = smr_client.invoke_endpoint_with_response_stream(
        EndpointName=endpoint_name, Body=json.dumps(body), ContentType="application/json"
    )
    event_stream = resp["Body"]
    start_json = b"{"
    for line in LineIterator(event_stream):
        if line != b"" and start_json in line:
            data = json.loads(line[line.find(start_json):].decode("utf-8"))
            if data["token"]["text"] != stop_token:
                print(data["token"]["text"], end="")


def messages():
    """Streams an answer to a request in document 000's form, the "message prompt"."""
    body = {"messages": [{"role": "user", "content": "write a quick sort algorithm in python."}], "max_tokens": 64, "stream": True}
    resp = smr_client.invoke_endpoint_with_response_stream(EndpointName=endpoint_name, Body=json.dumps(body), ContentType="application/json")
    for line in LineIterator(resp["Body"]):
        if line:
            print(json.loads(line)["choices"][0]["delta"].get("content") or "", end="")


{f.__name__: f for f in (predict, stream, messages)}[CELL]()
