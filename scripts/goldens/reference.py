"""Makes the reference models: tiny checkpoints of random weights made with transformers, and transformers' results for them. Their
folders in tests/golden/models have everything except the weights, which are made again from a seed (torch_random.py):
  weights.json   the weight files: name -> sha256, tensors in order with dtype and shape
  weights.fix    exclusive or of the bytes made here and the original's, when they differ, compressed (LZMA)

  scripts/goldens/reference.py FROM NAME...    writes these folders from complete checkpoints in FROM/models; only needed to add
                                               a reference model (tests/golden/models/README.md)
"""
import hashlib
import json
import lzma
import math
import os
import re
import shutil
import struct
import sys

import numpy as np

import quant
import quant_hf
from torch_random import Random

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHIPPED = os.path.join(ROOT, "tests", "golden", "models")
MADE = ("weights.json", "weights.fix")
# transformers keeps the experts of a layer in two tensors; publishers keep three tensors per expert: (gate, up, down)
EXPERTS = re.compile(r"^(.*\.)(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w3|w2)\.weight$")
ENDS = {"w1": "gate", "gate_proj": "gate", "w3": "up", "up_proj": "up", "w2": "down", "down_proj": "down"}
GROUP = 128  # group size of AWQ and GPTQ
FP8_TOP = np.float32(448)


# ---- parameters, as transformers names and draws them ----

def parameters(tensors):
    """Returns name in transformers -> (shape, names in the file) of each random parameter, in the order of the draws."""
    out, experts = {}, {}
    for name, (dtype, shape) in tensors.items():
        m = EXPERTS.match(name)
        if m:
            experts.setdefault(m[1] + "mlp.experts", {}).setdefault(ENDS[m[3]], {})[int(m[2])] = (name, shape)
        elif name.endswith((".scales", ".qzeros", ".g_idx", "_scale", "_scale_inv", "_scales")):
            continue
        elif name.endswith(".qweight"):
            n = tensors[name.replace("qweight", "scales")][1][1]
            k = tensors[name.replace("qweight", "scales")][1][0] * GROUP
            out[name.replace("qweight", "weight")] = ((n, k), [name])
        elif name.endswith("_blocks"):
            e, n, k = shape[:3]
            out[name.removesuffix("_blocks")] = ((e, 32 * k, n), [name])
        else:
            out[name.replace("block_sparse_moe.", "mlp.")] = (tuple(shape), [name])
    for name, parts in experts.items():
        (rows, columns), n = parts["gate"][0][1], len(parts["gate"])
        out[name + ".gate_up_proj"] = ((n, 2 * rows, columns), [x for i in range(n) for x in (parts["gate"][i][0], parts["up"][i][0])])
        out[name + ".down_proj"] = ((n, columns, rows), [parts["down"][i][0] for i in range(n)])
    return dict(sorted(out.items()))


def gain(name, shape, family):
    fan = shape[1] if len(shape) == 3 and family == "gpt_oss" else shape[-1]
    value = 1.0
    if any(s in name for s in ("mlp.gate.weight", "router.weight", "block_sparse_moe.gate")):
        value = 2.0
    elif any(s in name for s in ("q_proj", "k_proj", "qkv_proj", "q_b_proj", "kv_b_proj")):
        value = 1.4
    elif family == "gpt_oss" and "gate_up_proj" in name:
        value = 2.5
    return value, math.sqrt(fan)


def norm_weight(name, draw, gemma):
    base = 0.0 if gemma else 1.0
    if name == "model.norm.weight":
        base += 7.0 if gemma else 1.5
    if gemma and "post_" in name and "layernorm" in name:
        base += 0.6
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        base += 0.3
    return np.float32(base) + np.float32(0.15) * draw


