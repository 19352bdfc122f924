"""Tests HTTPS with the clients of openssl, curl and Python, client certificates, certificates that change during streams, and bytes
that are not a handshake."""
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading

import httpx
import pytest

from cluster import BIN, Cluster, end_all, free_ports, run_cox, wait_for

WAIT = 20


def openssl(*args, cwd, **kwargs):
    return subprocess.run(["openssl", *args], cwd=cwd, capture_output=True, text=True, timeout=WAIT, **kwargs)


class Authority:
    """`Authority` is a certificate authority that makes its certificates with openssl."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.ca = folder / "ca.pem"
        done = openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                       "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem", cwd=folder)
        assert done.returncode == 0, done.stderr

    def make(self, name):
        """Returns (certificate, key) of `name`, valid for this machine."""
        request = openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                          f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr", cwd=self.folder)
        assert request.returncode == 0, request.stderr
        (self.folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        signed = openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                         "-days", "2", "-extfile", "san", "-out", f"{name}.pem", cwd=self.folder)
        assert signed.returncode == 0, signed.stderr
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--null-token-us", "3000", workers=1, tp=1) as c:
        yield c


class Gateway:
    """`Gateway` is another gateway of a cluster, with TLS and an admin address."""

    def __init__(self, cluster, log, *args):
        self.port, self.admin_port = free_ports(2)
        keys = next(cluster.tmp.glob("*/gateway.key")).parent
        self.log_path = log
        self.command = [str(BIN / "cox-gateway"), "--model", "null", "--keys-dir", str(keys), "--head",
                        f"127.0.0.1:{cluster.head_port}", "--port", str(self.port), "--admin-port",
                        str(self.admin_port), *map(str, args)]

    def __enter__(self):
        self.log_file = open(self.log_path, "w")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log_file,
                                        stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_):
        end_all([self.process])
        self.log_file.close()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait(self, **client):
        def serves():
            assert self.process.poll() is None, self.log()
            try:
                with self.client(**client) as c:
                    return c.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_for("it serves HTTPS", serves, WAIT)

    def client(self, verify, cert=None, port=None):
        context = ssl.create_default_context(cafile=str(verify))
        if cert:
            context.load_cert_chain(*map(str, cert))
        return httpx.Client(base_url=f"https://127.0.0.1:{port or self.port}", verify=context, timeout=60,
                            trust_env=False)


def completion(max_tokens, **fields):
    return {"model": "null", "prompt": "Hi", "max_tokens": max_tokens, "ignore_eos": True, **fields}


def test_clients(cluster, authority, tmp_path):
    cert, key = authority.make("server")
    with Gateway(cluster, tmp_path / "log", "--ssl-certfile", cert, "--ssl-keyfile", key) as g:
        g.wait(verify=authority.ca)
        plain = httpx.post(f"{cluster.url}/v1/completions", json=completion(300, seed=1), timeout=60).json()
        with g.client(authority.ca) as c:  # one connection carries a large body, a stream, and more requests
            body = {**completion(2), "prompt": "word " * 10000}
            assert c.post("/v1/completions", json=body).status_code == 400  # the prompt is too long for the model, but it is read completely
            whole = c.post("/v1/completions", json=completion(300, seed=1)).json()
            assert whole["choices"] == plain["choices"]
            with c.stream("POST", "/v1/completions", json=completion(300, seed=1, stream=True)) as s:
                lines = [x for x in s.iter_lines() if x]
            assert lines[-1] == "data: [DONE]" and len(lines) > 100
        with g.client(authority.ca, port=g.admin_port) as c:
            assert c.get("/livez").text == "ok\n"
            name = "coxswain_gateway_tls_certificate_expires_timestamp_seconds "
            told = next(x for x in c.get("/metrics").text.splitlines() if x.startswith(name))
            ends = openssl("x509", "-in", cert, "-noout", "-enddate", cwd=tmp_path).stdout.strip().partition("=")[2]
            assert float(told.split()[-1]) == ssl.cert_time_to_seconds(ends)
        with pytest.raises(httpx.ConnectError), httpx.Client(trust_env=False) as c:
            c.get(f"https://127.0.0.1:{g.port}/health")  # this client does not know the authority
        url = f"https://localhost:{g.port}/health"
        done = subprocess.run(["curl", "-sS", "--noproxy", "*", "--cacert", str(authority.ca), "-o", "-", "-w",
                               "%{http_code} %{http_version} %{ssl_verify_result}", url],
                              capture_output=True, text=True, timeout=WAIT)
        assert done.stdout.endswith("200 1.1 0"), done
        said = openssl("s_client", "-connect", f"127.0.0.1:{g.port}", "-CAfile", "ca.pem", "-alpn", "h2,http/1.1",
                       "-quiet", "-verify_return_error", "-ign_eof", cwd=authority.folder,
                       input="GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert said.returncode == 0 and said.stdout.startswith("HTTP/1.1 200"), said
        for old in ("-tls1", "-tls1_1"):
            said = openssl("s_client", "-connect", f"127.0.0.1:{g.port}", old, "-cipher", "ALL:@SECLEVEL=0",
                           cwd=authority.folder, input="")
            assert said.returncode != 0, said.stdout
        said = openssl("s_client", "-connect", f"127.0.0.1:{g.port}", "-tls1_2", cwd=authority.folder, input="R\n")
        assert "no renegotiation" in said.stderr, said  # "R" makes openssl ask for a renegotiation


def test_what_is_no_tls(cluster, authority, tmp_path):
    cert, key = authority.make("server")
    with Gateway(cluster, tmp_path / "log", "--ssl-certfile", cert, "--ssl-keyfile", key) as g:
        g.wait(verify=authority.ca)
        answer = httpx.get(f"http://127.0.0.1:{g.port}/health", timeout=WAIT)
        assert answer.status_code == 400 and "https://" in answer.json()["error"]["message"]
        held = []
        for garbage in (b"\x00" * 4096, b"SSH-2.0-x\r\n", b"\x16\x03\x01\xff\xff\x01\x00\xff\xff", b"\x80" * 70000):
            with socket.create_connection(("127.0.0.1", g.port), timeout=WAIT) as s:
                try:
                    s.sendall(garbage)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        for _ in range(50):  # these clients begin a handshake and leave it open, and other clients are served
            s = socket.create_connection(("127.0.0.1", g.port), timeout=WAIT)
            s.sendall(b"\x16\x03\x01\x02\x00\x01")
            held.append(s)
        with g.client(authority.ca) as c:
            assert c.post("/v1/completions", json=completion(3)).status_code == 200
        for s in held:  # the deadline of a request's headers ends these connections
            assert s.recv(1) == b""
            s.close()
        assert g.process.poll() is None


def test_certificates_of_clients(cluster, authority, tmp_path):
    cert, key = authority.make("server")
    client = authority.make("client")
    stranger = Authority(tmp_path / "stranger").make("client")
    flags = ("--ssl-certfile", cert, "--ssl-keyfile", key, "--ssl-ca-certs", authority.ca, "--ssl-cert-reqs")
    for wanted, without in ((1, True), (2, False)):
        with Gateway(cluster, tmp_path / "log", *flags, wanted) as g:
            g.wait(verify=authority.ca, cert=client)

            def answer(cert, port=None):
                try:
                    with g.client(authority.ca, cert, port) as c:
                        return c.get("/v1/models").status_code
                except (httpx.TransportError, ssl.SSLError):
                    return None

            assert answer(client) == 200
            assert answer(None) == (200 if without else None)
            assert answer(stranger) is None
            assert answer(None, g.admin_port) == (404 if without else None)


def test_a_new_certificate_under_load(cluster, authority, tmp_path):
    cert, key = authority.make("first")
    live_cert, live_key = tmp_path / "live.pem", tmp_path / "live.key"
    for a, b in ((cert, live_cert), (key, live_key)):
        b.write_bytes(a.read_bytes())

    def serial(port):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as s:
            with ssl.create_default_context(cafile=str(authority.ca)).wrap_socket(s, server_hostname="localhost") as t:
                return dict(x[0] for x in t.getpeercert()["subject"])["commonName"]

    results, stop = [], threading.Event()

    def load(g):
        with g.client(authority.ca) as c:
            while not stop.is_set():
                with c.stream("POST", "/v1/completions", json=completion(200, seed=5, stream=True)) as s:
                    results.append((s.status_code, [x for x in s.iter_lines() if x][-1]))

    with Gateway(cluster, tmp_path / "log", "--ssl-certfile", live_cert, "--ssl-keyfile", live_key) as g:
        g.wait(verify=authority.ca)
        assert serial(g.port) == "first"
        threads = [threading.Thread(target=load, args=(g,)) for _ in range(4)]
        for t in threads:
            t.start()
        try:
            live_cert.write_text("no certificate\n")
            wait_for("an error is told of", lambda: "tls_certificate_not_read" in g.log(), WAIT)
            assert serial(g.port) == "first"
            for name in ("second", "third", "fourth"):
                cert, key = authority.make(name)
                live_key.write_bytes(key.read_bytes())
                live_cert.write_bytes(cert.read_bytes())
                wait_for(f"the {name} certificate", lambda name=name: serial(g.port) == name, WAIT)
        finally:
            stop.set()
            for t in threads:
                t.join(120)
        assert len(results) >= 4 and set(results) == {(200, "data: [DONE]")}, results[-5:]
        assert serial(g.admin_port) == "fourth"


@pytest.mark.parametrize("flags, error", [
    (("--ssl-keyfile", "k"), "--ssl-certfile"),
    (("--ssl-cert-reqs", "2"), "--ssl-certfile"),
    (("--ssl-certfile", "/nowhere/c.pem"), "No such file"),
])
def test_flags_that_cannot_work(flags, error):
    done = subprocess.run([str(BIN / "cox-gateway"), "--model", "null", "--insecure", *flags], capture_output=True,
                          text=True, timeout=WAIT)
    assert done.returncode == 2 and error in done.stderr, done.stderr


@contextlib.contextmanager
def started(cluster):
    """Starts a cluster whose gateways do not accept plain HTTP."""
    cluster.start(wait=False)
    try:
        wait_for("cox up says that it serves", lambda: "ready in" in cluster.log(), WAIT)
        yield
    finally:
        cluster.__exit__(None)


@pytest.mark.parametrize("wanted", [0, 2])
def test_cox_up(authority, tmp_path, wanted):
    cert, key = authority.make("server")
    client = authority.make("client") if wanted else None
    locked = tmp_path / "locked.key"
    assert openssl("ec", "-in", key, "-aes128", "-passout", "pass:sesame", "-out", locked,
                   cwd=tmp_path).returncode == 0
    flags = ["--ssl-certfile", cert, "--ssl-keyfile", locked, "--ssl-keyfile-password", "sesame"]
    flags += ["--ssl-ca-certs", authority.ca, "--ssl-cert-reqs", wanted] if wanted else []
    ask = ["--completion", "--max-tokens", "5", "--cacert", authority.ca]
    c = Cluster(*flags, workers=1, tp=1)
    with started(c):
        url = f"https://127.0.0.1:{c.ports[0]}"
        assert f"{url}/v1/completions" in c.log()
        known = [*ask, "--cert", client[0], "--key", client[1]] if wanted else ask
        said = run_cox("chat", "--url", url, *known, input="Hi\n")
        assert said.returncode == 0 and said.stdout.strip(), said
        if wanted:
            assert run_cox("chat", "--url", url, *ask, input="Hi\n").returncode != 0
        bench = ["bench", "serve", "--base-url", url, "--num-prompts", 2, "--random-input-len", 4, "--random-output-len", 2]
        known_key = known[known.index("--cert"):] if "--cert" in known else []
        assert run_cox(*bench, *known_key).returncode == 1  # the system does not know this authority
        said = run_cox(*bench, *known_key, "--insecure")
        assert said.returncode == 0, said.stderr
        said = run_cox("chat", "--url", url, "--completion", input="Hi\n")
        assert said.returncode != 0 and "--cacert" in said.stderr, said
        said = run_cox("chat", "--url", url.replace("https", "http"), *known, input="Hi\n")
        assert said.returncode != 0 and "https://" in said.stderr, said


def test_ready_means_that_the_gateway_listens(authority, tmp_path):
    """The gateway refuses clients without a certificate. In an earlier version, `cox up` used the head's status and was ready before
    the gateway listened."""
    for program in BIN.glob("cox*"):
        if program.is_file() and program.name not in ("cox", "cox-gateway"):
            (tmp_path / program.name).symlink_to(program)
    shutil.copy2(BIN / "cox", tmp_path / "cox")  # this copy finds the other programs in its own folder
    late = tmp_path / "cox-gateway"
    late.write_text(f'#!/bin/sh\nsleep 1\nexec {BIN / "cox-gateway"} "$@"\n')
    late.chmod(0o755)
    cert, key = authority.make("server")
    c = Cluster("--ssl-certfile", cert, "--ssl-keyfile", key, "--ssl-ca-certs", authority.ca, "--ssl-cert-reqs", 2,
                workers=1, tp=1)
    c.command[0] = str(tmp_path / "cox")
    with started(c):
        socket.create_connection(("127.0.0.1", c.ports[0]), timeout=WAIT).close()


def test_cox_up_on_unix_sockets(tmp_path):
    path = tmp_path / "api"
    admin = free_ports(2)[0]
    c = Cluster("--uds", path, "--gateway-admin-port", admin, workers=1, tp=1, gateways=2)
    with started(c):
        for i, name in enumerate((path, tmp_path / "api.1")):
            wait_for("the socket is there", lambda name=name: name.exists(), WAIT)
            said = run_cox("chat", "--uds", name, "--completion", "--max-tokens", "5", input="Hi\n")
            assert said.returncode == 0 and said.stdout.strip(), said
            wait_for("its admin port answers",
                     lambda i=i: httpx.get(f"http://127.0.0.1:{admin + i}/livez", trust_env=False).text == "ok\n", WAIT)
