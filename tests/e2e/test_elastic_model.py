"""Tests a replica of a real model that has fewer ranks for a while (--elastic-tp). Every token of every stream must be the model's
answer to the tokens before it, with all ranks or with fewer. The test checks each token with clusters without load."""
import asyncio
import json
import os
import re
import shutil
import signal
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from cluster import ROOT, SANITIZED, SHORT, SLOW, Cluster, alive, get, wait_for
from completions import body_of, ids, run, stream
from footprint import sizes, tables, worker_bound
from real_model import GOLDENS

OWN_GOLDENS = ROOT / "build/goldens"
LORAS = OWN_GOLDENS / "llama_tiny/loras"
pytestmark = pytest.mark.skipif(not OWN_GOLDENS.exists(), reason=f"no {OWN_GOLDENS}: scripts/make-goldens")
WAIT = 0.5 * SLOW  # value of --elastic-tp-wait in seconds
N_TOKENS = 100 if SHORT else 400


def folder_of(name):
    folder = OWN_GOLDENS / name if (OWN_GOLDENS / name).exists() else GOLDENS / "models" / name
    if not folder.exists():
        pytest.skip(f"no {folder}: scripts/make-goldens")
    return folder


def cluster_of(folder, tp, *args, pp=1):
    gguf = folder / "model.gguf"
    return Cluster("--device", "cpu", "--kv-cache-dtype", "float32", "--dtype", "float32", "--served-model-name", "m", "--pp", pp, *args,
                   workers=tp * pp, tp=tp, model=str(gguf if gguf.exists() else folder))


class Fewer:
    """`Fewer` is a cluster of a model under load from users who each send one stream after the other. `common`: flags for the
    reference clusters too."""

    def __init__(self, folder, tp, *args, pp=1, common=(), models=("m",), n_tokens=N_TOKENS):
        self.whole, self.folder, self.common = tp, folder, common
        self.cluster = cluster_of(folder, tp, "--elastic-tp", "--elastic-tp-wait", WAIT, *args, *common, pp=pp)
        known = json.loads((folder / "expected.json").read_text())["prompts"]
        prompts = [p["ids"] for p in known if len(p["ids"]) <= 200][:3]
        self.bodies = [{**body_of(p, max_tokens=n_tokens, **how), "model": m} for m in models for p in prompts
                       for how in ({}, {"temperature": 1, "seed": 7, "top_p": 0.95})]
        self.said, self.wrong, self.stopping = [], [], threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.load()))

    async def user(self, client, body):
        while not self.stopping.is_set() and not self.wrong:
            try:
                self.said.append((body, ids(await stream(client, body))))
            except (AssertionError, httpx.HTTPError) as e:
                self.wrong.append(repr(e))

    async def load(self):
        async with httpx.AsyncClient(base_url=self.cluster.url, timeout=90 * SLOW) as client:
            await asyncio.gather(*(self.user(client, b) for b in self.bodies))

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def begin(self):
        self.thread.start()
        self.goes_on()

    def end(self):
        self.stopping.set()
        self.thread.join(120 * SLOW)
        assert not self.wrong, self.wrong

    def __exit__(self, *args):
        self.stopping.set()
        self.resume()
        self.cluster.__exit__(*args)
        if self.thread.is_alive():
            self.thread.join(90 * SLOW)

    def goes_on(self, n=None):
        """Waits for n more finished answers. Some of these answers may have begun before."""
        done = len(self.said) + (n or len(self.bodies))
        wait_for("streams go on", lambda: self.wrong or len(self.said) >= done, 60)
        assert not self.wrong, self.wrong

    def tp(self):
        """Returns the TP of the only serving replica, or 0."""
        code, body = get(self.cluster.admin + "/api/status")
        ready = [g for g in json.loads(body)["groups"] if g["state"] == "ready"] if code == 200 else []
        return ready[0]["tp"] if len(ready) == 1 else 0

    def wait_tp(self, tp):
        wait_for(f"a group of TP {tp}", lambda: self.wrong or self.tp() == tp, 40)
        assert not self.wrong, self.wrong

    def names_of(self, positions):
        """Returns the workers at these positions. Every formation assigns ranks anew, but a worker's ordinal stays."""
        found = {w["rank"] + w["stage"] * self.whole: w["ordinal"] for w in self.cluster.status()["workers"]
                 if w["group"] is not None}
        return [f"worker-{found[p]}" for p in positions]

    def resume(self):
        """Continues `cox up`, which then restarts workers again."""
        if self.cluster.process.poll() is None:
            self.cluster.process.send_signal(signal.SIGCONT)

    @contextmanager
    def without(self, positions):
        """Kills workers. They are not restarted until `resume`."""
        begun = time.monotonic()

        def running():  # more than half must run, or after 5 s one: because few streams run at once on a busy machine
            n = self.cluster.status()["requests"]["running"]
            return n > len(self.bodies) // 2 or (n > 0 and time.monotonic() > begun + 5)

        wait_for("streams are running", running)
        victims = {n: self.cluster.pid(n) for n in self.names_of(positions)}
        self.cluster.process.send_signal(signal.SIGSTOP)
        for pid in victims.values():
            os.kill(pid, signal.SIGKILL)
        wait_for("they are gone", lambda: not any(map(alive, victims.values())))
        try:
            yield
        finally:
            self.resume()

    def explain(self, *tps):
        """Checks each answer from its first token on: a part with all ranks, then a part with fewer, and so on."""
        assert self.said
        with ExitStack() as stack:
            quiet = {tp: stack.enter_context(cluster_of(self.folder, tp, *self.common)) for tp in set(tps)}
            known, n_mixed = {}, 0
            for body, got in self.said:
                assert len(got) == body["max_tokens"]
                at = 0
                for tp in tps:
                    rest = {**body, "prompt": body["prompt"] + got[:at], "max_tokens": len(got) - at}
                    key = (tp, json.dumps(rest))
                    if rest["max_tokens"] > 0 and key not in known:
                        known[key] = ids(run(quiet[tp], [rest])[0])
                    n_same = next((i for i, t in enumerate(known.get(key, [])) if t != got[at + i]), rest["max_tokens"])
                    n_mixed += 0 < at + n_same < len(got)
                    at += n_same
                assert at == len(got), (body, got, at)
            print(f"{len(self.said)} streams, {n_mixed} times one went another way with other ranks")


