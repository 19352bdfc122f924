#!/usr/bin/env python3
"""Rewrites a golden model's folder (config.json and safetensors of unquantised numbers) as a GGUF with the tensors' names, shapes
and orders that llama.cpp's files of its family have: experts stacked, Llama's rotated pairs adjacent, Gemma's norms unchanged,
latent attention's kv_b in two parts (or joined, as before 2025). Every number stays the same, so the folder's expected results
are valid for the GGUF.

  scripts/goldens/to_gguf.py FROM TO [--joined]   TO gets model.gguf and FROM's expected results
  scripts/goldens/to_gguf.py --all [FROM TO]      FROM/models/* to TO/models/*, except models that no GGUF of the
                                                  family can hold; FROM: COX_GOLDENS or build/goldens/reference,
                                                  TO: build/goldens_gguf"""
import argparse
import json
import os
import shutil
import struct
import sys

import numpy as np

import files
import quant

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MXFP4 = 39
GGML_TYPES = {"F32": (0, quant.plain_f32), "F16": (1, quant.plain_f16), "BF16": (30, quant.plain_bf16), "Q8_0": (8, quant.q8_0)}
ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
                 "gemma3_text": "gemma3", "gpt_oss": "gpt-oss", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2"}
PERMUTED = ("llama", "mistral", "mixtral")  # in the GGUFs of these families, rotated pairs are adjacent
NORMS_PLUS_ONE = ("gemma2", "gemma3_text")

WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.sinks": "attn_sinks.weight",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.experts.down_proj": "ffn_down_exps.weight", "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "input_layernorm": "attn_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}
for shared in ("shared_expert", "shared_experts"):
    PARTS |= {f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
EXPERT_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def read_safetensors(folder):
    """Returns name -> (dtype name, float32 array; uint8 for codes)."""
    out = {}
    for name in sorted(f for f in os.listdir(folder) if f.startswith("model") and f.endswith(".safetensors")):
        with open(os.path.join(folder, name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        header.pop("__metadata__", None)
        for key, t in header.items():
            raw = data[slice(*t["data_offsets"])]
            kind = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8}[t["dtype"]]
            values = np.frombuffer(raw, kind).reshape(t["shape"])
            if kind != np.uint8:
                values = quant.from_bf16(values) if t["dtype"] == "BF16" else values.astype(np.float32)
            out[key] = (t["dtype"], values)
    return out


class Gguf:
    def __init__(self, config, joined):
        self.c, self.type, self.joined, self.tensors = config, config["model_type"], joined, {}

    def put(self, name, dtype, w):
        """Adds a tensor. The dtype of a vector is F32 in a GGUF."""
        dtype = "F32" if w.ndim == 1 else dtype
        rows = np.ascontiguousarray(w).reshape(-1, w.shape[-1])
        number, pack = GGML_TYPES[dtype]
        data, seen = pack(rows)
        assert (seen == rows).all(), name
        self.tensors[name] = (number, w.shape, data.tobytes())

    def heads(self, part, w):
        n = {"self_attn.q_proj": self.c["num_attention_heads"], "self_attn.k_proj": self.c["num_key_value_heads"]}.get(part)
        if self.type not in PERMUTED or not n:
            return w
        return w.reshape(n, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)

    def kv_b(self, layer, dtype, w):
        c = self.c
        w = w.reshape(c["num_attention_heads"], c["qk_nope_head_dim"] + c["v_head_dim"], c["kv_lora_rank"])
        self.put(f"blk.{layer}.attn_k_b.weight", dtype, w[:, :c["qk_nope_head_dim"]].swapaxes(1, 2))
        self.put(f"blk.{layer}.attn_v_b.weight", dtype, w[:, c["qk_nope_head_dim"]:])

    def gate_up(self, layer, kind, dtype, w):
        """Adds gate and up of gpt_oss, whose outputs alternate. The matrices are [experts][inputs][outputs]."""
        for i, part in enumerate(("gate", "up")):
            half = w[..., i::2]
            self.put(f"blk.{layer}.ffn_{part}_exps.{kind}", dtype, half if kind == "bias" else half.swapaxes(1, 2))

    def mxfp4(self, name, codes, scales):
        """Adds blocks of 32. In the source, neighbours share a byte. In a GGUF, elements 16 apart share a byte, and the bytes stand
        behind their scale."""
        values = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], 32)
        packed = values[..., :16] | values[..., 16:] << 4
        shape = (*codes.shape[:2], 32 * codes.shape[2])
        self.tensors[name] = (MXFP4, shape, np.concatenate([scales[..., None], packed], -1).tobytes())

    def add_mxfp4(self, layer, part, codes, scales):
        if part == "down_proj":
            self.mxfp4(f"blk.{layer}.ffn_down_exps.weight", codes, scales)
            return
        for i, half in enumerate(("gate", "up")):
            self.mxfp4(f"blk.{layer}.ffn_{half}_exps.weight", codes[:, i::2], scales[:, i::2])

    def layer_tensor(self, layer, rest, dtype, w):
        part, kind = rest.rsplit(".", 1) if rest.endswith((".weight", ".bias")) else (rest, None)
        if part == "self_attn.kv_b_proj" and not self.joined:
            self.kv_b(layer, dtype, w)
        elif part.startswith("mlp.experts.gate_up_proj"):
            self.gate_up(layer, "bias" if part.endswith("_bias") else "weight", dtype, w)
        elif part == "mlp.experts.down_proj":
            self.put(f"blk.{layer}.ffn_down_exps.weight", dtype, w.swapaxes(1, 2))
        elif part == "post_attention_layernorm":  # this norm is before the MLP, or behind attention
            behind = self.type in (*NORMS_PLUS_ONE, "olmo2", "gpt_oss")
            self.put(f"blk.{layer}.{'post_attention_norm' if behind else 'ffn_norm'}.weight", dtype, w)
        elif part == "mlp.shared_expert_gate":
            self.put(f"blk.{layer}.ffn_gate_inp_shexp.weight", dtype, w[0])
        else:
            name = f"blk.{layer}.{PARTS[part]}"
            self.put(name + f".{kind}" if kind else name, dtype, self.heads(part, w))

    def add_all(self, tensors):
        experts = {}
        for name, (dtype, w) in tensors.items():
            if self.type in NORMS_PLUS_ONE and name.endswith("norm.weight"):
                w = w + np.float32(1)
            if name in WHOLE:
                self.put(WHOLE[name], dtype, w)
                continue
            _, _, layer, rest = name.split(".", 3)
            words = rest.split(".")
            if rest.endswith("_blocks"):
                self.add_mxfp4(layer, words[2].removesuffix("_blocks"), w, tensors[name.removesuffix("blocks") + "scales"][1])
            elif rest.endswith("_scales"):
                continue
            elif len(words) == 5 and words[1] == "experts":
                experts.setdefault((layer, EXPERT_PARTS[words[3]], dtype), {})[int(words[2])] = w
            else:
                self.layer_tensor(layer, rest, dtype, w)
        for (layer, part, dtype), of in experts.items():
            self.put(f"blk.{layer}.ffn_{part}_exps.weight", dtype, np.stack([of[i] for i in range(len(of))]))
        scaling = self.c.get("rope_scaling") or {}
        for length in ("short", "long") if "short_factor" in scaling else ():
            self.put(f"rope_factors_{length}.weight", "F32", np.float32(scaling[f"{length}_factor"]))
        if (scaling.get("rope_type") or scaling.get("type")) == "llama3":
            self.put("rope_freqs.weight", "F32", llama3_divisors(self.c, scaling))


