"""Tests a real cluster with the official openai package, unmodified."""
import null_oracle as oracle
import openai
import pytest
from cluster import SLOW, Cluster, wait_for

KEY = "sk-e2e-test"


@pytest.fixture(scope="module")
def cluster():
    # A step takes 20 ms, so that a client's time-out can expire within an answer.
    with Cluster("--api-key", KEY, "--null-step-us", "20000", "--served-model-name", "null",
                 "org/null") as c:
        yield c


@pytest.fixture
def client(cluster):
    return openai.OpenAI(base_url=cluster.url + "/v1", api_key=KEY, max_retries=0, timeout=30 * SLOW)


def test_models(client):
    assert [m.id for m in client.models.list()] == ["null", "org/null"]
    assert client.models.retrieve("null").id == "null"
    assert client.models.retrieve("org/null").id == "org/null"  # the package sends org%2Fnull
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/%ff\0")


def test_keys_are_not_in_a_command_line(cluster):
    for pid in cluster.pids().values():
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            assert KEY.encode() not in f.read()


def test_completions(client):
    got = client.completions.create(model="null", prompt="Once", max_tokens=10, temperature=0)
    assert got.choices[0].text == oracle.text("Once", 10, temperature=0)
    assert got.usage.completion_tokens == 10


def test_every_name_is_served_and_the_first_one_answers(client):
    for name in ("null", "org/null"):
        assert client.completions.create(model=name, prompt="Once", max_tokens=2).model == "null"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="Once", max_tokens=2)


def test_chat(client):
    got = client.chat.completions.create(model="null", messages=[{"role": "user", "content": "Hi"}], max_tokens=10,
                                         seed=1)
    assert len(got.choices[0].message.content) == 10 and got.choices[0].finish_reason == "length"
    assert got.usage.completion_tokens == 10


def test_streams(client):
    pieces, usage = [], None
    for chunk in client.chat.completions.create(model="null", messages=[{"role": "user", "content": "Hi"}],
                                                max_tokens=10, seed=1, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        pieces += [c.delta.content or "" for c in chunk.choices]
    whole = client.chat.completions.create(model="null", messages=[{"role": "user", "content": "Hi"}], max_tokens=10,
                                           seed=1)
    assert "".join(pieces) == whole.choices[0].message.content
    assert usage.completion_tokens == 10
    text = "".join(c.choices[0].text for c in client.completions.create(
        model="null", prompt="Once", max_tokens=10, temperature=0, stream=True))
    assert text == oracle.text("Once", 10, temperature=0)


def test_several_choices(client):
    got = client.chat.completions.create(model="null", messages=[{"role": "user", "content": "Hi"}], max_tokens=20,
                                         n=4, temperature=1)
    assert len({c.message.content for c in got.choices}) == 4


def test_responses(client):
    """/v1/responses gives the same tokens for the same prompt, even when the messages are items, as in OpenAI's later form."""
    ask = {"model": "null", "max_output_tokens": 10, "temperature": 0}
    got = client.responses.create(input="Hi", **ask)
    chat = client.chat.completions.create(model="null", messages=[{"role": "user", "content": "Hi"}], max_tokens=10,
                                          temperature=0)
    assert got.output_text == chat.choices[0].message.content and got.id.startswith("resp_")
    assert got.status == "incomplete" and got.incomplete_details.reason == "max_output_tokens"
    assert got.usage.output_tokens == 10 and got.usage.input_tokens == chat.usage.prompt_tokens and not got.store
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, *got.output,
             {"role": "user", "content": "More"}]
    again = client.responses.create(input=items, **ask)
    chat = client.chat.completions.create(model="null", max_tokens=10, temperature=0, messages=[
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": got.output_text},
        {"role": "user", "content": "More"}])
    assert again.output_text == chat.choices[0].message.content
    rows = client.responses.create(input="Hi", include=["message.output_text.logprobs"], top_logprobs=2, **ask)
    rows = rows.output[0].content[0].logprobs
    assert "".join(r.token for r in rows) == got.output_text and all(len(r.top_logprobs) == 2 for r in rows)


