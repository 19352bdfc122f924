"""Lists all attacks. An attack has a name, shots to send, and a rule for their results. attack.py and neighbour.py check the effect
on other clients for all attacks alike (the probe, the gateway's memory and life)."""
import dataclasses
import json
from collections.abc import Callable

from shots import Result, Shot

REFUSALS = {400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 417, 421, 422, 429, 431, 501, 503, 507}


@dataclasses.dataclass
class Target:
    host: str
    port: int
    key: str = ""  # API key; "" = the gateway has no keys
    model: str = "demo"
    file_id: str = ""  # id of a file of 15 MiB, when the gateway keeps files

    def head(self, method, path, n=None, key=True, more=(), host=None, close=True):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'{self.host}:{self.port}'}"]
        lines += [f"Authorization: Bearer {self.key}"] if key and self.key else []
        lines += [f"Content-Length: {n}"] if n is not None else []
        lines += ["Connection: close"] if close else []
        return ("\r\n".join([*lines, *more]) + "\r\n\r\n").encode()

    def post(self, path, body, more=("Content-Type: application/json",), key=True, **kwargs):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Shot(self.head("POST", path, len(raw), key, more) + raw, **kwargs)

    def get(self, path, key=True, **kwargs):
        return Shot(self.head("GET", path, None, key), **kwargs)

    def complete(self, **fields):
        return self.post("/v1/completions", {"model": self.model, "prompt": "Hi", "max_tokens": 4, **fields})

    def chat(self, **fields):
        return self.post("/v1/chat/completions", {"model": self.model, "max_tokens": 4,
                                                  "messages": [{"role": "user", "content": "Hi"}], **fields})

    def schema(self, schema, **fields):
        return self.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, **fields)


def named(r: Result):
    """Returns why this refusal does not name its reason, or "" when it does."""
    if r.status in (408, 431):
        return ""  # the server did not read such a request to its end
    try:
        e = json.loads(r.text())["error"]
        return "" if e["message"] else f"{r.status} without a message"
    except (ValueError, KeyError, TypeError):
        return f"{r.status} without an error's JSON: {r.text()[:100]!r}"


def answered(results, t):
    """Checks that each shot has an answer: 200, or a refusal that names its reason."""
    for r in results:
        if r.status == 200:
            continue
        if r.status not in REFUSALS:
            return f"status {r.status} after {r.seconds:.1f} s ({r.error}): {r.text()[:160]!r}"
        if why := named(r):
            return why
    return ""


def refused(*statuses):
    def holds(results, t):
        for r in results:
            if r.status not in statuses:
                return f"status {r.status or 'none'} where {statuses} is wanted: {r.text()[:160]!r}"
        return ""
    return holds


def let_go(results, t):
    """Checks that the server ends each connection by itself before the client would disconnect, with an answer or without."""
    late = [r for r in results if not r.closed]
    return f"{len(late)} of {len(results)} connections are held on after {results[0].seconds:.0f} s" if late else ""


def anything(results, t):
    return ""


@dataclasses.dataclass
class Attack:
    name: str
    family: str  # row of the attack in the table
    shots: Callable[[Target], list]
    holds: Callable[[list, Target], str] = answered  # returns "" or the reason for a failure
    needs: tuple = ()  # conditions of the attack: keys, no_keys, state, template
    seconds: float = 25.0  # most seconds until all shots have an answer


def all_attacks():
    import attacks_compile
    import attacks_load
    import attacks_template
    import attacks_wire
    found = [*attacks_compile.ATTACKS, *attacks_template.ATTACKS, *attacks_wire.ATTACKS, *attacks_load.ATTACKS]
    names = [a.name for a in found]
    assert len(names) == len(set(names)), "two attacks have one name"
    return found
