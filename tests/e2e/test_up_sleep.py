"""Tests `cox up` with models that sleep while they are idle. Two of three models may be awake beside a sleeper. Requests in turn are answered as
the first time, and the workers keep their processes. A sleeping worker or its head that is killed costs no request, and no sleeper takes memory
that another model has."""
import json
import os
import signal
import threading

from cluster import SLOW, alive, get, wait_for
from footprint import MIB, size_of
from test_up_models import LLAMA, WEB, Up, needs_goldens

TWO_AWAKE, ONE_AWAKE, ONE_ALONE = "162Mi", "120Mi", "80Mi"  # a model needs 68.2 MiB, 32.2 MiB at level 1, and 24 MiB at level 2
pytestmark = needs_goldens


def up(tmp_path, memory, level=2):
    return Up(tmp_path, *(f"{name}={LLAMA}" for name in "abc"), "--on-demand", "--kv-cache-memory-bytes", "60Mi", "--models-memory", memory,
              "--idle-timeout", 600, "--idle-sleep-level", level)


def scale(c, model):
    code, body = get(f"http://127.0.0.1:{c.admin_port + 'abc'.index(model)}/scale")
    return json.loads(body) if code == 200 else {}


def is_asleep(c, model):
    now = scale(c, model)
    return now.get("held") and now["asleep"] and now["workers_asleep"] == 1


def sleepers(c):
    return [m for m in "abc" if is_asleep(c, m)]


def text(c, model):
    body = {"model": model, "prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    reply = WEB.post(c.url + "/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def worker(c, model):
    return c.pids().get(f"worker-{model}-0")


def awake(c):
    """Returns the models whose worker does not sleep, each with how often its head has slept."""
    found = set()
    for i, m in enumerate("abc"):
        code, body = get(f"http://127.0.0.1:{c.admin_port + i}/is_sleeping")
        now = json.loads(body) if code == 200 else {"is_sleeping": True}
        if worker(c, m) and not now["is_sleeping"]:
            found.add((m, now["slept"]))
    return found


def test_models_take_turns_without_losing_their_processes(tmp_path):
    with up(tmp_path, TWO_AWAKE) as c:
        c.wait_ready()
        first = {m: text(c, m) for m in "abc"}
        pids = {m: worker(c, m) for m in "abc"}
        (sleeper,) = sleepers(c)
        assert all(pids.values()) and scale(c, sleeper)["sleep_level"] == 2
        if SLOW == 1:  # sanitizers keep memory that was freed
            assert size_of(pids[sleeper]).private < 24 * MIB, size_of(pids[sleeper])
        most, over = [0], threading.Event()

        def look():
            while not over.wait(0.01):
                most[0] = max(most[0], len(awake(c) & awake(c)))  # awake all the time between the two looks

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        for m in "abcabcbac":
            assert text(c, m) == first[m]
        replies = []
        threads = [threading.Thread(target=lambda m=m: replies.append(text(c, m) == first[m])) for m in "abcabc"]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        over.set()
        watcher.join()
        assert replies == [True] * 6 and most[0] <= 2, (replies, most)
        assert {m: worker(c, m) for m in "abc"} == pids and " has ended, because " not in c.log()


def test_a_light_sleep_deepens_when_memory_is_needed(tmp_path):
    with up(tmp_path, ONE_AWAKE, level=1) as c:
        c.wait_ready()
        first = {m: text(c, m) for m in "ab"}
        assert is_asleep(c, "a") and scale(c, "a")["sleep_level"] == 1
        pids = {m: worker(c, m) for m in "ab"}
        assert text(c, "c") == first["a"]
        assert [scale(c, m)["sleep_level"] for m in "abc"] == [2, 2, 0]
        assert [text(c, m) == first[m] for m in "ab"] == [True] * 2 and {m: worker(c, m) for m in "ab"} == pids


def test_a_model_ends_where_sleep_is_not_enough(tmp_path):
    with up(tmp_path, ONE_ALONE) as c:
        c.wait_ready()
        first = text(c, "a"), text(c, "b")
        assert c.workers() == ["b"] and (text(c, "a"), text(c, "b")) == first


def test_faults_in_its_sleep(tmp_path):
    with up(tmp_path, TWO_AWAKE) as c:
        c.wait_ready()
        first = {m: text(c, m) for m in "abc"}
        (m,) = sleepers(c)
        pid = worker(c, m)
        os.kill(c.pids()[f"head-{m}"], signal.SIGKILL)
        wait_for("the next head holds the sleep", lambda: sleepers(c) == [m])
        assert text(c, m) == first[m] and worker(c, m) == pid
        wait_for("another model sleeps", lambda: len(sleepers(c)) == 1)
        (m,) = sleepers(c)
        os.kill(worker(c, m), signal.SIGKILL)
        wait_for("the supervisor knows", lambda: f"The model {m} sleeps, so it stops" in c.log())
        assert f"worker-{m}-0" not in c.pids()
        assert text(c, m) == first[m] and alive(worker(c, m))
        assert [text(c, m) == first[m] for m in "abc"] == [True] * 3
