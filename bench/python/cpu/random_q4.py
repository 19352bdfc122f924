"""Makes models of TinyLlama 1.1B's shape in Q4_0 with random weights, without a quantiser: a GGUF file with any maximum length, and
the files that distributed-llama reads. Both kinds have the same blocks of the same pool, so that two programs multiply the same
numbers. Each file is made once."""
import json
import struct

import numpy as np
from cpu_peers_setup import MODELS, POOL, SHAPE, gguf_header, gguf_tensors, say, vocabulary

BLOCK, BLOCK_BYTES = 32, 18  # BLOCK: numbers in a block; BLOCK_BYTES: a float16 scale and 4 bits for each number
LONG = 40960  # maximum length of the model in tokens
GGUF_F32, GGUF_Q4_0 = 0, 2


def pool():
    """Returns [blocks, 18] bytes in the layout of GGML and distributed-llama, where number i shares a byte with number i + 16."""
    x = np.random.default_rng(1).normal(0, 0.02, POOL).astype(np.float32).reshape(-1, BLOCK)
    largest = x[np.arange(len(x)), np.abs(x).argmax(axis=1)]
    scale = (largest / -8).astype(np.float16)
    codes = np.clip(x / scale.astype(np.float32)[:, None] + 8.5, 0, 15).astype(np.uint8)
    return np.hstack([scale.view(np.uint8).reshape(-1, 2), codes[:, :BLOCK // 2] | codes[:, BLOCK // 2:] << 4])


def tensor(blocks, i, shape):
    """Returns the bytes of tensor i. Each tensor begins at a different offset in the pool; all elements of a vector are 1."""
    n = int(np.prod(shape))
    if len(shape) == 1:
        return np.ones(n, np.float32).tobytes()
    return np.resize(np.roll(blocks, -(i * 104729 % len(blocks)), axis=0), (n // BLOCK, BLOCK_BYTES)).tobytes()


def gguf_file(context=LONG):
    """Returns the path of the file. Makes the file when it is missing."""
    path = MODELS / f"llama-1.1b-q4_0-{context // 1024}k.gguf"
    if path.exists():
        return path
    MODELS.mkdir(parents=True, exist_ok=True)
    say(f"{path.name} is made")
    c = {**json.loads(SHAPE.read_text()), "max_position_embeddings": context}
    tensors, blocks, part = gguf_tensors(c), pool(), path.with_suffix(".part")

    def stored(shape):
        n = int(np.prod(shape))
        return (GGUF_F32, 4 * n) if len(shape) == 1 else (GGUF_Q4_0, n // BLOCK * BLOCK_BYTES)

    with open(part, "wb") as f:
        f.write(gguf_header(c, {name: (shape, *stored(shape)) for name, shape in tensors.items()}))
        for i, shape in enumerate(tensors.values()):
            f.write(tensor(blocks, i, shape))
    part.rename(path)
    return path


# ---- distributed-llama ----

ARCH_LLAMA, ACT_SILU, TYPE_F32, TYPE_Q40 = 0xABCD00, 1, 0, 2
MODEL_MAGIC, TOKENIZER_MAGIC = 0xA00ABCD, 0x567124
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def dllama_numbers(magic, fields):
    """Packs a header: magic, length, and pairs of key and value."""
    data = b"".join(struct.pack("<ii", *pair) for pair in fields.items())
    return struct.pack("<ii", magic, 8 + len(data)) + data


def dllama_model():
    path = MODELS / "llama-1.1b.dllama-q40.m"
    if path.exists():
        return path
    MODELS.mkdir(parents=True, exist_ok=True)
    say(f"{path.name} is made")
    c, blocks, part = json.loads(SHAPE.read_text()), pool(), path.with_suffix(".part")
    fields = {0: 0, 1: ARCH_LLAMA, 2: c["hidden_size"], 3: c["intermediate_size"], 4: c["num_hidden_layers"],
              5: c["num_attention_heads"], 6: c["num_key_value_heads"], 9: c["vocab_size"], 10: c["max_position_embeddings"],
              11: ACT_SILU, 12: int(c["rope_theta"]), 13: TYPE_Q40, 20: 5}
    order = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up", "attn_norm", "ffn_norm"]
    names = [f"blk.{i}.{name}.weight" for i in range(c["num_hidden_layers"]) for name in order]
    tensors = gguf_tensors(c)
    places = {name: i for i, name in enumerate(tensors)}
    with open(part, "wb") as f:
        f.write(dllama_numbers(MODEL_MAGIC, fields))
        n = c["vocab_size"] * c["hidden_size"]
        f.write(np.resize(np.random.default_rng(2).normal(0, 0.02, POOL).astype(np.float32), n).tobytes())  # the embeddings are stored as floats
        for name in [*names, "output_norm.weight", "output.weight"]:
            f.write(tensor(blocks, places[name], tensors[name]))
    part.rename(path)
    return path


def dllama_tokenizer():
    """Makes a vocabulary of the model's size from single letters and made-up words, so that a text of n letters is n tokens."""
    path = MODELS / "llama-1.1b.dllama.t"
    if path.exists():
        return path
    MODELS.mkdir(parents=True, exist_ok=True)
    n = json.loads(SHAPE.read_text())["vocab_size"]
    words = [text.encode() for text in vocabulary(n)[0][259 + 95:]]
    bos = n - 2  # text uses only the tokens before bos
    tokens = [letter.encode() for letter in LETTERS] + words + [b"<%d>" % k for k in range(n)]
    tokens = tokens[:bos] + [b"<s>", b"</s>"]
    with open(path, "wb") as f:
        f.write(dllama_numbers(TOKENIZER_MAGIC, {0: 1, 1: n, 2: max(map(len, tokens)), 3: bos, 9: 1, 10: 1}) + struct.pack("<i", n - 1))
        for k, token in enumerate(tokens):
            f.write(struct.pack("<fI", -float(k), len(token)) + token)
    return path
