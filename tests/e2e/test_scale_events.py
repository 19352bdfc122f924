"""Tests a planned scale-down and scale-up under load: no stream fails, no alert of deploy/grafana fires, and the events name the
user. A real Prometheus evaluates the rules during the test. Then promtool evaluates them on the recorded series, with one minute
for each half second, so that an alert with `for: 15m` sees each state long enough."""
import getpass
import json
import os
import re
import subprocess
import time

import pytest
from cluster import SLOW, Cluster, get, run_cox, wait_for
from steady import Steady
from test_prometheus import RULES, Prometheus, program

STEP_S = 0.5  # seconds of the record for one minute of promtool's time
HELD_MIN = 40  # minutes for which each state is held at its end: longer than any `for` and any range


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "admin-keys"
    file.write_text("# who may lead\nthe-key-of-the-platform platform\nthe-key-of-alice alice\n")
    return file


def cox(c, *args, **kwargs):
    done = run_cox(*args, "--address", f"127.0.0.1:{c.admin_port}", env={**os.environ, "TMPDIR": str(c.tmp)}, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number(c, metric):
    """Returns a metric of the head."""
    return float(re.search(rf"^{metric}\{{[^}}]*\}} (\S+)$", get(c.admin + "/metrics")[1], re.M)[1])


def rules_of(prometheus):
    return [r for g in prometheus.ask("rules")["groups"] for r in g["rules"] if r["type"] == "alerting"]


def record(prometheus, begin, end):
    """Returns [(series in promtool's notation, values)] of every metric in the alerts, from `begin` to `end`."""
    names = {n for r in rules_of(prometheus) for n in re.findall(r"\b(?:coxswain_|vllm:|http_)\w+", r["query"])}
    out = []
    for name in sorted(names):
        found = prometheus.ask("query_range", query=name, start=begin, end=end, step=STEP_S)["result"]
        for series in found:
            at = {round((float(t) - begin) / STEP_S): v for t, v in series["values"]}
            labels = ",".join(f"{k}={json.dumps(v)}" for k, v in series["metric"].items() if k != "__name__")
            out.append((f"{name}{{{labels}}}", at))
    return out


def stretched(record, n, held):
    """Stretches a record of n steps. Each step in `held` lasts HELD_MIN minutes, every other step one minute. A missing value is an
    absent sample."""
    for name, at in record:
        values = []
        for i in range(n):
            values += [at.get(i, "_")] * (HELD_MIN if i in held else 1)
        yield {"series": name, "values": " ".join(values)}


def judge(tmp_path, alerts, series, minutes):
    """Lets promtool check that each alert is silent at every minute."""
    file = tmp_path / "recorded.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [{
        "interval": "1m", "input_series": series,
        "alert_rule_test": [{"eval_time": f"{m}m", "alertname": a, "exp_alerts": []} for a in alerts for m in range(2, minutes)]}]}))
    done = subprocess.run([program("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=120 * SLOW)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def n_ready(c):
    return number(c, "coxswain_groups_ready")


def test_two_replicas_to_one_and_back_under_32_streams(tmp_path, keys):
    program("prometheus")
    key = ["--admin-key-file", keys]
    with Cluster("--null-step-us", 10000, *key, "--metrics-public", workers=2, tp=1) as c:
        wait_for("both serve", lambda: n_ready(c) == 2)
        prometheus = Prometheus(c, tmp_path)
        try:
            with Steady([c.url], n_users=32, n_tokens=150) as load:
                wait_for("every target is scraped", lambda: prometheus.is_scraped(n_targets=4), 30)
                wait_for("streams end", lambda: load.n_done >= 32, 60)
                begin = time.time()
                one = cox(c, "scale", 1)
                assert one.startswith("1 workers, 2 before"), one
                wait_for("the worker has left", lambda: number(c, "coxswain_worker_departures_total") == 1, 60)
                done = load.check().n_done
                wait_for("streams go on at one", lambda: load.check().n_done >= done + 64, 60)
                at_one = time.time()
                cox(c, "scale", 2)
                wait_for("both serve again", lambda: n_ready(c) == 2, 60)
                done = load.n_done
                wait_for("streams go on at two", lambda: load.check().n_done >= done + 64, 60)
                end = time.time()
            assert load.n_done >= 160 and not load.wrong
            wait_for("Prometheus has the end", lambda: prometheus.values(f"timestamp(coxswain_groups_ready) > {end}"))
            alerts = rules_of(prometheus)
            assert len(alerts) > 10 and all(r["health"] == "ok" and r["state"] == "inactive" for r in alerts), [
                r for r in alerts if r["state"] != "inactive"]
            n = int((end - begin) / STEP_S) + 1
            held = {int((at_one - begin) / STEP_S), n - 1}
            series = list(stretched(record(prometheus, begin, end), n, held))
            assert {"coxswain_workers", "vllm:num_requests_waiting"} <= {s["series"].split("{")[0] for s in series}
            judge(tmp_path, [r["name"] for r in alerts], series, n + 2 * HELD_MIN - 2)
        finally:
            prometheus.process.terminate()
            prometheus.process.wait(30 * SLOW)
        assert number(c, "coxswain_worker_losses_total") == 0
        instance = next(w["instance"] for w in json.loads(cox(c, "status", "--json", *key))["workers"] if w["ordinal"] == 0)
        cox(c, "drain", instance, *key)
        cox(c, "undrain", instance, "--admin-key", "the-key-of-alice")
        wait_for("cox up has told the head twice", lambda: len(re.findall(r" scaled ", cox(c, "events", *key))) == 2)
        said = cox(c, "events", *key).replace('"', "")
        assert "_lost" not in said, said
        user = getpass.getuser()
        for wanted in (rf" scaled +was=2 workers=1 by={user} \(platform\)", rf" scaled +was=1 workers=2 by={user} \(platform\)",
                       r" worker_draining .* ordinal=1 by=the worker: told to end \(SIGTERM\)",
                       r" worker_left .* ordinal=1 reason=told to end \(SIGTERM\)",
                       rf" worker_draining .*{instance} ordinal=0 by=platform", rf" worker_undrained .*{instance} ordinal=0 by=alice"):
            assert re.search(wanted, said), f"{wanted} in\n{said}"
        failures = json.loads(cox(c, "status", "--json", *key))["recent_failures"]
        assert failures == []
