"""Runs each attack that holds once against a null cluster; WIRED names these attacks by family or by name. COX_HOSTILE_ALL=1 runs
all attacks, also those that take longer than 26 s. neighbour.py runs many attacks at once beside a polite tenant."""
import os

import pytest
from attack import delete_file, strike, upload_file
from attacks import Target, all_attacks
from cluster import SLOW, Cluster
from neighbour import chart_limits

ALL = bool(os.environ.get("COX_HOSTILE_ALL"))
WIRED = {"disk", "bytes", "host", "inline", "allof", "template", "stop", "unread/content", "body/of_a_ping", "body/of_a_probe"}
LONG = 26.0  # most seconds of a short attack, except for attacks on the disk


def chosen(needs_keys):
    """Returns the attacks that need keys, or those that need none. An attack without keys has no_keys in its `needs`; all other
    attacks use a key."""
    found = [a for a in all_attacks() if ("no_keys" in a.needs) != needs_keys]
    return found if ALL else [a for a in found if {a.name, a.family} & WIRED and (a.seconds <= LONG or a.family == "disk")]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    with Cluster("--api-key", "hostile-key-01", "--state-dir", folder / "state", "--trust-request-chat-template", "--tool-call-parser", "hermes",
                 "--enable-auto-tool-choice", workers=1, tp=1) as c:
        t = Target("127.0.0.1", c.ports[0], "hostile-key-01", "null")
        t.file_id = upload_file(t, 15 << 20 if ALL else 1 << 20)
        yield c, t
        delete_file(t)


@pytest.fixture(scope="module")
def open_to_all():
    with Cluster(workers=1, tp=1) as c:
        yield c, Target("127.0.0.1", c.ports[0], "", "null")


def hold(attack, world):
    c, t = world
    why, results, _, _ = strike(attack, t, c.pid("gateway-0"), 30.0 * SLOW, chart_limits()["gateway"] * SLOW)
    assert not why, f"{attack.name}: {why}"


@pytest.mark.parametrize("attack", chosen(True), ids=lambda a: a.name)
def test_with_a_key(attack, keyed):
    hold(attack, keyed)


@pytest.mark.parametrize("attack", chosen(False), ids=lambda a: a.name)
def test_without_keys(attack, open_to_all):
    hold(attack, open_to_all)


def test_each_family_has_ten_neighbours():
    families = {}
    for a in all_attacks():
        families.setdefault(a.family, []).append(a.name)
    few = {f: len(n) for f, n in families.items() if len(n) < 11 and f != "slow"}
    assert not few, few