def llama3_divisors(c, s):
    import model
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    return model.scaling_divisors(s, c["rope_theta"] ** (-np.arange(0, d, 2) / d)).astype(np.float32)


def first(*values):
    return next(v for v in values if v is not None)


def rope_keys(c):
    s = c.get("rope_scaling") or c.get("rope_parameters") or {}
    kind = s.get("rope_type") or s.get("type")
    f32 = {"rope.freq_base": float(first(c.get("rope_theta"), s.get("rope_theta"), 10000.0))}
    u32, text = {}, {}
    if kind in ("linear", "yarn"):
        text["rope.scaling.type"] = kind
        f32["rope.scaling.factor"] = s["factor"]
    if kind == "yarn" or "short_factor" in s:
        u32["rope.scaling.original_context_length"] = first(c.get("original_max_position_embeddings"),
                                                            s.get("original_max_position_embeddings"))
    if s.get("mscale_all_dim"):
        f32["rope.scaling.yarn_log_multiplier"] = 0.1 * s["mscale_all_dim"]
    if "rope_local_base_freq" in c:
        f32["rope.freq_base_swa"] = c["rope_local_base_freq"]
    return u32, f32, text


def mixture_keys(c):
    n = first(c.get("n_routed_experts"), c.get("num_experts"), c.get("num_local_experts"), 0)
    if not n:
        return {}, {}, {}
    u32 = {"expert_count": n, "expert_used_count": c["num_experts_per_tok"],
           "expert_feed_forward_length": first(c.get("moe_intermediate_size"), c["intermediate_size"])}
    f32, flags = {}, {}
    if "shared_expert_intermediate_size" in c:
        u32["expert_shared_feed_forward_length"] = c["shared_expert_intermediate_size"]
    if "n_routed_experts" in c:
        u32 |= {"expert_shared_count": c["n_shared_experts"], "leading_dense_block_count": c["first_k_dense_replace"],
                "expert_gating_func": 2 if c["model_type"] == "deepseek_v3" else 1}
        f32["expert_weights_scale"] = float(c["routed_scaling_factor"])
        if c["model_type"] == "deepseek_v3":
            flags["expert_weights_norm"] = c["norm_topk_prob"]
        if c.get("topk_method") != "greedy":
            u32 |= {"expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"]}
    return u32, f32, flags


