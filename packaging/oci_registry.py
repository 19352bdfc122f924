"""Sends blobs and manifests to a container registry, by the HTTP API of the OCI distribution specification.

Everything that a registry answers is unchecked input. A password goes to the registry, and to the token service that the registry
names. As with docker and skopeo, that may be another host. Both must use HTTPS. Only with `plain_http` may they use HTTP, and then only
on this machine (loopback). No Authorization header follows an upload to another host. Errors are `Failed`, with what to do next.
"""
import base64
import contextlib
import hashlib
import http.client
import ipaddress
import json
import os
import re
import signal
import stat
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deploy/image"))
from debian import Failed  # noqa: E402

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER = {"docker.io": ("registry-1.docker.io", "https://index.docker.io/v1/")}  # host of the API, and name in the files of logins
TRIES = 6
LONGEST_WAIT_S = 60
LONGEST_REQUEST_S = 300  # one request with its answer, besides the time for its body
SLOWEST_UPLOAD = 64 << 10  # bytes per second
LARGEST_ANSWER = 4 << 20  # largest manifest, index or token in bytes
NAME = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
HOST = re.compile(r"(?:[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def dump(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def loads(data):
    """Returns the value of JSON. Every wrong text raises ValueError, also one that is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def printable(text):
    """Returns a text without characters that would control the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text))


def is_loopback(host):
    """Returns whether HOST[:PORT] is this machine."""
    name = re.sub(r":[0-9]+$", "", host).strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


@contextlib.contextmanager
def within(seconds):
    """Raises TimeoutError when the block takes longer. The time limit of a socket starts again with each byte that a server sends. Only the
    main thread may use it."""
    def end(*_):
        raise TimeoutError(f"no complete answer within {seconds:.0f} s")
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def described(media_type, data, **more):
    """Returns the descriptor of a blob or manifest."""
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data), **more}


def split(address):
    """Returns (host, path) of REGISTRY[/PATH]. The path may be empty."""
    host, _, path = address.partition("/")
    if not HOST.fullmatch(host) or (path and not NAME.fullmatch(path)):
        raise Failed(f"\"{address}\" is not the address of a registry. Use HOST[:PORT][/PATH] with a path of lower-case letters, digits and . _ - /")
    return host, path


