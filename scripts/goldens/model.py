"""Defines four tiny models and their forward pass, written directly in float64 after the papers and the models' configurations. They
are Llama (Touvron et al. 2023) with grouped queries and Llama 3.1's rope, and Gemma 3 (Gemma Team 2025) with windows, norms of
queries and keys, and two ropes. A variant of each has the other options of its configuration: biases, a tied head, independent
sizes, caps. A layer is a dict of float64 matrices by their names in transformers' checkpoints."""
import math

import numpy as np

LLAMA = {
    "family": "llama", "hidden": 256, "intermediate": 256, "n_layers": 2, "n_heads": 8, "n_kv_heads": 2, "head_dim": 32,
    "vocab_size": 320, "max_len": 1024, "eps": 1e-5, "theta": 500000.0, "window": 0, "is_window": [False, False],
    "scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64},
    "tied": False, "biases": False,
}
# LLAMA_BIAS has three query heads for each key head. All heads together are wider than a row.
LLAMA_BIAS = LLAMA | {"hidden": 192, "intermediate": 224, "n_heads": 6, "head_dim": 48, "tied": True, "biases": True}
# PHI3 has Llama's layers in the form of Phi-3's checkpoints, with fused projections and plain rope. With two ranks, each rank has three heads.
PHI3 = LLAMA | {"family": "phi3", "n_heads": 6, "n_kv_heads": 6, "hidden": 192, "scaling": {"rope_type": "linear", "factor": 1.0}}
# In GEMMA3 every sixth layer attends to all positions. A GGUF of Gemma 3 can express no other pattern.
GEMMA3 = {
    "family": "gemma3", "hidden": 256, "intermediate": 256, "n_layers": 6, "n_heads": 4, "n_kv_heads": 1, "head_dim": 64,
    "vocab_size": 384, "max_len": 1024, "eps": 1e-6, "theta": 1000000.0, "theta_local": 10000.0, "window": 16,
    "is_window": [True] * 5 + [False], "scaling": {"rope_type": "linear", "factor": 8.0},
    "tied": True, "biases": False, "query_scalar": 64, "attention_cap": None, "final_cap": None,
}
# The caps of GEMMA3_CAPS are so low compared with scores and logits that a missing cap changes the results.
GEMMA3_CAPS = GEMMA3 | {"query_scalar": 24, "attention_cap": 2.0, "final_cap": 10.0}


def random_weights(c, rng):
    """Returns name -> float32 array. The scales make the layers matter more than the token's own embedding. Otherwise a model with a
    tied head would repeat its token. The scales also spread the logits so that the two best are rarely close."""
    h, d, m = c["hidden"], c["head_dim"], c["intermediate"]
    gemma = c["family"] == "gemma3"

    def matrix(n, k, scale):
        return (rng.standard_normal((n, k)) * scale / math.sqrt(k)).astype(np.float32)

    def norm(n, mean, spread=0.15):
        return (mean + spread * rng.standard_normal(n)).astype(np.float32)

    w = {"model.embed_tokens.weight": matrix(c["vocab_size"], h, 0.5 if c["tied"] else 16.0)}
    for i in range(c["n_layers"]):
        p = f"model.layers.{i}."
        w[p + "self_attn.q_proj.weight"] = matrix(c["n_heads"] * d, h, 1.3)
        w[p + "self_attn.k_proj.weight"] = matrix(c["n_kv_heads"] * d, h, 1.3)
        w[p + "self_attn.v_proj.weight"] = matrix(c["n_kv_heads"] * d, h, 1.5)
        w[p + "self_attn.o_proj.weight"] = matrix(h, c["n_heads"] * d, 1.5)
        w[p + "mlp.gate_proj.weight"] = matrix(m, h, 1.5)
        w[p + "mlp.up_proj.weight"] = matrix(m, h, 1.5)
        w[p + "mlp.down_proj.weight"] = matrix(h, m, 1.5)
        if gemma:  # the files contain w - 1
            w[p + "self_attn.q_norm.weight"] = norm(d, 0.2)
            w[p + "self_attn.k_norm.weight"] = norm(d, 0.2)
            for name, mean in (("input", 0), ("post_attention", 1.5), ("pre_feedforward", 0), ("post_feedforward", 1.5)):
                w[f"{p}{name}_layernorm.weight"] = norm(h, mean)
        else:
            w[p + "input_layernorm.weight"] = norm(h, 1)
            w[p + "post_attention_layernorm.weight"] = norm(h, 1)
    w["model.norm.weight"] = norm(h, 7 if c["tied"] else 1)
    if c["biases"]:
        for name in [k for k in w if k.endswith("_proj.weight")]:
            w[name.replace("weight", "bias")] = norm(len(w[name]), 0, 0.3)
    if not c["tied"]:
        w["lm_head.weight"] = matrix(c["vocab_size"], h, 4.0)
    return w


def inverse_frequencies(c, local):
    """Returns [head_dim / 2] frequencies. llama3: the rule of Meta's reference code, by the wavelength of each pair."""
    d, s = c["head_dim"], c["scaling"]
    theta = c["theta_local"] if local else c["theta"]
    freqs = theta ** (-np.arange(0, d, 2, dtype=np.float64) / d)
    return freqs if local else freqs / scaling_divisors(s, freqs)


