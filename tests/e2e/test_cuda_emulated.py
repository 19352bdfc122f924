"""Tests a worker on a GPU in a whole cluster: the CUDA backend runs on the emulation of tests/cuda/emulate, with a tiny model. The
emulation cannot show races between blocks, or speed."""
import itertools
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import httpx
import pytest
from cluster import BIN, ROOT, SANITIZED, Cluster, get, run_cox, wait_for
from completions import body_of, complete, ids, run

EMULATED = BIN.parent / "tests/cox-worker-emulated"
MODEL = ROOT / "build/goldens/llama_tiny"
LORAS = MODEL / "loras"
N_TOKENS, N_SAMPLED = 16, 8
CLOSE = 0.1  # bfloat16 may swap two logits whose difference is smaller than this
pytestmark = [pytest.mark.skipif(not MODEL.exists(), reason=f"no tiny checkpoints in {MODEL.parent}: scripts/make-goldens"),
              pytest.mark.skipif(SANITIZED, reason="the emulation is too slow there; its kernels are tested by themselves")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """`cox up` looks for the worker in its own folder; this folder has the emulated worker."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("cox", "cox-head", "cox-gateway"):
        shutil.copy(BIN / name, folder / name)
    shutil.copy(EMULATED, folder / "cox-worker")
    return folder


def cluster_of(programs, tp, pp, *args, env=(), groups=1):
    """Starts a cluster with stand-ins for the GPU's library and for NCCL."""
    c = Cluster("--device", "cuda", "--served-model-name", "m", "--max-model-len", 512, "--num-gpu-blocks-override", 96,
                "--pp", pp, "--nccl-library", BIN.parent / "tests/libfakenccl_emulated.so", *args, workers=tp * pp * groups, tp=tp,
                model=str(MODEL), env={"LD_LIBRARY_PATH": str(BIN.parent / "tests/nvml"), **dict(env)})
    c.command[0] = str(programs / "cox")
    return c


@pytest.fixture(scope="module")
def cluster(programs):
    with cluster_of(programs, 1, 1, "--num-speculative-tokens", 3) as c:
        yield c


def check_said(got, p):
    """Checks the ids against the reference, up to the first two close logits."""
    got = ids(got)
    assert len(got) == N_TOKENS
    at = next((i for i in range(N_TOKENS) if got[i] != p["greedy"][i]), None)
    if at is not None:
        _, best, _, second = p["greedy_top2"][at]
        assert best - second < CLOSE, (p["name"], at, got, p["greedy"])


def known_prompts(folder):
    return [p for p in json.loads((folder / "expected.json").read_text())["prompts"] if p["n"] <= 65]


def check_greedy(cluster):
    known = known_prompts(MODEL)
    assert len(known) >= 3
    for p, got in zip(known, run(cluster, [body_of(p["ids"], max_tokens=N_TOKENS) for p in known])):
        check_said(got, p)


def test_rows_with_a_grammar(cluster):
    """The host samples a step with a grammar, with draft tokens or without. Rows beside it equal the reference."""
    known = known_prompts(MODEL)
    constrained = [body_of(known[0]["ids"], max_tokens=40, ignore_eos=False, guided_regex="(ab|c){3}", **more)
                   for more in ({}, {"temperature": 1, "seed": 1}, {"temperature": 1, "seed": 2})]
    got = run(cluster, constrained + [body_of(p["ids"], max_tokens=N_TOKENS) for p in known])
    for g in got[:3]:
        assert re.fullmatch("(ab|c){3}", g.texts[0]), g.texts
    for p, g in zip(known, got[3:]):
        check_said(g, p)


def test_greedy_as_the_reference(cluster):
    check_greedy(cluster)


@pytest.mark.parametrize("tp,pp,collectives,args", [(2, 1, 580.1, ()), (2, 2, 1188.1, ("--num-speculative-tokens", 3))])
def test_ranks(programs, tp, pp, collectives, args):
    """Sums, columns of logits, hidden states and ids are sent from device to device, and draft tokens through the host. Each rank
    reports the memory that it reserved for the collectives."""
    with cluster_of(programs, tp, pp, *args) as c:
        check_greedy(c)
        log = c.log()
    tables = [line.split("|")[1].split() for line in log.splitlines() if "| collectives " in line]
    assert tables == [["collectives", str(collectives), "MiB"]] * (tp * pp)
    assert sum("one_shot_sums max_bytes=524288" in line for line in log.splitlines()) == tp * pp


@pytest.mark.parametrize("tp", [1, 2])
def test_sleep(programs, tp):
    """At level 1 the weights leave the GPU and return to another address. At level 2 they are read again."""
    bodies = [body_of(list(range(9, 30)), max_tokens=12, temperature=t, seed=3) for t in (0, 0.8)]
    with cluster_of(programs, tp, 1, "--num-speculative-tokens", 3) as c:
        before = [ids(got) for got in run(c, bodies)]
        for level in (1, 2, 1):
            assert httpx.post(f"{c.admin}/sleep?level={level}", timeout=60).json()["is_sleeping"]
            assert [ids(got) for got in run(c, bodies)] == before
        assert c.log().count(" woke level=1 ") == 2 * tp and not c.status()["recent_failures"]


def test_ranks_without_memory_of_each_other(programs):
    """NCCL's stand-in computes all sums in the same order, so the ids are the same."""
    with cluster_of(programs, 2, 1, "--no-one-shot") as c:
        check_greedy(c)
        # Each rank logs this line once. The assertion is inside the loop, so that the log is shown if the replica was formed twice (seen once, at a
        # load of 10).
        assert sum("one_shot_sums max_bytes=0 reason=" in line for line in c.log().splitlines()) == 2


def tell_kill(c, n_said, capsys):
    """Prints times for scripts/acceptance, which judges them. The survivor's line is its last line before it can join a replica."""
    aborted, formed = (after_kill(c, event) for event in ("collective_aborted", "formed"))
    with capsys.disabled():
        print(f"\na rank killed at id {n_said}: {aborted[0]:.0f} ms from the kill to the survivor's being ready ({aborted[1]}); "
              f"the next group was formed after {formed[0]:.0f} ms")


def after_kill(c, event):
    """Returns (milliseconds after the kill, text) of the first such line of worker-0."""
    for when, text in re.findall(rf"(\S+)Z \S+ +worker-0 ({event} \S+)", c.log()):
        ms = 1000 * (datetime.fromisoformat(when + "+00:00").timestamp() - c.killed_at)
        if ms >= -1:  # the log's times are cut to milliseconds
            return ms, text
    raise AssertionError(f"worker-0 has not said {event} since the kill")


def check_drawn(c, prompt, got, undisturbed, n_said):
    """A GPU's numbers of a row may depend on the batch (docs/explain/exactness.md), so a drawn id near the edge of its share may be another
    one after the prompt was computed anew. Then a new request for the same ids until there draws it too."""
    at = next((i for i in range(len(undisturbed)) if got[i] != undisturbed[i]), None)
    if at is not None:
        again = [body_of(prompt + got[:k], max_tokens=at + 1 - k, temperature=0.8, seed=3) for k in range(n_said, at + 1)]
        assert got[at] in [ids(answer)[-1] for answer in run(c, again)], (n_said, at, got, undisturbed)


def test_a_lost_rank_leaves_the_others_their_weights(programs, capsys):
    """Streams get the same tokens as without a kill, whenever the kill happens, because no id comes from an incomplete sum. The
    survivor joins the next epoch with the weights in its memory."""
    prompt = list(range(9, 30))
    with cluster_of(programs, 2, 1) as c:
        bodies = [body_of(prompt, max_tokens=40, temperature=t, seed=3) for t in (0, 0.8)]
        undisturbed, survivor = [ids(got) for got in run(c, bodies)], c.pid("worker-0")
        for n_said in (5, 9, 15):
            results = kill_under_streams(c, "worker-1", bodies, n_said)
            assert ids(results[0]) == undisturbed[0], n_said
            check_drawn(c, prompt, ids(results[1]), undisturbed[1], n_said)
            assert c.pid("worker-0") == survivor
            wait_for("the group is whole again", lambda: c.status()["healthy"])
            tell_kill(c, n_said, capsys)
        log = c.log()
        assert "worker-0 collective_aborted ms=" in log and "collective_abort_failed" not in log
        assert sum("worker-0 model_loading" in line for line in log.splitlines()) == 1
    assert all(len(said) == 40 for said in undisturbed)


def test_an_abort_that_hangs_ends_the_process(programs):
    """An abort may hang, as NCCL's can. The survivor then reports it, ends and is restarted, and the streams keep their tokens."""
    bodies = [body_of(list(range(9, 30)), max_tokens=24, temperature=0)]
    with cluster_of(programs, 2, 1, env={"FAKENCCL_LOSS": "hang"}) as c:
        survivor, results = c.pid("worker-0"), kill_under_streams(c, "worker-1", bodies)
        log = c.log()
        assert c.pid("worker-0") != survivor
        assert "worker-0 collective_abort_failed" in log and "worker-0 worker_must_end" in log
        assert "worker-0 collective_aborted" not in log
    assert all(len(ids(got)) == 24 for got in results)


def test_a_lost_device_ends_its_worker_and_no_stream(programs):
    """Each run of the worker has a limited number of launches. The next run continues where the previous run ended."""
    with cluster_of(programs, 1, 1, env={"COX_EMULATE_FAIL_LAUNCH": "450"}) as c:
        got = run(c, [body_of(list(range(9, 30)), max_tokens=24)])[0]
        log = c.log()
    assert len(ids(got)) == 24
    assert "worker-0 device_lost error=" in log and "process_ended name=worker-0" in log and "status=1" in log


@pytest.mark.parametrize("n", (1, 40))
def test_a_refused_recording_is_enqueued_as_it_is(programs, n):
    """The device refuses the first call of the first recording, or one operator of that recording. This is logged once and ends no
    worker."""
    with cluster_of(programs, 1, 1, env={"COX_EMULATE_REFUSE_CAPTURE": str(n)}) as c:
        check_greedy(c)
        log = c.log()
    assert sum("graphs_refused" in line for line in log.splitlines()) == 1
    assert "device_lost" not in log and "process_ended" not in log


@pytest.mark.parametrize("extra,refused", [("COX_EMULATE_REFUSE_CAPTURE=40 exec", 1), ("COX_EMULATE_REFUSE_CAPTURE=1 exec", 1),
                                           ("set -- \"$@\" --enforce-eager; exec", 0)])
def test_ranks_record_all_or_none(programs, tmp_path, extra, refused):
    """One rank's device refuses a recording, or the rank was started with other flags. NCCL requires a collective to be in a graph
    on all ranks or on none, and the stand-in checks this. A refusal costs one epoch, and the replica runs without recordings from
    then on."""
    for name in ("cox", "cox-head", "cox-gateway"):
        shutil.copy(programs / name, tmp_path / name)
    worker = tmp_path / "cox-worker"
    worker.write_text(f'#!/bin/sh\ncase " $* " in *" --ordinal 1 "*) {extra} "{programs}/cox-worker" "$@" ;; esac\n'
                      f'exec "{programs}/cox-worker" "$@"\n')
    worker.chmod(0o755)
    with cluster_of(tmp_path, 2, 1, "--no-one-shot") as c:  # without one-shot sums, NCCL computes all sums
        pids = c.pids()
        check_greedy(c)
        lines = c.log().splitlines()
        assert c.pids() == pids
    assert sum("worker-1 graphs_refused" in line for line in lines) == refused
    assert sum("worker-0 graphs_off" in line for line in lines) == 1
    assert sum("worker-0 graphs_refused" in line for line in lines) == 0
    assert sum("worker-0 step_failed" in line or "worker-1 step_failed" in line for line in lines) <= 2 * refused
    assert sum("group_ready" in line for line in lines) == 1 + refused, lines
    assert not any("of a graph on some ranks" in line for line in lines), lines


def test_enforce_eager_and_half(programs):
    """--dtype half is replaced by bfloat16, with one warning."""
    with cluster_of(programs, 1, 1, "--enforce-eager", "--dtype", "half") as c:
        check_greedy(c)
        log = c.log()
    assert sum("dtype_not_used wanted=half used=bfloat16" in line for line in log.splitlines()) == 1
    assert "graphs_captured" not in log and "graphs_refused" not in log


def drain_in_a_stream(programs, tp, known):
    with cluster_of(programs, tp, 1, groups=2) as c:
        wait_for("two groups", lambda: [g["state"] for g in c.status()["groups"]].count("ready") == 2, 60)
        drained = []

        def on_event(got):
            if not drained and got.n_chunks > 2:
                group = next((g for g in c.status()["groups"] if g["running"]), None)
                if group is None:
                    return  # the stream has ended, and its last events come now
                drained.append(group["id"])
                worker = next(w["instance"] for w in c.status()["workers"] if w["group"] == group["id"])
                assert run_cox("drain", worker, "--address", f"127.0.0.1:{c.admin_port}").returncode == 0

        got, = run(c, [body_of(known["ids"], max_tokens=N_TOKENS)], on_event)
        check_said(got, known)
        moved = c.status()["transfers"]
        n_run = [float(re.search(r"^coxswain_worker_tokens_run_total (\S+)$", get(
            f"http://127.0.0.1:{c.worker_http_port + i}/metrics")[1], re.M)[1]) for i in range(2 * tp)]
        return moved, n_run


@pytest.mark.parametrize("tp", [1, 2])
def test_kv_blocks_go_from_gpu_to_gpu(programs, tp):
    """A replica is drained in the middle of a stream. The other replica gets the prompt's blocks and computes no prompt."""
    known = next(p for p in json.loads((MODEL / "expected.json").read_text())["prompts"] if p["n"] == 200)
    for _ in range(3):  # on a busy machine the stream may end before the drain
        moved, n_run = drain_in_a_stream(programs, tp, known)
        print(moved, n_run)
        if moved["requests_moved"]:
            break
    assert moved["done"] == 1 and moved["failed"] == 0 and moved["requests_recomputed"] == 0, moved
    assert max(n_run) >= 200 and min(n_run) < 100, n_run


@pytest.mark.skipif(not LORAS.exists(), reason=f"no {LORAS}: scripts/make-goldens")
def test_adapters_come_and_go(programs, tmp_path):
    """Recorded passes serve any mix of adapters, and an adapter that replaced another."""
    (tmp_path / "key").write_text("of-the-tests\n")
    with cluster_of(programs, 1, 1, "--enable-lora", "--max-loras", 2, "--lora-root", LORAS, "--admin-key-file", tmp_path / "key") as c:
        def call(what, **body):
            assert httpx.post(f"{c.url}/v1/{what}_lora_adapter", json=body, headers={"Authorization": "Bearer of-the-tests"},
                              timeout=60).status_code == 200

        def check(**folders):
            known = [(n, p) for n, folder in {"m": MODEL, **folders}.items() for p in known_prompts(folder)[:2]]
            bodies = [{**body_of(p["ids"], max_tokens=N_TOKENS), "model": n} for n, p in known]
            for (_, p), got in zip(known, run(c, bodies)):
                check_said(got, p)

        every, some = LORAS / "every", LORAS / "some"
        call("load", lora_name="a", lora_path="every")
        check(a=every)
        call("load", lora_name="b", lora_path="some")
        check(a=every, b=some)
        call("unload", lora_name="a")
        call("load", lora_name="c", lora_path="some")
        check(b=some, c=some)
        call("unload", lora_name="b")
        call("load", lora_name="c", lora_path="every", load_inplace=True)
        check(c=every)
        log = c.log()
    assert "graphs_captured" in log and "graphs_refused" not in log and "process_ended" not in log


def test_what_is_drawn(cluster):
    """The device samples with every kind of parameter. A seed gives the same tokens again beside other requests."""
    prompt = list(range(5, 40))
    bodies = [body_of(prompt, max_tokens=N_SAMPLED, temperature=0.9, seed=i, logprobs=2, **more) for i, more in enumerate([
        {}, {"top_p": 0.8, "top_k": 20}, {"repetition_penalty": 1.2, "presence_penalty": 0.5}, {"min_p": 0.1},
        {"logit_bias": {"7": 30}}, {"allowed_token_ids": [11, 12, 13]}])]
    first, again = run(cluster, bodies), run(cluster, bodies)
    for body, a, b in zip(bodies, first, again):
        assert ids(a) == ids(b) and len(ids(a)) == N_SAMPLED, body
    assert set(ids(first[5])) <= {11, 12, 13}
    assert ids(first[4]).count(7) > N_SAMPLED // 2
    assert len({tuple(ids(g)) for g in first}) == len(first)
    answer = complete(cluster, **body_of(prompt, max_tokens=3, logprobs=2, temperature=0))
    logprobs = answer["choices"][0]["logprobs"]
    assert all(-20 < p <= 0 for p in logprobs["token_logprobs"]) and all(logprobs["top_logprobs"])


def test_what_is_scored(cluster):
    """A generated text is used as a prompt, alone and beside requests that sample. Each token's log-probability equals the value
    from its generation."""
    prompt = list(range(5, 40))
    made = complete(cluster, **body_of(prompt, max_tokens=20, temperature=0.9, seed=1, logprobs=3,
                                       return_tokens_as_token_ids=True))["choices"][0]
    score = body_of(prompt + made["token_ids"], max_tokens=0, echo=True, logprobs=3, return_tokens_as_token_ids=True)
    for n_beside in (0, 4):
        bodies = [score] + [body_of(prompt, max_tokens=30)] * n_beside
        with ThreadPoolExecutor(len(bodies)) as pool:
            rows = list(pool.map(lambda b: complete(cluster, **b), bodies))[0]["choices"][0]["logprobs"]
        assert rows["token_logprobs"][0] is None and rows["tokens"][len(prompt):] == made["logprobs"]["tokens"]
        for a, b in zip(rows["token_logprobs"][len(prompt):], made["logprobs"]["token_logprobs"], strict=True):
            assert abs(a - b) < 0.05, (a, b)
        assert all(len(top) in (3, 4) for top in rows["top_logprobs"][1:])


def kill_under_streams(c, name, bodies, n_said=8):
    """Kills a worker when a stream has n_said ids. The ids until then must stay."""
    killed, said = [], {}

    def on_event(got):
        if not killed:
            said[id(got)] = list(got.ids.get(0, []))
            if len(said[id(got)]) >= n_said:
                killed.append(c.pid(name))
                c.killed_at = time.time()
                os.kill(killed[0], signal.SIGKILL)

    results = run(c, bodies, on_event)
    assert killed
    wait_for("it is started anew", lambda: c.pids().get(name, killed[0]) != killed[0])
    for got in results:
        before = said.get(id(got), [])
        assert ids(got)[:len(before)] == before
    return results


@pytest.mark.parametrize("tp,pp,args", [(2, 1, ()), (2, 2, ()), (2, 1, ("--num-speculative-tokens", 3, "--enforce-eager"))])
def test_fewer_ranks_and_all_again(programs, tp, pp, args):
    """With --elastic-tp, the remaining workers serve on their devices as a single rank, or as a replica with stages only. The tokens
    equal the reference before, during and after that."""
    with cluster_of(programs, tp, pp, "--elastic-tp", "--elastic-tp-wait", 0.5, *args) as c:
        known = known_prompts(MODEL)
        check_greedy(c)
        pids = c.pids()
        victim = f"worker-{tp * pp - 1}"

        def group():
            return next(((g["tp"], g["pp"]) for g in c.status()["groups"] if g["state"] == "ready"), None)

        def strike(got):
            if c.pid(victim) in killed or len(got.ids.get(0, [])) < 5:
                return
            c.process.send_signal(signal.SIGSTOP)  # `cox up` is stopped so that it does not restart the victim
            killed.append(c.pid(victim))
            os.kill(killed[0], signal.SIGKILL)

        killed = []
        try:
            for p, got in zip(known, run(c, [body_of(p["ids"], max_tokens=N_TOKENS) for p in known], strike)):
                check_said(got, p)
            assert killed
            wait_for("a group of fewer", lambda: group() == (1, pp))
            check_greedy(c)
        finally:
            c.process.send_signal(signal.SIGCONT)
        wait_for("all ranks are there again", lambda: group() == (tp, pp), 60)
        check_greedy(c)
        log = c.log()
        assert c.status()["requests"]["failed"] == 0
        assert [n for n, pid in c.pids().items() if pid != pids[n]] == [victim]
    assert len(re.findall(r"shard_changed rank=0/1 stage=./%d " % pp, log)) == pp
    assert "worker_must_end" not in log and "device_lost" not in log


def test_a_killed_worker_changes_nothing_that_was_said(cluster):
    bodies = [body_of(list(range(9, 30)), max_tokens=24, temperature=t, seed=3) for t in (0, 0.8)]
    assert all(len(ids(got)) == 24 for got in kill_under_streams(cluster, "worker-0", bodies))
    wait_for("the group is whole again", lambda: cluster.status()["healthy"])


def test_what_the_gpu_says_of_itself(cluster):
    def gpu():
        workers = cluster.status()["workers"]
        return workers[0]["gpu"] if workers else None

    said = wait_for("the GPU's own numbers", gpu)
    assert said["memory_total_bytes"] == 140 << 30 and said["temperature_celsius"] == 61
    shown = run_cox("status", "--address", cluster.admin.removeprefix("http://")).stdout
    assert "GiB  87 %   61 C    512 W" in shown, shown
    worker = cluster.status()["workers"][0]
    metrics = httpx.get(f"http://{worker['http_address']}/metrics").text
    assert "coxswain_worker_gpu_power_watts 512.3" in metrics, metrics


def test_cox_up_says_that_there_is_no_room(cluster):
    r = subprocess.run([cluster.command[0].removesuffix("/cox") + "/cox-worker", "--model", MODEL, "--device", "cuda",
                        "--insecure", "--gpu-memory-utilization", "0.01", "--http-port", "0"],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "--gpu-memory-utilization" in r.stderr, r.stderr


def start_alone(cluster, *args, **env):
    """Starts a worker that must refuse. Returns its exit status and its messages."""
    r = subprocess.run([cluster.command[0].removesuffix("/cox") + "/cox-worker", "--model", MODEL, "--insecure",
                        "--head", "127.0.0.1:1", "--http-port", "0", *args], capture_output=True, text=True, timeout=60,
                       env={**os.environ, **env})
    return r.returncode, r.stderr


def test_what_a_device_lacks_is_said_at_the_start(cluster):
    """A missing library function is reported at the start, not at the first long prompt. A missing library ends the worker with 2."""
    code, said = start_alone(cluster, "--device", "cuda", COX_EMULATE_NO_BLAS="1")
    assert code == 1 and "cublasLtCreate" in said, said


def test_what_has_no_kernels_is_refused_by_name(cluster):
    for dtype in ("float", "float32"):
        code, said = start_alone(cluster, "--device", "cuda", "--dtype", dtype)
        assert code == 2 and f"--dtype {dtype}" in said and "--device cpu" in said, said


def write_act_order_mixture(folder):
    """Writes a mixture of experts as GPTQ does with desc_act: the experts' inputs are not in the order of groups. All weights are 0."""
    hidden, inner, vocabulary = 64, 128, 64
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": hidden, "intermediate_size": inner,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": vocabulary,
              "num_local_experts": 2, "num_experts_per_tok": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "max_position_embeddings": 128, "tie_word_embeddings": False,
              "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True}}
    tensors = {}

    def plain(name, *shape):
        tensors[name] = ("F16", shape, bytes(2 * math.prod(shape)))

    def gptq(name, n, k):
        groups = [i * 5 % k // 32 for i in range(k)]
        tensors[name + ".qweight"] = ("I32", (k // 8, n), bytes(k // 2 * n))
        tensors[name + ".qzeros"] = ("I32", (k // 32, n // 8), bytes(k // 32 * n // 2))
        tensors[name + ".scales"] = ("F16", (k // 32, n), bytes(k // 32 * n * 2))
        tensors[name + ".g_idx"] = ("I32", (k,), struct.pack(f"<{k}i", *groups))

    layer = "model.layers.0."
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        plain(name, vocabulary, hidden)
    for name in ("model.norm.weight", layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight"):
        plain(name, hidden)
    for name in "qkvo":
        gptq(f"{layer}self_attn.{name}_proj", hidden, hidden)
    plain(layer + "block_sparse_moe.gate.weight", 2, hidden)
    for e in range(2):
        for name, n, k in (("w1", inner, hidden), ("w2", hidden, inner), ("w3", inner, hidden)):
            gptq(f"{layer}block_sparse_moe.experts.{e}.{name}", n, k)
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def test_experts_in_act_order(cluster, tmp_path):
    """A GPU refuses experts in act-order before a weight is read. The error names the tensor and an alternative; a CPU accepts such
    experts. Attention's matrices are in act-order too, which a GPU supports, so the error must name an expert's tensor."""
    write_act_order_mixture(tmp_path)
    code, said = start_alone(cluster, "--device", "cuda", "--model", tmp_path)
    assert code == 2 and "block_sparse_moe.experts.0.w" in said and "desc_act" in said and "--device cpu" in said, said
    cpu = subprocess.Popen([cluster.command[0].removesuffix("/cox") + "/cox-worker", "--model", tmp_path, "--insecure", "--head",
                            "127.0.0.1:1", "--http-port", "0", "--device", "cpu"], stderr=subprocess.PIPE, text=True)
    try:
        lines = list(itertools.takewhile(lambda line: "worker_started" not in line and line, iter(cpu.stderr.readline, None)))
        assert cpu.poll() is None, lines
    finally:
        cpu.terminate()
        cpu.communicate()


def test_what_does_not_fit_adds_up(cluster):
    """Each part besides the model is listed, and the sum of the parts exceeds the free memory."""
    code, said = start_alone(cluster, "--device", "cuda", COX_EMULATE_TAKEN_MB="1500")
    taken, free = said.split("the weights need", 1)[1].split(", but only ")
    parts = [float(n) for n in re.findall(r"([0-9.]+) MiB", taken)]
    assert code == 2 and sum(parts) > float(free.split()[0]) > sum(parts) - 512, said


def test_a_gpu_that_was_asked_for_is_not_replaced(cluster):
    code, said = start_alone(cluster, "--device", "auto", "--gpu", "3")
    assert code == 2 and "--gpu 3" in said, said


def test_a_plan_without_a_device_is_what_a_worker_takes(cluster):
    """`plan` uses the worker's own code, and computes from sizes alone."""
    worker = cluster.command[0].removesuffix("/cox") + "/cox-worker"
    r = subprocess.run([worker, "plan", MODEL, "--device", "cuda", "--memory-bytes", str(2 << 30), "--max-model-len", "512",
                        "--num-gpu-blocks-override", "96", "--json"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    plan = json.loads(r.stdout)
    table = dict(line.split("|", 1)[1].split("MiB")[0].rsplit(None, 1) for line in cluster.log().splitlines()
                 if line.startswith("worker-0 ") and "MiB" in line)
    table = {name.strip(): float(n) for name, n in table.items()}
    rank = plan["ranks"][0]
    assert plan["kv_cache_dtype"].lower() == "bf16"
    for name, field in (("weights", "weights_bytes"), ("KV cache", "kv_bytes"), ("activations", "activation_bytes")):
        assert abs(table[name] - rank[field] / 2**20) < 0.1, (name, table, rank)


def test_a_plan_is_of_what_others_leave(cluster):
    """A plan for a present device counts the memory that others use. Between ranks it includes NCCL's memory, one-shot sums and
    their signals."""
    worker = cluster.command[0].removesuffix("/cox") + "/cox-worker"
    def plan(taken, *args):
        r = subprocess.run([worker, "plan", MODEL, "--device", "cuda", "--max-model-len", "512", "--json", *args],
                           capture_output=True, text=True, timeout=60, env={**os.environ, "COX_EMULATE_TAKEN_MB": taken})
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)
    assert plan("0")["memory_bytes"] - plan("512")["memory_bytes"] == 512 << 20
    assert plan("0")["ranks"][0]["comm_bytes"] == 0
    of_ranks = {("--tp", "2"): 24 * 2 * 12, ("--tp", "4"): 24 * 3 * 12, ("--tp", "2", "--pp", "2"): 24 * 3 * 12 + 32 * 10}
    for args, mib in of_ranks.items():
        assert {r["comm_bytes"] for r in plan("0", *args)["ranks"]} == {(mib + 4 << 20) + (64 << 10)}, args
