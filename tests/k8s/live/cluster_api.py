"""Implements a small client of the tests' API server: JSON over HTTPS with the administrator's certificate."""
import http.client
import json
import ssl


class ApiError(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """`Api` is one connection to the API server, opened again after it broke. Objects are dicts. An `Api` is not safe for several
    threads."""

    def __init__(self, host, pki, port=6443, timeout=30):
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self.connection = http.client.HTTPSConnection(host, port, context=context, timeout=timeout)

    def ask(self, method, path, body=None, kind="application/json"):
        """Returns the object in the answer, or its text when it is not JSON. Raises ApiError, OSError or http.client's errors."""
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": kind})
            answer = self.connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        if answer.status >= 300:
            raise ApiError(answer.status, text[:500])
        return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text

    def get(self, path):
        return self.ask("GET", path)

    def create(self, path, body):
        """Creates an object; it is no error when the object exists already."""
        try:
            return self.ask("POST", path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            return None

    def delete(self, path):
        try:
            return self.ask("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
