"""Computes the forward pass of every family except those of model.py, written directly in float64 after the models' papers and
transformers' modeling files. One decoder serves all families. A model's config.json chooses the decoder's parts (with
transformers' keys), and families.py has the traits that config.json does not contain."""
import math

import numpy as np

from model import gelu_tanh, rms_norm, silu, softcap

INNER_EPS = 1e-6  # epsilon of the norms within latent attention, independent of rms_norm_eps


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- rope ----

def yarn_mscale(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def yarn(freqs, s, theta):
    """Scales frequencies as in Peng et al. 2023. Dimensions that turn often keep their frequency, and dimensions that turn seldom
    are slowed down."""
    n = 2 * len(freqs)

    def dimension(turns):
        return n * math.log(s["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(s.get("beta_fast", 32)), dimension(s.get("beta_slow", 1))
    if s.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    slow = np.clip((np.arange(n // 2) - low) / max(high - low, 0.001), 0, 1)
    return freqs / s["factor"] * slow + freqs * (1 - slow)


class Rope:
    """Holds the frequencies [pairs], and the factor of cos and sin. long: the text is longer than the model's original length."""

    def __init__(self, c, n_rot, long):
        s, theta = c.get("rope_scaling") or {}, c["rope_theta"]
        self.freqs, self.factor = theta ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot), 1.0
        kind = s.get("rope_type", s.get("type"))
        if kind == "yarn":
            self.freqs = yarn(self.freqs, s, theta)
            self.factor = yarn_mscale(s["factor"], s.get("mscale", 1)) / yarn_mscale(s["factor"], s.get("mscale_all_dim", 0))
        if kind == "longrope":
            old = c["original_max_position_embeddings"]
            self.freqs = self.freqs / np.array(s["long_factor" if long else "short_factor"])
            self.factor = math.sqrt(1 + math.log(c["max_position_embeddings"] / old) / math.log(old))

    def turn(self, x, positions, interleaved=False):
        """Rotates x [n, heads, d]. Pairs are (i, i + half) of the rotated part, or (2i, 2i + 1) when interleaved."""
        angle = positions[:, None, None] * self.freqs
        cos, sin, n_rot = np.cos(angle) * self.factor, np.sin(angle) * self.factor, 2 * len(self.freqs)
        x, rest = x[..., :n_rot], x[..., n_rot:]
        a, b = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Decoder:
    """`Decoder` computes the forward pass of one model. c: config.json with the traits of its family; w: name -> float64 array as in
    the file; n_new: number of tokens that follow a prompt."""

    def __init__(self, c, w, n_new):
        self.c, self.w, self.n_new = c, w, n_new

    def norm(self, name, x, eps=None):
        w = self.w[name + ".weight"] + (1 if self.c.get("norm_is_less_one") else 0)
        return rms_norm(x, w, eps or self.c["rms_norm_eps"])

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    # ---- attention ----

    def plain_qkv(self, p, x):
        c, d, w = self.c, self.c["head_dim"], self.w
        n_q, n_kv = c["num_attention_heads"], c["num_key_value_heads"]
        if p + "qkv_proj.weight" in w:
            q, k, v = np.split(self.linear(p + "qkv_proj", x), [n_q * d, (n_q + n_kv) * d], -1)
        else:
            q, k, v = (self.linear(f"{p}{s}_proj", x) for s in "qkv")
        if c.get("q_k_norm") == "whole":
            q, k = self.norm(p + "q_norm", q), self.norm(p + "k_norm", k)
        q, k, v = (t.reshape(len(x), -1, d) for t in (q, k, v))
        if c.get("q_k_norm") == "head":
            q, k = self.norm(p + "q_norm", q), self.norm(p + "k_norm", k)
        return q, k, v

    def latent_qkv(self, p, x, positions, rope):
        c, n = self.c, len(x)
        nope, rank = c["qk_nope_head_dim"], c["kv_lora_rank"]
        if c["q_lora_rank"]:
            q = self.linear(p + "q_b_proj", self.norm(p + "q_a_layernorm", self.linear(p + "q_a_proj", x), INNER_EPS))
        else:
            q = self.linear(p + "q_proj", x)
        q = q.reshape(n, c["num_attention_heads"], -1)
        latent = self.linear(p + "kv_a_proj_with_mqa", x)
        kv = self.linear(p + "kv_b_proj", self.norm(p + "kv_a_layernorm", latent[:, :rank], INNER_EPS))
        kv = kv.reshape(n, c["num_attention_heads"], -1)
        turned = rope.turn(latent[:, None, rank:], positions, True).repeat(kv.shape[1], 1)
        q = np.concatenate([q[..., :nope], rope.turn(q[..., nope:], positions, True)], -1)
        return q, np.concatenate([kv[..., :nope], turned], -1), kv[..., nope:]

    def scale(self, d):
        s = self.c.get("rope_scaling") or {}
        mscale = yarn_mscale(s["factor"], s["mscale_all_dim"]) if "mscale_all_dim" in s else 1
        return self.c.get("query_pre_attn_scalar", d) ** -0.5 * mscale**2

    def attention(self, i, x, positions, cache, rope):
        c, p = self.c, f"model.layers.{i}.self_attn."
        if "kv_lora_rank" in c:
            q, k, v = self.latent_qkv(p, x, positions, rope)
        else:
            q, k, v = self.plain_qkv(p, x)
            q, k = rope.turn(q, positions), rope.turn(k, positions)
        if i in cache:
            k, v = np.concatenate([cache[i][0], k]), np.concatenate([cache[i][1], v])
        cache[i] = k, v
        k, v = (np.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = softcap(np.einsum("ihd,jhd->hij", q, k) * self.scale(q.shape[-1]), c.get("attn_logit_softcapping"))
        distance = positions[:, None] - np.arange(len(k))
        window = c["sliding_window"] if c["windows"][i] else c["max_position_embeddings"]
        scores = np.where((distance < 0) | (distance >= window), -np.inf, scores)
        if p + "sinks" in self.w:  # a sink is a column of the softmax without a value
            sink = np.broadcast_to(self.w[p + "sinks"][:, None, None], (*scores.shape[:2], 1))
            shares = softmax(np.concatenate([scores, sink], -1))[..., :-1]
        else:
            shares = softmax(scores)
        return self.linear(p + "o_proj", np.einsum("hij,jhd->ihd", shares, v).reshape(len(x), -1))

    # ---- MLP and experts ----

    def gated(self, p, x, names=("gate_proj", "up_proj", "down_proj")):
        if p + "gate_up_proj.weight" in self.w:
            gate, up = np.split(self.linear(p + "gate_up_proj", x), 2, -1)
        else:
            gate, up = self.linear(p + names[0], x), self.linear(p + names[1], x)
        return self.linear(p + names[2], (gelu_tanh if self.c.get("gelu") else silu)(gate) * up)

    def stacked(self, p, e, x):
        """Computes an expert of gpt-oss. Its gate and up columns alternate, and it has its own activation."""
        w, limit = self.w, self.c["swiglu_limit"]
        both = x @ w[p + "experts.gate_up_proj"][e] + w[p + "experts.gate_up_proj_bias"][e]
        gate, up = np.minimum(both[:, ::2], limit), np.clip(both[:, 1::2], -limit, limit)
        return (up + 1) * gate * sigmoid(1.702 * gate) @ w[p + "experts.down_proj"][e] + w[p + "experts.down_proj_bias"][e]

    def shares(self, p, x):
        """Returns [n, experts]: each expert's share in each row, zero when the row does not choose the expert."""
        c, m = self.c, self.c["moe"]
        logits = self.linear(p + m["router"], x)
        scores = {"sigmoid": sigmoid, "softmax": softmax, "chosen": lambda t: t}[m["scores"]](logits)
        choice = scores + self.w.get(p + m["router"] + ".e_score_correction_bias", 0)
        if c.get("topk_group", 0) < c.get("n_group", 0):
            groups = np.sort(choice.reshape(len(x), c["n_group"], -1), -1)
            best = groups[..., -2:].sum(-1) if m["scores"] == "sigmoid" else groups[..., -1]
            kept = best >= np.sort(best, -1)[:, -c["topk_group"], None]
            choice = np.where(np.repeat(kept, groups.shape[-1], 1), choice, -np.inf)
        chosen = np.zeros(scores.shape, bool)
        np.put_along_axis(chosen, np.argsort(-choice, -1)[:, :c["num_experts_per_tok"]], True, -1)
        if m["scores"] == "chosen":
            return softmax(np.where(chosen, scores, -np.inf))
        shares = np.where(chosen, scores, 0)
        if c.get("norm_topk_prob"):
            shares = shares / shares.sum(-1, keepdims=True)
        return shares * c.get("routed_scaling_factor", 1.0)

    def mixture(self, p, x):
        c, m = self.c, self.c["moe"]
        shares, out = self.shares(p, x), np.zeros_like(x)
        for e in range(shares.shape[1]):
            rows = np.nonzero(shares[:, e])[0]
            if len(rows) == 0:
                continue
            y = self.stacked(p, e, x[rows]) if m.get("stacked") else self.gated(f"{p}experts.{e}.", x[rows], m["names"])
            out[rows] += shares[rows, e, None] * y
        if m.get("shared"):
            y = self.gated(p + m["shared"] + ".", x)
            out += y * sigmoid(self.linear(p + m["shared_gate"], x)) if m.get("shared_gate") else y
        return out

    def mlp(self, i, x):
        m, p = self.c.get("moe"), f"model.layers.{i}."
        if m and i >= self.c.get("first_k_dense_replace", 0) and i not in self.c.get("mlp_only_layers", []):
            return self.mixture(p + m["prefix"], x)
        return self.gated(p + "mlp.", x)

    def layer(self, i, x, positions, cache, rope):
        def norm(name, t):
            return self.norm(f"model.layers.{i}.{name}_layernorm", t)

        before, between, after = self.c["norms"]
        y = self.attention(i, norm(before, x) if before else x, positions, cache, rope)
        x = x + (norm(between, y) if between else y)
        pre, post = after
        y = self.mlp(i, norm(pre, x) if pre else x)
        return x + (norm(post, y) if post else y)

    def forward(self, ids, cache):
        """Returns the logits [n, vocab] of ids, at the positions after those in the cache."""
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return softcap(self.hidden(ids, cache) @ head.T, self.c.get("final_logit_softcapping"))

    def hidden(self, ids, cache):
        """Returns the states of these positions behind the final norm, [n, hidden]."""
        c, w = self.c, self.w
        if "n" not in cache:
            n_rot = c["qk_rope_head_dim"] if "kv_lora_rank" in c else int(c["head_dim"] * c.get("partial_rotary_factor", 1))
            long = len(ids) + self.n_new > c.get("original_max_position_embeddings", math.inf)
            cache |= {"n": 0, "rope": Rope(c, n_rot, long)}
        positions = cache["n"] + np.arange(len(ids), dtype=np.float64)
        cache["n"] += len(ids)
        x = w["model.embed_tokens.weight"][ids]
        if c.get("scaled_embedding"):
            x = x * math.sqrt(c["hidden_size"])
        for i in range(c["num_hidden_layers"]):
            x = self.layer(i, x, positions, cache, cache["rope"])
        return self.norm("model.norm", x)
