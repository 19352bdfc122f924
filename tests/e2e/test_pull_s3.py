"""Tests `cox pull s3://…` from a local bucket that checks every signature by the specification (Signature Version 4), and from moto,
where scripts/setup --clients has installed it."""
import hashlib
import hmac
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import httpx
import pytest
from cluster import ROOT, free_ports, wait_for
from hub_server import Hub, Server, bytes_of, tiny_model
from test_pull import World, bad, good

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalr/XUtnFEMI+K7MDENG=bPxRfiCYEXAMPLEKEY"}
WEIGHTS = "model.safetensors"


def signature(method, path, query, headers, names, secret, scope, date, payload):
    """Computes the signature of a received request as in the S3 API reference."""
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join([method, quote(unquote(path), safe="/-_.~"), "&".join(f"{k}={v}" for k, v in pairs),
                           *(f"{n}:{' '.join(headers[n].split())}" for n in names), "", ";".join(names), payload])
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Bucket(Server):
    """`Bucket` simulates an S3 bucket. objects: {key: bytes}; secrets: {id: secret}, None = a public bucket. A page has two keys."""

    def __init__(self, objects, secrets=None, region="us-east-1", session=None):
        super().__init__()
        self.objects, self.secrets, self.region, self.session = objects, secrets, region, session
        self.change, self.refused = lambda xml: xml, []

    def is_signed(self, h):
        if not self.secrets:
            return True
        headers = {k.lower(): v for k, v in h.headers.items()}
        m = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8}/([\w-]+)/s3/aws4_request), ?"
                         r"SignedHeaders=([\w;-]+), ?Signature=([0-9a-f]{64})", headers.get("authorization", ""))
        if not m or m[3] != self.region or not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(m[4].split(";")):
            return False
        if self.session and (headers.get("x-amz-security-token") != self.session or "x-amz-security-token" not in m[4]):
            return False
        at = urlsplit(h.path)
        want = signature("GET", at.path, at.query, headers, m[4].split(";"), self.secrets.get(m[1], ""), m[2],
                         headers["x-amz-date"], headers["x-amz-content-sha256"])
        return hmac.compare_digest(want, m[5])

    def answer(self, h, path, action):
        if not self.is_signed(h):
            self.refused.append(h.path)
            return h.say(403, b"<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code></Error>")
        bucket, _, key = unquote(path).lstrip("/").partition("/")
        if bucket != "models":
            return h.say(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        if key:
            body = self.objects.get(key)
            etag = f'"{hashlib.md5(body).hexdigest()}"' if body is not None else None
            return h.say(404, b"<Error><Code>NoSuchKey</Code></Error>") if body is None else h.send_file(
                body, action, etag=etag)
        asked = dict(parse_qsl(urlsplit(h.path).query))
        assert asked["list-type"] == "2" and asked["delimiter"] == "/"
        prefix = asked["prefix"]
        found = {prefix + k[len(prefix):].partition("/")[0] + ("/" if "/" in k[len(prefix):] else "")
                 for k in self.objects if k.startswith(prefix)}  # each entry is an object, or the common prefix of a folder's keys
        found = sorted(k for k in found if k > asked.get("continuation-token", "")[:-2])
        page, more = found[:2], len(found) > 2
        folders = "".join(f"<CommonPrefixes><Prefix>{escape(k)}</Prefix></CommonPrefixes>" for k in page if k not in self.objects)
        contents = "".join(f"<Contents><Key>{escape(k)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                           f"<ETag>&quot;{hashlib.md5(self.objects[k]).hexdigest()}&quot;</ETag>"
                           f"<Size>{len(self.objects[k])}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                           for k in page if k in self.objects)
        token = f"<NextContinuationToken>{escape(page[-1] + '=&')}</NextContinuationToken>" if more else ""
        xml = (f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
               f"<Name>models</Name><Prefix>{escape(asked['prefix'])}</Prefix><IsTruncated>{str(more).lower()}</IsTruncated>"
               f"{contents}{token}{folders}</ListBucketResult>")
        return h.send_file(self.change(xml).encode(), action)


def objects(prefix="llm/tiny model+ä"):
    return {f"{prefix}/{n}": b for n, b in tiny_model().items()} | {
        f"{prefix}/": b"", f"{prefix}/deeper/x.safetensors": b"x", f"{prefix}-2/config.json": b"{}"}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


IN_FOLDERS = {"1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
              "additional_chat_templates/tool_use.jinja": b"{{ tools }}", "additional_chat_templates/rag.jinja": b"{{ documents }}"}


def test_folders(world):
    """The pull fetches the same files of these folders as from a hub, and lists only these folders."""
    model = tiny_model() | IN_FOLDERS
    others = {"1_Pooling/other.json": b"x", "1_Pooling/deeper/config.json": b"x", "2_Dense/config.json": b"x", "onnx/model.onnx": b"x",
              "additional_chat_templates/notes.txt": b"x", "additional_chat_templates/a/b.jinja": b"x", "1_Pooling_2/config.json": b"x"}
    with Bucket({f"a/{n}": b for n, b in (model | others).items()}, {KEYS["AWS_ACCESS_KEY_ID"]: KEYS["AWS_SECRET_ACCESS_KEY"]}) as s3:
        env = KEYS | {"AWS_ENDPOINT_URL": s3.url}
        folder = good(world.pull("s3://models/a", **env))
        assert {n: (folder / n).read_bytes() for n in IN_FOLDERS} == IN_FOLDERS
        assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == {
            "config.json", "tokenizer.json", WEIGHTS, "cox-pull.json", *IN_FOLDERS}
        asked = {dict(parse_qsl(urlsplit(p).query))["prefix"] for p, _ in s3.requests if "list-type" in p}
        assert asked == {"a/", "a/1_Pooling/", "a/additional_chat_templates/"}
        s3.requests.clear()
        assert good(world.pull("s3://models/a", **env)) == folder and s3.requests == []
    with Hub({"org/tiny": model | others}) as hub:  # one rule holds for every source
        other = good(world.pull("hf:org/tiny", hub=hub))
        names = [{str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()} for f in (folder, other)]
        assert names[0] == names[1]


@pytest.mark.parametrize("key", ["a/additional_chat_templates/../x.jinja", "a/additional_chat_templates//etc/x.jinja",
                                 "a/additional_chat_templates/..&#92;x.jinja", "a/additional_chat_templates/.x.jinja",
                                 "a/additional_chat_templates/&#27;[2Jx.jinja"])
def test_hostile_folders(world, key):
    """A key that leads outside the folder is refused or ignored. It never becomes a file."""
    with Bucket(objects("a") | {"a/additional_chat_templates/x.jinja": b"x"}) as s3:
        s3.change = lambda x: x.replace("a/additional_chat_templates/x.jinja", key)
        done = world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url)
        assert "\x1b" not in done.stderr
        if done.returncode == 0:
            check(good(done))
        else:
            bad(done, 1, "unsafe name")
        assert not [p for p in world.cache.rglob("*x.jinja")]


def test_folders_without_end(world):
    with Bucket(objects("a") | {"a/1_Pooling/config.json": b"{}"}) as s3:
        def change(x):
            if "<Prefix>a/1_Pooling/</Prefix><IsTruncated>" not in x:
                return x
            return x.replace("<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated><NextContinuationToken>t"
                             "</NextContinuationToken>").replace("a/1_Pooling/config.json", "a/1_Pooling/other")
        s3.change = change
        bad(world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url), 1, "pages")
        assert len(s3.requests) == 100


