"""Runs the image's programs under deploy/image/seccomp.json. In these tests a system call outside of the profile ends the program."""
import json
import os
import signal
import subprocess
import sys

import pytest
import seccomp
from cluster import ROOT, wait_for
from real_model import MODEL, needs_model
from unpacked import HIGH_UID, Archive, Pod, build, why_not, why_not_inside

PROFILE = ROOT / "deploy/image/seccomp.json"
LAUNCHER = ROOT / "tests/image/seccomp.py"
KEYS, HEAD = ["--keys-dir", "/state/keys"], ["--head", "127.0.0.1:7000"]
REASON = why_not() or why_not_inside() or (None if seccomp.library() else "no libseccomp: apt-get install libseccomp2")
pytestmark = [pytest.mark.skipif(REASON is not None, reason=f"SKIPPED: {REASON}"), pytest.mark.timeout(600)]
REFUSED = {"unshare": ["/usr/bin/unshare", "--user", "/usr/bin/true"], "personality": ["/usr/bin/setarch", "--addr-no-randomize", "/usr/bin/true"],
           "mount": ["/usr/bin/mount", "--bind", "/tmp", "/tmp"], "a raw socket": [sys.executable, "-c", "import socket; socket.socket(17, 3)"]}


class Filtered(Pod):
    """`Filtered` starts each program under the profile."""

    def command(self, args, uid=HIGH_UID):
        return [sys.executable, str(LAUNCHER), str(PROFILE), str(self.holder.pid), str(self.rootfs), str(uid), *map(str, args)]

    def cox(self, *args, status=0, **kwargs):
        done = self.run("/usr/bin/cox", *args, **kwargs)
        assert done.returncode == status, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def inside(self, *words):
        subprocess.run(["nsenter", "--mount", "--net", "--target", str(self.holder.pid), *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Yields (root of the unpacked image, its environment)."""
    at = tmp_path_factory.mktemp("image")
    for folder in (at, *at.parents[:2]):
        folder.chmod(0o755)  # programs of another user run below this folder
    status, said = build(at / "image.tar")
    assert status == 0, said
    archive = Archive(at / "image.tar")
    (at / "rootfs").mkdir(mode=0o755)
    return archive.unpack(at / "rootfs"), archive.config["config"]["Env"]


@pytest.fixture
def pod(image, tmp_path):
    with Filtered(*image, tmp_path) as made:
        yield made


def test_the_profile_is_one_that_runtimes_read():
    """containerd reads the profile as OCI's LinuxSeccomp, Docker and CRI-O as their own format. The fields here mean the same in both."""
    profile = json.loads(PROFILE.read_text())
    assert set(profile) == {"defaultAction", "defaultErrnoRet", "architectures", "syscalls"} and profile["defaultAction"] == "SCMP_ACT_ERRNO"
    seen = set()
    for rule in profile["syscalls"]:
        assert set(rule) <= {"comment", "names", "action", "args", "errnoRet"} and rule["names"] == sorted(set(rule["names"])), rule
        assert rule["action"] in ("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO") and ("errnoRet" in rule) == (rule["action"] == "SCMP_ACT_ERRNO")
        assert all(set(a) <= {"index", "value", "valueTwo", "op"} and a["op"] in seccomp.OPS for a in rule.get("args", []))
        assert not seen & set(rule["names"]) or "args" in rule, rule
        seen |= set(rule["names"])
    for name in seen:  # a name with a typing error would be left out silently
        assert seccomp.library().seccomp_syscall_resolve_name(name.encode()) != -1, name
    dangerous = {"bpf", "init_module", "finit_module", "kexec_load", "keyctl", "add_key", "mount", "move_mount", "umount2", "open_by_handle_at", "pivot_root",
                 "perf_event_open", "process_vm_readv", "process_vm_writev", "ptrace", "reboot", "setns", "unshare", "userfaultfd", "io_uring_enter"}
    assert not dangerous & seen


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_program_needs_is_refused(what):
    done = subprocess.run([sys.executable, LAUNCHER, PROFILE, str(os.getpid()), "/", "0", *REFUSED[what]], capture_output=True, text=True)
    assert done.returncode == -signal.SIGSYS, (done.returncode, done.stderr)
    allowed = subprocess.run([sys.executable, LAUNCHER, PROFILE, str(os.getpid()), "/", "0", "/usr/bin/true"], capture_output=True, text=True)
    assert allowed.returncode == 0, allowed.stderr


def start(pod, model, *worker):
    """Starts a head, two workers and a gateway, with every option that adds a thread, a process or a file."""
    pod.cox("keys", *KEYS)
    pod.start("head", "head", "--tp", "2", "--step-log", "/tmp/steps", *KEYS)
    for i in range(2):
        pod.start(f"worker-{i}", "worker", "--model", model, "--tp", "2", "--http-port", 7001 + i, "--cpus", "0", *KEYS, *HEAD, *worker)
    pod.start("gateway", "gateway", "--model", model, "--served-model-name", "m", "--state-dir", "/state/files", "--access-log", "/tmp/access",
              "--otlp-traces-endpoint", "http://127.0.0.1:4318", "--admin-port", "8001", *KEYS, *HEAD)
    wait_ready(pod)


def wait_ready(pod):
    def ready():
        for name, p in pod.started.items():
            assert p.poll() is None, f"{name} ended with {p.returncode}: {pod.log(name)[-1500:]}"
        return pod.ask("http://127.0.0.1:8000/health")[0] == 200

    wait_for("/health is 200", ready, 120)


def ask(pod, path, body, **more):
    status, text = pod.ask(f"http://127.0.0.1:8000/v1/{path}", {"model": "m", **body, **more})
    assert status == 200, text
    return text


SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                                                                              "additionalProperties": False}}}


