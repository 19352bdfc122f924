"""Tests that when a grammar needs a character that the vocabulary lacks, the answer is an error and never "stop": not streamed,
streamed, with draft tokens, and beside other requests in the same step."""
import json
import shutil

import httpx
import pytest
from cluster import ROOT, SLOW, Cluster

TINY = ROOT / "build/goldens/llama_tiny"  # the vocabulary of this model has a token for each byte
pytestmark = pytest.mark.skipif(not TINY.exists(), reason=f"no tiny checkpoint at {TINY}: scripts/make-goldens")
DEAD = {"structured_outputs": {"regex": "ab7"}}
WORDS = "grammar allows none of this model's tokens"


@pytest.fixture(scope="module", params=[[], ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3}']], ids=["plain", "drafts"])
def cluster(request, tmp_path_factory):
    """Makes a tiny model whose token for 7 is replaced by another token."""
    folder = tmp_path_factory.mktemp("dead") / "model"
    shutil.copytree(TINY, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["\u2603"] = vocabulary.pop("7")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with Cluster("--device", "cpu", "--served-model-name", "m", *request.param, model=str(folder)) as c:
        yield c


def ask(cluster, **more):
    return httpx.post(f"{cluster.url}/v1/completions", timeout=120 * SLOW,
                      json={"model": "m", "prompt": "abababab", "max_tokens": 20, "temperature": 0, **more})


def test_a_whole_answer_is_an_error(cluster):
    r = ask(cluster, **DEAD)
    assert r.status_code == 400 and WORDS in r.json()["error"]["message"], r.text


def test_a_stream_ends_with_an_error(cluster):
    """The error is a status when the stream has not begun. The first tokens may arrive together with the error."""
    r = ask(cluster, stream=True, **DEAD)
    if r.status_code != 200:
        assert r.status_code == 400 and WORDS in r.json()["error"]["message"], r.text
        return
    lines = [json.loads(line[6:]) for line in r.text.splitlines() if line.startswith("data: {")]
    assert WORDS in lines[-1]["error"]["message"], r.text
    assert not any(c.get("finish_reason") for line in lines[:-1] for c in line.get("choices", [])), r.text


def test_one_of_several_choices_is_dead(cluster):
    r = ask(cluster, n=2, **DEAD)
    assert r.status_code == 400 and WORDS in r.json()["error"]["message"], r.text


@pytest.mark.parametrize("regex,text", [("ab[78]", "ab8"), ("ab7?", "ab")])
def test_what_has_a_way_takes_it(cluster, regex, text):
    r = ask(cluster, structured_outputs={"regex": regex}).json()["choices"][0]
    assert (r["text"], r["finish_reason"]) == (text, "stop")


def test_nothing_at_all_is_refused_at_once(cluster):
    r = ask(cluster, structured_outputs={"regex": "7"})
    assert r.status_code == 400 and "structured_outputs" in r.json()["error"]["message"], r.text
