"""Tests gateways whose set of models is in a real redis-server: two gateways follow one set, the admin's changes reach both, changes at the
same time are all kept, and a Redis that is away or broken takes no model away."""
import json
import subprocess
import threading

import pytest
from cluster import BIN, end_all, free_ports, get, wait_for
from many_models import WEB, Gateway, Head
from test_quotas import PASSWORD, Redis, needs_redis

pytestmark = needs_redis
ADMIN = {"Authorization": "Bearer sk-admin-key-1"}


class Shared(Gateway):
    """Runs a gateway whose models are in Redis."""

    def __init__(self, folder, url):
        folder.mkdir()
        (folder / "admin").write_text("sk-admin-key-1 ada\n")
        (self.port,) = free_ports(1)
        self.url, self.log_path = f"http://127.0.0.1:{self.port}", folder / "gateway.log"
        command = [BIN / "cox-gateway", "--models", url, "--port", str(self.port), "--admin-key-file", folder / "admin"]
        self.process = subprocess.Popen(command, stdout=open(self.log_path, "wb"), stderr=subprocess.STDOUT)

    def change(self, method, path, body=None):
        return WEB.request(method, f"{self.url}/admin/{path}", json=body, headers=ADMIN)


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    head = Head(tmp_path_factory.mktemp("head"))
    yield head
    head.end()


@pytest.fixture
def gateways(tmp_path):
    made = []

    def make(url, n=2):
        made.extend(Shared(tmp_path / f"gateway-{len(made) + i}", url) for i in range(n))
        for g in made:
            wait_for("the gateway listens", lambda g=g: get(g.url + "/livez")[0] == 200)
        return made[-n:]
    yield make
    end_all([g.process for g in made])


def wait_both(gateways, **states):
    for g in gateways:
        g.wait_states(**states)


def test_gateways_share_one_set(head, gateways, tmp_path):
    with Redis(tmp_path) as redis:
        both = gateways(redis.url + "#prod/models")
        assert get(both[0].url + "/health")[0] == 503
        assert both[0].change("PUT", "models/alpha", head.entry("alpha", aliases=["a"])).status_code == 200  # the set does not exist yet
        wait_both(both, alpha="serving", a="serving")
        assert both[1].change("PUT", "routes/chat", {"targets": [{"model": "alpha"}]}).status_code == 200
        wait_both(both, alpha="serving", a="serving", chat="serving")
        assert all(g.ask("chat").json()["model"] == "alpha" for g in both)
        assert json.loads(redis.ask("GET", "prod/models"))["routes"][0]["name"] == "chat"
        for method, path, body, code, why in (
                ("PUT", "models/x", {"port": 1}, 400, "cannot have"), ("DELETE", "models/none", None, 404, "no such name"),
                ("DELETE", "models/alpha", None, 400, "no model of the name"), ("PUT", "models/" + "x" * 300, {}, 400, "longer than 255")):
            done = both[0].change(method, path, body)
            assert (done.status_code, why in done.text) == (code, True), done.text
        redis.ask("SET", "prod/models", f"# a text of an editor\nmodels:\n- {json.dumps(head.entry('beta'))}\n")
        wait_both(both, beta="serving")
        redis.ask("SET", "prod/models", json.dumps({"models": [head.entry("beta")], "managed_by": "a program"}))
        wait_for("the owner counts", lambda: both[0].change("DELETE", "models/beta").status_code == 409)
        assert all(PASSWORD not in g.log() for g in both)


def test_changes_at_the_same_time_are_all_kept(head, gateways, tmp_path):
    with Redis(tmp_path) as redis:
        both, done = gateways(redis.url), []
        threads = [threading.Thread(target=lambda i=i: done.append(both[i % 2].change("PUT", f"models/m{i}", head.entry("")).status_code)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert done == [200] * 6
        wait_both(both, **{f"m{i}": "serving" for i in range(6)})


def test_without_redis_the_models_stay(head, gateways, tmp_path):
    redis = Redis(tmp_path)
    (g,) = gateways(redis.url, 1)
    assert g.ask("alpha").status_code == 503 and "has not been read" in g.ask("alpha").text
    assert g.change("PUT", "models/alpha", head.entry("alpha")).status_code == 503
    redis.start()
    try:
        wait_for("the admin can change models", lambda: g.change("PUT", "models/alpha", head.entry("alpha")).status_code == 200)
        g.wait_states(alpha="serving")
        redis.ask("SET", "cox:models", "models: [")
        wait_for("the gateway tells the error", lambda: g.log().count("models_not_read") == 1)
        redis.ask("DEL", "cox:models")
        wait_for("the gateway misses the key", lambda: "does not exist" in g.log())
        lost = g.change("PUT", "models/beta", head.entry("beta"))  # it would remove alpha everywhere
        assert lost.status_code == 409 and "Write the whole set there again" in lost.text and g.states() == {"alpha": "serving"}
        redis.ask("LPUSH", "cox:models", "no text")
        wait_for("the gateway tells the error", lambda: "WRONGTYPE" in g.log())
        redis.kill()
        wait_for("the gateway misses Redis", lambda: "models_store_lost" in g.log())
        answer = g.change("DELETE", "models/alpha")
        assert answer.status_code == 503 and "Redis" in answer.text
        assert g.ask("alpha").status_code == 200 and g.states() == {"alpha": "serving"}
    finally:
        end_all([redis.process])


@pytest.mark.parametrize("url, why", [("redis://127.0.0.1:70000", "wrong host"), ("rediss://host", "TLS"), ("unix:///x#", "name of the key")])
def test_a_wrong_url_is_refused(tmp_path, url, why):
    g = Shared(tmp_path / "gateway", url)
    assert g.process.wait(20) == 2 and why in g.log(), g.log()
