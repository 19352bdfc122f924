"""A checkpoint of a Llama's shape with random bfloat16 weights, for benchmarks of loading: what is in it
is of no use to anybody else."""
import argparse
import json
import shutil
from pathlib import Path

import numpy as np

POOL = 8 << 20  # random numbers; every tensor begins at another place of them


def shapes(c):
    """{name: shape} as transformers names and orders them."""
    d, kv = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"] * c["num_key_value_heads"]
    found = {"model.embed_tokens.weight": (c["vocab_size"], d)}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        found |= {layer + "self_attn.q_proj.weight": (d, d), layer + "self_attn.k_proj.weight": (kv, d),
                  layer + "self_attn.v_proj.weight": (kv, d), layer + "self_attn.o_proj.weight": (d, d),
                  layer + "mlp.gate_proj.weight": (c["intermediate_size"], d),
                  layer + "mlp.up_proj.weight": (c["intermediate_size"], d),
                  layer + "mlp.down_proj.weight": (d, c["intermediate_size"]),
                  layer + "input_layernorm.weight": (d,), layer + "post_attention_layernorm.weight": (d,)}
    return found | {"model.norm.weight": (d,), "lm_head.weight": (c["vocab_size"], d)}


def write_tensor(f, pool, shape, seed):
    n = int(np.prod(shape))
    if len(shape) == 1:
        f.write(np.full(n, 0x3f80, np.uint16).tobytes())  # 1.0
        return
    begin, left = seed * 104729 % (POOL // 2), n
    while left > 0:
        piece = pool[begin:begin + left]
        f.write(piece.tobytes())
        left -= len(piece)
        begin = 0


def write(shape, tokenizer, folder):
    """folder: made anew from shape's config.json, with the files of a tokenizer. Returns bytes of weights."""
    config = json.loads((shape / "config.json").read_text())
    assert config["model_type"] == "llama" and config["torch_dtype"] == "bfloat16"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(shape / "config.json", folder)
    for file in tokenizer.glob("tokenizer*"):
        shutil.copy(file, folder)
    header, end = {}, 0
    for name, s in shapes(config).items():
        n = 2 * int(np.prod(s))
        header[name] = {"dtype": "BF16", "shape": s, "data_offsets": [end, end + n]}
        end += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    pool = rng.integers(0, 1 << 16, POOL, np.uint16) & 0x807f | 0x3c00  # 2^-7, either sign
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for i, t in enumerate(header.values()):
            write_tensor(f, pool, t["shape"], i)
    return end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("shape", "tokenizer", "folder"):
        parser.add_argument(name, type=Path)
    o = parser.parse_args()
    print(f"{o.folder}: {write(o.shape, o.tokenizer, o.folder) / 1e9:.2f} GB")
