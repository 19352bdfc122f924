"""Tests a cluster with two minor versions of the protocol. frame_relay.c stands between the head and some peers. It makes each side
look newer to its peer (unknown fields in every frame), or look like 2.0, the first version (no later fields, and a later type is
fatal). Streams stay exact while processes come and go."""
import contextlib
import signal

import httpx
import null_oracle as oracle
import pytest
from cluster import SLOW, get, run_cox, wait_for
from steady import Steady
from test_bad_frames import Processes

# PASSED lists the message types that pass the relay, by sender and receiver. Resets do not occur in every run, and neither does Drain, because an
# idle rank leaves without it.
PASSED = {"gateway head": "hello heartbeat submit cancel finish",
          "head gateway": "welcome heartbeat cluster tokens",
          "worker head": "hello heartbeat comm_id formed aborted result drain_wish goodbye",
          "head worker": "welcome heartbeat form join plan abort"}


def n_serving(c):
    if get(c.admin + "/api/status")[0] != 200:
        return 0
    return sum(g["state"] == "ready" and None not in g["workers"] for g in c.status()["groups"])


def more(c, load):
    """Waits until streams that began after the change have ended well."""
    done = load.check().n_done
    wait_for("streams go on", lambda: load.check().n_done > done + 2 * load.n_users, 60)
    wait_for("a group serves", lambda: n_serving(c) == 1)


def no_session_broke(c):
    for name in c.started:
        for word in ("session_broken", "bad_frame", "peer_refused", "head_refused"):
            assert word not in c.log(name), f"{name}: {word}\n{c.log(name)[-3000:]}"


def n_moved(c):
    return c.status()["transfers"]["requests_moved"]


def drain(c, ordinal, *how):
    instance = next(w["instance"] for w in c.status()["workers"] if w["ordinal"] == ordinal)
    done = run_cox("drain", instance, *how, "--address", f"127.0.0.1:{c.admin_port}")
    assert done.returncode == 0, done.stderr


def stop_and_cancel(c):
    """Tests a stop string, which the gateway finds, and a client that leaves."""
    body = {"model": "null", "prompt": "stop", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    want = oracle.text("stop", 60, temperature=0)
    got = httpx.post(c.url + "/v1/completions", json={**body, "stop": [want[40:44]]}, timeout=60 * SLOW).json()
    assert got["choices"][0]["text"] == want[:want.index(want[40:44])]
    body = {**body, "max_tokens": 20000, "stream": True}
    with httpx.stream("POST", c.url + "/v1/completions", json=body, timeout=60 * SLOW) as r:
        lines = r.iter_lines()  # the iterator must stay, because the connection ends with it
        assert next(lines).startswith("data: ")


def what_passed(c):
    return {tuple(line.rsplit(" ", 1)) for line in c.log("relay.out").splitlines()[1:]}


@pytest.mark.parametrize("mode", ["newer", "older"])
def test_a_cluster_of_two_minors_serves(tmp_path, mode):
    with Processes(tmp_path) as c:
        c.start_head()
        port = c.start_relay(1, 1000, mode)
        c.start_worker("worker-0", c.head_port)  # this worker has the head's minor version
        for i in (1, 2):
            c.start_worker(f"worker-{i}", port)
        c.start_gateway(port)
        wait_for("two ranks and a spare", lambda: n_serving(c) == 1 and len(c.status()["workers"]) == 3)
        with Steady([c.url], n_users=6) as load:
            stop_and_cancel(c)
            more(c, load)
            c.started["worker-0"].kill()
            wait_for("its loss is known", lambda: len(c.status()["workers"]) == 2)
            more(c, load)
            c.start_worker("worker-3", c.head_port)
            wait_for("there is a spare again", lambda: len(c.status()["workers"]) == 3)
            c.started["worker-1"].send_signal(signal.SIGTERM)
            assert c.started["worker-1"].wait(60 * SLOW) == 0
            more(c, load)
            no_session_broke(c)
            c.started["head"].kill()
            c.started["head"].wait()
            c.start_head()
            more(c, load)
        def missing():
            return {(f"{mode} {way}", what) for way, types in PASSED.items() for what in types.split()} - what_passed(c)

        # The head sends heartbeats only on quiet links, and under load no link may be quiet.
        with contextlib.suppress(AssertionError):
            wait_for("all have passed a relay", lambda: not missing())
        assert not missing(), f"these passed no relay: {missing()}"
        no_session_broke(c)
        assert c.started["relay"].poll() is None, c.log("relay")
        print(f"{load.n_done} streams; " + ", ".join(sorted(f"{way}: {what}" for way, what in what_passed(c))))


@pytest.mark.parametrize("mode", ["newer", "older"])
def test_requests_move_between_groups_of_two_minors(tmp_path, mode):
    """Blocks are copied between 2.1 and later versions. Version 2.0 cannot copy, so its tokens are computed again."""
    with Processes(tmp_path) as c:
        c.start_head(tp=1)
        port = c.start_relay(1, 1000, mode)
        for i, at in enumerate((c.head_port, port)):
            c.start_worker(f"worker-{i}", at, "--ordinal", i, "--null-token-us", 400, tp=1)
        c.start_gateway(port)
        wait_for("two groups", lambda: n_serving(c) == 2)
        with Steady([c.url], n_users=12, n_tokens=300) as load:
            for ordinal in (0, 1):
                moved, copies = n_moved(c), mode == "newer"
                # All streams of a replica may be about to end, or be so short that a copy is not worth its time.
                while n_moved(c) == moved or (copies and c.status()["transfers"]["done"] == 0):
                    wait_for("both groups run", lambda: [g["running"] >= 3 for g in c.status()["groups"]] == [True, True], 40)
                    drain(c, ordinal)
                    wait_for("the drained group is gone", lambda: n_serving(c) == 1)
                    drain(c, ordinal, "--undo")
                    wait_for("it serves again", lambda: n_serving(c) == 2)
                    load.check()
        t = c.status()["transfers"]
        assert t["failed"] == 0 and (t["done"] > 0) == (mode == "newer"), t
        no_session_broke(c)
        assert c.started["relay"].poll() is None, c.log("relay")
        asked = {what for _, what in what_passed(c)} & {"kv_transfer", "kv_transferred"}
        assert len(asked) == (2 if mode == "newer" else 0), asked
