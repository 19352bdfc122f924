"""Writes the files in a model's folder: safetensors, GGUF version 3, tokenizer files. The formats follow their descriptions
(huggingface/safetensors README; ggml docs/gguf.md)."""
import json
import struct

import numpy as np

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def write_json(path, value):
    with open(path, "w", encoding="ascii") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def write_safetensors(path, tensors):
    """Writes a safetensors file. tensors: name -> (dtype name, shape, bytes)."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def gguf_string(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(kind, v):
    if kind == STRING:
        return gguf_string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def gguf_key(key, kind, v):
    """Returns the bytes of a key. kind is (ARRAY, element kind) for an array."""
    if isinstance(kind, tuple):
        body = struct.pack("<IQ", kind[1], len(v)) + b"".join(gguf_value(kind[1], x) for x in v)
        kind = ARRAY
    else:
        body = gguf_value(kind, v)
    return gguf_string(key) + struct.pack("<I", kind) + body


def write_gguf(path, keys, tensors):
    """Writes a GGUF file. keys: (key, kind, value). tensors: name -> (type id, shape with the outermost dimension first, bytes)."""
    infos, datas, at = b"", [], 0
    for name, (kind, shape, data) in tensors.items():
        infos += gguf_string(name) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", kind, at)
        data += b"\0" * (-len(data) % ALIGNMENT)
        datas.append(data)
        at += len(data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(gguf_key(*k) for k in keys) + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT))
        for data in datas:
            f.write(data)


# ---- tokenizers without merges: each byte or character of a text is one token ----

CHAT = ("{{ bos_token }}{% for message in messages %}{{ OPEN + message['role'] + '\\n' + message['content'] | trim"
        " + CLOSE + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ OPEN + 'ROLE\\n' }}{% endif %}")


def byte_alphabet():
    """Returns GPT-2's alphabet: a printable character for each byte."""
    chars, extra = {}, 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255:
            chars[b] = chr(b)
        else:
            chars[b] = chr(extra)
            extra += 1
    return [chars[b] for b in range(256)]


class Tokenizer:
    """`Tokenizer` is the common part of the tokenizers below. tokens: texts by id; control: ids of special tokens. The subclasses
    turn text into ids."""

    def files(self):
        special = {k: self.tokens[i] for k, i in self.named.items()}
        added = [{"id": i, "content": self.tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True} for i in self.control]
        start = {"SpecialToken": {"id": special["bos_token"], "type_id": 0}}
        bos = {"id": special["bos_token"], "ids": [self.named["bos_token"]], "tokens": [special["bos_token"]]}
        post = {"type": "TemplateProcessing", "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {special["bos_token"]: bos}}
        model = {"type": "BPE", "dropout": None, "unk_token": special.get("unk_token"),
                 "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": self.bytes_fall_back,
                 "byte_fallback": self.bytes_fall_back, "ignore_merges": False,
                 "vocab": {t: i for i, t in enumerate(self.tokens)}, "merges": []}
        config = {"model_max_length": self.max_len, "tokenizer_class": "PreTrainedTokenizerFast",
                  "clean_up_tokenization_spaces": False, "chat_template": self.chat, **special,
                  "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added}}
        return {"tokenizer.json": {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                                   **self.pipeline, "post_processor": post, "model": model},
                "tokenizer_config.json": config, "special_tokens_map.json": special}

    def gguf_keys(self):
        p = "tokenizer.ggml."
        keys = [(p + "model", STRING, self.gguf_model), (p + "pre", STRING, self.gguf_pre),
                (p + "tokens", (ARRAY, STRING), self.tokens), (p + "token_type", (ARRAY, I32), self.types),
                (p + "add_bos_token", BOOL, True), (p + "add_eos_token", BOOL, False),
                ("tokenizer.chat_template", STRING, self.chat)]
        names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
        keys += [(f"{p}{names[k]}_token_id", U32, i) for k, i in self.named.items()]
        if self.gguf_model == "llama":
            keys += [(p + "scores", (ARRAY, F32), [-float(i) for i in range(len(self.tokens))]),
                     (p + "add_space_prefix", BOOL, False)]
        else:
            keys += [(p + "merges", (ARRAY, STRING), [])]
        return keys


class ByteLevel(Tokenizer):
    """`ByteLevel` has 256 bytes, then special tokens up to vocab_size, like Llama 3's tokenizer."""
    bytes_fall_back, gguf_model, gguf_pre = False, "gpt2", "llama-bpe"
    pipeline = {"normalizer": None,
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}

    def __init__(self, vocab_size, max_len):
        named = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        named += [f"<|reserved_special_token_{i}|>" for i in range(vocab_size - 256 - len(named))]
        self.tokens, self.max_len = byte_alphabet() + named, max_len
        self.control = range(256, vocab_size)
        self.types = [1] * 256 + [3] * len(named)
        self.named = {"bos_token": 256, "eos_token": 260}
        self.eos_ids = [257, 260]
        self.chat = CHAT.replace("OPEN", "'<|start_header_id|>'").replace("CLOSE", "'<|eot_id|>'").replace("ROLE", "assistant")

    def encode(self, text):
        return [256] + list(text.encode())


class Characters(Tokenizer):
    """`Characters` has special tokens, 256 bytes as a fallback, then single characters, like Gemma's tokenizer."""
    bytes_fall_back, gguf_model, gguf_pre = True, "llama", "default"
    pipeline = {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                "decoder": {"type": "Sequence", "decoders": [
                    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                    {"type": "ByteFallback"}, {"type": "Fuse"}]}}

    def __init__(self, vocab_size, max_len):
        named = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
        raw = [f"<0x{b:02X}>" for b in range(256)]
        chars = ["\u2581"] + [chr(c) for c in range(33, 127)]
        chars += [chr(0x3B1 + i) for i in range(vocab_size - len(named) - len(raw) - len(chars))]
        self.tokens, self.max_len = named + raw + chars, max_len
        self.control = range(len(named))
        self.types = [3, 3, 3, 2, 3, 3] + [6] * 256 + [1] * len(chars)
        self.named = {"bos_token": 2, "eos_token": 1, "unk_token": 3, "pad_token": 0}
        self.eos_ids = [1, 5]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.chat = CHAT.replace("OPEN", "'<start_of_turn>'").replace("CLOSE", "'<end_of_turn>'").replace("ROLE", "model")

    def encode(self, text):
        return [2] + [self.ids[c] for c in text.replace(" ", "\u2581")]


def f32_tensor(x):
    x = np.ascontiguousarray(x, np.float32)
    return "F32", x.shape, x.tobytes()
