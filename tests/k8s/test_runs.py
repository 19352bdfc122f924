"""Tests that `cox run render` makes valid objects for every Kubernetes version of the chart. Their pods pass "restricted" and run as
the file specifies."""
import os
import re
import subprocess
from pathlib import Path

import chart as c
import pytest
import yaml
from test_chart import VERSIONS

COX = Path(os.environ.get("COX_BIN", c.ROOT / "build/release/bin")) / "cox"
pytestmark = pytest.mark.skipif(not COX.exists(), reason=f"SKIPPED: no {COX}: scripts/build makes it")
EVERYTHING = """name: Demo Server 2
description: everything that a pod may have
tags: [a, b]
model: hf:org/name
options: {max-model-len: 4096, served_model_name: [x, y], enable-lora: false}
resources: {workers: 2, tp: 2, device: cuda, gpus: 2, cpu: 500m, memory: 4Gi, cluster: none}
image: registry.example/with-cox:1
import:
  /code/: {git: {url: github.com/a/b.git, ref: v1}}
volumes: {/big: {size: 10Gi}, /own: {claim: mine}}
run:
  - {command: "echo $(date) '$X' $$", workdir: /code/x}
  - command: |-
      two
      lines
    workdir: /work
ports:
  - {name: api, type: http, port: 8100}
  - {name: prometheus, type: http, port: 9090}
monitoring: true
env: {HF_TOKEN: HF_TOKEN, N: on, GREETING: "a $(N) $$ \\"b\\" 한글", MY_PASSWORD: "p\\nq", TAKEN: TAKEN}
"""
FILES = {"everything": EVERYTHING, "model": "name: m\nmodel: demo\n", "volume": "name: m\nmodel: /w/x\nvolumes: {/w: {claim: w}}\n",
         "imported": "name: m\nmodel: /w\nimport: {/w: hf://org/name}\nports: [{name: a, port: 81}]\n",
         "job": "name: j\nimage: debian\nrun: 'true'\n", "served": "name: j\nimage: debian\nrun: 'true'\nports: [{name: a, port: 81}]\nmonitoring: true\n",
         "vessl": (c.ROOT / "tests/e2e/runs/vessl.yaml").read_text()}


def render(folder, text, *args, **env):
    path = folder / "run.yaml"
    path.write_text(text)
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_TOKEN", "TAKEN")}
    done = subprocess.run([COX, "run", "render", "-f", path, *args], capture_output=True, text=True, env={**environment, **env}, timeout=60)
    return done.returncode, c.Objects(yaml.load_all(done.stdout, c.Loader) if done.returncode == 0 else []), done.stderr.replace(str(path), "f")


def test_no_place_is_mounted_twice(tmp_path):
    """A volume that the run file mounts at one of the rendered folders replaces the volume there, even in the container for git."""
    volumes = "volumes: {/cache: {claim: c}, /tmp: {claim: t}, /dev/shm: {size: 1Gi}}\n"
    git = "image: i\nimport: {/c: {git: {url: a.b/c}}}\n"
    for text in ("name: m\nmodel: demo\n" + volumes + git, "name: m\nmodel: demo\nimage: i\nrun: [{command: x, workdir: /cache}, {command: y, workdir: /dev/shm}]\n",
                 "name: m\nmodel: demo\nimage: i\nimport: {/tmp: {git: {url: a.b/c}}}\n"):
        code, objs, err = render(tmp_path, text)
        assert code == 0, err
        [(_, pod)] = list(objs.pods())
        assert len({v["name"] for v in pod["volumes"]}) == len(pod["volumes"])
        for container in pod["initContainers"] + pod["containers"]:
            at = [m["mountPath"] for m in container["volumeMounts"]]
            assert len(at) == len(set(at)), (container["name"], at)
            assert {m["name"] for m in container["volumeMounts"]} <= {v["name"] for v in pod["volumes"]}
    code, _, err = render(tmp_path, "name: m\nmodel: demo\nvolumes: {/etc/coxswain/run: {claim: c}}\n")
    assert code == 2 and "f:3:11: in a pod, /etc/coxswain/run contains the run's own options" in err


