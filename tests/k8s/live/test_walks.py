"""Types every walk of docs/ (tests/walk) as it is written, on the tests' cluster."""
import sys

import pytest
from release import REDIS, ROOT, demo_model, load_redis
from typist import Typist

sys.path.insert(0, str(ROOT / "tests/walk"))
import walks  # noqa: E402
from walker import Walk  # noqa: E402

NEEDS_MODEL = walks.DEMO | {walks.without_a_network}


@pytest.fixture(scope="module", autouse=True)
def redis(kube, tmp_path_factory):
    if REDIS:
        load_redis(kube, tmp_path_factory.mktemp("redis"))


@pytest.fixture
def typist(kube, image, walk, tmp_path):
    if walk in NEEDS_MODEL and demo_model() is None:
        pytest.skip("SKIPPED: the demo model is missing; run scripts/fetch-demo-model")
    if walk in (walks.helm, walks.several_nodes) and REDIS is None:
        pytest.skip("SKIPPED: redis-server is missing; run scripts/setup, which installs redis-tools")
    (tmp_path / "image.tar").symlink_to(image)
    space = kube.namespace("walk-" + walk.__name__.replace("_", "-"))
    one = Typist(kube, space, tmp_path, "demo" if walk in NEEDS_MODEL else "null")
    yield one
    one.close()
    kube.remove_namespace(space)


@pytest.mark.parametrize("walk", [*walks.WALKS, walks.after_installation], ids=lambda walk: walk.__name__)
def test_walk(typist, walk):
    walk(Walk(typist))
