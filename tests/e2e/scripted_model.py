"""Writes a Llama of one layer with weights written by hand. It calls a tool and reads the tool's result.

The vocabulary is the 256 bytes and tokens that are whole texts. A row of the model's head gives the token after a token (a
bigram). The attention has one effect: the token ASK attends to the token of WORDS in the prompt and copies it. The chat template
ends a prompt with the token for the next action: call a tool that the client has, repeat a tool's result, or greet. Only the
worker's forward pass computes the answer."""
import json
import struct

import numpy as np

WORDS = ["bowsprit", "keelson", "fairlead", "gunwale", "scuttlebutt", "taffrail"]  # words that a tool may find; no client's prompt contains one
HELLO = "Hello from the harbour."
SAYS = "The note says: "
END, ROLE, ASK = "<|end|>", "<|role|>", "<|ask|>"
HEAD, HEADS = 64, 8
WIDTH = HEAD * HEADS
SURE = 50.0  # logits differ by hundreds, so temperature changes nothing


def call_text(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def byte_letters():
    """Returns the letter that byte-level BPE writes for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def template(calls):
    """Returns a chat template that reads only the end of each message, so that a client's long instructions cost little. Like many
    templates it refuses a system message that is not the first; Claude Code sends such messages."""
    begin = "".join(f"{'{%- if' if i == 0 else '{%- elif'} {json.dumps(name)} in has.names -%}}<|call {name}|>" for i, name in enumerate(calls))
    return ("{%- set has = namespace(names=[], result=false) -%}"
            "{%- for t in tools or [] -%}{%- set has.names = has.names + [t.function.name] -%}{%- endfor -%}"
            "{%- for m in messages -%}{%- if m.role == 'system' and not loop.first -%}"
            "{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}" + ROLE + "{{ m.role }}\n{{ (m.content or '')[-2000:] }}" + END +
            "{%- if m.role == 'tool' -%}{%- set has.result = true -%}{%- endif -%}{%- endfor -%}"
            "{%- if has.result -%}" + ASK + begin.replace("{%- if", "{%- elif", 1) + "{%- else -%}<|say|>{%- endif -%}")


def tokens_of(calls):
    """Returns (text, is special, following text or None) of each token after the 256 bytes."""
    states = [(f"<|call {name}|>", True, call_text(name, arguments)) for name, arguments in calls.items()]
    texts = [(then, False, END) for _, _, then in states]
    return [(END, True, None), (ROLE, True, None), (ASK, True, SAYS), ("<|say|>", True, HELLO), *states, *texts,
            (HELLO, False, END), (SAYS, False, None), *((w, False, END) for w in WORDS)]


def weights(tokens):
    n, at = 256 + len(tokens), {text: 256 + i for i, (text, _, _) in enumerate(tokens)}
    asks, is_word, found = n, n + 1, n + 2  # these features follow the token's one-hot part
    assert found + len(WORDS) <= WIDTH
    embed, head = np.zeros((n, WIDTH), np.float32), np.zeros((n, WIDTH), np.float32)
    q, k, v, o = (np.zeros((WIDTH, WIDTH), np.float32) for _ in range(4))
    embed[np.arange(n), np.arange(n)] = 1
    embed[at[SAYS], asks] = 1
    slow = HEAD // 2 - 1  # rope rotates this pair of dimensions least
    q[slow, asks] = k[slow, is_word] = 2
    for i, word in enumerate(WORDS):
        embed[at[word], is_word] = 1
        v[i, at[word]] = 1
        o[found + i, i] = 1
        head[at[word], found + i] = SURE
    for text, _, then in tokens:
        if then:
            head[at[then], at[text]] = SURE
    layer, ones, none = "model.layers.0.", np.ones(WIDTH, np.float32), np.zeros((HEAD, WIDTH), np.float32)
    return {"model.embed_tokens.weight": embed, "lm_head.weight": head, "model.norm.weight": ones,
            layer + "input_layernorm.weight": ones, layer + "post_attention_layernorm.weight": ones,
            layer + "self_attn.q_proj.weight": q, layer + "self_attn.k_proj.weight": k,
            layer + "self_attn.v_proj.weight": v, layer + "self_attn.o_proj.weight": o,
            layer + "mlp.gate_proj.weight": none, layer + "mlp.up_proj.weight": none, layer + "mlp.down_proj.weight": none.T.copy()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))


def write(folder, calls, max_len=65536):
    """Writes a model folder. calls: {tool: arguments} of each tool; the model calls the first one that the client has."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = tokens_of(calls)
    letters = byte_letters()
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": special} for i, (text, special, _) in enumerate(tokens)]
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    files = {
        "config.json": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
                        "intermediate_size": HEAD, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
                        "head_dim": HEAD, "max_position_embeddings": max_len, "rms_norm_eps": 1e-5, "rope_theta": 1e8,
                        "tie_word_embeddings": False, "vocab_size": 256 + len(tokens), "bos_token_id": None, "eos_token_id": 256,
                        "torch_dtype": "float32", "attention_bias": False, "mlp_bias": False},
        "generation_config.json": {"eos_token_id": 256},
        "tokenizer_config.json": {"eos_token": END, "model_max_length": max_len, "tokenizer_class": "PreTrainedTokenizerFast",
                                  "chat_template": template(calls)},
        "tokenizer.json": {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                           "pre_tokenizer": bytes_only, "post_processor": None, "decoder": bytes_only,
                           "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                     "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                                     "vocab": {letters[b]: b for b in range(256)}, "merges": []}},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    write_safetensors(folder / "model.safetensors", weights(tokens))
    return folder