CASES = {"rank1": ("llama_tiny", 2, 1, (1,), 1, ()),
         "rank0": ("llama_tiny", 2, 1, (0,), 1, ()),
         "two_of_four": ("llama_tiny", 4, 1, (1, 2), 2, ()),  # two ranks for each KV head become one rank
         "three_of_four": ("llama_tiny", 4, 1, (0, 1, 3), 1, ()),
         "window": ("gemma3_tiny_gguf_q4_0", 2, 1, (1,), 1, ()),
         "stages": ("llama_tiny", 2, 2, (2,), 1, ()),
         "experts": ("mixtral_5experts", 2, 1, (0,), 1, ("--enable-expert-parallel",)),
         "mixture": ("qwen2_moe", 2, 1, (1,), 1, ()),
         "latent": ("deepseek_v3", 2, 1, (1,), 1, ("--max-model-len", 1024)),
         "drafts": ("llama_tiny", 2, 1, (0,), 1, ("--num-speculative-tokens", 3)),
         "draft": ("llama_tiny", 2, 1, (0,), 1, ("--spec-model", OWN_GOLDENS / "llama_tiny_gguf_q8_0/model.gguf",
                                                 "--num-speculative-tokens", 3))}


@pytest.mark.parametrize("case", CASES)
def test_with_fewer_and_with_all_again(case):
    name, tp, pp, victims, fewer, args = CASES[case]
    def n_changed():
        return len(re.findall(f"shard_changed .*rank=./{fewer} ", c.cluster.log()))

    with Fewer(folder_of(name), tp, *args, pp=pp) as c:
        c.wait_tp(tp)  # on a busy machine the last worker may be so late that the other workers begin without it
        before = n_changed()
        c.begin()
        with c.without(victims):
            c.wait_tp(fewer)
            c.goes_on()
        c.wait_tp(tp)
        c.goes_on()
        c.end()
        status = c.cluster.status()
        assert status["requests"]["failed"] == 0 and status["groups"][0]["whole_tp"] == tp
        assert n_changed() - before == fewer * pp
        c.explain(tp, fewer, tp)