def head_keys(c, joined):
    if "kv_lora_rank" not in c:
        d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        return {"attention.head_count_kv": c["num_key_value_heads"], "attention.key_length": d,
                "attention.value_length": d, "rope.dimension_count": int(d * c.get("partial_rotary_factor", 1))}
    rank, turn, key, value = c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["v_head_dim"]
    u32 = {"attention.kv_lora_rank": rank, "rope.dimension_count": turn}
    if c.get("q_lora_rank"):
        u32["attention.q_lora_rank"] = c["q_lora_rank"]
    if joined:
        return u32 | {"attention.head_count_kv": c["num_key_value_heads"], "attention.key_length": key, "attention.value_length": value}
    return u32 | {"attention.head_count_kv": 1, "attention.key_length": rank + turn, "attention.value_length": rank,
                  "attention.key_length_mla": key, "attention.value_length_mla": value}


def keys(c, joined, folder):
    arch = ARCHITECTURES.get(c["model_type"], c["model_type"])
    u32, f32, text = rope_keys(c)
    more, reals, flags = mixture_keys(c)
    u32 |= {"context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
            "block_count": c["num_hidden_layers"], "feed_forward_length": c["intermediate_size"],
            "attention.head_count": c["num_attention_heads"]} | head_keys(c, joined) | more
    if c.get("sliding_window") and c.get("use_sliding_window", True):
        u32["attention.sliding_window"] = c["sliding_window"]
    f32 |= {"attention.layer_norm_rms_epsilon": c["rms_norm_eps"]} | reals
    for key, name in (("attn_logit_softcapping", "attn_logit_softcapping"), ("final_logit_softcapping", "final_logit_softcapping")):
        if c.get(key):
            f32[name] = c[key]
    out = [("general.architecture", files.STRING, arch), ("general.name", files.STRING, os.path.basename(folder))]
    for values, kind in ((u32, files.U32), (f32, files.F32), (text, files.STRING), (flags, files.BOOL)):
        out += [(f"{arch}.{k}", kind, v) for k, v in values.items()]
    return out + token_keys(folder, c)


def token_keys(folder, c):
    """Returns just enough of a vocabulary for a valid file; texts are tested elsewhere."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    names = {i: s for s, i in t["model"]["vocab"].items()} | {a["id"]: a["content"] for a in t["added_tokens"]}
    tokens = [names.get(i, f"[PAD{i}]") for i in range(c["vocab_size"])]
    p = "tokenizer.ggml."
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"].get("merges", [])]
    return [(p + "model", files.STRING, "gpt2"), (p + "pre", files.STRING, "default"),
            (p + "tokens", (files.ARRAY, files.STRING), tokens),
            (p + "token_type", (files.ARRAY, files.I32), [1] * len(tokens)),
            (p + "merges", (files.ARRAY, files.STRING), merges)]


def unable(c):
    """Returns why no GGUF can hold this model, or None."""
    if c.get("quantization_config", {}).get("quant_method", "mxfp4") != "mxfp4":
        return "its codes are none of GGML's"
    scalar = c.get("query_pre_attn_scalar")
    if scalar and scalar != c["head_dim"]:
        return "a GGUF has no query_pre_attn_scalar"
    if c["model_type"] == "mistral" and c.get("sliding_window"):
        return "a GGUF of Mistral calls itself Llama, which has no window"
    if c.get("swiglu_limit", 7) != 7:
        return "a GGUF has no swiglu_limit"
    return None


def write(path, c, tensors, tokenizer_folder, joined=False):
    """Writes a GGUF. tensors: name -> (dtype name, array); the dtype must hold the values exactly."""
    g = Gguf(c, joined)
    g.add_all(tensors)
    files.write_gguf(path, keys(c, joined, tokenizer_folder), g.tensors)


def convert(source, target, joined=False):
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    why = unable(c)
    if why:
        return why
    os.makedirs(target, exist_ok=True)
    write(os.path.join(target, "model.gguf"), c, read_safetensors(source), source, joined)
    for name in ("expected.json", "expected.safetensors"):
        shutil.copyfile(os.path.join(source, name), os.path.join(target, name))
    return None


def convert_all(source, target):
    shutil.rmtree(target, ignore_errors=True)
    if not os.path.isdir(source):
        print(f"SKIPPED: there is no {source}: scripts/make-goldens, COX_GOLDENS")
        return
    for name in sorted(os.listdir(source)):
        why = convert(os.path.join(source, name), os.path.join(target, name))
        print(f"to_gguf: {name}: {why or 'written'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM", nargs="?")
    parser.add_argument("target", metavar="TO", nargs="?")
    parser.add_argument("--joined", action="store_true", help="latent attention's kv_b in one tensor")
    parser.add_argument("--all", action="store_true", help="every model below FROM/models")
    args = parser.parse_args()
    if args.all:
        source = args.source or os.environ.get("COX_GOLDENS") or os.path.join(ROOT, "build", "goldens", "reference")
        target = args.target or os.path.join(ROOT, "build", "goldens_gguf")
        convert_all(os.path.join(source, "models"), os.path.join(target, "models"))
        return
    if not args.target:
        parser.error("FROM and TO are needed")
    why = convert(args.source, args.target, args.joined)
    if why:
        sys.exit(f"to_gguf: {args.source}: {why}")


if __name__ == "__main__":
    main()