def test_artifacts_are_claims(tmp_path):
    code, objs, err = render(tmp_path, """name: m
image: registry.example/x:1
run: ls
import:
  /root/.cache/huggingface/: vessl-artifact://my-org/Project/models
  /data: vessl-artifact://my-org/Project/data
export:
  /root/.cache/huggingface/: vessl-artifact://my-org/Project/models
  /out: vessl-artifact://my-org/Project/out
""")
    assert code == 0, err
    [(_, pod)] = list(objs.pods())
    [run] = pod["containers"]
    claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
    mounts = {m["mountPath"]: (re.sub("-[0-9a-f]{6}$", "", claims[m["name"]]), m.get("readOnly", False))
              for m in run["volumeMounts"] if m["name"] in claims}
    assert mounts == {"/root/.cache/huggingface": ("my-org-project-models", False), "/data": ("my-org-project-data", True),
                      "/out": ("my-org-project-out", False)}
    assert all(f"from the claim {claim}, which must exist" in err for claim in claims.values())
    assert c.env_of(run)["HF_HOME"]["value"] == "/root/.cache/huggingface"


def test_a_streamed_model_is_not_pulled(tmp_path):
    for how in ("stream", "runai_streamer"):
        code, objs, err = render(tmp_path, f"name: m\nmodel: hf:org/name\noptions: {{load-format: {how}}}\n")
        [(_, pod)] = list(objs.pods())
        assert code == 0 and "initContainers" not in pod and "cache" not in {v["name"] for v in pod["volumes"]}


def test_two_names_are_two(tmp_path):
    names = [next(iter(render(tmp_path, f"name: '{n}'\nmodel: demo\n")[1]))["metadata"]["name"] for n in ("2024-demo", "2025 Demo!", "demo", "x" * 60 + "1", "x" * 60 + "2")]
    assert len(set(names)) == 5 and names[2] == "demo" and all(len(n) <= 45 for n in names)