def test_adapters(tmp_path):
    """Adapters are read again with each shard. An adapter that is loaded with fewer ranks is still loaded with all ranks."""
    folder = folder_of("llama_tiny")
    common = ("--enable-lora", "--max-loras", 2, "--lora-root", LORAS, "--lora-modules", "every=every", "some=some")
    with Fewer(folder, 2, common=common, models=("m", "every", "some")) as c:
        wait_for("adapters are there", lambda: len(httpx.get(c.cluster.url + "/v1/models").json()["data"]) == 3)
        c.begin()
        with c.without((1,)):
            c.wait_tp(1)
            c.goes_on()
        c.wait_tp(2)
        c.goes_on()
        c.end()
        assert c.cluster.status()["requests"]["failed"] == 0 and "adapter_lost" not in c.cluster.log()
        c.explain(2, 1, 2)


def test_a_head_that_is_killed_adopts_what_is_shrunk():
    with Fewer(folder_of("llama_tiny"), 2) as c:
        c.begin()
        with c.without((0,)):
            c.wait_tp(1)
            c.goes_on()
            os.kill(c.cluster.pid("head"), signal.SIGKILL)  # the head is restarted together with the worker
        c.wait_tp(2)
        c.goes_on()
        c.end()
        assert "adopted=yes tp=1 whole_tp=2" in c.cluster.log()
        c.explain(2, 1, 2)


# ---- a large model: slow to load, and with bounded memory ----

LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "head_dim": 128}


@pytest.fixture()
def large(tmp_path):
    """Makes a model with 120 MB of random weights for each of two ranks."""
    tiny = folder_of("llama_tiny")
    for name in os.listdir(tiny):
        if (tiny / name).is_file() and "safetensors" not in name:
            shutil.copy(tiny / name, tmp_path / name)
    config = json.loads((tiny / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **LARGE}))
    return tmp_path


DUMMY = ("--load-format", "dummy", "--max-model-len", 512)
large_only = pytest.mark.skipif(SANITIZED, reason="sanitizers change sizes, and this one's times")


@large_only
def test_it_never_takes_more_than_it_was_started_with(large):
    """A worker never uses more memory than at its start, because the old shard is freed before the new shard is loaded."""
    with Fewer(large, 2, *DUMMY, "--kv-cache-memory-bytes", 150 << 20, n_tokens=24) as c:
        c.begin()
        victim = c.names_of((1,))[0]
        for _ in range(2):
            with c.without([n for n in (0, 1) if c.names_of((n,)) == [victim]]):
                c.wait_tp(1)
                c.goes_on()
            c.wait_tp(2)
            c.goes_on()
        c.end()
        table = tables(c.cluster)
        size = sizes(c.cluster)["worker-0" if victim == "worker-1" else "worker-1"]
        bound = worker_bound(table["worker-0"])
        assert size.peak <= bound, f"{size.peak >> 10} KiB, {bound >> 10} may be"
        assert size.peak > 2 * table["worker-0"]["weights"], "it had all weights"


@large_only
def test_killed_while_it_reads(large):
    """The remaining worker is killed as soon as it has to read all weights, and both workers come back. Their log lines are not
    visible while `cox up` is stopped."""
    with Fewer(large, 2, *DUMMY, "--kv-cache-memory-bytes", 150 << 20, common=DUMMY, n_tokens=24) as c:
        c.begin()
        left = {c.cluster.pid(n) for n in c.names_of((0,))}
        with c.without((1,)):
            # the test must read the status in time, because all weights are loaded 20 ms later
            wait_for("it is asked", lambda: c.cluster.status()["groups"][0]["tp"] == 1, 40)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        c.wait_tp(2)
        print("it was", "through" if "shard_changed" in c.cluster.log() else "reading")
        c.goes_on()
        c.end()
        assert c.cluster.status()["requests"]["failed"] == 0
        c.explain(2, 1, 2)


@large_only
def test_what_does_not_fit_is_not_offered(large):
    """The KV cache is smaller than the additional memory for all weights, so the replica waits for its ranks."""
    with Fewer(large, 2, *DUMMY, "--kv-cache-memory-bytes", 100 << 20, n_tokens=24) as c:
        wait_for("they say so", lambda: re.search("elastic_tp_not_offered tp=1 reason=.*needs [0-9.]+ MiB", c.cluster.log()))
        c.begin()
        with c.without((1,)):
            wait_for("it is missed", lambda: "worker_lost" in get(c.cluster.admin + "/api/events?since=0")[1])
            with pytest.raises(AssertionError):
                wait_for("a group of fewer", lambda: c.tp() == 1, 6 * WAIT)
        c.wait_tp(2)
        c.goes_on()
        c.end()
        assert c.cluster.status()["requests"]["failed"] == 0
