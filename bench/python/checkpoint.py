"""Writes a checkpoint of a Llama model's shape with random bfloat16 weights, for benchmarks of loading. The model has no other use.
With --codes, the matrices of its layers are 4-bit codes as AutoAWQ or GPTQ write them."""
import argparse
import json
import shutil
from pathlib import Path

import numpy as np

GROUP = 128  # number of inputs that share a scale
POOL = 8 << 20  # count of random numbers; every tensor begins at a different offset in them


def shapes(c):
    """Returns {name: shape} with transformers' names and order."""
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


def tensors(c, codes):
    """Yields (name, dtype, shape) of each tensor in the file."""
    for name, shape in shapes(c).items():
        if codes is None or len(shape) == 1 or not name.startswith("model.layers."):
            yield name, "BF16", shape
            continue
        (n, k), name = shape, name.removesuffix("weight")
        yield name + "qweight", "I32", (k, n // 8) if codes == "awq" else (k // 8, n)
        yield name + "qzeros", "I32", (k // GROUP, n // 8)
        yield name + "scales", "F16", (k // GROUP, n)


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


def write(shape, tokenizer, folder, codes=None):
    """Removes `folder` and writes it again from the config.json of `shape` and the files of a tokenizer. Returns the bytes of
    weights."""
    config = json.loads((shape / "config.json").read_text())
    assert config["model_type"] == "llama" and config["torch_dtype"] == "bfloat16"
    folder.mkdir(parents=True, exist_ok=True)
    if codes:
        config["quantization_config"] = {"quant_method": codes, "bits": 4, "group_size": GROUP, "desc_act": False,
                                         "zero_point": True, "version": "gemm"}
    (folder / "config.json").write_text(json.dumps(config))
    for file in tokenizer.glob("tokenizer*"):
        shutil.copy(file, folder)
    header, end = {}, 0
    for name, dtype, s in tensors(config, codes):
        n = (4 if dtype == "I32" else 2) * int(np.prod(s))
        header[name] = {"dtype": dtype, "shape": s, "data_offsets": [end, end + n]}
        end += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    pool = rng.integers(0, 1 << 16, POOL, np.uint16) & 0x807f | 0x3c00  # the numbers have a size of about 2^-7 and either sign
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for i, t in enumerate(header.values()):
            halves = (*t["shape"][:-1], 2 * t["shape"][-1]) if t["dtype"] == "I32" else t["shape"]
            write_tensor(f, pool, halves, i)
    return end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("shape", "tokenizer", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--codes", choices=("awq", "gptq"))
    o = parser.parse_args()
    print(f"{o.folder}: {write(o.shape, o.tokenizer, o.folder, o.codes) / 1e9:.2f} GB")
