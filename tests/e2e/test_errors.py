"""Tests every command's error when something is missing: one line with what happened, where and what to do next, a non-zero exit
status, and no other output. The cases are: wrong address, dead head, no rights, no disk, no network."""
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import BIN, SLOW, Cluster, free_ports, run_cox

NOBODY = "127.0.0.1:1"  # no process listens at this address
FORBIDDEN = "/sys/not-here"  # not even root can create this file; containers mount /sys read-only
NO_RIGHTS = "(Operation not permitted|Permission denied|Read-only file system)"
PORTS = free_ports(3)
LINE = '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"null","prompt":"x","max_tokens":2}}\n'
ASK = "Check that the server runs and that the address is right"
KINDS = "must be \"demo\", \"null\", a GGUF file, a folder with config.json"

# Cases of (command and arguments, exit status, expected words); {tmp} is a folder with in.jsonl.
CASES = [
    # wrong addresses
    *((f"{c} --address {NOBODY}", 2, f"cannot connect to http://{NOBODY}/api/.*{re.escape(ASK)}")
      for c in ("status", "top", "top --once", "events", "drain all", "undrain all", "sleep", "wake", "usage", "lora list", "debug dump")),
    *((f"{c} --address no.such.host.invalid:8265", 2, f"{re.escape(ASK)}|did not answer in time")  # second text: the name server does not answer
      for c in ("status", "drain 0")),
    (f"keys --reload --address {NOBODY}", 1, re.escape(ASK)),
    (f"chat --url http://{NOBODY}", 1, re.escape(ASK)),
    ("chat --url ftp://here/", 1, "ftp://here/.*not a valid address"),
    (f"complete text --url http://{NOBODY}", 1, re.escape(ASK)),
    ("complete text --url ftp://here/", 1, "ftp://here/.*not a valid address"),
    (f"run-batch -i {{tmp}}/in.jsonl -o {{tmp}}/out.jsonl --url http://{NOBODY} --retry-timeout 0", 1, re.escape(ASK)),
    (f"bench serve --model null --num-prompts 1 --ready-check-timeout-sec 0 --base-url http://{NOBODY}", 1, re.escape(ASK)),
    ("bench serve --model null --num-prompts 1 --base-url ftp://here/", 2, "ftp://here/.*not a valid address"),
    # missing arguments
    ("bench throughput", 2, "no model to measure: give --model MODEL .*, or --base-url URL"),
    ("bench latency", 2, "no model to measure: give --model MODEL .*, or --base-url URL"),
    ("drain", 2, "the worker is missing. Give .*`cox status` shows them"),
    ("undrain", 2, "the worker is missing"),
    ("lora load", 2, "Give list, load NAME=FOLDER or unload NAME"),
    ("debug", 2, "usage: cox debug dump"),
    ("up", 2, "the model is missing; usage: cox up MODEL"),
    ("serve", 2, "the model is missing; usage: "),
    ("plan", 2, "no model is named; usage: cox plan"),
    ("replay", 2, "usage: cox replay FILE"),
    ("scale", 2, "the number of workers is missing or not from 0 to 1024; usage: cox scale \\[NAME\\] N"),
    ("scale many", 2, "the number of workers is missing or not from 0 to 1024"),
    ("scale null many", 2, "the number of workers is missing or not from 0 to 1024"),
    ("ps a b", 2, 'unexpected argument "b"; usage: cox ps'),
    ("ps nobody", 1, "this user runs no cluster with the name nobody on this machine. `cox ps` lists all clusters"),
    ("stop --all null", 2, "--all stops every cluster, so it cannot be used with NAME"),
    ("stop nobody", 1, "this user runs no cluster with the name nobody on this machine"),
    ("up null --name -x", 2, "--name -x is invalid: use 1 to 47 letters"),
    ("up null --peer-timeout 0.5", 2, "--peer-timeout: .0.5. is not allowed; it must be a number from 1 to 600"),
    ("keys", 2, "the folder of the keys is missing: give --keys-dir DIR"),
    ("join-token", 2, "the folder of the keys is missing: give --keys-dir DIR"),
    ("completion tcsh", 2, "usage: cox completion bash"),
    ("pull", 2, "the model is missing; usage: cox pull"),
    ("models add", 2, "the model is missing; usage: cox models add"),
    ("models rm", 2, "the name is missing; usage: cox models rm NAME"),
    ("models alias a", 2, "the name or its aliases are missing; usage: cox models alias NAME"),
    ("models list all", 2, 'unexpected argument "all"; usage: cox models list'),
    *((f"models {c} --cluster nobody", 1, "this user runs no cluster with the name nobody on this machine") for c in ("list", "add null", "rm a")),
    ("models add x=null --set y", 1, "--set y: the form is KEY=VALUE"),
    (f"models rm a --gateway {NOBODY}", 2, re.escape(ASK)),
    ("models add x=null --gateway localhost:1", 1, "an entry of a gateway has a name and a head"),
    ("models lst", 2, 'unknown command "lst"; did you mean "cox models list"'),
    ("rm", 2, "the model is missing; usage: cox rm MODEL.*`cox models` lists the models"),
    ("rm org/none --cache-dir {tmp}/cache", 1, "model org/none is not in the cache: the cache \\(.*/cache\\) is empty"),
    ("run-batch", 2, "-i"),
    (f"smoke --url http://{NOBODY} --timeout 1", 1, re.escape(ASK)),
    ("help nosuch", 2, 'unknown command "nosuch"; `cox help` lists the commands'),
    ("worker", 2, "the worker has no keys: set --join TOKEN .*, --keys-dir DIR, or --insecure"),
    (f"workers --http-port {PORTS[0]}", 2, "the worker has no keys: set --join TOKEN"),
    ("gateway", 2, "--model is missing: give demo, null, or the path of a model"),
    *((f"run {c}", 2, "the run file is missing; usage: cox run") for c in ("--check", "create", "render", "create -f a --from b")),
    *((f"run {c}", 2, f"the run is missing; usage: cox run {c} ID .*`cox run list` lists the runs") for c in ("show", "logs", "terminate", "delete")),
    ("run nosuch", 2, 'unknown command "nosuch"; use cox run -f FILE, or cox run create\\|list\\|show'),
    ("run list all", 2, 'unexpected argument "all"'),
    ("run render -f {tmp}/in.jsonl -n No_Good", 2, "--namespace No_Good is invalid: use up to 63 lower-case letters"),
    ("head --insecure --runs cox", 2, "--runs cox: the value must be the full path of the program cox"),
    # missing files and names
    *((f"run {c}-f /not/here", 2, "cannot open the run file /not/here: No such file or directory") for c in ("", "--check ", "create ", "render ")),
    *((f"run {c} nobody", 1, 'there is no run "nobody"; `cox run list` lists the runs') for c in ("show", "logs", "terminate", "delete")),
    ("run create --from 1234", 1, 'there is no run "1234"; `cox run list`'),
    *((f"run {c} 123", 2, '"123" is too short. Give at least 4 digits of a run.s ID, or its name; `cox run list`') for c in ("show", "logs", "terminate", "delete", "create --from")),
    *((f"{c} --address 127.0.0.1:1", 1, "this user runs no cluster at 127.0.0.1:1 on this machine .*\\. Start one")
      for c in ("logs", "scale 2")),
    *((f"{c} /not/here", 2, f"the model /not/here is not a file or folder.*{re.escape(KINDS)}") for c in ("up", "serve", "plan")),
    ("bench serve --model null --dataset-path /not/here --base-url http://127.0.0.1:1", 2, "/not/here: No such file or directory"),
    ("replay /not/here", 2, "/not/here: No such file or directory"),
    ("run-batch -i /not/here -o {tmp}/out.jsonl --url http://127.0.0.1:1", 2, "/not/here: No such file or directory"),
    ("head --keys-dir /not/here", 2, "/not/here/head.key does not exist. Run `cox keys --keys-dir /not/here` to make"),
    ("gateway --keys-dir /not/here --model null", 2, "/not/here/.*`cox keys"),
    ("worker --keys-dir /not/here --model null", 2, "/not/here/.*`cox keys"),
    ("status --admin-key-file /not/here", 2, "cannot open the admin key file /not/here: No such file or directory \\(--admin-key-file"),
    # missing rights
    *((f"run {c} --runs-dir {FORBIDDEN}", 1, f"{FORBIDDEN}.*{NO_RIGHTS}\\. Give another folder with --runs-dir DIR") for c in ("list", "show x", "create --from 1")),
    (f"keys --keys-dir {FORBIDDEN}", 1, f"cannot create the key folder {FORBIDDEN}: .*{NO_RIGHTS}. Choose another folder with --keys-dir"),
    (f"join-token --keys-dir {FORBIDDEN} --head a:1", 1, f"key folder {FORBIDDEN}: .*{NO_RIGHTS}"),
    (f"up null --keys-dir {FORBIDDEN}", 1, f"key folder {FORBIDDEN}: .*{NO_RIGHTS}"),
    (f"pull hf:a/b --cache-dir {FORBIDDEN}", 1, f"{FORBIDDEN}: .*{NO_RIGHTS}.*Set COX_CACHE to a writable folder"),
    (f"run-batch -i {{tmp}}/in.jsonl -o {FORBIDDEN} --url http://{NOBODY}", 2, f"cannot open the output file {FORBIDDEN}: {NO_RIGHTS}\\. Give a file that can be written as -o"),
    ("up null --host 192.0.2.1 --head-port {} --admin-port {} --worker-http-port {}".format(*PORTS), 2, "gateway-0 cannot listen on 192.0.2.1 port 8000"),
    # no network
    ("pull hf:a/b --retries 0 --cache-dir {tmp}/cache", 1, "cannot reach 127.0.0.1 .*Check the network; if a proxy is needed, set HTTPS_PROXY"),
    ("pull demo --retries 0 --cache-dir {tmp}/cache", 1, "cannot reach 127.0.0.1 .*Check the network; if a proxy is needed, set HTTPS_PROXY"),
    ("pull s3://bucket/model --retries 0 --cache-dir {tmp}/cache", 1, "cannot reach 127.0.0.1"),
    ("up hf:a/b --offline --cache-dir {tmp}/cache", 2, "model hf:a/b@main is not in the cache .* and cannot be downloaded offline: `cox pull hf:a/b@main`"),
    ("pull http://127.0.0.1:1/m.gguf --retries 0 --cache-dir {tmp}/cache", 2, "sha256"),
]
OFFLINE = {"HF_ENDPOINT": f"http://{NOBODY}", "COX_INDEX": f"http://{NOBODY}/simple", "AWS_ENDPOINT_URL": f"http://{NOBODY}",
           "AWS_REGION": "here", "NO_PROXY": "*"}


