"""Tests with LiteLLM and its three prefixes for OpenAI-compatible servers: openai/, hosted_vllm/ and text-completion-openai/."""
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # without this variable LiteLLM fetches a list of prices from GitHub

import litellm  # noqa: E402
from scenarios import DEMO, KEY, LIMITED, SECONDS, URL, main, raises  # noqa: E402

ASK = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
    "type": "object", "properties": {n: {"type": "integer", "minimum": 0, "maximum": 9} for n in "ab"}, "required": ["a", "b"],
    "additionalProperties": False}}}


def null(call=litellm.completion, model="openai/null", **more):
    if "messages" not in more and "prompt" not in more and "input" not in more:
        more["messages"] = ASK
    if "input" not in more:
        more = {"max_tokens": 10, "temperature": 0, **more}
    return call(**{"model": model, "api_base": URL + "/v1", "api_key": KEY, "num_retries": 0, "timeout": SECONDS, **more})


def demo(**more):
    return litellm.completion(**{"model": "hosted_vllm/demo", "api_base": DEMO + "/v1", "api_key": "none", "timeout": SECONDS,
                                 "temperature": 0, "max_tokens": 120, **more})


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_answer():
    for model in "openai/null", "hosted_vllm/null":
        got = null(model=model)
        assert len(got.choices[0].message.content) == 10 and got.choices[0].finish_reason == "length"
        assert got.usage.completion_tokens == 10


def test_stream_with_usage():
    for model in "openai/null", "hosted_vllm/null":
        chunks = list(null(model=model, stream=True, stream_options={"include_usage": True}))
        assert text_of(chunks) == null().choices[0].message.content
        assert [c.usage.completion_tokens for c in chunks if getattr(c, "usage", None)] == [10]


async def test_async():
    got = await null(litellm.acompletion)
    stream = await null(litellm.acompletion, stream=True)
    assert text_of([c async for c in stream]) == got.choices[0].message.content


def test_several_stop_and_logprobs():
    got = null(n=3, temperature=1, seed=1)
    assert len({c.message.content for c in got.choices}) == 3
    whole = null().choices[0].message.content
    assert null(stop=[whole[4:6]]).choices[0].message.content == whole[:whole.index(whole[4:6])]
    rows = null(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(r.token for r in rows) == whole


def test_completion():
    got = null(litellm.text_completion, "text-completion-openai/null", prompt="Once")
    streamed = null(litellm.text_completion, "text-completion-openai/null", prompt="Once", stream=True)
    assert "".join(c.choices[0].text or "" for c in streamed) == got.choices[0].text and len(got.choices[0].text) == 10


def test_embedding():
    got = null(litellm.embedding, input=["abc", "d"])
    assert [d["embedding"] for d in got.data] == [[float(ord(c) >> i & 1) for i in range(8)] for c in "cd"]


def test_errors():
    raises(litellm.AuthenticationError, lambda: null(api_key="wrong"))
    raises(litellm.NotFoundError, lambda: null(model="openai/nobody"))
    assert "temperature" in str(raises(litellm.BadRequestError, lambda: null(temperature=5)))
    raises(litellm.ContextWindowExceededError, lambda: null(messages=[{"role": "user", "content": "x" * 5000}]))
    raises(litellm.Timeout, lambda: null(timeout=0.5, max_tokens=2000))


def test_limits_are_waited_for():
    """A key with a limit of one request per second gets 429. A LiteLLM router waits as long as the answer says and retries."""
    def ask(call, **more):
        return call(messages=ASK, max_tokens=1, **more)

    plain = {"model": "openai/null", "api_base": URL + "/v1", "api_key": LIMITED}
    e = raises(litellm.RateLimitError, lambda: [ask(litellm.completion, num_retries=0, max_retries=0, **plain) for _ in range(5)])
    assert e.status_code == 429
    router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": {**plain, "max_retries": 0}}], num_retries=8)
    assert all(ask(router.completion, model="m").usage.completion_tokens == 1 for _ in range(2))


def test_demo_structured_output():
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["age"],
              "additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}
    got = demo(messages=[{"role": "user", "content": "Ada is 36."}],
               response_format={"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": schema}})
    assert 1 <= json.loads(got.choices[0].message.content)["age"] <= 99


def test_demo_tools_in_a_stream():
    ask = [{"role": "user", "content": "What is 2 + 3?"}]
    # This test does not use the prefix hosted_vllm/, because that prefix removes additionalProperties from the tool: a small model then never ends
    # its object.
    chunks = list(demo(model="openai/demo", messages=ask, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, stream=True))
    message = litellm.stream_chunk_builder(chunks, messages=ask).choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "add" and json.loads(call.function.arguments).keys() == {"a", "b"}
    got = demo(messages=[*ask, message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "5"}], tools=[TOOL])
    assert got.usage.completion_tokens > 0


main(dict(globals()))