def check(folder):
    model = tiny_model()
    assert {p.name for p in folder.iterdir()} == {"config.json", "tokenizer.json", WEIGHTS, "cox-pull.json"}
    assert all((folder / n).read_bytes() == model[n] for n in ("config.json", "tokenizer.json", WEIGHTS))


@pytest.mark.parametrize("extra", [{}, {"AWS_SESSION_TOKEN": "FwoG/ZXIv+YXdz=="}, {"AWS_REGION": "eu-central-1"}])
def test_signed(world, extra):
    with Bucket(objects(), {KEYS["AWS_ACCESS_KEY_ID"]: KEYS["AWS_SECRET_ACCESS_KEY"]},
                region=extra.get("AWS_REGION", "us-east-1"), session=extra.get("AWS_SESSION_TOKEN")) as s3:
        env = KEYS | extra | {"AWS_ENDPOINT_URL": s3.url}
        s3.faults["/models/llm/tiny%20model%2B%C3%A4/" + WEIGHTS] = [("cut", 50_000), ("status", 503)]
        folder = good(world.pull("s3://models/llm/tiny model+ä/", **env))
        check(folder)
        assert s3.refused == [] and len(s3.asked("/models")) == 4  # the listing has four pages, because the folder is one of the entries
        assert [h.get("Range") for _, h in s3.asked(WEIGHTS)] == [None, "bytes=50000-", "bytes=50000-"]
        s3.requests.clear()
        assert good(world.pull("s3://models/llm/tiny model+ä", **env)) == folder and s3.requests == []


def test_public_and_refused(world):
    with Bucket(objects("a")) as s3:
        check(good(world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url)))
        assert all("Authorization" not in h for _, h in s3.requests)
        bad(world.pull("s3://other/a", AWS_ENDPOINT_URL=s3.url), 2, "NoSuchBucket", "bucket's name")
        bad(world.pull("s3://models/b", AWS_ENDPOINT_URL=s3.url), 2, "does not directly contain config.json")
        bad(world.pull("s3://models/b.gguf", AWS_ENDPOINT_URL=s3.url), 2, "has no object with this name")
        bad(world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url, AWS_ACCESS_KEY_ID="x", COX_CACHE=str(world.cache / "b")), 2,
            "Set both")
    with Bucket(objects("a"), {"A": "B"}) as s3:
        at = {"AWS_ENDPOINT_URL": s3.url, "COX_CACHE": str(world.cache / "c")}
        bad(world.pull("s3://models/a", **at), 2, "403, SignatureDoesNotMatch", "Set AWS_ACCESS_KEY_ID")
        done = world.pull("s3://models/a", AWS_ACCESS_KEY_ID="A", AWS_SECRET_ACCESS_KEY="WRONGSECRET", **at)
        bad(done, 2, "403", "AWS_REGION")
        assert "WRONGSECRET" not in done.stderr


