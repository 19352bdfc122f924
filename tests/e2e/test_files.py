"""Tests /v1/files with the openai package, against real processes."""
import openai
import pytest
from cluster import SLOW, Cluster, get

MINE, OTHER = "sk-files-mine", "sk-files-other"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(f"{MINE} alice\n{OTHER} bob\n")
    return path


def cluster(folder, keys):
    return Cluster("--state-dir", folder, "--api-key-file", keys)


def client(c, key=MINE):
    return openai.OpenAI(base_url=c.url + "/v1", api_key=key, max_retries=0, timeout=30 * SLOW)


def test_files(tmp_path, keys):
    with cluster(tmp_path / "deep" / "state", keys) as c:
        mine, other = client(c), client(c, OTHER)
        first = mine.files.create(file=("a.jsonl", b'{"x":1}\r\n--\n'), purpose="batch")
        assert (first.filename, first.bytes, first.purpose, first.object) == ("a.jsonl", 12, "batch", "file")
        second = mine.files.create(file=("b b.jsonl", b""), purpose="batch")
        assert mine.files.content(first.id).read() == b'{"x":1}\r\n--\n'
        assert mine.files.content(second.id).read() == b""
        assert [f.id for f in mine.files.list()] == [second.id, first.id]
        assert [f.id for f in mine.files.list(order="asc", limit=1)] == [first.id, second.id]  # the package sends two requests
        assert [f.id for f in mine.files.list(purpose="vision")] == []

        assert [f.id for f in other.files.list()] == []
        for call in (other.files.retrieve, other.files.content, other.files.delete):
            with pytest.raises(openai.NotFoundError):
                call(first.id)
        assert get(c.url + "/v1/files")[0] == 401

        with pytest.raises(openai.BadRequestError, match="purpose"):
            mine.files.create(file=("a", b"x"), purpose="fine-tune")
        with pytest.raises(openai.BadRequestError, match="limit"):
            mine.files.list(limit=0)
        assert get(c.url + "/v1/files", headers={"Authorization": f"Bearer {MINE}"})[0] == 200

    with cluster(tmp_path / "deep" / "state", keys) as c:  # this is a second cluster with the same folder
        mine = client(c)
        assert mine.files.retrieve(first.id).bytes == 12
        assert mine.files.delete(first.id).deleted
        with pytest.raises(openai.NotFoundError):
            mine.files.content(first.id)
        assert [f.id for f in mine.files.list()] == [second.id]


def test_without_a_folder():
    with Cluster() as c, pytest.raises(openai.NotFoundError, match="--state-dir"):
        client(c).files.list()
