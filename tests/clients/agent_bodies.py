"""Makes request bodies of clients that cannot be installed as packages here, with the fields that these clients send.
Each function returns the body of the first turn, or of the turn after the tool results in `results`.
The bodies are written by hand, from the clients' sources."""

SYSTEM = "You help with a folder of files."
QUESTION = "What does note.txt say?"
SHELL = {"name": "Bash", "description": "Runs a command.",
         "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"], "additionalProperties": False,
                        "$schema": "http://json-schema.org/draft-07/schema#"}}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def tool(**more):
    return [{"type": "function", "function": {**SHELL, **more}}]


def text(words, **more):
    return [{"type": "text", "text": words, **more}]


def opencode(results):
    """opencode uses the AI SDK's openai-compatible provider. It sends cache_control on messages, a reasoning effort, and tools
    without `strict`."""
    calls = [m for call, said in results for m in (
        {"role": "assistant", "content": "", "reasoning_content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": said, **EPHEMERAL})]
    return {"model": "caller", "max_tokens": 32000, "temperature": 0.55, "top_p": 1, "reasoning_effort": "medium", "prompt_cache_key": "ses_1",
            "messages": [{"role": "system", "content": SYSTEM, **EPHEMERAL}, {"role": "user", "content": QUESTION, **EPHEMERAL}, *calls],
            "tools": tool(), "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}}


def aider(results):
    """aider uses LiteLLM. It sends cache_control on content parts, `thinking` in Anthropic's form, and no tools. A result is the
    next user message."""
    said = [m for _, words in results for m in ({"role": "assistant", "content": "I need the note."}, {"role": "user", "content": words})]
    return {"model": "caller", "messages": [{"role": "system", "content": text(SYSTEM, **EPHEMERAL)}, {"role": "user", "content": QUESTION}, *said],
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "thinking": {"type": "enabled", "budget_tokens": 1024},
            "reasoning": {"max_tokens": 1024}}


def cline(results):
    calls = [m for call, said in results for m in (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": said})]
    return {"model": "caller", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text(QUESTION) + text("<environment/>")},
                                            *calls],
            "temperature": 0, "reasoning_effort": "high", "stream": True, "stream_options": {"include_usage": True}, "tools": tool(strict=False),
            "tool_choice": "auto", "parallel_tool_calls": False}


def continue_dev(results):
    """Continue sends a space for empty content, and the text around the cursor as `prediction`."""
    calls = [m for call, said in results for m in (
        {"role": "assistant", "content": " ", "tool_calls": [call]}, {"role": "tool", "content": said, "tool_call_id": call["id"]})]
    return {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}, *calls], "model": "caller",
            "max_tokens": 4096, "temperature": 0, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "stream": True, "stop": ["<|never|>"],
            "prediction": {"type": "content", "content": "x"}, "tools": tool(strict=True), "parallel_tool_calls": False}


def open_webui(results):
    calls = [m for call, said in results for m in (
        {"role": "assistant", "content": "", "tool_calls": [{"index": 0, **call}]},
        {"role": "tool", "tool_call_id": call["id"], "content": said, **EPHEMERAL})]
    return {"stream": True, "model": "caller", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}, *calls],
            "stream_options": {"include_usage": True}, "tools": tool(), "reasoning": {"effort": "low"}, "logit_bias": {}, "seed": 7,
            "user": {"name": "A", "id": "1", "email": "a@example.org", "role": "user"}, "metadata": {"chat_id": "c", "task": "title"},
            "session_id": "s"}


BODIES = {"opencode": opencode, "aider": aider, "cline": cline, "continue": continue_dev, "open-webui": open_webui}
