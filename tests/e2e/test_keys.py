"""Who may call what: every route the gateway has, with every kind of key, over HTTP."""
import subprocess

import httpx
import pytest
from cluster import BIN, Cluster, free_ports, get, wait_for

KEY, ADMIN = "sk-user-key", "sk-admin-key-1"
WEB = httpx.Client(timeout=20)
OPEN = {"/health", "/ready", "/ping"}


def routes():
    said = subprocess.run([str(BIN / "cox-gateway"), "routes"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in said.splitlines()]
    assert len(rows) >= 14 and ["POST", "/v1/chat/completions", "key"] in rows
    return rows


def header(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def status(url, method, path, key):
    return WEB.request(method, url + path.replace("*", "null"), headers=header(key)).status_code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys")
    (keys / "users").write_text(f"{KEY} acme\n")
    (keys / "admin").write_text(ADMIN + "\n")
    (port,) = free_ports(1)
    with Cluster("--api-key-file", keys / "users", "--enable-lora", "--lora-root", keys,
                 "--admin-key-file", keys / "admin",
                 workers=1, tp=1) as c:
        # a second gateway of the same cluster, with an address for admin routes
        (second,) = free_ports(1)
        command = [str(BIN / "cox-gateway"), "--model", "null", "--head", f"127.0.0.1:{c.head_port}", "--insecure",
                   "--port", str(second), "--api-key-file", str(keys / "users"), "--admin-key-file",
                   str(keys / "admin"), "--admin-port", str(port)]
        c.second, c.second_admin, c.second_command = f"http://127.0.0.1:{second}", f"http://127.0.0.1:{port}", command
        yield c


def test_every_route_with_every_key(cluster):
    for method, path, access in routes() + [["GET", "/nothing", "none"], ["POST", "/v1/nothing", "none"],
                                            ["PUT", "/v1/models", "none"], ["GET", "/", "none"]]:
        anonymous = status(cluster.url, method, path, None)
        if path in OPEN:
            assert anonymous == 200, path
            continue
        assert anonymous == 401, (method, path)
        assert status(cluster.url, method, path, "sk-wrong-key") == 401, (method, path)
        user, admin = (status(cluster.url, method, path, key) for key in (KEY, ADMIN))
        if access == "admin":
            assert user == 401 and admin not in (401, 403), (method, path, user, admin)
        elif access == "key":
            assert user not in (401, 403) and admin == 401, (method, path, user, admin)
        else:
            assert user not in (401, 403) and admin == user, (method, path, user, admin)
        if access == "none":
            assert user in (404, 405), (method, path, user)


def test_keys_in_other_headers_and_shapes(cluster):
    def models(**headers):
        return httpx.get(cluster.url + "/v1/models", headers=headers).status_code

    assert models(Authorization=f"bearer  {KEY}") == 200
    assert models(Authorization=f"Basic {KEY}") == 401
    assert models(Authorization=KEY) == 401
    assert models(Authorization=f"Bearer {KEY}x") == 401
    assert models(Authorization=f"Bearer {KEY[:-1]}") == 401


def test_admin_routes_at_their_own_address(cluster):
    gateway = subprocess.Popen(cluster.second_command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        # it need not reach the head: who may ask is decided before
        wait_for("the second gateway listens", lambda: get(cluster.second_admin + "/livez")[0] == 200, 20)
        for method, path, access in routes():
            here, there = cluster.second, cluster.second_admin
            if access == "admin":
                assert [status(here, method, path, k) for k in (None, KEY, ADMIN)] == [401, 404, 404], path
                assert [status(there, method, path, k) for k in (None, KEY)] == [401, 401], path
                assert status(there, method, path, ADMIN) not in (401, 404), path
            elif access == "key":
                assert [status(there, method, path, k) for k in (None, KEY, ADMIN)] == [401, 401, 404], path
        assert status(there, "GET", "/metrics", ADMIN) == 200
        assert [status(there, "GET", "/metrics", k) for k in (None, KEY)] == [401, 401]
        assert [status(there, "GET", "/livez", k) for k in (None, KEY)] == [200, 200]
    finally:
        gateway.terminate()
        gateway.wait(20)
