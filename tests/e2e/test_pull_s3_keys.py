"""Tests the sources of keys for `cox pull s3://…`: profiles, a web identity, a container's role, and an instance's role. Their order
is that of AWS's SDKs, and keys are renewed before they expire."""
import json
import time
from datetime import datetime, timezone
from urllib.parse import parse_qsl, urlsplit

import pytest
from hub_server import Server
from test_pull import World, bad, good
from test_pull_s3 import WEIGHTS, Bucket, check, objects

ROLE = "/latest/meta-data/iam/security-credentials/"


def in_seconds(s):
    return datetime.fromtimestamp(time.time() + s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Keys(Server):
    """Serves STS, a container's agent and an instance's metadata service. Each answer has new keys, and from then on the bucket
    accepts only these keys. `lives`: lifetimes in seconds, in turn."""

    def __init__(self, bucket, lives=()):
        super().__init__()
        self.bucket, self.lives, self.made, self.forms, self.role = bucket, list(lives), [], [], True
        bucket.secrets = bucket.secrets or {"nobody": "x"}

    def make(self):
        key = f"ASIA{len(self.made)}", f"secret+/={len(self.made)}"
        self.made.append(key[0])
        self.bucket.secrets |= dict([key])
        self.bucket.session = "session//=="
        return *key, in_seconds(self.lives.pop(0) if self.lives else 3600)

    def as_json(self):
        key, secret, end = self.make()
        return json.dumps({"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret,
                           "Token": "session//==", "Expiration": end}).encode()

    def post(self, h, path, body):
        form = dict(parse_qsl(body.decode()))
        self.forms.append(form)
        if "Authorization" in h.headers or form["WebIdentityToken"] == "stale":
            return h.say(400, b"<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error></ErrorResponse>")
        key, secret, end = self.make()
        return h.say(200, f"""<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
            <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>session//==</SessionToken>
            <Expiration>{end}</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>
            """.encode())

    def put(self, h, path):
        assert path == "/latest/api/token" and h.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        return h.say(200, b"TOKEN==")

    def answer(self, h, path, action):
        if path.startswith("/v2/credentials"):
            return h.say(200, self.as_json()) if h.headers.get("Authorization") == "agent token" else h.say(
                401, b'{"code": "NotAuthorized"}')
        if h.headers.get("X-aws-ec2-metadata-token") != "TOKEN==":
            return h.say(401)
        if path == ROLE:
            return h.say(200, b"the role\n") if self.role else h.say(404)
        return h.say(200, self.as_json()) if path == ROLE + "the%20role" else h.say(404)


class Aws(World):
    """`Aws` is a world with ~/.aws in its home, and no instance metadata."""

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.home = tmp_path
        (tmp_path / ".aws").mkdir()
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            self.env.pop(name)
        self.env["HOME"] = str(tmp_path)

    def write(self, credentials="", config=""):
        (self.home / ".aws/credentials").write_text(credentials)
        (self.home / ".aws/config").write_text(config)


@pytest.fixture
def world(tmp_path):
    return Aws(tmp_path)


@pytest.fixture
def bucket():
    with Bucket(objects("a"), {"ONE": "first/+=", "TWO": "second"}) as s3:
        yield s3


def who(bucket):
    """Returns the ids of the keys in the bucket's requests."""
    return {h["Authorization"].split("Credential=")[1].split("/")[0] for _, h in bucket.requests if "Authorization" in h}


def keys(key, secret):
    return f"aws_access_key_id = {key}\naws_secret_access_key = {secret}\n"


CREDENTIALS = f"[default]\n{keys('ONE', 'first/+=')}[other]\n{keys('TWO', 'second')}"


@pytest.mark.parametrize("credentials, config, env, want", [
    (CREDENTIALS, "", {}, "ONE"),
    (CREDENTIALS, "", {"AWS_PROFILE": "other"}, "TWO"),
    (CREDENTIALS, "", {"AWS_DEFAULT_PROFILE": "other"}, "TWO"),
    ("", f"[profile mine]\n{keys('TWO', 'second')}", {"AWS_PROFILE": "mine"}, "TWO"),
    ("", f"[default]\n{keys('TWO', 'second')}", {}, "TWO"),
    (f"[mine]\n{keys('ONE', 'first/+=')}", f"[profile mine]\n{keys('TWO', 'second')}", {"AWS_PROFILE": "mine"}, "ONE"),
    # The environment overrides the credentials file.
    (CREDENTIALS, "", {"AWS_PROFILE": "other", "AWS_ACCESS_KEY_ID": "ONE", "AWS_SECRET_ACCESS_KEY": "first/+="}, "ONE"),
])
def test_profiles(world, bucket, credentials, config, env, want):
    world.write(credentials, config)
    check(good(world.pull("s3://models/a", AWS_ENDPOINT_URL=bucket.url, **env)))
    assert who(bucket) == {want} and bucket.refused == []


def test_what_else_a_profile_says(world, bucket, tmp_path):
    bucket.region, bucket.session = "eu-west-1", "s+/="
    (tmp_path / "c").write_text(f"[p]\n{keys('ONE', 'first/+=')}aws_session_token = s+/=\n")
    (tmp_path / "d").write_text(f"[profile p]\nregion = eu-west-1\nendpoint_url = {bucket.url}/\n")
    check(good(world.pull("s3://models/a", AWS_PROFILE="p", AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "c"),
                          AWS_CONFIG_FILE="~/d")))
    assert bucket.refused == []