def environment(tmp, **more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("COX_", "AWS_", "HF_"))}, "HOME": str(tmp), "TMPDIR": str(tmp), **OFFLINE, **more}


def judge(command, code, says, done):
    """Checks that Coxswain prints one line with the expected words. Programs with a log write the line as an event."""
    name, lines, others = command.split()[0], done.stderr.splitlines(), done.stdout
    if name == "smoke":  # smoke prints its list on stdout, and the failure is the last line
        lines, others = done.stdout.splitlines(), done.stderr
    if command.startswith("run-batch") and lines and "answered," in lines[0]:
        lines.pop(0)  # the first line is the progress
    assert done.returncode == code, (command, done.returncode, done.stderr)
    assert len(lines) == 1 and not others, (command, done.stdout, done.stderr)
    assert re.match(rf"cox {name}( [a-z]+)?: \S|\S+Z error {name} start_failed status=\w+ error=|failed  health +\S", lines[0]), lines[0]
    assert re.search(says, lines[0]), (command, says, lines[0])
    assert len(lines[0]) < 700 and not re.search(r"Traceback|backtrace|assert|\.c:\d", lines[0]), lines[0]


@pytest.mark.parametrize("command, code, says", CASES, ids=[c[0].replace("/", "_")[:60] for c in CASES])
def test_what_is_wrong_is_said_in_one_line(tmp_path, command, code, says):
    (tmp_path / "in.jsonl").write_text(LINE)
    judge(command, code, says, run_cox(*command.format(tmp=tmp_path).split(), env=environment(tmp_path), stdin=subprocess.DEVNULL))


