"""Makes LoRA adapters as PEFT saves them, and merges them into the base model: W + scale * B A, in float64."""
import math
import os

import numpy as np

import files
import model
import quant
import torch_files

# ADAPTERS maps a name to the content of adapter_config.json. `dtype` is that of the stored tensors, and `torch` means that the adapter is saved as
# PyTorch's file. The ranks differ between modules, are not multiples of 8 or 16, and include the largest rank that the tests allow.
ADAPTERS = {
    "every": {"r": 4, "lora_alpha": 8, "dtype": "f32", "rank_pattern": {"k_proj": 7, "1.mlp.up_proj": 1},
              "alpha_pattern": {"layers.1.mlp.down_proj": 3.5}, "use_rslora": False,
              "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]},
    "some": {"r": 16, "lora_alpha": 6, "dtype": "bf16", "rank_pattern": {}, "alpha_pattern": {}, "use_rslora": True,
             "target_modules": ["q_proj", "v_proj"]},
}
FUSED = {
    "every": ADAPTERS["every"] | {"rank_pattern": {"qkv_proj": 5}, "dtype": "f16", "torch": True,
                                  "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
}


def pattern(table, module, usual):
    for key, value in table.items():
        if module == key or module.endswith("." + key):
            return value
    return usual


def factors(a, modules, rng):
    """Returns module -> (A, B, scale) as a reader of the file sees them, and the stored tensors."""
    out, stored = {}, {}
    for module, (n, k) in modules.items():
        r = pattern(a["rank_pattern"], module, a["r"])
        scale = pattern(a["alpha_pattern"], module, a["lora_alpha"]) / (math.sqrt(r) if a["use_rslora"] else r)
        pair = []
        for name, shape in (("lora_A", (r, k)), ("lora_B", (n, r))):
            w = (rng.standard_normal(shape) * (1 if name == "lora_A" else 0.5) / math.sqrt(shape[1])).astype(np.float32)
            data, value = quant.FORMATS[a["dtype"]][2](w)
            stored[f"base_model.model.{module}.{name}.weight"] = (a["dtype"].upper(), w.shape, data.tobytes())
            pair.append(value)
        out[module] = (*pair, scale)
    return out, stored


def write(folder, a, stored):
    if a.get("torch"):
        torch_files.write_torch(os.path.join(folder, "adapter_model.bin"), stored)
    else:
        files.write_safetensors(os.path.join(folder, "adapter_model.safetensors"), stored)
    files.write_json(os.path.join(folder, "adapter_config.json"), {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": None, "bias": "none",
        "fan_in_fan_out": False, "init_lora_weights": True, "inference_mode": True, "layers_to_transform": None,
        "lora_dropout": 0.0, "modules_to_save": None, "use_dora": False, "revision": None,
        **{k: v for k, v in a.items() if k not in ("dtype", "torch")}})


def modules_of(c, weights, targets, fused):
    """Returns the modules that `targets` names, with their shapes, for checkpoints with separate or fused projections."""
    shapes = {k.removesuffix(".weight"): v.shape for k, v in weights.items() if k.endswith("_proj.weight")}
    if fused:
        shapes = {k: v.shape for k, v in fuse(c, {k + ".weight": np.empty(s) for k, s in shapes.items()}).items()}
        shapes = {k.removesuffix(".weight"): v for k, v in shapes.items()}
    return {k: v for k, v in shapes.items() if k.rsplit(".", 1)[1] in targets}


def fuse(c, weights):
    """Fuses weights as in Phi-3's checkpoints: Q, K and V in one tensor, gate and up in another."""
    out = dict(weights)
    for i in range(c["n_layers"]):
        for parts, whole in ((("self_attn.q", "self_attn.k", "self_attn.v"), "self_attn.qkv"), (("mlp.gate", "mlp.up"), "mlp.gate_up")):
            names = [f"model.layers.{i}.{p}_proj.weight" for p in parts]
            out[f"model.layers.{i}.{whole}_proj.weight"] = np.concatenate([out.pop(n) for n in names])
    return out


def split(c, name, w):
    """Splits a fused matrix into its parts, each with its own name."""
    kv = c["n_kv_heads"] * c["head_dim"]
    if "qkv_proj" in name:
        return zip((name.replace("qkv", p) for p in "qkv"), np.split(w, (len(w) - 2 * kv, len(w) - kv)), strict=True)
    if "gate_up_proj" in name:
        return zip((name.replace("gate_up", p) for p in ("gate", "up")), np.split(w, 2), strict=True)
    return [(name, w)]


def adapted(base, pairs, factor=1.0):
    """Returns the model with the adapter merged into its weights."""
    w = dict(base.w)
    for module, (a, b, scale) in pairs.items():
        for name, delta in split(base.c, module + ".weight", factor * scale * (b @ a)):
            w[name] = w[name] + delta
    return model.Model(base.c, w)
