"""Tests requests that move between replicas while they stream: out of a drained replica, and from prefill to decode replicas. The
null worker checks the contents of its blocks, so a lost or mixed-up block breaks a stream."""
import os
import re
import signal

import pytest
from cluster import Cluster, get, run_cox, wait_for
from steady import Steady

# A token takes time, so that copying a prompt's blocks is faster than computing them again.
SLOW_TOKENS = ("--null-step-us", 1000, "--null-token-us", 400)


def transfers(cluster):
    return cluster.status()["transfers"]


def drawn(cluster, i):
    body = get(f"http://127.0.0.1:{cluster.worker_http_port + i}/metrics")[1]
    return float(re.search(r"^coxswain_worker_tokens_drawn_total(?:\{.*\})? (\S+)$", body, re.M)[1])


def instance(cluster, ordinal):
    return next(w["instance"] for w in cluster.status()["workers"] if w["ordinal"] == ordinal)


def drain(cluster, ordinal, *how):
    done = run_cox("drain", instance(cluster, ordinal), *how, "--address", f"127.0.0.1:{cluster.admin_port}")
    assert done.returncode == 0, done.stderr


def group_states(cluster):
    return {g["id"]: g["state"] for g in cluster.status()["groups"]}


def n_losses(cluster):
    return sum(f["what"] == "worker_lost" for f in cluster.status()["recent_failures"])


def serving_roles(cluster):
    return sorted(g["role"] for g in cluster.status()["groups"] if g["state"] == "ready")


def test_a_drained_group_is_empty_at_once_and_no_stream_notices(tmp_path):
    log = tmp_path / "steps"
    with Cluster(*SLOW_TOKENS, "--step-log", log, workers=2, tp=1) as cluster:
        with Steady([cluster.url], n_users=12, n_tokens=400) as load:
            round = 0
            while round < 3 or transfers(cluster)["requests_moved"] < 6:  # a round may move none, when all streams are about to end
                ordinal, round = round % 2, round + 1
                wait_for("both groups run", lambda: [g["running"] >= 3 for g in cluster.status()["groups"]] == [True] * 2)  # at first only one replica may run
                drain(cluster, ordinal)
                wait_for("the drained group is gone long before its 10 s", lambda: group_states(cluster).get(ordinal) != "ready", 8)
                drain(cluster, ordinal, "--undo")
                wait_for("it serves again", lambda: group_states(cluster).get(ordinal) == "ready")
                load.check()
        end = transfers(cluster)
        assert end["done"] > 0 and end["failed"] == 0 and end["under_way"] == 0, end
        assert cluster.status()["requests"]["failed"] == 0
    done = run_cox("replay", log, "--check", timeout=120)  # the log contains held and imported requests
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def roles():
    with Cluster(*SLOW_TOKENS, "--prefill-workers", 1, "--decode-workers", 1, workers=2, tp=1) as cluster:
        wait_for("both groups", lambda: serving_roles(cluster) == ["decode", "prefill"])
        yield cluster


def test_a_prefill_group_computes_prompts_and_a_decode_group_goes_on(roles):
    assert {g["id"]: g["role"] for g in roles.status()["groups"]} == {0: "prefill", 1: "decode"}
    with Steady([roles.url], n_users=6, n_tokens=100) as load:
        wait_for("requests were moved", lambda: transfers(roles)["requests_moved"] >= 20, 60)
    t = transfers(roles)
    assert t["done"] > 0 and t["failed"] == 0, t
    # The prefill replica samples every first token, and each moved request has at least one token from the other replica.
    assert drawn(roles, 0) >= load.n_done and drawn(roles, 1) >= t["requests_moved"], t
    assert roles.status()["requests"]["failed"] == 0


@pytest.mark.parametrize("name", ["worker-0", "worker-1"])
def test_either_one_may_die_under_load(roles, name):
    with Steady([roles.url], n_users=6, n_tokens=100) as load:
        wait_for("requests were moved", lambda: transfers(roles)["requests_moved"] >= 5, 60)
        n_done, n_lost = load.n_done, n_losses(roles)
        os.kill(roles.pid(name), signal.SIGKILL)
        wait_for("it is known to be lost", lambda: n_losses(roles) > n_lost)
        wait_for("streams end without it", lambda: load.n_done >= n_done + 6, 60)
        wait_for("both kinds serve again", lambda: serving_roles(roles) == ["decode", "prefill"], 60)
        before = transfers(roles)["requests_moved"]
        wait_for("requests are moved again", lambda: transfers(roles)["requests_moved"] >= before + 5, 60)
    assert roles.status()["requests"]["failed"] == 0


def test_roles_of_workers_that_copy_nothing_are_told_and_both_do_all():
    with Cluster(*SLOW_TOKENS, "--kv-port", -1, "--prefill-workers", 1, "--decode-workers", 1, workers=2, tp=1) as cluster:
        wait_for("both groups", lambda: serving_roles(cluster) == ["decode", "prefill"])
        with Steady([cluster.url], n_users=6, n_tokens=100) as load:
            wait_for("both draw tokens", lambda: drawn(cluster, 0) > 200 and drawn(cluster, 1) > 200, 60)
        assert load.n_done > 0 and transfers(cluster)["requests_moved"] == 0
        told = [w for w in cluster.status()["warnings"] if "roles of 2 replicas are ignored" in w]
        assert len(told) == 1 and "--kv-port" in told[0]
