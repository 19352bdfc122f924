"""Tests that deploy/examples/two-hosts works block by block. Two network namespaces with a cable between them are the two hosts."""
import json

import null_oracle as oracle
from readme import SERVED, Readme, Shells, needs_hosts

pytestmark = needs_hosts
GATEWAY = "http://127.0.0.1:8000"


def test_as_its_readme_says(tmp_path):
    readme = Readme("two-hosts", tmp_path)
    with Shells(tmp_path, readme) as shells:
        first, second = shells.add("first", "second")
        shells.cable(first, second, "net", "net")
        first.address("net", "10.0.0.1/24")
        second.address("net", "10.0.0.2/24")
        shells.leave(first, "up", "first")
        shells.wait("cox up has made its keys", (readme.folder / "keys/authorized").exists)  # `cox up` writes this file last
        shells.type(first, "token")
        assert (readme.folder / "join").stat().st_mode & 0o077 == 0
        assert first.curl(f"{GATEWAY}/health", "-o", "/dev/null", "-w", "%{http_code}") != "200", "it serves with half of the model"
        shells.leave(second, "worker", "second")
        shells.wait_served(first, f"{GATEWAY}/health")
        said = shells.type(first, "ask")
        readme.saw("ask", said)
        text = json.loads(said[:said.index("========")])["choices"][0]["text"]
        assert SERVED != "null" or text == oracle.text("Once upon a time", 16, temperature=0)
        for name, own in (("up", 1), ("worker", 2)) if SERVED != "null" else ():  # null ranks do not communicate
            assert f"comm_listening address=10.0.0.{own}:7100" in shells.log(name)
        shells.end("worker")
        shells.end("up")
        shells.leave(first, "up-four", "first-four")
        shells.leave(second, "workers-four", "second-four")
        shells.wait_served(first, f"{GATEWAY}/health")
        status = json.loads(first.curl("http://127.0.0.1:8265/api/status"))
        assert [g["tp"] for g in status["groups"]] == [4]
        assert sorted((w["node"], w["ordinal"]) for w in status["workers"]) == [
            ("first", 0), ("first", 1), ("second", 2), ("second", 3)]
        for port in (7100, 7101) if SERVED != "null" else ():
            assert f"comm_listening address=10.0.0.2:{port}" in shells.log("workers-four")
    readme.all_were_tried()