def login_of_file(path):
    """Returns (name, password) of a file with one line NAME:PASSWORD. Other users must not be able to read it."""
    try:
        with open(path) as f:
            mode = os.fstat(f.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise Failed(f"the login file {path} can be read by other users (mode {stat.S_IMODE(mode):04o}). Run chmod 600 {path}. "
                             "If others use this machine, change the password.")
            line = f.read(LARGEST_ANSWER).strip()
    except (OSError, UnicodeDecodeError) as e:
        raise Failed(f"cannot read the login file {path}: {e}. Write one line NAME:PASSWORD into it.") from e
    name, colon, password = line.partition(":")
    if not (name and colon and password) or "\n" in line:
        raise Failed(f"the login file {path} must have one line NAME:PASSWORD")
    return name, password


def login_of_tools(host, environment=os.environ):
    """Returns (name, password) that `docker login`, `skopeo login` or `helm registry login` stored for a host, or None."""
    home = environment.get("HOME", "/nonexistent")
    files = [environment.get("REGISTRY_AUTH_FILE"), f"{environment.get('XDG_RUNTIME_DIR', '/nonexistent')}/containers/auth.json",
             f"{home}/.config/containers/auth.json", f"{environment.get('DOCKER_CONFIG', home + '/.docker')}/config.json"]
    for file in filter(None, files):
        try:
            stored = loads(Path(file).read_text())["auths"][DOCKER.get(host, ("", host))[1]]["auth"]
            name, _, password = base64.b64decode(stored).decode().partition(":")
            return name, password
        except (OSError, ValueError, KeyError, TypeError):
            continue  # this file has no login for the host; a credential helper's entry has no password either
    return None


class Stay(urllib.request.HTTPRedirectHandler):
    def http_error_302(self, *args):
        return None  # only downloads are redirected, and this module downloads nothing large

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class Registry:
    """`Registry` is one host. `login` is (name, password) or None."""

    def __init__(self, host, login=None, plain_http=False, wait=time.sleep):
        self.host, self.login, self.wait = DOCKER.get(host, (host, ""))[0], login, wait
        if plain_http and not is_loopback(self.host):
            raise Failed(f"--plain-http is only for a registry on this machine (localhost or 127.0.0.1), and {self.host} is another one. Use HTTPS.")
        self.schemes = ("https", "http") if plain_http else ("https",)
        self.base = f"{self.schemes[-1]}://{self.host}"
        self.tokens, self.opener = {}, urllib.request.build_opener(Stay)

    # ---- requests ----

    def address(self, text, is_for, unsent):
        """Returns the parts of an address that the registry names. It must be encrypted, or on this machine with --plain-http."""
        try:
            parts = urllib.parse.urlsplit(urllib.parse.urljoin(self.base, text))
            known = HOST.fullmatch(parts.netloc) and re.fullmatch(r"[\x21-\x7e]*", text) and (parts.port is None or parts.port)
        except ValueError:
            known = False
        if known and (parts.scheme == "https" or (parts.scheme in self.schemes and is_loopback(parts.netloc))):
            return parts
        why = "which is not encrypted" if known else "which is not an address"
        raise Failed(f"{self.host} sends {is_for} to {printable(text)[:200]}, {why}. {unsent} Ask the owner of the registry to correct this.")

    def once(self, method, url, headers, body):
        """Sends one request. `body` is bytes, None, or a function that returns (open file, size). Returns (status, headers, data)."""
        data, size = body() if callable(body) else (body, None)
        with contextlib.ExitStack() as left:
            if callable(body):
                left.enter_context(data)
            left.enter_context(within(LONGEST_REQUEST_S + (len(data or b"") if size is None else size) / SLOWEST_UPLOAD))
            request = urllib.request.Request(url, data=data, method=method, headers=dict(headers))
            if size is not None:
                request.add_header("Content-Length", str(size))
            try:
                answer = self.opener.open(request, timeout=300)
            except urllib.error.HTTPError as e:
                answer = e
            with answer:
                return answer.status, answer.headers, answer.read(LARGEST_ANSWER + 1)

    def patient(self, method, url, headers, body):
        """Repeats a request that fails for a reason that may pass: the network, too many requests, or the registry's own trouble."""
        host = urllib.parse.urlsplit(url).netloc
        for n in range(TRIES):
            pause = min(2 ** n, LONGEST_WAIT_S)
            try:
                status, answered, data = self.once(method, url, headers, body)
                if status not in (408, 425, 429) and status < 500:
                    if len(data) > LARGEST_ANSWER:
                        raise Failed(f"{host} answered {method} {url.split('?')[0]} with more than {LARGEST_ANSWER >> 20} MiB. Is this a registry?")
                    return status, answered, data
                why = f"HTTP {status}"
                if re.fullmatch(r"[0-9]{1,4}", answered.get("Retry-After", "")):
                    pause = min(int(answered["Retry-After"]), LONGEST_WAIT_S)
            except (OSError, http.client.HTTPException) as e:  # URLError is an OSError
                why = printable(getattr(e, "reason", e)).strip()[:200]
            except ValueError as e:
                raise Failed(f"cannot ask {host}: {printable(e)[:200]}. Check the address, and the variables with proxies (https_proxy).") from e
            if n + 1 < TRIES:
                self.wait(pause)
        raise Failed(f"{host} did not answer {method} {urllib.parse.urlsplit(url).path}: {why}, {TRIES} times in a row. Check the address and try again; "
                     "a push that is repeated sends only what is missing.")

    def ask(self, method, url, repository, headers=(), body=None):
        """Sends a request with the authorization that the registry asks for."""
        headers = dict(headers)
        own = urllib.parse.urlsplit(url).netloc == self.host
        if own and repository in self.tokens:
            headers["Authorization"] = self.tokens[repository]
        answer = self.patient(method, url, headers, body)
        if answer[0] == 401 and own:
            headers["Authorization"] = self.tokens[repository] = self.authorize(answer[1].get("WWW-Authenticate", ""), repository)
            answer = self.patient(method, url, headers, body)
        return answer

    def authorize(self, challenge, repository):
        """Returns the Authorization header for a challenge: the login itself, or a token for it."""
        basic = "Basic " + base64.b64encode(":".join(self.login).encode()).decode() if self.login else None
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and basic:
            return basic
        asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if kind.lower() != "bearer" or "realm" not in asked:
            raise Failed(f"{self.host} asks for a login. Use --login FILE with a line NAME:PASSWORD, or run `skopeo login {self.host}` first.")
        realm = self.address(asked["realm"], "logins", "No password was sent.")
        query = {"scope": f"repository:{repository}:pull,push"} | ({"service": asked["service"]} if "service" in asked else {})
        url = urllib.parse.urlunsplit(realm._replace(query="&".join(filter(None, [realm.query, urllib.parse.urlencode(query)]))))
        status, _, data = self.patient("GET", url, {"Authorization": basic} if basic else {}, None)
        try:
            answer = loads(data) if status == 200 else {}
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Failed(f"{realm.netloc} gave no token for {repository} (HTTP {status}). Check the name and the password of the login, and its rights.")
        return f"Bearer {token}"

    # ---- content ----

    def url(self, repository, kind, reference):
        return f"{self.base}/v2/{repository}/{kind}/{reference}"

    def has_blob(self, repository, digest):
        return self.ask("HEAD", self.url(repository, "blobs", digest), repository)[0] == 200

    def push_blob(self, repository, digest, body):
        """Uploads a blob unless the registry has it. `body` is bytes, or a function that returns (open file, size)."""
        if self.has_blob(repository, digest):
            return
        status, headers, data = self.ask("POST", self.url(repository, "blobs", "uploads/"), repository, body=b"")
        where = headers.get("Location", "")
        if status != 202 or not where:
            raise Failed(f"{self.host} refuses an upload to {repository} (HTTP {status}{self.reason(data)}). Check that the login may push there.")
        at = self.address(where, "uploads", "Nothing was sent.")
        url = urllib.parse.urlunsplit(at._replace(query="&".join(filter(None, [at.query, urllib.parse.urlencode({"digest": digest})]))))
        status, _, data = self.ask("PUT", url, repository, {"Content-Type": "application/octet-stream"}, body)
        if status not in (201, 204):
            raise Failed(f"{self.host} did not take the blob {digest} of {repository} (HTTP {status}{self.reason(data)})")

    def push_manifest(self, repository, reference, media_type, data):
        """Stores a manifest under a tag or a digest. Returns the headers of the answer."""
        status, headers, answer = self.ask("PUT", self.url(repository, "manifests", reference), repository, {"Content-Type": media_type}, data)
        if status not in (200, 201):
            raise Failed(f"{self.host} did not take the manifest {repository}:{reference} (HTTP {status}{self.reason(answer)})")
        told = headers.get("Docker-Content-Digest")
        if told and told != digest_of(data):
            raise Failed(f"{self.host} stored {repository}:{reference} as {printable(told)[:100]} instead of {digest_of(data)}, so it changes manifests. Use another registry.")
        return headers

    def attach(self, repository, subject, media_type, data, name, created):
        """Stores a file as a referrer of a manifest, for tools that list what belongs to an image. A registry without the referrers API
        gets the list under a tag, as the specification says."""
        self.push_blob(repository, digest_of(b"{}"), b"{}")
        self.push_blob(repository, digest_of(data), data)
        notes = {"org.opencontainers.image.created": created}
        manifest = dump({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": media_type, "config": described(EMPTY, b"{}"), "subject": subject,
                         "layers": [described(media_type, data, annotations={"org.opencontainers.image.title": name})], "annotations": notes})
        headers = self.push_manifest(repository, digest_of(manifest), MANIFEST, manifest)
        if "OCI-Subject" not in headers:
            tag = subject["digest"].replace(":", "-")
            status, _, found = self.ask("GET", self.url(repository, "manifests", tag), repository, {"Accept": INDEX})
            try:
                listed = [one for one in loads(found)["manifests"] if one["digest"] != digest_of(manifest)] if status == 200 else []
            except (ValueError, KeyError, TypeError) as e:
                raise Failed(f"{self.host} has something under {repository}:{tag} that is not a list of referrers. Remove this tag.") from e
            listed.append(described(MANIFEST, manifest, artifactType=media_type, annotations=notes))
            self.push_manifest(repository, tag, INDEX, dump({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}))
        return digest_of(manifest)

    @staticmethod
    def reason(data):
        """Returns the registry's own message, on one line and without control characters."""
        try:
            text = str(loads(data)["errors"][0]["message"])
        except (ValueError, KeyError, IndexError, TypeError):
            return ""
        return ": " + re.sub(r"[^\x20-\x7e]", "?", text)[:200]
