"""Tests `cox pull` over several connections: many files, and 16 MiB ranges of a large file, which are resumed."""
import hashlib
import signal
import threading

import pytest
from cluster import SLOW, wait_for
from hub_server import Hub, bytes_of, tiny_model
from test_pull import AT, WEIGHTS, World, bad, good
from test_pull_s3 import Bucket, objects

RANGE = 16 << 20
SIZE = 3 * RANGE + 12345
BIG = bytes_of(SIZE)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def hub():
    with Hub({"org/tiny": tiny_model() | {WEIGHTS: BIG}}) as h:
        yield h


def ranges(server):
    return sorted((h.get("Range") for _, h in server.asked(WEIGHTS)), key=lambda r: (len(r or ""), r or ""))


def want(*indices):
    return [f"bytes={i * RANGE}-{min((i + 1) * RANGE, SIZE) - 1}" for i in indices]


def check(world, folder, body=BIG):
    assert hashlib.sha256((folder / WEIGHTS).read_bytes()).digest() == hashlib.sha256(body).digest()
    assert not [n for n in world.names() if ".part" in n or ".ranges" in n or ".lock" in n]


@pytest.mark.parametrize("n", [1, 2, 8])
def test_ranges(world, hub, n):
    check(world, good(world.pull("org/tiny", "--parallel", str(n), hub=hub)))
    assert ranges(hub) == sorted(want(0, 1, 2, 3), key=lambda r: (len(r), r))
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))


def test_as_many_as_are_allowed(world, hub):
    """As many connections as allowed run at once, and no more. Each range waits until all are requested."""
    both, most, now, mutex = threading.Barrier(2), [0], [0], threading.Lock()
    plain = hub.answer

    def answer(h, path, action):
        if not path.endswith(WEIGHTS):
            return plain(h, path, action)
        with mutex:
            now[0] += 1
            most[0] = max(most[0], now[0])
        both.wait(60 * SLOW)
        plain(h, path, action)
        with mutex:
            now[0] -= 1
        return None
    hub.answer = answer
    check(world, good(world.pull("org/tiny", "--parallel", "2", hub=hub)))
    assert most[0] == 2


def test_many_files_at_once(world, hub):
    together = threading.Barrier(3)
    plain = hub.answer

    def answer(h, path, action):
        if "model-0000" in path:
            together.wait(60 * SLOW)
        return plain(h, path, action)
    hub.answer = answer
    model = hub.models["org/tiny"]
    del model[WEIGHTS]
    model |= {f"model-0000{i}-of-00003.safetensors": bytes_of(1000, i) for i in (1, 2, 3)} | {
        "model.safetensors.index.json": b"{}"}
    folder = good(world.pull("org/tiny", "--parallel", "3", hub=hub))
    assert all((folder / n).read_bytes() == b for n, b in model.items() if n.startswith("model-"))


@pytest.mark.parametrize("faults", [
    [("cut", 5_000_000), ("cut", 0), ("status", 503), ("status", 429, {"Retry-After": "0"})],
    [("cut", 1)] * 6,
])
def test_what_passes(world, hub, faults):
    hub.faults[AT] = list(faults)
    check(world, good(world.pull(hub=hub)))


@pytest.mark.parametrize("faults, code, words", [
    ([("status", 500)] * 40, 1, ["500"]),
    ([("status", 403)], 2, ["403", "HF_TOKEN"]),
    ([("garbage",)] * 8, 1, ["was downloaded twice, both times with SHA-256"]),
    ([("longer",)] * 40, 1, ["the list of files says"]),
])
def test_what_does_not_pass(world, hub, faults, code, words):
    hub.faults[AT] = list(faults)
    bad(world.pull("org/tiny", "--retries", "2", hub=hub), code, *words)
    assert not [n for n in world.names() if "cox-pull" in n or n.endswith(".lock")]
    hub.faults.clear()
    check(world, good(world.pull(hub=hub)))


def test_wrong_once(world, hub):
    hub.faults[AT] = [(), ("garbage",)]
    check(world, good(world.pull(hub=hub), "downloading it again from the start"))
    assert len(hub.asked(WEIGHTS)) == 8


@pytest.mark.parametrize("faults", [[("norange",)], [(), (), ("norange",), ("norange",)]])
def test_a_server_without_ranges(world, hub, faults):
    hub.faults[AT] = list(faults) + [("norange",)] * 9
    check(world, good(world.pull(hub=hub)))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_and_again(world, hub, how):
    """Complete ranges are not requested again. The list of ranges is trusted only as far as the bytes exist."""
    hub.faults[AT] = [(), ("slow", 0.5, 1000), (), ("slow", 0.5, 1000)]
    p = world.start("org/tiny", "--parallel", "4", hub=hub)
    try:
        wait_for("two ranges", lambda: any(
            f.read_bytes().count(b"1") == 2 for f in (world.cache / "models/pulled").glob("*.part-*/*.ranges")))
        p.send_signal(how)
        _, err = p.communicate(timeout=20 * SLOW)
        assert p.returncode == (-9 if how == signal.SIGKILL else 1), err
    finally:
        if p.poll() is None:
            p.kill()
            p.communicate()
    # The second and the fourth requested range are missing.
    order = [h["Range"] for _, h in hub.asked(WEIGHTS)]
    hub.requests.clear()
    hub.faults.clear()
    check(world, good(world.pull(hub=hub)))
    assert ranges(hub) == sorted([order[1], order[3]], key=lambda r: (len(r), r))


@pytest.mark.parametrize("list_of", [b"", b"1", b"1111", b"11x1", b"1" * 100])
def test_a_list_that_lies(world, hub, list_of):
    hub.faults[AT] = [(), (), (), ("status", 404)]
    bad(world.pull("org/tiny", "--parallel", "1", hub=hub), 2, "404")
    at = next((world.cache / "models/pulled").glob("*.part-*/*.ranges"))
    assert at.read_bytes() == b"1110"
    at.write_bytes(list_of)
    with open(at.with_suffix(""), "r+b") as f:
        f.seek(RANGE + 5)
        f.write(b"damaged")
    hub.faults.clear()
    check(world, good(world.pull(hub=hub)))


def test_an_object_that_changes_meanwhile(world):
    with Bucket(objects("a") | {f"a/{WEIGHTS}": BIG}) as s3:
        other = bytes_of(SIZE, seed=5)

        class Swap(list):
            def pop(self, at):
                action = super().pop(at)
                if not self:
                    s3.objects[f"a/{WEIGHTS}"] = other
                return action
        s3.faults[f"/models/a/{WEIGHTS}"] = Swap([(), ()])
        folder = good(world.pull("s3://models/a", "--parallel", "1", AWS_ENDPOINT_URL=s3.url))
        check(world, folder, other)  # all files have the same version


def test_a_full_number_of_ranges(world, hub):
    hub.models["org/tiny"][WEIGHTS] = BIG[:2 * RANGE]
    check(world, good(world.pull(hub=hub)), BIG[:2 * RANGE])
    assert len(hub.asked(WEIGHTS)) == 2
