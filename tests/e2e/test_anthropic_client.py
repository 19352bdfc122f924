"""Tests a real cluster with the official anthropic package, unmodified."""
import anthropic
import httpx
import pytest
from cluster import SLOW, Cluster

KEY = "sk-e2e-test"
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--api-key", KEY, "--served-model-name", "null") as c:
        yield c


@pytest.fixture
def client(cluster):
    return anthropic.Anthropic(base_url=cluster.url, api_key=KEY, max_retries=0, timeout=30 * SLOW)


def test_message(client):
    got = client.messages.create(model="null", max_tokens=10, messages=HI, extra_body={"temperature": 0})
    assert got.type == "message" and got.role == "assistant" and got.model == "null" and got.id.startswith("msg_")
    assert [b.type for b in got.content] == ["text"] and got.stop_reason == "max_tokens"
    assert got.usage.output_tokens == 10
    count = client.messages.count_tokens(model="null", messages=HI)
    assert got.usage.input_tokens + got.usage.cache_read_input_tokens == count.input_tokens


def test_stream_is_the_whole(client):
    ask = {"model": "null", "max_tokens": 10, "messages": HI, "extra_body": {"temperature": 0}}
    whole = client.messages.create(**ask)
    with client.messages.stream(**ask) as s:
        text = "".join(s.text_stream)
        last = s.get_final_message()
    assert text == whole.content[0].text == last.content[0].text
    assert last.stop_reason == "max_tokens" and last.usage.output_tokens == 10
    kinds = [e.type for e in client.messages.create(**ask, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_stop_sequence(client):
    ask = {"model": "null", "max_tokens": 20, "messages": HI, "extra_body": {"temperature": 0}}
    text = client.messages.create(**ask).content[0].text
    got = client.messages.create(**ask, stop_sequences=[text[5:7]])
    assert got.stop_reason == "stop_sequence" and got.stop_sequence == text[5:7]
    assert got.content[0].text == text[:text.index(text[5:7])]


def test_system_and_what_is_begun(client):
    """A longer system prompt has more ids. A message that continues an answer ends the prompt."""
    def count(**more):
        return client.messages.count_tokens(model="null", **more).input_tokens

    assert count(messages=HI, system="Be kind.") > count(messages=HI)
    begun = [*HI, {"role": "assistant", "content": "Well,"}]
    assert count(messages=begun) > count(messages=HI)
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert count(messages=blocks) == count(messages=HI)


def test_an_answer_is_sent_back_whole(client):
    """An answer that is sent back completely has more members than a model reads. The prompt then uses only role and content."""
    ask = {"model": "null", "max_tokens": 5, "extra_body": {"temperature": 0}}
    first = client.messages.create(messages=HI, **ask)
    more = {"role": "user", "content": "Go on"}
    bare = {"role": "assistant", "content": first.content[0].text}
    got = [client.messages.create(messages=[*HI, m, more], **ask) for m in (bare, first.model_dump(), first.to_dict())]
    assert len({(g.content[0].text, g.usage.input_tokens + g.usage.cache_read_input_tokens) for g in got}) == 1


@pytest.mark.parametrize("behavior", ["error", "continue_unthreaded"])
def test_a_thread_that_is_not_kept(client, behavior):
    """The client requests a thread, receives a "not found", and then sends all messages, as the package's tool runner does."""
    thread = client.beta.messages.thread(model="null", max_tokens=5, unsupported_request_behavior=behavior)
    said = [thread.send({"role": "user", "content": text}) for text in ("Hi", "Go on", "And now?")]
    read = [m.usage.input_tokens + m.usage.cache_read_input_tokens for m in said]
    assert read[0] < read[1] < read[2]


def test_a_system_message_at_its_place(client):
    late = [*HI, {"role": "system", "content": "Be kind."}]
    count = client.beta.messages.count_tokens
    assert count(model="null", messages=late).input_tokens > count(model="null", messages=HI).input_tokens


def test_errors(client, cluster):
    with pytest.raises(anthropic.NotFoundError) as e:
        client.messages.create(model="nobody", max_tokens=5, messages=HI)
    assert e.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="image"):
        client.messages.create(model="null", max_tokens=5, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}]}])
    with pytest.raises(anthropic.NotFoundError) as e:  # the gateway has no such path
        client.messages.batches.list()
    assert e.value.body == {"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}}
    with pytest.raises(anthropic.APIStatusError) as e:
        client.get("/v1/messages", cast_to=object)
    assert e.value.status_code == 405 and e.value.body["type"] == "error"
    other = anthropic.Anthropic(base_url=cluster.url, api_key="sk-other", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        other.messages.count_tokens(model="null", messages=HI)
    bearer = anthropic.Anthropic(base_url=cluster.url, auth_token=KEY, max_retries=0)
    assert bearer.messages.count_tokens(model="null", messages=HI).input_tokens > 0
    r = httpx.post(cluster.url + "/v1/messages", json={}, headers={"x-api-key": KEY})
    assert r.status_code == 400 and r.json()["type"] == "error"