def test_responses_in_a_stream(client):
    ask = {"model": "null", "max_output_tokens": 10, "temperature": 0, "input": "Hi"}
    whole = client.responses.create(**ask)
    with client.responses.stream(**ask) as s:
        events = list(s)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type.removeprefix("response.") for e in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert "".join(e.delta for e in events[4:-4]) == events[-4].text == whole.output_text
    assert events[-1].response.output_text == whole.output_text and events[-1].response.usage.output_tokens == 10
    # The helper receives the end event that it expects, so the answer is complete.
    with client.responses.stream(**{**ask, "max_output_tokens": 2000}, extra_body={"stop": whole.output_text[5:7]}) as s:
        last = s.get_final_response()
    assert last.status == "completed" and last.output_text == whole.output_text[:whole.output_text.index(whole.output_text[5:7])]


def test_responses_that_are_not_kept(client):
    for call in client.responses.retrieve, client.responses.delete, client.responses.cancel:
        with pytest.raises(openai.NotFoundError, match="stores no responses"):
            call("resp_123")
    for more in {"previous_response_id": "resp_123"}, {"background": True}, {"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}:
        with pytest.raises(openai.BadRequestError) as e:
            client.responses.create(model="null", input="Hi", **more)
        assert e.value.param == next(iter(more))


def test_embeddings(client):
    """Embeddings follow the null device's rule, not normalised: the last id's eight bits. The package requests base64 by default."""
    def bits(byte):
        return [float(byte >> i & 1) for i in range(8)]

    for form in ({}, {"encoding_format": "float"}):
        got = client.embeddings.create(model="null", input=["abc", "d"], **form)
        assert [d.embedding for d in got.data] == [bits(ord("c")), bits(ord("d"))]
        assert got.usage.prompt_tokens == 4 and got.model == "null"
    cut = client.embeddings.create(model="null", input=[3, 5], dimensions=3).data[0].embedding
    assert cut == pytest.approx([0.5 ** 0.5, 0, 0.5 ** 0.5])
    with pytest.raises(openai.BadRequestError, match="input"):
        client.embeddings.create(model="null", input=[])


def test_best_of(client):
    """With best_of the answer has the n best choices by log-probability per token. Discarded choices count in the usage."""
    body = {"model": "null", "prompt": "Once", "max_tokens": 6, "seed": 5, "temperature": 1}
    every = client.completions.create(**body, n=5, logprobs=0)
    ranked = sorted(every.choices, key=lambda c: -sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs))
    got = client.completions.create(**body, n=2, best_of=5)
    assert [c.text for c in got.choices] == [c.text for c in ranked[:2]]
    assert [c.index for c in got.choices] == [0, 1] and got.choices[0].logprobs is None
    assert got.usage.completion_tokens == every.usage.completion_tokens == 30
    for more in {"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}:
        with pytest.raises(openai.BadRequestError) as e:
            client.completions.create(**body, **more)
        assert e.value.param == "best_of"


def test_timeout_of_the_server(client, cluster):
    """An answer of 40 s with a time-out of 0.5 s ends with 504, and all its blocks are free again."""
    with pytest.raises(openai.APIStatusError) as e:
        client.completions.create(model="null", prompt="x" * 100, n=3, max_tokens=2000, extra_body={"timeout": 0.5})
    assert e.value.status_code == 504 and e.value.type == "TimeoutError"
    cluster.wait_idle()
    wait_for("its blocks are free", lambda: cluster.status()["kv"]["blocks_used"] == 0)
    with pytest.raises(openai.APIError, match="not finished before its timeout"):
        for _ in client.completions.create(model="null", prompt="x", max_tokens=2000, stream=True,
                                           extra_body={"timeout": 0.5}):
            pass
    cluster.wait_idle()


def test_errors(client, cluster):
    with pytest.raises(openai.NotFoundError) as e:
        client.completions.create(model="nobody", prompt="x")
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model="null", prompt="x", temperature=5)
    assert e.value.param == "temperature"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=cluster.url + "/v1", api_key="wrong", max_retries=0).models.list()


def test_timeout_cancels(client, cluster):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).completions.create(model="null", prompt="x", max_tokens=20000)
    cluster.wait_idle()


def test_closing_a_stream_cancels(client, cluster):
    stream = client.completions.create(model="null", prompt="x", max_tokens=2000, stream=True)
    next(iter(stream))
    assert cluster.running() == 1
    stream.close()
    cluster.wait_idle()
