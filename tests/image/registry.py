"""Runs a container registry in memory, on loopback. It implements the part of the OCI distribution API that a push and a pull need.
It checks the digest of every uploaded blob."""
import hashlib
import http.server
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

    def do_GET(self):
        path, store = urlsplit(self.path).path, self.server.store
        if path == "/v2/":
            return self.answer(200)
        name, kind, reference = re.fullmatch(r"/v2/(.+)/(blobs|manifests)/([^/]+)", path).groups()
        found = store.get((name, kind, reference))
        if found is None:
            return self.answer(404)
        content_type, data = found
        return self.answer(200, data, Content_Type=content_type, Docker_Content_Digest="sha256:" + hashlib.sha256(data).hexdigest())

    do_HEAD = do_GET

    def do_POST(self):
        where = urlsplit(self.path).path + str(uuid.uuid4())
        self.server.uploads[where] = self.body()
        self.answer(202, Location=where)

    def do_PATCH(self):
        where = urlsplit(self.path).path
        self.server.uploads[where] += self.body()
        self.answer(202, Location=where, Range=f"0-{len(self.server.uploads[where]) - 1}")

    def do_PUT(self):
        at = urlsplit(self.path)
        if manifest := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", at.path):
            data = self.body()
            digest = "sha256:" + hashlib.sha256(data).hexdigest()
            for reference in (manifest[2], digest):
                self.server.store[manifest[1], "manifests", reference] = (self.headers["Content-Type"], data)
            return self.answer(201, Location=at.path, Docker_Content_Digest=digest)
        data, digest = self.server.uploads.pop(at.path) + self.body(), parse_qs(at.query)["digest"][0]
        if digest != "sha256:" + hashlib.sha256(data).hexdigest():
            return self.answer(400)
        name = re.fullmatch(r"/v2/(.+)/blobs/uploads/[^/]+", at.path)[1]
        self.server.store[name, "blobs", digest] = ("application/octet-stream", data)
        return self.answer(201, Location=f"/v2/{name}/blobs/{digest}")


class Registry:
    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.store, self.server.uploads = {}, {}
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def blob(self, name, digest):
        return self.server.store[name, "blobs", digest][1]
