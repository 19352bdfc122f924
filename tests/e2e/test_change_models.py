"""Tests `cox models` and edited files against a running `cox up` with several models: models come, get other names and leave while streams of
other models run, and a change that is refused changes nothing."""
import json
import shutil
import threading
import time

import httpx
from cluster import SLOW, run_cox, wait_for
from test_up_models import LLAMA, TWO_FIT, Up, needs_goldens

WEB = httpx.Client(timeout=60 * SLOW)


def models(c, *words, code=0):
    done = run_cox("models", *map(str, words), env=c.env)
    assert done.returncode == code, (words, done.stdout, done.stderr, c.log())
    return done.stdout if code == 0 else done.stderr


def listed(c):
    return {m["name"]: m for m in json.loads(models(c, "list", "--json"))["models"]}


class Stream:
    """Reads a stream of a model on a thread."""

    def __init__(self, c, model, n):
        self.chunks, self.error = 0, None
        self.first = threading.Event()
        self.thread = threading.Thread(target=self.read, args=(c, model, n))
        self.thread.start()
        assert self.first.wait(30 * SLOW)

    def read(self, c, model, n):
        body = {"model": model, "prompt": [5, 6, 7], "max_tokens": n, "ignore_eos": True, "stream": True}
        with WEB.stream("POST", c.url + "/v1/completions", json=body) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    self.error = self.error or json.loads(line[6:]).get("error")
                    self.chunks += 1
                    self.first.set()
                self.done = line == "data: [DONE]" or getattr(self, "done", False)
        self.first.set()

    def end(self):
        self.thread.join()
        return self.done and self.error is None


def test_models_come_and_leave_beside_a_stream(tmp_path):
    with Up(tmp_path, "null", "second=null", "--null-step-us", 20000) as c:
        c.wait_ready()
        stay = Stream(c, "null", 200)
        models(c, "add", "third=null", "--alias", "gpt-4o")
        wait_for("the added model serves", lambda: c.ask("third").status_code == 200 and c.ask("gpt-4o").status_code == 200)
        models(c, "alias", "third", "other", "--remove", "gpt-4o")
        wait_for("the names are changed", lambda: c.ask("other").status_code == 200 and c.ask("gpt-4o").status_code == 404)
        leave = Stream(c, "second", 250)
        models(c, "rm", "second")
        wait_for("the name is gone", lambda: c.ask("second").status_code == 404)
        assert set(listed(c)) == {"null", "third"} and listed(c)["third"]["aliases"] == ["other"]
        assert leave.thread.is_alive() and {"head-second", "worker-second-0"} <= set(c.pids())  # the stream has not ended
        assert leave.end() and stay.end()
        wait_for("the processes have ended", lambda: not {"head-second", "worker-second-0"} & set(c.pids()))
        time.sleep(0.5 * SLOW)  # the supervisor frees their slot at its next tick
        models(c, "add", "second=null")
        wait_for("a removed model comes back", lambda: c.ask("second").status_code == 200)
        assert listed(c)["second"]["admin"].endswith(str(c.admin_port + 1)), listed(c)  # its ports were free again


@needs_goldens
def test_what_is_refused_changes_nothing(tmp_path):
    with Up(tmp_path, f"a={LLAMA}", "--models-memory", "15Mi") as c:
        c.wait_ready()
        before = c.pids()
        assert "the model b does not fit" in models(c, "add", f"b={LLAMA}", code=1)
        models(c, "add", f"lazy={LLAMA}", "--start", "asleep", code=1)
        assert "two models have the name a" in models(c, "add", "a=null", code=1)
        assert "is invalid: use 1 to" in models(c, "add", "x=null", "--alias", "b c", code=1)
        assert "is not an option of `cox up`" in models(c, "add", "x=null", "--set", "max_num_seq=4", code=1)
        assert "`fallback` names y" in models(c, "add", "x=null", "--set", "fallback=y", code=1)
        assert "has no model of the name x" in models(c, "rm", "x", code=1)
        assert "is the cluster's last model" in models(c, "rm", "a", code=1)
        assert "a has no alias b" in models(c, "alias", "a", "--remove", "b", code=1)
        assert "hf:org/none is not complete in the cache, and a running cluster does not download" in models(c, "add", "x=hf:org/none", code=1)
        assert "org/none" in models(c, "add", "x=hf:org/none", "--set", "load_format=stream", code=1)
        assert 'did you mean "cox models list"?' in models(c, "lst", code=2)
        assert c.pids() == before and set(listed(c)) == {"a"} and c.ask("a").status_code == 200
        models(c, "add", "x=null")  # it needs no memory
        c.process.terminate()  # the loop still hears signals
        assert c.process.wait(20 * SLOW) == 0, c.log()