def test_every_command_has_cases():
    listed = re.findall(r"^  ([a-z-]+) +\S", run_cox("help").stdout.split("COMMAND [OPTION", 1)[1], re.M)
    assert len(listed) > 20
    without = set(listed) - {c.split()[0] for c, _, _ in CASES}
    assert without == {"version"}, f"what do these say when something is wrong? CASES lacks {without - {'version'}}"


@pytest.mark.parametrize("program, args, says", [
    ("worker", ["--model", "null", "--http-port", "0"], "no program answers at this address, or its host name cannot be resolved here"),
    ("gateway", ["--model", "null", "--port", "0"], "no program answers at this address, or its host name cannot be resolved here")])
def test_who_waits_for_a_head_says_so(program, args, says):
    """A program without a head waits for the head, and logs its address."""
    p = subprocess.Popen([BIN / "cox", program, "--insecure", "--head", NOBODY, *args], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True)
    try:
        for line in p.stderr:
            if "head_unreachable" in line:
                break
        assert "head_unreachable" in line and says in line and p.poll() is None
    finally:
        p.terminate()
        p.stderr.close()
        p.wait(20 * SLOW)


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--null-step-us", 500) as c:
        yield c


@pytest.mark.parametrize("command", ["status", "status --json", "top --once", "events", "events --json", "debug dump", "drain 0",
                                     "undrain 0", "sleep", "wake", "usage", "usage --json", "flags", "help", "status --help", "completion bash", "version",
                                     "plan --params 1e9 --layers 8 --hidden 512 --max-model-len 512",
                                     "chat --completion --max-tokens 2", "complete hi --max-tokens 2",
                                     "complete --json --max-tokens 2"])
