#!/usr/bin/env python3
"""Runs Coxswain as an endpoint of Amazon SageMaker, with only boto3.

deploy.py create NAME --image URI --role ARN    create model, endpoint configuration and endpoint; wait until it serves
deploy.py invoke NAME PROMPT                    print one answer
deploy.py stream NAME PROMPT                    print an answer token by token
deploy.py delete NAME                           delete endpoint, endpoint configuration and model
"""
import argparse
import json
from pathlib import Path

import boto3

ENVIRONMENT = Path(__file__).with_name("environment")


def container(image, model_data):
    lines = [line for line in ENVIRONMENT.read_text().splitlines() if line and not line.startswith("#")]
    environment = dict(line.split("=", 1) for line in lines)
    what = {"Image": image, "Environment": environment}
    if model_data:  # Amazon mounts the model at /opt/ml/model, the default MODEL of `cox serve`
        del environment["HF_MODEL_ID"]
        what["ModelDataSource"] = {"S3DataSource": {
            "S3Uri": model_data, "S3DataType": "S3Prefix", "CompressionType": "None"}}
    return what


def create(args):
    sagemaker = boto3.client("sagemaker")
    sagemaker.create_model(ModelName=args.name, ExecutionRoleArn=args.role,
                           PrimaryContainer=container(args.image, args.model_data))
    sagemaker.create_endpoint_config(EndpointConfigName=args.name, ProductionVariants=[{
        "VariantName": "AllTraffic", "ModelName": args.name, "InstanceType": args.instance_type,
        "InitialInstanceCount": 1, "ContainerStartupHealthCheckTimeoutInSeconds": 900}])
    sagemaker.create_endpoint(EndpointName=args.name, EndpointConfigName=args.name)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=args.name)
    print(f"{args.name} is in service")


def delete(args):
    sagemaker = boto3.client("sagemaker")
    sagemaker.delete_endpoint(EndpointName=args.name)
    sagemaker.delete_endpoint_config(EndpointConfigName=args.name)
    sagemaker.delete_model(ModelName=args.name)


def request(args, **more):
    body = {"inputs": args.prompt, "parameters": {"max_new_tokens": args.max_new_tokens}, **more}
    return {"EndpointName": args.name, "ContentType": "application/json", "Body": json.dumps(body)}


def invoke(args):
    answer = boto3.client("sagemaker-runtime").invoke_endpoint(**request(args))
    print(json.load(answer["Body"])["generated_text"])


def stream(args):
    answer = boto3.client("sagemaker-runtime").invoke_endpoint_with_response_stream(**request(args, stream=True))
    rest = b""
    for event in answer["Body"]:
        *lines, rest = (rest + event["PayloadPart"]["Bytes"]).split(b"\n")  # the last line of a part may be incomplete
        for line in lines:
            print(json.loads(line)["token"]["text"], end="", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for call in (create, invoke, stream, delete):
        command = commands.add_parser(call.__name__)
        command.set_defaults(call=call)
        command.add_argument("name")
        if call is create:
            command.add_argument("--image", required=True)
            command.add_argument("--role", required=True)
            command.add_argument("--instance-type", default="ml.c5.2xlarge")
            command.add_argument("--model-data", help="s3://BUCKET/FOLDER/ of a model, in place of the image's")
        if call in (invoke, stream):
            command.add_argument("prompt")
            command.add_argument("--max-new-tokens", type=int, default=40)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