@pytest.mark.parametrize("name", FILES)
def test_objects_are_valid_and_restricted(tmp_path, name):
    code, objs, err = render(tmp_path, FILES[name], "-n", "ns", HF_TOKEN="secret")
    assert code == 0, err
    assert len(objs.ids()) == len(set(objs.ids()))
    for version in VERSIONS:
        for o in objs:
            c.validate(o, version)
    [(where, pod)] = list(objs.pods())
    assert {o["metadata"]["namespace"] for o in objs} == {"ns"}
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys() and not any("hostPath" in v for v in pod["volumes"])
    volumes = [v["name"] for v in pod["volumes"]]
    assert len(volumes) == len(set(volumes)) and len({x["name"] for x in c.containers(pod)}) == len(c.containers(pod))
    for container in c.containers(pod):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        mounts = [m["mountPath"] for m in container["volumeMounts"]]
        assert len(mounts) == len(set(mounts)) and "/tmp" in mounts, "somewhere it can write"
        assert {m["name"] for m in container["volumeMounts"]} <= set(volumes)
    labels = objs.one(where.split("/")[0], where.split("/")[1])["spec"]["template"]["metadata"]["labels"]
    for service in objs.kinds("Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        names = {p["name"] for p in pod["containers"][0]["ports"]}
        assert {p["targetPort"] for p in service["spec"]["ports"]} == names


def test_what_the_file_says_is_there(tmp_path):
    code, objs, err = render(tmp_path, EVERYTHING, HF_TOKEN="a secret")
    name = next(o for o in objs if o["kind"] == "Deployment")["metadata"]["name"]
    assert re.fullmatch("demo-server-2-[0-9a-f]{6}", name)
    assert code == 0 and {k for k, _ in objs.ids()} == {"Deployment", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim"}
    assert ": note: TAKEN is not set in your environment" in err and "namespace" not in objs[0]["metadata"]
    deployment = objs.one("Deployment", name)
    pod = deployment["spec"]["template"]["spec"]
    run = pod["containers"][0]
    assert run["command"] == ["/usr/bin/cox", "up", "hf:org/name", "--config", "/etc/coxswain/run/up.yaml"]
    assert run["image"] == "registry.example/with-cox:1"
    assert run["resources"] == {"requests": {"cpu": "500m", "memory": "4Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": "2"}}
    assert run["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8100, "scheme": "HTTP"}
    data = objs.one("ConfigMap", name)["data"]
    assert yaml.safe_load(data["up.yaml"]) == {"max-model-len": 4096, "served_model_name": ["x", "y"], "enable-lora": False, "workers": 2, "tp": 2,
                                               "device": "cuda", "port": 8100, "host": "0.0.0.0", "cache-dir": "/cache"}
    # The secret values are in the Secret and nowhere else.
    secrets = objs.one("Secret", name)["stringData"]
    assert secrets == {"HF_TOKEN": "a secret", "MY_PASSWORD": "p\nq"}
    env = c.env_of(run)
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "HF_TOKEN"}
    assert "a secret" not in yaml.dump([o for o in objs if o["kind"] != "Secret"])
    assert env["N"]["value"] == "on" and env["GREETING"]["value"].replace("$$", "$") == 'a $(N) $$ "b" 한글' and "TAKEN" not in env
    inits = {i["name"]: i for i in pod["initContainers"]}
    assert list(inits) == ["git-import-0", "pull", "commands"], "in this order"
    assert inits["pull"]["command"] == ["/usr/bin/cox", "pull", "hf:org/name", "--cache-dir", "/cache"]
    assert "'https://github.com/a/b.git' 'v1'" in inits["git-import-0"]["command"][3]
    mounts = {m["mountPath"]: m["name"] for m in run["volumeMounts"]}
    assert mounts.keys() == {"/tmp", "/dev/shm", "/code", "/big", "/own", "/work", "/cache", "/etc/coxswain/run"}
    claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
    assert {claims[mounts["/own"]], claims[mounts["/big"]]} == {"mine", f"{name}-0"}
    assert objs.one("PersistentVolumeClaim", f"{name}-0")["spec"]["resources"]["requests"]["storage"] == "10Gi"
    assert [p["port"] for p in objs.one("Service", name)["spec"]["ports"]] == [8100], "there is no Prometheus in it"
    notes = deployment["spec"]["template"]["metadata"]["annotations"]
    assert (notes["prometheus.io/scrape"], notes["prometheus.io/port"], notes["coxswain.io/tags"]) == ("true", "8100", "a,b")


def test_the_script_runs_what_the_file_says(tmp_path):
    """Quotes, dollars and newlines pass unchanged through YAML, Kubernetes' own $(…) and the shell."""
    (tmp_path / "w").mkdir()
    text = f"name: j\nimage: debian\nrun:\n  - command: \"echo \\\"it's $X\\\" $(echo y) '$X'; pwd\"\n    workdir: {tmp_path}/w\n  - |\n    echo two\n    false\n  - echo never\n"
    code, objs, err = render(tmp_path, text)
    assert code == 0, err
    script = tmp_path / "run.sh"
    script.write_text(objs.one("ConfigMap", "j")["data"]["run.sh"])
    done = subprocess.run(["/bin/sh", script], capture_output=True, text=True, env={"X": "x", "PATH": os.environ["PATH"]})
    assert done.stdout == f"it's x y $X\n{tmp_path}/w\ntwo\n" and done.returncode == 1


@pytest.mark.parametrize("text, line", [
    ("name: a\nrun: [x]\n", "f:2:7: in a pod, commands need an `image`"),
    ("name: a\nmodel: demo\nrun: [x]\n", "f:3:7: in a pod, commands need an `image`"),
    ("name: a\nmodel: demo\nimport: {/c: {git: {url: a.b/c}}}\n", "f:3:10: in a pod, a git import needs an image with `git`"),
    ("name: a\nimage: i\nrun: x\nimport: {/c: {git: {url: /srv/c}}}\n", "f:4:10: /srv/c is on this machine, so a pod cannot read it"),
    ("name: a\nimage: i\nrun: x\nimport: {/c: file:/srv/c}\n", "f:4:10: /srv/c is on this machine, so a pod cannot read it"),
    ("name: a\nimage: i\nrun: x\nimport: {/c: hf://a/b}\n", "f:4:10: a pod cannot import a model. Use `model: hf:a/b`"),
    ("name: a\nmodel: /srv/c\n", "f:2:8: /srv/c is on this machine, so a pod cannot read it"),
])
def test_what_no_pod_can_have(tmp_path, text, line):
    code, objs, err = render(tmp_path, text)
    assert code == 2 and objs == [] and line in err


def test_names_and_notes(tmp_path):
    assert render(tmp_path, "name: a\nmodel: demo\n", "-n", "No_Good")[0] == 2
    code, objs, err = render(tmp_path, "name: 9 Löwen & ein_Name, der sehr viel länger ist als Kubernetes ihn nimmt\nmodel: demo\nvolumes: {/d: {host: /srv}}\n")
    assert code == 0 and "f:3:11: note: Kubernetes rejects a hostPath volume where Pod Security" in err
    for o in objs:
        c.validate(o)
        assert len(o["metadata"]["name"]) <= 63
    code, objs, _ = render(tmp_path, "name: a\nimport: {/c: {git: {url: a.b/c}}}\nmodel: demo\n", "--git-image", "git:1")
    assert code == 0 and objs.one("Deployment", "a")["spec"]["template"]["spec"]["initContainers"][0]["image"] == "git:1"
