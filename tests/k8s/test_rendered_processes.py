"""Tests the rendered pods as processes (pods.py), with the null model. Options, files, keys, names and rights fit the programs. No
request is lost when Kubernetes kills, replaces or scales pods."""
import base64
import contextlib
import http.server
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse

import chart as c
import pods
import pytest

sys.path.insert(0, str(c.ROOT / "tests/e2e"))
from hub_server import Hub, tiny_model  # noqa: E402

BIN = os.environ.get("COX_BIN", "")
REASON = pods.why_not() or (None if os.path.exists(os.path.join(BIN, "cox-head")) else f"no programs in {BIN!r}: scripts/build makes them")
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"SKIPPED: {REASON}")
F = "demo-coxswain"
VALUES = {"model": {"name": "null", "servedNames": ["nobody", "null"]}, "worker": {"tp": 2, "replicas": 4, "config": {"null_step_us": 20000}},
          "service": {"port": 8000}}


@pytest.fixture(scope="module", params=["plain", "openshift"])
def node(request, tmp_path_factory):
    """Yields the release with all pods ready. On OpenShift the user is another one, and the group is the namespace's."""
    is_openshift = request.param == "openshift"
    objects = c.objects(VALUES, apis=c.OPENSHIFT if is_openshift else [])
    uid, group = (1000650000, 1000650000) if is_openshift else (65532, 65532)
    n = pods.Node(tmp_path_factory.mktemp("node"), BIN, objects, uid, group)
    try:
        n.apply(objects)
        everybody_is_ready(n)
        yield n
    finally:
        n.end()


def smoke(n):
    """Runs the pod of `helm test`, with the Service's name and the Secret's key; returns the first two words of its lines."""
    pod = n.run(f"{F}-smoke", n.objects.one("Pod", f"{F}-smoke"))
    try:
        assert pod.process.wait(120) == 0, pod.log.read_text()
        return [line.split()[:2] for line in pod.log.read_text().splitlines()]
    finally:
        del n.pods[f"{F}-smoke"]


ALL_WELL = [["ok", w] for w in ("health", "models", "completion", "stream")]


def everybody_is_ready(n):
    for p in list(n.pods.values()):
        pods.wait_for(p.is_ready, f"{p.name} is not ready", p)


def key(n):
    return n.secret(f"{F}-api-keys")["api-keys"].decode()


def ask(n, gateway=0, **more):
    """Requests a completion from the null model; returns (status, the stream's text or error)."""
    p = n.pods[f"{F}-gateway-x{gateway}"]
    body = {"model": "nobody", "prompt": [5, 6, 7], "max_tokens": 8, "seed": 1, "stream": True, **more}
    return pods.get(f"http://{p.address}:8000/v1/completions", {"Authorization": f"Bearer {key(n)}"}, body, timeout=120)


def tokens(reply):
    status, text = reply
    assert status == 200, text
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    assert text.rstrip().endswith("data: [DONE]") and not any("error" in e for e in events), text[-500:]
    return "".join(e["choices"][0]["text"] for e in events if e["choices"])


class Load:
    """Runs threads that send streams to both gateways, one after the other, until the context ends."""

    def __init__(self, n, streams=4, model="nobody"):
        self.n, self.replies, self.over, self.model = n, [], threading.Event(), model
        self.want = tokens(ask(n, max_tokens=64, model=model))
        self.threads = [threading.Thread(target=self.run, args=(i % 2,)) for i in range(streams)]

    def run(self, gateway):
        while not self.over.is_set():
            self.replies.append(ask(self.n, gateway, max_tokens=64, model=self.model))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        for t in self.threads:
            t.join()

    def check(self):
        assert len(self.replies) >= len(self.threads)
        for r in self.replies:
            assert tokens(r) == self.want


def test_a_completion(node):
    assert tokens(ask(node)) == tokens(ask(node, 1)) != ""
    gateway = node.pods[f"{F}-gateway-x0"]
    url = f"http://{gateway.address}:8000/v1/models"
    assert pods.get(url)[0] == 401
    status, text = pods.get(url, {"Authorization": f"Bearer {key(node)}"})
    assert status == 200 and [m["id"] for m in json.loads(text)["data"]] == ["nobody", "null"]


def test_helm_test(node):
    assert smoke(node) == ALL_WELL