@pytest.mark.parametrize("credentials, config, words", [
    (CREDENTIALS, "", ["the AWS profile absent (AWS_PROFILE, AWS_DEFAULT_PROFILE) is neither in"]),
    ("", "[profile absent]\ncredential_process = /bin/x", ["credential_process", "export-credentials --profile absent"]),
    ("", "[profile absent]\nsso_session = x\nsso_account_id = 1", ["sso_session", "export-credentials"]),
    ("", "[profile absent]\nrole_arn = x\nsource_profile = y", ["source_profile", "export-credentials"]),
    ("", "[profile absent]\nregion = EU", ["AWS_REGION"]),
])
def test_profiles_that_do_not_do(world, bucket, credentials, config, words):
    world.write(credentials, config)
    bad(world.pull("s3://models/a", AWS_ENDPOINT_URL=bucket.url, AWS_PROFILE="absent"), 2, *words)
    assert bucket.requests == []


def test_a_web_identity(world, bucket, tmp_path):
    (tmp_path / "token").write_text("ey.J+/=&x\n")
    with Keys(bucket) as sts:
        env = {"AWS_ENDPOINT_URL": bucket.url, "AWS_ENDPOINT_URL_STS": sts.url, "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
               "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
        world.write(CREDENTIALS)  # the credentials file is later in the order
        check(good(world.pull("s3://models/a", **env)))
        assert who(bucket) == {"ASIA0"} and bucket.refused == []
        assert sts.forms == [{"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleSessionName": "cox-pull",
                              "RoleArn": "arn:aws:iam::1:role/r", "WebIdentityToken": "ey.J+/=&x"}]
        # A profile with the same role gives the same keys.
        world.write("", f"[profile w]\nrole_arn = arn:w\nweb_identity_token_file = {tmp_path}/token\nrole_session_name = me\n")
        del env["AWS_ROLE_ARN"], env["AWS_WEB_IDENTITY_TOKEN_FILE"]
        check(good(world.pull("s3://models/a", AWS_PROFILE="w", COX_CACHE=str(tmp_path / "2"), **env)))
        assert sts.forms[-1]["RoleArn"] == "arn:w" and sts.forms[-1]["RoleSessionName"] == "me"
        # A configured source that fails is not skipped.
        (tmp_path / "token").write_text("stale")
        done = world.pull("s3://models/a", AWS_PROFILE="w", COX_CACHE=str(tmp_path / "3"), **env)
        bad(done, 2, "400, ExpiredTokenException", "AWS_ROLE_ARN")
        assert "stale" not in done.stderr
        (tmp_path / "token").unlink()
        bad(world.pull("s3://models/a", AWS_PROFILE="w", COX_CACHE=str(tmp_path / "3"), **env), 2, "token", "No such file")


def test_a_container(world, bucket, tmp_path):
    (tmp_path / "token").write_text("agent token")
    with Keys(bucket) as agent:
        env = {"AWS_ENDPOINT_URL": bucket.url, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{agent.url}/v2/credentials/x",
               "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")}
        check(good(world.pull("s3://models/a", **env)))
        assert who(bucket) == {"ASIA0"} and bucket.refused == []
        del env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]
        bad(world.pull("s3://models/a", COX_CACHE=str(tmp_path / "2"), **env), 2, "401, NotAuthorized", "container's role")
        for url in ("http://example.com/x", "http://127.0.0.1@example.com/x", "http://169.254.170.2.example.com/x", "ftp://h/x",
                    "http://127.evil.example:1/x", "http://127.1/x", "http://[::1].example.com/x", "http://127.0.0.1:x@example.com/x"):
            bad(world.pull("s3://models/a", COX_CACHE=str(tmp_path / "2"), **env | {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": url}), 2, "FULL_URI is not allowed: it must use https")


def instance_env(bucket, url):
    return {"AWS_ENDPOINT_URL": bucket.url, "AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
            "AWS_METADATA_SERVICE_TIMEOUT": "30"}


def test_an_instance(world, bucket, tmp_path):
    with Keys(bucket) as metadata:
        env = instance_env(bucket, metadata.url)
        # Keys are requested without the proxy.
        check(good(world.pull("s3://models/a", http_proxy="http://127.0.0.1:1", **env)))
        assert who(bucket) == {"ASIA0"} and bucket.refused == []
        metadata.role = False
        bad(world.pull("s3://models/a", COX_CACHE=str(tmp_path / "2"), **env), 2, "no AWS keys are set", "give this machine a role")
    bad(world.pull("s3://models/a", COX_CACHE=str(tmp_path / "2"), **env), 2, "no AWS keys are set")  # no source answers
    bucket.secrets = None
    check(good(world.pull("s3://models/a", COX_CACHE=str(tmp_path / "2"), **env)))  # a public bucket needs no keys


def test_keys_that_end_meanwhile(world, bucket):
    with Keys(bucket, lives=[2]) as metadata:
        bucket.faults["/models/a/tokenizer.json"] = [("slow", 1.5, 1000)]
        check(good(world.pull("s3://models/a", **instance_env(bucket, metadata.url))))
        assert len(metadata.made) >= 2 and bucket.refused == []
        last = [h["Authorization"] for p, h in bucket.requests if urlsplit(p).path.endswith(WEIGHTS)]
        assert "ASIA0" not in last[0]
