"""Tests with langchain-openai, used as its documentation shows except for base_url."""
from typing import Annotated

import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from scenarios import DEMO, KEY, SECONDS, URL, main, raises

ASK = [SystemMessage("Be brief."), HumanMessage("Hi")]


def null(kind=ChatOpenAI, **more):
    return kind(**{"model": "null", "base_url": URL + "/v1", "api_key": KEY, "max_retries": 0, "timeout": SECONDS,
                   "temperature": 0, "max_tokens": 10, **more})


def demo(**more):
    return ChatOpenAI(model="demo", base_url=DEMO + "/v1", api_key="none", max_retries=0, timeout=SECONDS,
                      temperature=0, max_tokens=120, **more)


def test_answer():
    got = null().invoke(ASK)
    assert len(got.content) == 10 and got.response_metadata["finish_reason"] == "length"
    assert got.usage_metadata["output_tokens"] == 10 and got.response_metadata["model_name"] == "null"


def test_stream_with_usage():
    pieces = list(null().stream(ASK, stream_usage=True))
    assert len(pieces) > 5 and "".join(p.content for p in pieces) == null().invoke(ASK).content
    assert sum(p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata) == 10


async def test_async():
    chat = null()
    whole = (await chat.ainvoke(ASK)).content
    assert "".join([p.content async for p in chat.astream(ASK)]) == whole
    assert [m.content for m in await chat.abatch([ASK, ASK])] == [whole] * 2


def test_several_and_stop():
    got = null(temperature=1, n=3, seed=1).generate([ASK]).generations[0]
    assert len({g.text for g in got}) == 3
    whole = null().invoke(ASK).content
    got = null().invoke(ASK, stop=[whole[4:6]])
    assert got.content == whole[:whole.index(whole[4:6])] and got.response_metadata["finish_reason"] == "stop"


def test_logprobs():
    got = null().bind(logprobs=True, top_logprobs=2).invoke(ASK)
    rows = got.response_metadata["logprobs"]["content"]
    assert "".join(r["token"] for r in rows) == got.content and all(len(r["top_logprobs"]) == 2 for r in rows)


def test_completion():
    llm = null(OpenAI)
    assert len(llm.invoke("Once")) == 10 == len("".join(llm.stream("Once")))


def test_responses():
    assert null(use_responses_api=True).invoke(ASK).text == null().invoke(ASK).content


def test_embeddings():
    # Without check_embedding_ctx_length=False this class sends token IDs from tiktoken, which only OpenAI's models understand.
    model = OpenAIEmbeddings(model="null", base_url=URL + "/v1", api_key=KEY, check_embedding_ctx_length=False)
    assert model.embed_documents(["abc", "d"]) == [[float(ord(c) >> i & 1) for i in range(8)] for c in "cd"]
    assert model.embed_query("d") == model.embed_documents(["d"])[0]


def test_errors():
    raises(openai.AuthenticationError, lambda: null(api_key="wrong").invoke(ASK))
    raises(openai.NotFoundError, lambda: null(model="nobody").invoke(ASK))
    assert raises(openai.BadRequestError, lambda: null(temperature=5).invoke(ASK)).param == "temperature"
    raises(openai.BadRequestError, lambda: null().invoke("x" * 5000))
    raises(openai.APITimeoutError, lambda: null(timeout=0.5, max_tokens=2000).invoke(ASK))


class Person(pydantic.BaseModel):
    """Somebody."""
    # Small models would fill the flexible whitespace of the JSON text with newlines.
    model_config = {"json_schema_extra": {"x-guidance": {"whitespace_flexible": False}}}
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=1, le=99)


def test_demo_structured_output():
    for method in "json_schema", "function_calling":
        model = demo().with_structured_output(Person, method=method, strict=True)
        got = model.invoke("Ada is 36 years old.")
        assert isinstance(got, Person), (method, got)
    assert list(demo().with_structured_output(Person).stream("Ada is 36 years old."))[-1].age <= 99


Digit = Annotated[int, pydantic.Field(ge=0, le=9)]


@tool
def add(a: Digit, b: Digit) -> int:
    """Adds two numbers."""
    return a + b


def test_demo_tools_in_a_stream():
    """A streamed tool call arrives in pieces; the client runs it and sends the result back."""
    ask = [HumanMessage("What is 2 + 3?")]
    model = demo(seed=1).bind_tools([add], tool_choice="add", strict=True)
    whole = None
    for piece in model.stream(ask):
        whole = piece if whole is None else whole + piece
    assert [c["name"] for c in whole.tool_calls] == ["add"] and whole.tool_calls[0]["args"].keys() == {"a", "b"}
    assert model.invoke(ask).tool_calls[0]["args"] == whole.tool_calls[0]["args"]
    answer = add.invoke(whole.tool_calls[0])
    assert isinstance(answer, ToolMessage) and answer.tool_call_id == whole.tool_calls[0]["id"]
    assert demo().bind_tools([add]).invoke([*ask, whole, answer]).usage_metadata["output_tokens"] > 0


main(dict(globals()))