def use(pod):
    """Uses each part of the API once, and each command that talks to the cluster."""
    assert json.loads(ask(pod, "completions", {"prompt": "Once upon a time", "max_tokens": 4, "logprobs": 2}))["usage"]["completion_tokens"] == 4
    assert ask(pod, "completions", {"prompt": "a", "max_tokens": 4, "stream": True}).rstrip().endswith("[DONE]")
    text = ask(pod, "chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 48, "response_format": SCHEMA})
    assert json.loads(text)["choices"], text  # a process of the gateway compiles the schema
    status, _ = pod.ask("http://127.0.0.1:8000/v1/files")
    assert status == 200
    worker = json.loads(pod.cox("status", "--json"))["workers"][0]["instance"]
    for words in (["status"], ["top", "--once"], ["events"], ["debug", "dump"], ["drain", worker], ["undrain", worker],
                  ["smoke", "--url", "http://127.0.0.1:8000"], ["models"], ["version"], ["complete", "Hello", "--max-tokens", "4"]):
        pod.cox(*words)
    assert "127.0.0.1:9" in pod.run("/usr/bin/cox", "pull", "http://127.0.0.1:9/none.gguf").stderr, "the downloader ran"
    for name in ("head", "worker-0", "gateway"):
        assert pod.started[name].poll() is None, name


def recover(pod, *worker):
    """Kills a worker and the head, and starts them again."""
    pod.started["worker-1"].kill()
    pod.started["worker-1"].wait()
    pod.start("worker-1", *worker)
    pod.started["head"].kill()
    pod.started["head"].wait()
    pod.start("head", "head", "--tp", "2", *KEYS)
    wait_ready(pod)
    assert json.loads(ask(pod, "completions", {"prompt": "a", "max_tokens": 4}))["usage"]["completion_tokens"] == 4


def end(pod):
    for p in pod.started.values():
        p.terminate()
    assert {name: p.wait(60) for name, p in pod.started.items()} == dict.fromkeys(pod.started, 0)


def test_a_cluster_with_the_null_model(pod):
    start(pod, "null", "--device", "null")
    use(pod)
    recover(pod, "worker", "--model", "null", "--device", "null", "--tp", "2", "--http-port", 7002, *KEYS, *HEAD)
    end(pod)


@needs_model
def test_a_cluster_with_the_demo_model(pod):
    at = pod.rootfs / "cache/models" / MODEL.parent.name
    pod.inside("mkdir", "-p", at)
    pod.inside("mount", "--bind", "-o", "ro", MODEL.parent, at)
    options = ["--device", "cpu", "--threads", "2", "--max-model-len", "512"]
    assert "it is there" in pod.cox("pull", "demo") + pod.run("/usr/bin/cox", "pull", "demo").stderr
    start(pod, "demo", *options)
    use(pod)
    recover(pod, "worker", "--model", "demo", "--tp", "2", "--http-port", 7002, *KEYS, *HEAD, *options)
    end(pod)


def test_cox_up_in_one_container(pod):
    """`cox up` starts and supervises all programs in one container; it replaces a killed worker."""
    pod.start("up", "up", "null", "--workers", "2", "--tp", "2", "--host", "0.0.0.0", "--print-pids", "/tmp/pids")
    wait_ready(pod)
    assert "healthy" in pod.cox("status")
    pod.cox("scale", "4")
    end(pod)