def test_a_full_disk_is_not_fine(cluster, command):
    """A command fails when its output goes to a full disk."""
    where = ["--url", cluster.url] if command.startswith(("chat", "complete ")) else \
        ["--address", f"127.0.0.1:{cluster.admin_port}"] if not re.match("flags|help|plan|completion|version|.*help", command) else []
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN / "cox", *command.split(), *where], stdout=full, stderr=subprocess.PIPE, input="hi\n",
                              text=True, timeout=20 * SLOW)
    assert done.returncode == 1, (command, done.stderr)
    assert re.fullmatch(rf"cox {command.split()[0]}: the output is incomplete: writing failed\. Check that the output is open and has free space\n", done.stderr)


def test_usage_of_a_gateway(cluster):
    """A gateway counts no usage, which is no reason to upgrade it."""
    done = run_cox("usage", "--address", cluster.url.removeprefix("http://"))
    judge("usage", 1, "is no head of Coxswain. Check that --address is the head's admin port .* and not a gateway", done)


def test_a_batch_for_which_there_is_no_room(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text(LINE)
    done = run_cox("run-batch", "-i", tmp_path / "in.jsonl", "-o", "/dev/full", "--url", cluster.url)
    judge("run-batch", 1, "cannot write /dev/full: No space left on device. Free some disk space, then continue with --resume", done)


def test_a_head_that_does_not_answer(cluster):
    """The head is stopped, so it accepts connections and never answers. Each command reports this after some seconds."""
    head = cluster.pid("head")
    commands = ["status", "top", "events", "drain 0", "lora list", "debug dump"]
    os.kill(head, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(len(commands)) as pool:
            answers = list(pool.map(lambda c: run_cox(*c.split(), "--address", f"127.0.0.1:{cluster.admin_port}", timeout=30), commands))
    finally:
        os.kill(head, signal.SIGCONT)
    for command, done in zip(commands, answers):
        judge(command, 2, f"http://127.0.0.1:{cluster.admin_port}/api/.*(did not answer|no whole answer)", done)
