"""Tests that an image FROM Coxswain's can contain a user's model (docs/how-to/custom-image.md), by COPY or by `cox pull` during the
build. A cluster starts from it without a network. buildah builds the image, and this test serves the model's files."""
import functools
import hashlib
import http.server
import json
import shutil
import subprocess
import sys
import threading

import pytest
from buildah import Buildah, why_no_buildah
from cluster import ROOT
from real_model import MODEL, needs_model
from test_image import start
from unpacked import Archive, Pod, build, why_not, why_not_inside

sys.path.insert(0, str(ROOT / "tests/walk"))
from pages import read_page  # noqa: E402

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}"),
              pytest.mark.skipif(why_not_inside() is not None, reason=f"SKIPPED: {why_not_inside()}"),
              pytest.mark.skipif(why_no_buildah() is not None, reason=f"SKIPPED: {why_no_buildah()}"), needs_model, pytest.mark.timeout(900)]


@pytest.fixture
def server():
    """Serves the demo model's folder over HTTP; yields the URL and the list of requested paths."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            try:
                super().do_GET()
            except ConnectionError:
                pass  # a client may close the connection once it has read enough

        def log_message(self, *args):
            pass

    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(MODEL.parent)))
    thread = threading.Thread(target=s.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{s.server_port}", asked
    s.shutdown()
    thread.join()
    s.server_close()


def of_the_page(reference):
    """Joins both Dockerfiles of docs/how-to/custom-image.md: one copies the model from local files, the other pulls it."""
    copied, pulled = [block.text for block in read_page("docs/how-to/custom-image.md")[1] if block.language == "dockerfile"]
    first, rest = pulled.split("\n", 1)
    assert first + "\n" == copied[:len(first) + 1] == "FROM coxswain:0.1.0\n"
    return (copied + rest).replace("FROM coxswain", "FROM localhost/coxswain").replace("hf:org/name@commit", reference)


def test_a_model_in_an_image_from_ours(tmp_path, server):
    url, asked = server
    for at in (tmp_path, *tmp_path.parents[:2]):
        at.chmod(0o755)
    status, said = build(tmp_path / "ours.tar")
    assert status == 0, said
    buildah = Buildah(tmp_path)
    buildah("tag", buildah("pull", "-q", f"oci-archive:{tmp_path / 'ours.tar'}"), "localhost/coxswain:0.1.0")
    context = tmp_path / "context"
    (context / "my-model").mkdir(parents=True)
    shutil.copyfile(MODEL, context / "my-model/mine.gguf")
    digest = hashlib.sha256(MODEL.read_bytes()).hexdigest()
    reference = f"{url}/{MODEL.name}#sha256={digest}"
    (context / "Dockerfile").write_text(of_the_page(reference))
    buildah("bud", "--isolation", "chroot", "-t", "localhost/custom", context)
    assert asked == [f"/{MODEL.name}"] * len(asked) and asked  # `cox pull` may request the file twice, to find its kind first
    buildah("push", "-q", "localhost/custom", f"oci-archive:{tmp_path / 'custom.tar'}")
    shutil.rmtree(tmp_path / "store")
    custom = Archive(tmp_path / "custom.tar")
    assert custom.config["config"]["User"] == "65532:0" and custom.config["config"]["Entrypoint"] == ["/usr/bin/cox"]
    rootfs = tmp_path / "rootfs"
    rootfs.mkdir()
    custom.unpack(rootfs)
    for name, model in (("pulled", reference), ("copied", "/models/my-model/mine.gguf")):
        logs = tmp_path / name
        logs.mkdir()
        with Pod(rootfs, custom.config["config"]["Env"], logs, scratch=("tmp", "state", "dev/shm")) as pod:
            assert pod.run("/usr/bin/cox", "pull", model, "--check").returncode == 0  # an init container runs this command
            start(pod, model, "--device", "cpu", "--threads", "1", "--max-model-len", "512")
            status, text = pod.ask("http://127.0.0.1:8000/v1/completions", {
                "model": "m", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0})
            assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 4, text
    assert subprocess.run(["cmp", rootfs / "models/my-model/mine.gguf", MODEL]).returncode == 0
