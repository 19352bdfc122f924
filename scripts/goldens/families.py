"""Describes the families that decoder.py runs, with a tiny checkpoint of each: its config.json, the traits of its architecture, its
weights by name, and the mistakes that an engine may make. Sizes do not divide evenly: three heads, odd numbers of experts, widths
that are no multiples of 64."""
import math

import numpy as np

import files
from decoder import Decoder

LLAMA_NORMS = ("input", None, ("post_attention", None))
QWEN_MOE = {"prefix": "mlp.", "router": "gate", "scores": "softmax", "names": ("gate_proj", "up_proj", "down_proj"), "width": "moe_intermediate_size"}

# TRAITS are not in config.json. norms: before attention, after attention, before and after the MLP.
TRAITS = {
    "mistral": {}, "qwen2": {"qkv_bias": True}, "qwen3": {"q_k_norm": "head"}, "phi3": {"fused": True},
    "olmo2": {"q_k_norm": "whole", "norms": (None, "post_attention", (None, "post_feedforward"))},
    "gemma2": {"gelu": True, "norm_is_less_one": True, "scaled_embedding": True,
               "norms": ("input", "post_attention", ("pre_feedforward", "post_feedforward"))},
    "mixtral": {"moe": QWEN_MOE | {"prefix": "block_sparse_moe.", "names": ("w1", "w3", "w2"), "width": "intermediate_size"},
                "norm_topk_prob": True},
    "qwen2_moe": {"qkv_bias": True, "moe": QWEN_MOE | {"shared": "shared_expert", "shared_gate": "shared_expert_gate"}},
    "qwen3_moe": {"q_k_norm": "head", "moe": QWEN_MOE},
    "deepseek_v2": {"moe": QWEN_MOE | {"shared": "shared_experts"}},
    "deepseek_v3": {"moe": QWEN_MOE | {"shared": "shared_experts", "scores": "sigmoid"}},
    "gpt_oss": {"moe": {"prefix": "mlp.", "router": "router", "scores": "chosen", "stacked": True}},
}
ARCHITECTURES = {
    "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "phi3": "Phi3", "olmo2": "Olmo2", "gemma2": "Gemma2", "mixtral": "Mixtral",
    "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe", "deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3", "gpt_oss": "GptOss"}


def config(family, **keys):
    common = {"attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 96, "intermediate_size": 176, "max_position_embeddings": 1024,
              "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "pad_token_id": None, "use_cache": True, "vocab_size": 320}
    return {"architectures": [ARCHITECTURES[family] + "ForCausalLM"], "model_type": family} | common | keys


def longrope(n):
    factors = [[round(1 + (top - 1) * (i / (n - 1)) ** 2, 4) for i in range(n)] for top in (1.6, 12.0)]
    return {"type": "longrope", "short_factor": factors[0], "long_factor": factors[1]}


def deepseek(family, **keys):
    mscale = {"mscale": 0.707, "mscale_all_dim": 0.707} if family == "deepseek_v2" else {"mscale": 1.0, "mscale_all_dim": 1.0}
    scaling = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 64}
    more = {"attention_bias": False, "first_k_dense_replace": 1, "kv_lora_rank": 32, "max_position_embeddings": 2560, "moe_intermediate_size": 40,
            "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 7, "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 3,
            "num_experts_per_tok": 3, "num_key_value_heads": 3, "q_lora_rank": None, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
            "rope_scaling": scaling | mscale, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "topk_group": 1, "topk_method": "greedy",
            "v_head_dim": 20}
    return config(family, **more | keys)


QWEN_MOE_KEYS = {"decoder_sparse_step": 1, "max_window_layers": 2, "mlp_only_layers": [], "moe_intermediate_size": 48, "norm_topk_prob": False,
                 "num_experts": 7, "num_experts_per_tok": 3, "sliding_window": None, "use_sliding_window": False}
WINDOWS = ["sliding_attention", "full_attention"]