def draw(rng, name, shape, config, tied):
    """Draws a parameter in float32, scaled so that logits differ and each part of the model matters."""
    family, f32 = config["model_type"], np.float32
    gemma = family.startswith("gemma")
    if "e_score_correction_bias" in name:
        return rng.uniform(math.prod(shape)).reshape(shape) * f32(0.25)
    x = rng.normal(shape)
    if "norm" in name and len(shape) == 1:
        return norm_weight(name, x, gemma)
    if "sinks" in name:
        return x + f32(0.5)
    if name.endswith(("bias", "_bias")):
        return x * f32(0.2)
    if "embed_tokens" in name:
        return x * f32(0.03 if gemma else 0.1 if tied else 0.3)
    if "lm_head" in name:
        return x * f32(0.9) / f32(math.sqrt(config["hidden_size"]))
    value, root = gain(name, shape, family)
    return x * f32(value) / f32(root)


# ---- forms in a file ----

def awq(w):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    k, n = w.shape[1], w.shape[0]
    g = w.T.reshape(k // GROUP, GROUP, n)
    high, low = g.max(1), g.min(1)
    scales = np.maximum((high - low) / 15, 1e-5).astype(np.float16)
    wide = scales.astype(np.float32)
    zeros = np.clip(-np.round(low / wide), 0, 15)
    codes = np.clip(np.round(g / wide[:, None]) + zeros[:, None], 0, 15).reshape(k, n)

    def pack(a):
        a = a.astype(np.uint32).reshape(a.shape[0], -1, 8)
        return np.bitwise_or.reduce(a[..., order] << (4 * np.arange(8, dtype=np.uint32)), axis=-1)
    return {"qweight": pack(codes), "qzeros": pack(zeros), "scales": scales}


def gptq(w):
    k, n = w.shape[1], w.shape[0]
    g = w.T.reshape(k // GROUP, GROUP, n)
    scales = np.maximum(2 * np.abs(g).max(1) / 15, 1e-5).astype(np.float16)
    codes = np.clip(np.round(g / scales.astype(np.float32)[:, None]) + 8, 0, 15).reshape(k // 8, 8, n).astype(np.uint32)
    shifts = 4 * np.arange(8, dtype=np.uint32)
    return {"qweight": np.bitwise_or.reduce(codes << shifts[None, :, None], axis=1), "scales": scales,
            "qzeros": np.full((k // GROUP, n // 8), 0x77777777, np.uint32), "g_idx": (np.arange(k) // GROUP).astype("<i4")}


def fp8(w, blocks):
    """Quantises with one scale for the matrix, or with one for each block of 128 x 128."""
    n, k = w.shape
    rows, columns = (np.arange(n) // 128, np.arange(k) // 128) if blocks else (np.zeros(n, np.int64), np.zeros(k, np.int64))
    scale = np.zeros((rows[-1] + 1, columns[-1] + 1), np.float32)
    np.maximum.at(scale, (rows[:, None], columns), np.abs(w))
    scale = scale / FP8_TOP
    y = w / scale[rows[:, None], columns]
    code = (quant_hf.e4m3(y) | np.where(y < 0, 128, 0)).astype(np.uint8)
    return {"weight": code, "weight_scale_inv" if blocks else "weight_scale": scale if blocks else scale.reshape(1)}


def mxfp4(p):
    """Converts [experts, in, out] to codes [experts, out, in / 32, 16] and scales of blocks of 32 inputs."""
    table = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
    e, k, n = p.shape
    b = p.transpose(0, 2, 1).reshape(e, n, k // 32, 32)
    _, exponent = np.frexp(np.maximum(np.abs(b).max(-1), np.float32(1e-30)))
    exponent = exponent - 3  # the exponent is lowered so that the largest number is in [4, 8)
    x = np.ldexp(b, -exponent[..., None])
    code = np.abs(np.abs(x)[..., None] - table).argmin(-1).astype(np.uint8) | np.where(x < 0, 8, 0).astype(np.uint8)
    return code[..., 0::2] | (code[..., 1::2] << 4), (exponent + 127).astype(np.uint8)


def rounded(w, dtype):
    """Returns the parameter as a file stores it, and the values for a quantiser."""
    if dtype == "BF16":
        bits = quant.to_bf16(w)
        return bits, quant.from_bf16(bits)
    return (w.astype(np.float16),) * 2 if dtype == "F16" else (w, w)


def stored(name, w, sources, tensors, config):
    """Returns name in the file -> array, for one parameter."""
    how = config.get("quantization_config", {}).get("quant_method")
    base = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[config.get("torch_dtype") or config["dtype"]]
    if len(sources) > 1:  # the parameter holds experts
        parts = np.split(w, 2, axis=1) if "gate_up" in name else [w]
        return {s: rounded(parts[i % len(parts)][i // len(parts)], base)[0] for i, s in enumerate(sources)}
    source, dtype = sources[0], tensors[sources[0]][0]
    stem, value = source.rsplit(".", 1)[0] + ".", rounded(w, base)[1].astype(np.float32)
    if source.endswith(".qweight"):
        return {stem + end: t for end, t in (awq if how == "awq" else gptq)(value).items()}
    if dtype == "F8_E4M3":
        return {stem + end: t for end, t in fp8(value, stem + "weight_scale_inv" in tensors).items()}
    if source.endswith("_blocks"):
        codes, scales = mxfp4(value)
        return {source: codes, source.replace("_blocks", "_scales"): scales}
    return {source: rounded(w, dtype)[0]}


def arrays(config, tensors, seed):
    rng, out = Random(seed), {}
    for name, (shape, sources) in parameters(tensors).items():
        w = draw(rng, name, shape, config, "lm_head.weight" not in tensors)
        out |= stored(name, w, sources, tensors, config)
    return out


def file_of(tensors, made):
    """Returns the bytes of a safetensors file."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        size = made[name].nbytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(np.ascontiguousarray(made[name]).tobytes() for name in tensors)


def contents(folder, listing):
    """Returns the weight files made here, concatenated in the listing's order."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        seed = json.load(f)["seed"]
    tensors = {name: (t[0], t[1]) for file in listing.values() for name, t in file["tensors"].items()}
    made = arrays(config, tensors, seed)
    return [file_of(file["tensors"], made) for file in listing.values()]


def exclusive_or(a, b):
    return (np.frombuffer(a, np.uint8) ^ np.frombuffer(b, np.uint8)).tobytes()


def make(path):
    """Makes the complete folder of a reference model."""
    source = os.path.join(SHIPPED, os.path.basename(path))
    with open(os.path.join(source, "weights.json"), encoding="utf-8") as f:
        listing = json.load(f)
    with open(os.path.join(source, "weights.fix"), "rb") as f:
        fix = lzma.decompress(f.read())
    shutil.copytree(source, path, ignore=shutil.ignore_patterns(*MADE))
    for (name, file), data in zip(listing.items(), contents(source, listing)):
        data, fix = exclusive_or(data, fix[:len(data)]), fix[len(data):]
        if hashlib.sha256(data).hexdigest() != file["sha256"]:
            sys.exit(f"reference.py: {os.path.basename(path)}/{name} is not what transformers was asked about")
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)


def names():
    return sorted(n for n in os.listdir(SHIPPED) if os.path.exists(os.path.join(SHIPPED, n, "weights.json")))


# ---- writing into the repository ----

def pack(source, name):
    folder, listing, whole = os.path.join(source, "models", name), {}, b""
    for file in sorted(n for n in os.listdir(folder) if n.startswith("model") and n.endswith(".safetensors")):
        with open(os.path.join(folder, file), "rb") as f:
            data = f.read()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        header.pop("__metadata__", None)
        order = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        listing[file] = {"sha256": hashlib.sha256(data).hexdigest(), "tensors": {n: [t["dtype"], t["shape"]] for n, t in order}}
        whole += data
    out = os.path.join(SHIPPED, name)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("model*.safetensors"), copy_function=shutil.copyfile)
    os.chmod(out, 0o755)
    fix = exclusive_or(b"".join(contents(out, listing)), whole)
    with open(os.path.join(out, "weights.json"), "w", encoding="ascii") as f:
        json.dump(listing, f, separators=(",", ":"))
        f.write("\n")
    with open(os.path.join(out, "weights.fix"), "wb") as f:
        f.write(lzma.compress(fix, preset=9))
    print(f"{name}: {len(whole)} bytes of weights, {np.count_nonzero(np.frombuffer(fix, np.uint8))} of them to correct, "
          f"{os.path.getsize(os.path.join(out, 'weights.fix'))} bytes of corrections")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for model in sys.argv[2:]:
        pack(sys.argv[1], model)
