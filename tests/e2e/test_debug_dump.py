"""Tests `cox debug dump`: its contents for a serving cluster, the required rights, and the absence of secrets."""
import json

import httpx
from cluster import SLOW, Cluster, get, run_cox
from completions import run

SECRET = "a prompt that nobody else may read"


def dump(c, *args, code=0):
    done = run_cox("debug", "dump", "--address", c.admin.removeprefix("http://"), *args)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_what_it_shows(tmp_path):
    key = tmp_path / "admin-key"
    key.write_text("an-admin-key\n")
    with Cluster("--admin-key-file", key, "--null-step-us", 5000) as c:
        assert get(c.admin + "/api/debug")[0] == 401
        assert "requires the admin key" in dump(c, code=2)
        with httpx.stream("POST", c.url + "/v1/completions", timeout=30 * SLOW, json={
                "model": "null", "prompt": SECRET, "max_tokens": 5000, "ignore_eos": True, "stream": True}) as r:
            lines = r.iter_lines()
            next(lines)
            shown = dump(c, "--admin-key-file", key)
            group, = shown["groups_live"]
            assert group["running"] == 1 and group["last_step"] >= group["last_result"] > 0
            assert group["last_plans"][-1] == [group["last_step"], 1]
        assert sorted(s["role"] for s in shown["sessions"]) == ["gateway", "worker", "worker"]
        assert all(s["open"] and s["frames_in"] > 0 and len(s["public_key"]) == 40 for s in shown["sessions"])
        assert shown["counts"]["sessions"] == 3 and shown["counts"]["keys_authorized"] == 3
        assert shown["status"]["healthy"] and 0 < len(shown["events"]["events"]) <= 64
        text = json.dumps(shown)
        assert SECRET not in text and len(text) < 100_000


def test_it_stays_small():
    with Cluster(workers=1, tp=1) as c:
        run(c, [{"prompt": f"request {i}", "max_tokens": 5} for i in range(100)])
        assert len(json.dumps(dump(c))) < 100_000
        assert run_cox("debug").returncode == run_cox("debug", "dmup").returncode == 2
