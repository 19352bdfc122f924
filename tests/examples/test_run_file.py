"""Tests that deploy/examples/run-file works block by block: a cluster from one file. It runs on a separate host, so that its ports
are free."""
import json

from readme import Readme, Shells, needs_hosts

pytestmark = needs_hosts


def test_as_its_readme_says(tmp_path):
    readme = Readme("run-file", tmp_path)
    with Shells(tmp_path, readme) as shells:
        host, = shells.add("one")
        shells.type(host, "key")
        shells.leave(host, "up", "up")
        shells.wait_seen("up", "up")
        shells.wait("the spare is there", lambda: "1 spare" in host.run("sh", "-c", shells.before + "cox status", check=False))
        readme.saw("ask", shells.type(host, "ask"))
        assert host.curl("http://127.0.0.1:8000/v1/models", "-o", "/dev/null", "-w", "%{http_code}") == "401"
        assert (readme.folder / "keys/head.key").exists()
        shells.end("up")
        shells.leave(host, "wins", "wins", env={"COX_MAX_MODEL_LEN": "512"})
        shells.wait_served(host, "http://127.0.0.1:8000/health")
        assert json.loads(host.curl("http://127.0.0.1:8265/api/status"))["model"]["max_model_len"] == 1024
        shells.end("wins")
        readme.saw("typo", shells.type(host, "typo", status=2))
    readme.all_were_tried()

