"""Runs a container registry in memory, on loopback. It implements the part of the OCI distribution API that a push and a pull need.
It checks the digest of every uploaded blob, and that it has the blobs of every manifest. On request it asks for a login, fails for a
while, or has no referrers API."""
import base64
import hashlib
import http.server
import json
import re
import threading
import uuid
from urllib.parse import parse_qs, urlsplit


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def stopped(self):
        """Answers a request that a fault or a missing login stops, and returns whether it did."""
        options, length = self.server.options, int(self.headers.get("Content-Length", 0))
        self.server.requests.append((self.command, self.path, self.headers.get("Authorization")))
        if options.faults > 0:
            options.faults -= 1
            self.rfile.read(length)
            self.answer(503, Retry_After="0")
            return True
        if options.login and self.headers.get("Authorization") != f"Bearer {options.token}":
            self.rfile.read(length)
            self.answer(401, WWW_Authenticate=f'Bearer realm="http://{self.headers["Host"]}/token",service="here"')
            return True
        return False

    def give_token(self):
        options, said = self.server.options, self.headers.get("Authorization", "")
        right = base64.b64encode(":".join(options.login).encode()).decode()
        return self.answer(200, json.dumps({"token": options.token}).encode()) if said == f"Basic {right}" else self.answer(401)

    def do_GET(self):
        path, store = urlsplit(self.path).path, self.server.store
        if path == "/token":
            return self.give_token()
        if self.stopped():
            return None
        if path == "/v2/":
            return self.answer(200)
        if tags := re.fullmatch(r"/v2/(.+)/tags/list", path):
            found = sorted({ref for name, kind, ref in store if name == tags[1] and kind == "manifests" and ":" not in ref})
            return self.answer(200, json.dumps({"name": tags[1], "tags": found}).encode(), Content_Type="application/json")
        if (asked := re.fullmatch(r"/v2/(.+)/referrers/([^/]+)", path)) and self.server.options.has_referrers:
            return self.answer(200, json.dumps({"manifests": self.referrers(*asked.groups())}).encode(), Content_Type="application/json")
        name, kind, reference = re.fullmatch(r"/v2/(.+)/(blobs|manifests)/([^/]+)", path).groups()
        found = store.get((name, kind, reference))
        if found is None:
            return self.answer(404)
        content_type, data = found
        return self.answer(200, data, Content_Type=content_type, Docker_Content_Digest="sha256:" + hashlib.sha256(data).hexdigest())

    do_HEAD = do_GET

    def referrers(self, name, digest):
        found = [(ref, kind_of, data) for (n, kind, ref), (kind_of, data) in self.server.store.items() if (n, kind) == (name, "manifests") and ":" in ref]
        return [{"mediaType": kind_of, "digest": ref, "size": len(data), "artifactType": json.loads(data).get("artifactType")}
                for ref, kind_of, data in found if json.loads(data).get("subject", {}).get("digest") == digest]

    def do_POST(self):
        if self.stopped():
            return None
        where = urlsplit(self.path).path + str(uuid.uuid4())
        self.server.uploads[where] = self.body()
        return self.answer(202, Location=self.server.options.uploads_at + where)

    def do_PATCH(self):
        where = urlsplit(self.path).path
        self.server.uploads[where] += self.body()
        self.answer(202, Location=where, Range=f"0-{len(self.server.uploads[where]) - 1}")

    def do_PUT(self):
        if self.stopped():
            return None
        at = urlsplit(self.path)
        if manifest := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", at.path):
            data = self.body()
            digest, parsed = "sha256:" + hashlib.sha256(data).hexdigest(), json.loads(data)
            parts = [("blobs", one) for one in [*parsed.get("layers", []), *([parsed["config"]] if "config" in parsed else [])]]
            for kind, one in [*parts, *(("manifests", one) for one in parsed.get("manifests", []))]:
                stored = self.server.store.get((manifest[1], kind, one["digest"]))
                if stored is None or len(stored[1]) != one["size"]:
                    return self.answer(404, json.dumps({"errors": [{"code": "MANIFEST_BLOB_UNKNOWN", "message": f"no {one['digest']}"}]}).encode())
            for reference in (manifest[2], digest):
                self.server.store[manifest[1], "manifests", reference] = (self.headers["Content-Type"], data)
            told = {"OCI_Subject": parsed["subject"]["digest"]} if "subject" in parsed and self.server.options.has_referrers else {}
            return self.answer(201, Location=at.path, Docker_Content_Digest=digest, **told)
        begun, rest = self.server.uploads.pop(at.path, None), self.body()
        if begun is None:
            return self.answer(404)
        data, digest = begun + rest, parse_qs(at.query)["digest"][0]
        if digest != "sha256:" + hashlib.sha256(data).hexdigest():
            return self.answer(400)
        name = re.fullmatch(r"/v2/(.+)/blobs/uploads/[^/]+", at.path)[1]
        self.server.store[name, "blobs", digest] = ("application/octet-stream", data)
        return self.answer(201, Location=f"/v2/{name}/blobs/{digest}")


class Registry:
    """`Registry` answers at .address while the context lasts. With `login` it gives a token for this name and password only. It
    answers the next `faults` requests with 503. `uploads_at` is the address of the host that takes uploads, "" for this one."""

    def __init__(self, login=None, has_referrers=True, uploads_at=""):
        self.login, self.has_referrers, self.uploads_at, self.faults = login, has_referrers, uploads_at, 0
        self.token = str(uuid.uuid4())

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.store, self.server.uploads, self.server.requests, self.server.options = {}, {}, [], self
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def asked(self, method):
        """Returns (path, Authorization) of the requests with this method so far."""
        return [(path, authorization) for m, path, authorization in self.server.requests if m == method]

    def manifest(self, name, reference):
        return json.loads(self.server.store[name, "manifests", reference][1])

    def blob(self, name, digest):
        return self.server.store[name, "blobs", digest][1]