# MODELS maps the name of a model to (config.json, stored dtype).
MODELS = {
    "mistral_window": (config("mistral", head_dim=20, num_attention_heads=6, sliding_window=16, rms_norm_eps=1e-5), "bf16"),
    "qwen2_3heads": (config("qwen2", num_attention_heads=3, num_key_value_heads=1, sliding_window=16, use_sliding_window=False,
                            tie_word_embeddings=True), "bf16"),
    "qwen3_qknorm": (config("qwen3", attention_bias=False, head_dim=40, num_attention_heads=3, num_key_value_heads=3, sliding_window=None,
                            use_sliding_window=False), "bf16"),
    "olmo2_whole": (config("olmo2", attention_bias=False, num_attention_heads=6, num_key_value_heads=3), "f32"),
    "gemma2_caps": (config("gemma2", attention_bias=False, attn_logit_softcapping=2.0, final_logit_softcapping=10.0, head_dim=32,
                           hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=20,
                           sliding_window=16, num_hidden_layers=4, tie_word_embeddings=True, vocab_size=384), "bf16"),
    "phi3_fused": (config("phi3", num_attention_heads=3, num_key_value_heads=3, original_max_position_embeddings=1024,
                          rope_scaling=None, sliding_window=32), "bf16"),
    "phi3_long64": (config("phi3", hidden_size=128, original_max_position_embeddings=64, partial_rotary_factor=0.75,
                             rope_scaling=longrope(12), sliding_window=None, tie_word_embeddings=True), "bf16"),
    "mixtral_5experts": (config("mixtral", num_attention_heads=6, num_experts_per_tok=2, num_local_experts=5, sliding_window=None), "bf16"),
    "qwen2_moe": (config("qwen2_moe", shared_expert_intermediate_size=80, **QWEN_MOE_KEYS), "bf16"),
    "qwen2_moe_dense": (config("qwen2_moe", shared_expert_intermediate_size=80, num_attention_heads=3, num_key_value_heads=3,
                               num_hidden_layers=3, **QWEN_MOE_KEYS | {"mlp_only_layers": [1], "norm_topk_prob": True}), "bf16"),
    "qwen3_moe": (config("qwen3_moe", attention_bias=False, head_dim=24, **QWEN_MOE_KEYS | {"norm_topk_prob": True}), "bf16"),
    "deepseek_v2_lite": (deepseek("deepseek_v2"), "bf16"),
    "deepseek_v2_groups": (deepseek("deepseek_v2", num_hidden_layers=3, q_lora_rank=40, n_group=4, topk_group=2, n_routed_experts=12, routed_scaling_factor=4.0,
                                    topk_method="group_limited_greedy"), "bf16"),
    "deepseek_v3": (deepseek("deepseek_v3", num_hidden_layers=3, q_lora_rank=48, n_group=4, topk_group=2, n_routed_experts=16, num_experts_per_tok=4, n_shared_experts=1,
                             norm_topk_prob=True, routed_scaling_factor=2.5, scoring_func="sigmoid", topk_method="noaux_tc"), "bf16"),
    "gpt_oss_bf16": (config("gpt_oss", attention_bias=True, head_dim=32, initial_context_length=64, intermediate_size=48, layer_types=WINDOWS,
                            max_position_embeddings=2048, num_experts_per_tok=2, num_local_experts=5, rms_norm_eps=1e-5,
                            rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 64,
                                          "rope_type": "yarn", "truncate": False},
                            rope_theta=150000, sliding_window=16, swiglu_limit=1.5), "bf16"),
}