def scaling_divisors(s, freqs):
    if s["rope_type"] == "linear":
        return np.full_like(freqs, s["factor"])
    wavelengths, old = 2 * np.pi / freqs, s["original_max_position_embeddings"]
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    smooth = np.clip((old / wavelengths - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / s["factor"] + smooth)


def rms_norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rope(x, positions, freqs):
    """Rotates x [n, heads, d]; pairs are (i, i + d / 2)."""
    angle = positions[:, None, None] * freqs
    half = x.shape[-1] // 2
    a, b, cos, sin = x[..., :half], x[..., half:], np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def softcap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Model:
    """`Model` is one of the tiny models. w: name -> float64 array as a reader of the file sees it (Gemma: norms with the 1 added)."""

    def __init__(self, c, w):
        self.c, self.w, self.gemma = c, w, c["family"] == "gemma3"
        self.freqs = {local: inverse_frequencies(c, local) for local in {False, self.gemma}}

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    def attention(self, i, x, positions, cache):
        c, p = self.c, f"model.layers.{i}.self_attn."
        n, d, local = len(x), c["head_dim"], c["is_window"][i]
        q, k, v = (self.linear(f"{p}{s}_proj", x).reshape(n, -1, d) for s in "qkv")
        if self.gemma:
            q = rms_norm(q, self.w[p + "q_norm.weight"], c["eps"])
            k = rms_norm(k, self.w[p + "k_norm.weight"], c["eps"])
        q, k = (rope(t, positions, self.freqs[local]) for t in (q, k))
        if i in cache:
            k, v = np.concatenate([cache[i][0], k]), np.concatenate([cache[i][1], v])
        cache[i] = k, v
        group = c["n_heads"] // c["n_kv_heads"]
        scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, group, 1)) / math.sqrt(c.get("query_scalar", d))
        distance = positions[:, None] - np.arange(len(k))
        hidden = (distance < 0) | ((distance >= c["window"]) if local else False)
        scores = np.where(hidden, -np.inf, softcap(scores, c.get("attention_cap")))
        e = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hij,jhd->ihd", e / e.sum(-1, keepdims=True), np.repeat(v, group, 1))
        return self.linear(p + "o_proj", out.reshape(n, -1))

    def mlp(self, i, x):
        p = f"model.layers.{i}.mlp."
        gate, up = (self.linear(f"{p}{s}_proj", x) for s in ("gate", "up"))
        return self.linear(p + "down_proj", (gelu_tanh if self.gemma else silu)(gate) * up)

    def forward(self, ids, cache):
        """Returns the logits [n, vocab] of ids, at the positions after those in the cache."""
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return softcap(self.hidden(ids, cache) @ head.T, self.c.get("final_cap"))

    def hidden(self, ids, cache):
        """Returns the states of these positions behind the final norm, [n, hidden]."""
        w, eps = self.w, self.c["eps"]
        positions = cache.setdefault("n", 0) + np.arange(len(ids), dtype=np.float64)
        cache["n"] += len(ids)
        x = w["model.embed_tokens.weight"][ids]
        if self.gemma:
            x = x * math.sqrt(self.c["hidden"])
        for i in range(self.c["n_layers"]):
            def norm(name, t):
                return rms_norm(t, w[f"model.layers.{i}.{name}_layernorm.weight"], eps)

            y = self.attention(i, norm("input", x), positions, cache)
            if self.gemma:
                x = x + norm("post_attention", y)
                x = x + norm("post_feedforward", self.mlp(i, norm("pre_feedforward", x)))
            else:
                x = x + y
                x = x + self.mlp(i, norm("post_attention", x))
        return rms_norm(x, w["model.norm.weight"], eps)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def altered(m):
    """Returns name -> Model with one wrong feature. A golden must reveal each of these mistakes of an engine."""
    c, out = m.c, {}
    if m.gemma:
        changes = {"no_sliding_window": {"window": c["max_len"]},
                   "sliding_window_off_by_one": {"window": c["window"] + 1}, "one_rope_base": {"theta_local": c["theta"]}}
    else:
        changes = {}
    if c["scaling"].get("factor") != 1:
        changes["no_rope_scaling"] = {"scaling": {"rope_type": "linear", "factor": 1.0}}
    changes["rope_theta_x2"] = {"theta": 2 * c["theta"]}
    if c.get("attention_cap"):
        changes["no_attention_softcap"] = {"attention_cap": None}
    if c.get("final_cap"):
        changes["no_final_softcap"] = {"final_cap": None}
    if c.get("query_scalar", c["head_dim"]) != c["head_dim"]:
        changes["query_scalar_is_head_dim"] = {"query_scalar": c["head_dim"]}
    for name, change in changes.items():
        out[name] = Model(c | change, m.w)
    if m.gemma:
        ones = {k: np.ones_like(v) for k, v in m.w.items() if k.endswith(("q_norm.weight", "k_norm.weight"))}
        out["q_k_norm_weights_ignored"] = Model(c, m.w | ones)
    for part in sorted({k.split(".")[-2] for k in m.w if k.endswith(".bias")}):
        out[f"no_{part}_bias"] = Model(c, {k: v for k, v in m.w.items() if not k.endswith(f"{part}.bias")})
    return out