@needs_goldens
def test_a_removed_model_gives_its_memory_to_the_next_one(tmp_path):
    with Up(tmp_path, f"a={LLAMA}", f"b={LLAMA}", "--models-memory", TWO_FIT) as c:
        c.wait_ready()
        assert "the model c does not fit" in models(c, "add", f"c={LLAMA}", code=1)
        models(c, "rm", "b")
        models(c, "add", f"c={LLAMA}", "--set", "max_model_len=256")  # it starts when the memory is free
        wait_for("it serves", lambda: c.ask("c").status_code == 200)
        assert c.workers() == ["a", "c"] and c.ask("a").status_code == 200


@needs_goldens
def test_an_added_model_that_cannot_start_fails_alone(tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(LLAMA, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20000])
    with Up(tmp_path, "null", "second=null", "--null-step-us", 20000) as c:
        c.wait_ready()
        stream = Stream(c, "null", 100)
        models(c, "add", f"bad={broken}")
        wait_for("it has failed", lambda: listed(c)["bad"]["state"] == "failed")
        assert c.ask("second").status_code == 200 and stream.end()
        models(c, "rm", "second")
        assert "would remain have all failed" in models(c, "rm", "null", code=1)
        assert c.ask("null").status_code == 200 and set(listed(c)) == {"null", "bad"}
        models(c, "rm", "bad")
        wait_for("its slot is free", lambda: "head-bad" not in c.pids() and "bad" not in c.states())


def test_an_order_keeps_the_processes_of_other_models(tmp_path):
    file, link = tmp_path / "models.yaml", tmp_path / "link.yaml"
    file.write_text("models:\n- {name: one, model: 'null', max_num_seqs: 8}\n- {name: two, model: 'null'}\n")
    link.symlink_to(file)
    with Up(tmp_path, "--models", link) as c:
        c.wait_ready()
        before = c.pids()
        models(c, "alias", "two", "deux")
        wait_for("the name leads to the model", lambda: c.ask("deux").status_code == 200)
        assert c.pids() == before and "was removed" not in c.log()
        assert link.is_symlink() and json.loads(file.read_text())["models"][1]["aliases"] == ["deux"]
        told = models(c, "add", "one=null", code=1)
        assert "two models have the name one" in told and ".yaml:" not in told, told


def test_two_adds_at_once(tmp_path):
    with Up(tmp_path, "one=null") as c:
        c.wait_ready()
        threads = [threading.Thread(target=models, args=(c, "add", f"{name}=null")) for name in ("x", "y", "z")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert set(listed(c)) == {"one", "x", "y", "z"}
        for name in "xyz":
            wait_for("it serves", lambda name=name: c.ask(name).status_code == 200)


def test_an_edited_file_is_applied(tmp_path):
    file = tmp_path / "models.yaml"
    first = "models:\n- {name: a, model: 'null', fallback: b, max_requests: 100}\n- {name: b, model: 'null'}\n"
    route = "routes:\n- {name: r, targets: [{model: a, weight: 0}, {model: b}]}\n"
    file.write_text(first + route)
    with Up(tmp_path, "--models", file) as c:
        c.wait_ready()
        assert c.ask("r").json()["model"] == "b"
        head = c.pids()["head-b"]
        file.write_text(first + "- {name: c, model: 'null', aliases: [d]}\n" + route)
        wait_for("the new model serves", lambda: c.ask("d").status_code == 200)
        file.write_text(first + "- {name: a, model: 'null'}\n")
        wait_for("the error is told", lambda: "models.yaml:4: two models have the name a" in c.log())
        assert c.ask("c").status_code == 200 and c.log().count("two models have the name") == 1
        assert "two models have the name a" in models(c, "add", "x=null", code=1)
        file.write_text(first + route)
        wait_for("the model is gone", lambda: c.ask("c").status_code == 404)
        models(c, "add", "x=null", "--start", "asleep")
        assert [m["name"] for m in json.loads(file.read_text())["models"]] == ["a", "b", "x"]
        wait_for("the asleep model starts", lambda: c.ask("x").status_code == 200)
        assert c.ask("r").json()["model"] == "b" and c.pids()["head-b"] == head
        assert c.log().count("two models have the name") == 1