def describe(c):
    """Returns config.json with the traits of its family. windows: the layers that have a window."""
    family, n = c["model_type"], c["num_hidden_layers"]
    c = {"norms": LLAMA_NORMS, "head_dim": c["hidden_size"] // c["num_attention_heads"]} | c | TRAITS[family]
    kinds = c.get("layer_types") or WINDOWS * n
    every = family in ("mistral", "phi3") and c.get("sliding_window")
    some = family in ("gemma2", "gpt_oss")
    c["windows"] = [bool(every or some and kinds[i] == WINDOWS[0]) for i in range(n)]
    c["family"] = family
    c["n_experts"] = next((c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in c), 0)
    return c


# ---- weights ----

class Weights:
    """Holds random weights, name -> float32 array. As in model.py, the scales make the layers matter more than the token's own
    embedding, and spread the logits so that the two best are rarely close."""

    def __init__(self, c, rng):
        self.c, self.rng, self.all = c, rng, {}

    def matrix(self, name, n, k, gain=1.5):
        self.all[name + ".weight"] = (self.rng.standard_normal((n, k)) * gain / math.sqrt(k)).astype(np.float32)

    def vector(self, name, n, mean=0.0, spread=0.3):
        self.all[name] = (mean + spread * self.rng.standard_normal(n)).astype(np.float32)

    def norm(self, name, n, mean=1.0):
        self.vector(name + ".weight", n, mean - (1 if self.c.get("norm_is_less_one") else 0), 0.15)

    def plain_attention(self, p):
        c, d, h = self.c, self.c["head_dim"], self.c["hidden_size"]
        n_q, n_kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
        if c.get("fused"):
            self.matrix(p + "qkv_proj", n_q + 2 * n_kv, h)
        else:
            for s, n in (("q", n_q), ("k", n_kv), ("v", n_kv)):
                self.matrix(f"{p}{s}_proj", n, h, 1.3 if s != "v" else 1.5)
        for s, n in (("q", n_q), ("k", n_kv)):
            if c.get("q_k_norm"):
                self.norm(f"{p}{s}_norm", d if c["q_k_norm"] == "head" else n, 1.2)
        self.matrix(p + "o_proj", h, n_q)
        if c.get("qkv_bias") or c.get("attention_bias"):
            for s, n in (("q", n_q), ("k", n_kv), ("v", n_kv)):
                self.vector(f"{p}{s}_proj.bias", n)
        if c.get("attention_bias"):
            self.vector(p + "o_proj.bias", h)
        if c["family"] == "gpt_oss":
            self.vector(p + "sinks", c["num_attention_heads"], 0.5, 1.0)

    def latent_attention(self, p):
        c, h, n = self.c, self.c["hidden_size"], self.c["num_attention_heads"]
        nope, turned, v, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        if c["q_lora_rank"]:
            self.matrix(p + "q_a_proj", c["q_lora_rank"], h)
            self.norm(p + "q_a_layernorm", c["q_lora_rank"])
            self.matrix(p + "q_b_proj", n * (nope + turned), c["q_lora_rank"], 1.3)
        else:
            self.matrix(p + "q_proj", n * (nope + turned), h, 1.3)
        self.matrix(p + "kv_a_proj_with_mqa", rank + turned, h)
        self.norm(p + "kv_a_layernorm", rank)
        self.matrix(p + "kv_b_proj", n * (nope + v), rank)
        self.matrix(p + "o_proj", h, n * v)

    def gated(self, p, width, names=("gate_proj", "up_proj", "down_proj")):
        h = self.c["hidden_size"]
        if self.c.get("fused"):
            self.matrix(p + "gate_up_proj", 2 * width, h)
        else:
            self.matrix(p + names[0], width, h)
            self.matrix(p + names[1], width, h)
        self.matrix(p + names[2], h, width)

    def mixture(self, p):
        c, m, h, n = self.c, self.c["moe"], self.c["hidden_size"], self.c["n_experts"]
        self.matrix(p + m["router"], n, h, 2.0)
        if m.get("stacked"):
            w = c["intermediate_size"]
            self.vector(p + m["router"] + ".bias", n)
            for name, shape, fan in (("gate_up_proj", (n, h, 2 * w), h), ("down_proj", (n, w, h), w)):
                self.vector(f"{p}experts.{name}", shape, 0, 2.0 / math.sqrt(fan))
                self.vector(f"{p}experts.{name}_bias", (n, shape[2]))
            return
        if m["scores"] == "sigmoid":
            self.vector(p + m["router"] + ".e_score_correction_bias", n, 0.2, 0.4)
        for e in range(n):
            self.gated(f"{p}experts.{e}.", c[m["width"]], m["names"])
        if m.get("shared"):
            width = c.get("shared_expert_intermediate_size") or c["n_shared_experts"] * c["moe_intermediate_size"]
            self.gated(p + m["shared"] + ".", width)
        if m.get("shared_gate"):
            self.matrix(p + m["shared_gate"], 1, h, 2.0)

    def make(self):
        c, h = self.c, self.c["hidden_size"]
        tied = c["tie_word_embeddings"]
        self.matrix("model.embed_tokens", c["vocab_size"], h, 0.5 if tied else 16.0)
        before, between, (pre, post) = c["norms"]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            (self.latent_attention if "kv_lora_rank" in c else self.plain_attention)(p + "self_attn.")
            if "moe" in c and i >= c.get("first_k_dense_replace", 0) and i not in c.get("mlp_only_layers", []):
                self.mixture(p + c["moe"]["prefix"])
            else:
                self.gated(p + "mlp.", c["intermediate_size"])
            for name in (before, between, pre, post):
                if name:
                    # a norm behind a part scales that part's contribution
                    self.norm(f"{p}{name}_layernorm", h, 2.0 if name in (between, post) else 1.0)
        self.norm("model.norm", h, 7.0 if tied else 1.0)
        if not tied:
            self.matrix("lm_head", c["vocab_size"], h, 4.0)
        return self.all


# ---- possible mistakes of an engine ----

def changes(c):
    """Returns name of a mistake -> changed keys of the description."""
    out, s, far = {}, c.get("rope_scaling"), c["max_position_embeddings"]
    out["rope_theta_x2"] = {"rope_theta": 2 * c["rope_theta"]}
    if s:
        out["no_rope_scaling"] = {"rope_scaling": None}
    if s and "mscale_all_dim" in s:
        out["no_mscale"] = {"rope_scaling": {k: v for k, v in s.items() if not k.startswith("mscale")}}
    if s and s.get("truncate") is False:
        out["yarn_bounds_truncated"] = {"rope_scaling": s | {"truncate": True}}
    if any(c["windows"]):
        out["no_sliding_window"] = {"windows": [False] * len(c["windows"])}
        out["sliding_window_off_by_one"] = {"sliding_window": c["sliding_window"] + 1}
    elif c.get("sliding_window"):
        out["sliding_window_wrongly_applied"] = {"windows": [True] * len(c["windows"])}
    if c.get("attn_logit_softcapping"):
        out["no_attention_softcap"] = {"attn_logit_softcapping": None}
        out["no_final_softcap"] = {"final_logit_softcapping": None}
        out["query_scalar_is_head_dim"] = {"query_pre_attn_scalar": c["head_dim"]}
    if c.get("q_k_norm"):
        out["no_q_k_norm"] = {"q_k_norm": None}
    if c.get("partial_rotary_factor"):
        out["long_factors_are_short"] = {"original_max_position_embeddings": far, "rope_scaling": None}
    if c.get("swiglu_limit"):
        out["no_swiglu_limit"] = {"swiglu_limit": 1e9}
    if c.get("moe") and "norm_topk_prob" in c:
        out["norm_topk_prob_flipped"] = {"norm_topk_prob": not c["norm_topk_prob"]}
    if c.get("topk_group", 0) < c.get("n_group", 0):
        out["no_group_limit"] = {"topk_group": c["n_group"]}
    if c.get("routed_scaling_factor", 1.0) != 1.0:
        out["no_routed_scaling"] = {"routed_scaling_factor": 1.0}
    if (c.get("moe") or {}).get("shared"):
        out["no_shared_expert"] = {"moe": c["moe"] | {"shared": None}}
    if (c.get("moe") or {}).get("shared_gate"):
        out["no_shared_gate"] = {"moe": c["moe"] | {"shared_gate": None}}
    return out


MISSING = {"no_biases": ".bias", "sinks_ignored": ".sinks", "no_choice_bias": ".e_score_correction_bias"}


class Family(Decoder):
    def altered(self):
        out = {name: Decoder(self.c | change, self.w, self.n_new) for name, change in changes(self.c).items()}
        for name, end in MISSING.items():
            if any(k.endswith(end) for k in self.w):
                out[name] = Decoder(self.c, {k: v for k, v in self.w.items() if not k.endswith(end)}, self.n_new)
        return out


def tokenizer_of(c):
    kind = files.Characters if c["model_type"] == "gemma2" else files.ByteLevel
    return kind(c["vocab_size"], c["max_position_embeddings"])