def test_status_in_the_head_s_pod(node):
    head = node.pods[f"{F}-head-0"]
    done = head.execute("/cox/cox", "status", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(done.stdout)
    assert status["healthy"] and len(status["workers"]) == 4 and len(status["gateways"]) == 2
    assert sorted((w["node"], w["ordinal"]) for w in status["workers"]) == [(f"{F}-worker-{i}", i) for i in range(4)]
    assert sorted(g["tp"] for g in status["groups"]) == [2, 2]
    assert {w["http_address"].rsplit(":", 1)[0] for w in status["workers"]} == {node.pods[f"{F}-worker-{i}"].address for i in range(4)}


def test_what_a_pod_may_write(node):
    for part in ("head-0", "worker-0", "gateway-x0"):
        p = node.pods[f"{F}-{part}"]
        assert p.execute("/usr/bin/touch", "/tmp/x").returncode == 0
        for where in ("/x", "/etc/coxswain/keys/x", "/etc/coxswain/config/x", "/usr/x"):
            assert p.execute("/usr/bin/touch", where).returncode != 0, f"{part} {where}"
        others = {"head.key", "worker.key", "gateway.key"} - {f"{part.split('-')[0]}.key"}
        there = p.execute("/usr/bin/ls", "/etc/coxswain/keys").stdout.split()
        assert not others & set(there), f"{part}: {there}"


def test_metrics_are_where_the_public_port_is_not(node):
    admin, metrics = ({"Authorization": f"Bearer {node.secret(f'{F}-admin')[k].decode()}"} for k in ("admin-key", "metrics-key"))
    p = node.pods[f"{F}-gateway-x0"]
    assert "vllm:num_requests_running" in pods.get(f"http://{p.address}:8001/metrics", metrics)[1]
    assert pods.get(f"http://{p.address}:8000/metrics")[0] == 401
    for part, port, key in (("head-0", 8265, admin), ("worker-1", 7001, metrics)):
        p = node.pods[f"{F}-{part}"]
        assert pods.get(f"http://{p.address}:{port}/metrics")[0] == 401
        assert "coxswain_" in pods.get(f"http://{p.address}:{port}/metrics", key)[1]
    head = node.pods[f"{F}-head-0"]
    pods.wait_for(lambda: pods.get(f"http://{head.address}:8265/scale", admin)[0] == 200, "it says nothing for 5 s", head)
    assert json.loads(pods.get(f"http://{head.address}:8265/scale", admin)[1])["desired_workers"] % 2 == 0
    assert pods.get(f"http://{head.address}:8265/scale", metrics)[0] == 401


@pytest.mark.parametrize("part", ["gateway-x0", "worker-0"])
def test_no_other_pod_leads_the_cluster(node, part):
    """No other pod can control the head with its own files, environment and address of the head."""
    p, head = node.pods[f"{F}-{part}"], node.pods[f"{F}-head-0"]
    files = p.execute("/usr/bin/ls", "/etc/coxswain/admin").stdout.split()
    assert files == ["metrics-key"]
    with node.without_policies():  # these are a second wall; the keys alone must be enough
        for words in (["status"], ["drain", "0"]):
            for key in ([], ["--admin-key-file", "/etc/coxswain/admin/metrics-key"]):
                out = p.execute("/cox/cox", *words, "--address", f"{head.address}:8265", *key)
                assert out.returncode != 0 and "admin key" in out.stderr, out
    assert ready_groups(head)


def connects(pod, address, port):
    """Returns whether a pod can make a connection, with the shell's own means."""
    return pod.execute("/bin/bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}").returncode == 0


@pytest.mark.skipif(pods.NFT is None, reason="no nft: scripts/setup --ci, or apt-get install nftables")
def test_policies_hold(node):
    """The network policies, on by default, are enforced in all tests of this file. Here they refuse what no part needs."""
    head, worker, gateway = (node.pods[f"{F}-{part}"] for part in ("head-0", "worker-0", "gateway-x0"))
    for pod, to, port, may in ((gateway, head, 7000, True), (worker, head, 7000, True), (gateway, head, 8265, False), (worker, head, 8265, False),
                               (gateway, worker, 7001, False), (head, worker, 7001, False), (worker, gateway, 8000, False),
                               (worker, gateway, 8001, False), (worker, node.pods[f"{F}-worker-1"], 7001, True)):
        assert connects(pod, to.address, port) == may, (pod.name, to.name, port)
    outside = http.server.HTTPServer((pods.NODE, 0), http.server.BaseHTTPRequestHandler)
    try:
        port = outside.server_port
        assert not connects(gateway, pods.NODE, port), "a gateway reaches any machine"
        with node.without_policies():
            assert connects(gateway, pods.NODE, port) and connects(gateway, worker.address, 7001)
    finally:
        outside.server_close()


@pytest.mark.parametrize("part", ["worker-1", "head-0"])
def test_a_killed_pod_comes_back_with_another_address(node, part):
    name = f"{F}-{part}"
    with Load(node) as load:
        old = node.pods[name]
        old.kill()
        node.apply(node.objects)
        assert node.pods[name].address != old.address
        pods.wait_for(node.pods[name].is_ready, f"{name} is not ready", node.pods[name])
        everybody_is_ready(node)
    load.check()


def test_scaling_restarts_nobody(node):
    with Load(node) as load:
        before = {n: p.process.pid for n, p in node.pods.items()}
        grown = c.objects(c.merged(VALUES, {"worker": {"replicas": 6}}), apis=c.OPENSHIFT if node.uid > 99999 else [])
        for kind, name in (("Secret", f"{F}-keys"), ("Secret", f"{F}-admin"), ("Secret", f"{F}-api-keys")):
            grown.one(kind, name)["data"] = node.objects.one(kind, name)["data"]  # on a real server `lookup` would keep these keys
        small = node.objects
        node.apply(grown)
        everybody_is_ready(node)
        assert {n: p.process.pid for n, p in node.pods.items() if n in before} == before and len(node.pods) == len(before) + 2
        node.apply(small)
        assert {n: p.process.pid for n, p in node.pods.items()} == before
    load.check()


def test_a_rolling_update_that_makes_workers_unlike(node):
    """A replica never has workers of both configurations, so each replica is dissolved and formed again while the other replica
    serves."""
    changed = c.objects(c.merged(VALUES, {"worker": {"config": {"block_size": 32}}}), apis=c.OPENSHIFT if node.uid > 99999 else [])
    for name in (f"{F}-keys", f"{F}-admin", f"{F}-api-keys"):
        changed.one("Secret", name)["data"] = node.objects.one("Secret", name)["data"]
    before, head = node.objects, node.pods[f"{F}-head-0"]
    serving = []
    with Load(node) as load:
        node.roll(f"{F}-worker", changed, lambda: serving.append(ready_groups(head)))
        pods.wait_for(lambda: len(ready_groups(head)) == 2, "two groups of the new kind", head)
    load.check()
    assert all(serving), f"before each pod that was taken these groups served: {serving}"
    node.apply(before)
    everybody_is_ready(node)


def ready_groups(head):
    return [g["id"] for g in json.loads(head.execute("/cox/cox", "status", "--json").stdout)["groups"] if g["state"] == "ready"]


def test_other_keys_of_the_secret_reach_running_pods(node):
    """Running pods use the keys of a new Secret, made by an upgrade after the old one was deleted: docs/reference/chart.md, "Keys"."""
    data = c.objects(VALUES).one("Secret", f"{F}-keys")["data"]
    node.objects.one("Secret", f"{F}-keys")["data"] = data
    before, head = {n: p.process.pid for n, p in node.pods.items()}, node.pods[f"{F}-head-0"]
    for p in node.pods.values():
        p.refresh("keys")
    out = head.execute("/cox/cox", "keys", "--reload")
    assert out.returncode == 0, out
    node.pods[f"{F}-worker-1"].kill()
    node.apply(node.objects)
    everybody_is_ready(node)
    pods.wait_for(lambda: len(ready_groups(head)) == 2, "two groups", head)
    assert tokens(ask(node, 1))
    assert [n for n, p in node.pods.items() if before[n] != p.process.pid] == [f"{F}-worker-1"]


def test_a_pod_ends_within_its_grace(node):
    for part in ("worker-3", "gateway-x1"):
        name = f"{F}-{part}"
        assert node.pods[name].stop() == 0, node.pods[name].log.read_text()[-2000:]
    node.apply(node.objects)
    everybody_is_ready(node)
    assert tokens(ask(node, 1))


def test_several_ranks_in_a_pod(tmp_path):
    """With TP 2 and two pods of two ranks, each pod is a replica. A pod has one readiness for all ranks, and after a loss all of its
    ranks are restarted."""
    n = pods.Node(tmp_path, BIN, c.objects(c.merged(VALUES, {"worker": {"replicas": 2, "ranks": 2}})))
    try:
        n.apply(n.objects)
        everybody_is_ready(n)
        workers = json.loads(n.pods[f"{F}-head-0"].execute("/cox/cox", "status", "--json").stdout)["workers"]
        assert sorted((w["ordinal"], w["node"]) for w in workers) == [(i, f"{F}-worker-{i // 2}") for i in range(4)]
        metrics = {"Authorization": f"Bearer {n.secret(f'{F}-admin')['metrics-key'].decode()}"}
        for port in (7002, 7003):
            assert "coxswain_worker_steps_total" in pods.get(f"http://{n.pods[f'{F}-worker-0'].address}:{port}/metrics", metrics)[1]
        with Load(n) as load:
            assert n.pods[f"{F}-worker-1"].stop() == 0
            n.apply(n.objects)
            everybody_is_ready(n)
        load.check()
    finally:
        n.end()


class Keda:
    """`Keda` acts on the rendered ScaledObject as KEDA does. It queries the trigger with the TriggerAuthentication's Secret. It
    scales up from zero as soon as the trigger is active. It scales down to idleReplicaCount when the trigger has been inactive
    for cooldownPeriod."""

    def __init__(self, n, objects, f=F):
        self.n, self.f, self.numbers = n, f, []
        self.spec = objects.one("ScaledObject", f"{f}-worker")["spec"]
        self.trigger = self.spec["triggers"][0]
        auth = objects.one("TriggerAuthentication", self.trigger["authenticationRef"]["name"])["spec"]["secretTargetRef"][0]
        self.headers = {"Authorization": f"Bearer {n.secret(auth['name'])[auth['key']].decode()}"}
        self.active = time.monotonic()

    def ask(self):
        where = urllib.parse.urlsplit(self.trigger["metadata"]["url"])
        assert where.hostname == f"{self.f}-head.ns.svc"
        status, text = pods.get(f"http://{self.n.pods[f'{self.f}-head-0'].address}:{where.port}{where.path}", self.headers)
        return json.loads(text)[self.trigger["metadata"]["valueLocation"]] if status == 200 else None

    def turn(self):
        wanted = self.ask()
        if wanted is None:
            return
        if wanted > float(self.trigger["metadata"]["activationTargetValue"]):
            self.active = time.monotonic()
            each = float(self.trigger["metadata"]["targetValue"])
            self.set(min(max(math.ceil(wanted / each), self.spec["minReplicaCount"]), self.spec["maxReplicaCount"]))
        elif time.monotonic() - self.active >= self.spec["cooldownPeriod"]:
            self.set(self.spec["idleReplicaCount"])

    def set(self, replicas):
        if self.numbers[-1:] != [replicas]:
            self.numbers.append(replicas)
        objects = self.n.objects  # an upgrade since then may have changed the number
        scaled = objects.one("StatefulSet", self.spec["scaleTargetRef"]["name"])["spec"]
        if scaled.get("replicas") != replicas:
            scaled["replicas"] = replicas
            self.n.apply(objects)


SLOW = {"config": {"null_step_us": 20000}}
THREE = {"models": {"first": {"model": {"name": "null"}, "worker": {"replicas": 1, **SLOW}},
                    "second": {"model": {"name": "null", "servedNames": ["second", "2nd"]}, "worker": {"replicas": 1}},
                    "rare": {"model": {"name": "null"}, "head": {"config": {"scale_idle_s": 2}},
                             "autoscaling": {"enabled": True, "minGroups": 0, "cooldownSeconds": 1}}}, "service": {"port": 8000}}


class Models:
    """`Models` is a release with several models, changed as `helm upgrade` does it: Secrets and numbers of pods that the values do not give
    stay, and ConfigMaps arrive in running pods."""

    def __init__(self, folder, values):
        self.values, self.first = values, c.objects(values, apis=c.OPENSHIFT)
        self.n = pods.Node(folder, BIN, self.first, 1000650000, 1000650000)

    def upgrade(self, values):
        secrets = {o["metadata"]["name"]: o for o in self.first.kinds("Secret")}
        objects = c.Objects(secrets[o["metadata"]["name"]] if o["kind"] == "Secret" else o for o in c.objects(values, apis=c.OPENSHIFT))
        for o in objects.kinds("StatefulSet"):
            if "replicas" not in o["spec"]:
                o["spec"]["replicas"] = self.n.objects.one(o["kind"], o["metadata"]["name"])["spec"]["replicas"]
        self.n.apply(objects)
        for p in self.gateways():
            p.refresh("models")

    def gateways(self):
        return [p for name, p in self.n.pods.items() if "-gateway-" in name]

    def states(self):
        """Returns {model: state} of every gateway."""
        auth = {"Authorization": f"Bearer {key(self.n)}"}
        return [{m["id"]: m["state"] for m in json.loads(pods.get(f"http://{p.address}:8000/v1/models", auth)[1])["data"]} for p in self.gateways()]

    def wait(self, states):
        pods.wait_for(lambda: self.states() == [states, states], f"the models are not {states} but {self.states()}")

    def processes(self):
        return {name: p.process.pid for name, p in self.n.pods.items()}


def test_models_come_and_go_behind_one_service(tmp_path):
    """Three models, with an arbitrary user as on OpenShift. Under streams of one model a fourth comes, another goes and a third starts
    from no worker. No pod of another model and no gateway is replaced, and no stream ends early."""
    m = Models(tmp_path, THREE)
    n = m.n
    try:
        keda = Keda(n, m.first, f"{F}-rare")
        keda.set(0)
        everybody_is_ready(n)
        m.wait({"first": "serving", "second": "serving", "2nd": "serving", "rare": "asleep"})
        before = m.processes()
        with Load(n, model="first") as load:
            more = c.merged(THREE, {"models": {"fourth": {"model": {"name": "null"}, "worker": {"replicas": 1}}}})
            m.upgrade(more)
            m.wait({"first": "serving", "second": "serving", "2nd": "serving", "rare": "asleep", "fourth": "serving"})
            assert tokens(ask(n, 1, model="fourth")) and before.items() <= m.processes().items()
            assert set(m.processes()) - set(before) == {f"{F}-fourth-head-0", f"{F}-fourth-worker-0"}
            del more["models"]["second"]
            m.upgrade(more)
            m.wait({"first": "serving", "rare": "asleep", "fourth": "serving"})
            assert [ask(n, i, model="second")[0] for i in (0, 1)] == [404, 404]
            replies = []
            asks = threading.Thread(target=lambda: replies.append(ask(n, model="rare")))
            asks.start()
            pods.wait_for(lambda: keda.turn() or replies, "no answer of the model without workers")
            asks.join()
            assert tokens(replies[0])
            pods.wait_for(lambda: keda.turn() or keda.numbers[-1] == 0, "the workers stay")
        load.check()
        gone = {f"{F}-second-head-0", f"{F}-second-worker-0"}
        assert {k: v for k, v in before.items() if k not in gone}.items() <= m.processes().items()
        assert smoke(n) == ALL_WELL
    finally:
        n.end()


def test_pools_for_prompts_and_for_the_tokens_after_them(tmp_path):
    v = c.merged(VALUES, {"gateway": {"replicas": 1}, "worker": {"tp": 1, "pools": {"prefill": 1, "decode": 1}}})
    n = pods.Node(tmp_path, BIN, c.objects(v))
    try:
        n.apply(n.objects)
        everybody_is_ready(n)
        assert tokens(ask(n))
        status = json.loads(n.pods[f"{F}-head-0"].execute("/cox/cox", "status", "--json").stdout)
        assert {g["role"] for g in status["groups"]} == {"prefill", "decode"} and len(status["workers"]) == 2, status["groups"]
    finally:
        n.end()


def test_to_no_workers_and_back(tmp_path):
    """A release has no workers while there are no requests. `helm test` and a request each cause a replica to start."""
    objects = c.objects(c.merged(VALUES, {"autoscaling": {"enabled": True, "minGroups": 0, "cooldownSeconds": 1},
                                          "head": {"config": {"scale_idle_s": 2}}, "gateway": {"replicas": 1}}))
    n = pods.Node(tmp_path, BIN, objects)
    keda = Keda(n, objects)

    def until(condition, what):
        pods.wait_for(lambda: keda.turn() or condition(), what)

    try:
        keda.set(0)
        everybody_is_ready(n)
        assert not any("-worker-" in name for name in n.pods)
        pod = n.run(f"{F}-smoke", objects.one("Pod", f"{F}-smoke"))
        del n.pods[f"{F}-smoke"]  # the pod belongs to no Service or set
        until(lambda: pod.process.poll() is not None, "helm test has not ended")
        assert pod.process.returncode == 0, pod.log.read_text()
        until(lambda: keda.numbers[-1] == 0, "the workers stay")
        replies = []
        asks = threading.Thread(target=lambda: replies.append(ask(n, max_tokens=16)))
        asks.start()
        until(lambda: replies, "no answer")
        asks.join()
        assert tokens(replies[0]) and keda.numbers == [0, 2, 0, 2]
    finally:
        n.end()


def is_here(name):
    """Returns whether the model is in this machine's cache; the tests fetch nothing."""
    return REASON is None and subprocess.run([f"{BIN}/cox", "pull", name, "--check"], capture_output=True).returncode == 0


def test_a_job_and_pods_fetch_a_model_once(tmp_path):
    """A Job and pods start at once on one claim and fetch the model once. Later a new Job of an upgrade needs no hub."""
    def objects(**more):
        return c.objects({"model": {"name": "hf:org/tiny"}, "modelHf": {"endpoint": hub.url}, **more})

    with contextlib.ExitStack() as stack:
        n = pods.Node(tmp_path, BIN, c.Objects())
        stack.callback(n.end)
        hub = stack.enter_context(Hub({"org/tiny": tiny_model()}, host="10.99.0.1"))
        hub.faults["*"] = [()] + [("slow", 0.05, 10_000)] * 3  # the hub lists fast and sends files slowly
        n.apply(objects(worker={"replicas": 0}, gateway={"replicas": 0}))
        pulling = [*n.jobs.values()]
        for labels, spec in objects().templates():
            for i, init in enumerate(spec.get("initContainers", []) * 2):
                pulling.append(pods.Pod(n, f"{labels['app.kubernetes.io/component']}-{i}-pull", {"metadata": {"labels": labels}, "spec": spec},
                                        container=init))
                pulling[-1].begin()
        assert len(pulling) == 5
        for p in pulling:
            assert p.process.wait(120) == 0, p.log.read_text()
        logs = [p.log.read_text() for p in pulling]  # a late process may find all files in the cache
        assert sum("waiting for it" in log or "it is there" in log for log in logs) >= 4, logs
        assert len(hub.asked("model.safetensors")) == len(hub.asked("/revision/main")) == 1
        hub.requests.clear()
        n.apply(objects(worker={"replicas": 0}, gateway={"replicas": 0}, image={"tag": "next"}))
        assert len(n.jobs) == 2
        job = list(n.jobs.values())[1]
        assert job.process.wait(120) == 0 and "it is there" in job.log.read_text() and hub.requests == []


@pytest.mark.skipif(not is_here("demo"), reason="no demo model in the cache: cox pull demo fetches it")
@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadOnlyMany"])
def test_a_model_that_computes(tmp_path, mode):
    """The claim already contains the model. The Job and the init containers find the model there, without a network. A worker with a
    pod's rights and read-only root reads the model and answers."""
    objects = c.objects({"cache": {"existingClaim": "models", "accessMode": mode}, "worker": {"replicas": 1, "config": {"threads": 2}},
                         "gateway": {"replicas": 1, "config": {"queue_timeout": 300}}, "service": {"port": 8000}})
    n = pods.Node(tmp_path, BIN, objects)
    shutil.copytree(os.environ.get("COX_CACHE", os.path.expanduser("~/.cache/coxswain")) + "/models/demo-instruct", n.claim("models") / "models/demo-instruct")
    for folder, _, files in os.walk(n.claim("models")):  # a kubelet gives the files to fsGroup, unless the volume is read-only
        for name in [".", *files] if mode == "ReadWriteOnce" else []:
            os.chown(os.path.join(folder, name), 0, n.group)
            os.chmod(os.path.join(folder, name), 0o2775 if name == "." else 0o664)
    try:
        n.apply(objects)
        everybody_is_ready(n)
        for job in n.jobs.values():
            assert job.process.wait(120) == 0 and "it is there" in job.log.read_text(), job.log.read_text()
        assert smoke(n) == ALL_WELL
        body = {"model": "demo", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
        status, text = pods.get(f"http://{n.pods[f'{F}-gateway-x0'].address}:8000/v1/chat/completions", {"Authorization": f"Bearer {key(n)}"}, body, timeout=300)
        assert status == 200 and json.loads(text)["choices"][0]["message"]["content"].strip(), text
    finally:
        n.end()


@pytest.mark.skipif(not shutil.which("redis-server", path=f"{BIN}:/usr/bin"), reason="no redis-server: apt-get install redis-server")
def test_a_head_that_is_followed(tmp_path):
    """With head.standby and the release's own Redis, the second head takes over, and Redis itself may restart."""
    objects = c.objects(c.merged(VALUES, {"head": {"standby": True}, "redis": {"enabled": True}}))
    n = pods.Node(tmp_path, BIN, objects)
    try:
        n.apply(objects)
        everybody_is_ready(n)
        heads = [n.pods[f"{F}-head-{i}"] for i in range(2)]
        assert sorted(role(h) for h in heads) == ["serving", "standby"]
        with Load(n) as load:
            serving = next(h for h in heads if role(h) == "serving")
            other = next(h for h in heads if h is not serving)
            told = other.execute("/cox/cox", "status", "--json")  # `kubectl exec sts/…-head` may reach either head
            assert json.loads(told.stdout)["role"] == "serving" and f"asking the head at {serving.name}.{F}-head:8265, which serves" in told.stderr
            serving.kill()
            pods.wait_for(lambda: role(other) == "serving", "nobody took over", other)
            n.apply(objects)
            everybody_is_ready(n)
            n.pods[f"{F}-redis-x0"].kill()
            n.apply(objects)
            everybody_is_ready(n)
            pods.wait_for(lambda: json.loads(other.execute("/cox/cox", "status", "--json").stdout)["lease"]["store_reached"],
                          "the head does not find the new Redis", other)
        load.check()
    finally:
        n.end()


def role(head):
    return json.loads(head.execute("/cox/cox", "status", "--json", "--no-follow").stdout)["role"]


@pytest.mark.skipif(not is_here("demo"), reason="no demo model in the cache: cox pull demo fetches it")
def test_a_model_of_the_image(tmp_path):
    """With cache.kind none nothing is fetched, and only /tmp and /dev/shm are writable."""
    source = os.environ.get("COX_CACHE", os.path.expanduser("~/.cache/coxswain")) + "/models/demo-instruct"
    os.chmod(tmp_path, 0o755)
    shutil.copytree(source, tmp_path / "models")
    model = next((tmp_path / "models").glob("*.gguf")).name
    mounted = {"extraVolumes": [{"name": "models", "hostPath": {"path": str(tmp_path / "models")}}],
               "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}]}
    objects = c.objects({"cache": {"kind": "none"}, "model": {"name": f"/models/{model}"}, "service": {"port": 8000},
                         "worker": {"replicas": 1, **mounted}, "gateway": {"replicas": 1, **mounted}})
    assert not any(p.get("initContainers") for _, p in objects.pods())
    n = pods.Node(tmp_path, BIN, objects)
    try:
        n.apply(objects)
        everybody_is_ready(n)
        assert smoke(n) == ALL_WELL
    finally:
        n.end()


def test_https(tmp_path):
    """With a certificate for the Service's name, probes use HTTPS and `helm test` trusts that certificate."""
    key, cert = tmp_path / "tls.key", tmp_path / "tls.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                    "-out", cert, "-days", "2", "-subj", "/CN=x", "-addext", f"subjectAltName=DNS:{F}.ns.svc"], check=True, capture_output=True)
    secret = {"kind": "Secret", "metadata": {"name": "tls"},
              "data": {f.name: base64.b64encode(f.read_bytes()).decode() for f in (key, cert)}}
    objects = c.objects(c.merged(VALUES, {"gateway": {"replicas": 1, "tls": {"existingSecret": "tls"}}, "worker": {"replicas": 2}}))
    objects.append(secret)
    n = pods.Node(tmp_path, BIN, objects)
    try:
        n.apply(objects)
        everybody_is_ready(n)
        assert smoke(n) == ALL_WELL
        gateway = n.pods[f"{F}-gateway-x0"]
        assert pods.get(f"http://{gateway.address}:8000/health")[0] in (0, 400)
    finally:
        n.end()