def test_a_gguf_with_its_parts(world):
    parts = {f"q/m-0000{i}-of-00002.gguf": bytes_of(500, i) for i in (1, 2)}
    with Bucket(parts | {"q/m.gguf": b"y", "q/m-00001-of-00003.gguf": b"x", "q/mm.gguf": b"z"}) as s3:
        bad(world.pull("s3://models/q/m-00001-of-00002.gguf", AWS_ENDPOINT_URL=s3.url), 2, "not a GGUF")
        assert sorted(urlsplit(p).path for p, _ in s3.requests if p.startswith("/models/")) == [
            f"/models/{name}" for name in parts]


@pytest.mark.parametrize("change, words", [
    (lambda x: x[:-5], "cannot read the bucket's list"), (lambda x: x + "<x/>", "after the root element"), (lambda x: "", "the document ends before"),
    (lambda x: x.replace("<Name>", "<!DOCTYPE a><Name>"), "cannot read the bucket's list"),
    (lambda x: x.replace("a/config.json", "b/config.json"), "outside the requested folder"),
    (lambda x: re.sub(r"<Size>\d+", "<Size>-1", x), "Size"),
    (lambda x: re.sub(r"<Size>\d+", "<Size>99999999999999999999", x), "Size"),
    (lambda x: re.sub(r"<Size>\d+", "<Size>9223372036854775807", x), "is too large to download: the server reports"),
    (lambda x: x.replace("model.safetensors", "..&#92;x.safetensors"), "unsafe name"),
    (lambda x: x.replace("model.safetensors", "&#27;[2J.safetensors"), "unsafe name"),
    (lambda x: x.replace("false", "true"), "no continuation token"),
    (lambda x: x.replace("true", "maybe"), "neither"),
    (lambda x: x.replace("ListBucketResult", "Other"), "the root element is not ListBucketResult"),
])
def test_hostile_lists(world, change, words):
    with Bucket(objects("a")) as s3:
        s3.change = change
        done = world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url)
        bad(done, 1, words)
        assert "\x1b" not in done.stderr


def test_pages_without_end(world):
    with Bucket(objects("a")) as s3:
        s3.change = lambda x: re.sub("<Contents>.*</Contents>", "", re.sub(
            "<IsTruncated>.*?</IsTruncated>", "<IsTruncated>true</IsTruncated><NextContinuationToken>"
            "t</NextContinuationToken>", re.sub("<NextC.*</NextContinuationToken>", "", x)))
        bad(world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url), 1, "pages")
        assert len(s3.requests) == 100


def test_an_object_that_changes_meanwhile(world):
    with Bucket(objects("a")) as s3:
        other = bytes_of(200_000, seed=5)

        class Swap(list):
            def pop(self, at):
                action = super().pop(at)
                if not self:
                    s3.objects[f"a/{WEIGHTS}"] = other
                return action
        s3.faults[f"/models/a/{WEIGHTS}"] = Swap([("cut", 50_000), ()])
        folder = good(world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url))
        assert (folder / WEIGHTS).read_bytes() == other  # all files have the same version


MOTO = ROOT / ".venv-clients/bin/moto_server"


@pytest.mark.skipif(not MOTO.exists(), reason="no moto: scripts/setup --clients")
def test_moto(world, tmp_path):
    port = free_ports(1)[0]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HTTP", "http"))}
    with open(tmp_path / "moto.log", "wb") as log:
        p = subprocess.Popen([str(MOTO.parent / "python"), str(MOTO), "-H", "127.0.0.1", "-p", str(port)],
                             stdout=log, stderr=log, env=env)
        try:
            url = f"http://127.0.0.1:{port}"

            def up():
                try:
                    return httpx.get(url, timeout=5).status_code
                except httpx.HTTPError:
                    return False
            wait_for("moto answers", up, 60)
            script = f"""import boto3, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from hub_server import tiny_model
s3 = boto3.client("s3", endpoint_url={url!r}, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
s3.create_bucket(Bucket="models")
for name, body in tiny_model().items():
    s3.put_object(Bucket="models", Key="llm/tiny model/" + name, Body=body)
"""
            subprocess.run([str(MOTO.parent / "python"), "-c", script], check=True, env=env, timeout=120)
            check(good(world.pull("s3://models/llm/tiny model", AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="a",
                                  AWS_SECRET_ACCESS_KEY="b")))
            bad(world.pull("s3://absent/llm", AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b"),
                2, "NoSuchBucket")
        finally:
            p.terminate()
            p.wait(20)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
