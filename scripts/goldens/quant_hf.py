"""Makes quantised matrices in the form of transformers' checkpoints: integer codes, scales and zeros in tensors of their own (GPTQ,
compressed-tensors). Each function takes float32 rows [n, k] and an rng. It returns {end of the name: (dtype, shape, bytes)} and
the values that a reader must see, in float64."""
import numpy as np

import quant

GROUP = 32


def tensor(dtype, x):
    x = np.ascontiguousarray(x)
    return dtype, x.shape, x.tobytes()


def words(codes, bits):
    """Packs codes [..., m] into [..., m * bits / 32] of uint32, the lowest bits first."""
    flat = ((codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1).reshape(*codes.shape[:-1], -1)
    return np.packbits(flat.astype(np.uint8), axis=-1, bitorder="little").view("<u4")


def steps(w, groups, bits, symmetric, dtype):
    """Returns codes [n, k], which count from 0, and zeros and scales [n, groups]. `groups` gives the group of each input."""
    n_groups, top = int(groups.max()) + 1, 2**bits - 1
    zeros, scales = np.empty((len(w), n_groups), np.int64), np.empty((len(w), n_groups))
    codes = np.empty(w.shape, np.int64)
    for g in range(n_groups):
        x = w[:, groups == g].astype(np.float64)
        if symmetric:
            step, zero = np.abs(x).max(-1) / (top // 2 if bits > 2 else 1.5), np.full(len(w), 2 ** (bits - 1))
        else:
            step = (np.maximum(x.max(-1), 0) - np.minimum(x.min(-1), 0)) / top
            zero = np.clip(np.rint(quant.divide(-np.minimum(x.min(-1), 0), step)), 1, top).astype(np.int64)
        stored = scales_of(step, dtype)
        codes[:, groups == g] = np.clip(np.rint(quant.divide(x, stored[:, None])) + zero[:, None], 0, top)
        zeros[:, g], scales[:, g] = zero, stored
    return codes, zeros, scales, scales[:, groups] * (codes - zeros[:, groups])


def scales_of(x, dtype):
    return quant.f16(x).astype(np.float64) if dtype == "F16" else quant.from_bf16(quant.to_bf16(x)).astype(np.float64)


def store_scales(x, dtype):
    return tensor(dtype, quant.f16(x) if dtype == "F16" else quant.to_bf16(x))


def gptq(bits, version=1, act_order=False, symmetric=False):
    def write(w, rng):
        k = w.shape[1]
        groups = np.arange(k) // GROUP
        if act_order:
            groups = groups[rng.permutation(k)]
        codes, zeros, scales, values = steps(w, groups, bits, symmetric, "F16")
        out = {"qweight": tensor("I32", words(codes.reshape(len(w), -1, 32), bits).reshape(len(w), -1).T),
               "qzeros": tensor("I32", words(zeros.T - (version == 1), bits)),
               "scales": store_scales(scales.T, "F16"), "g_idx": tensor("I32", groups.astype("<i4"))}
        return out, values

    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": act_order, "sym": symmetric}
    return write, config | ({"checkpoint_format": "gptq_v2"} if version == 2 else {})


def packed(bits, symmetric, act_order=False):
    def write(w, rng):
        n, k = w.shape
        groups = np.arange(k) // GROUP
        if act_order:
            groups = groups[rng.permutation(k)]
        codes, zeros, scales, values = steps(w, groups, bits, symmetric, "BF16")
        out = {"weight_packed": tensor("I32", words(codes, bits)), "weight_scale": store_scales(scales, "BF16"),
               "weight_shape": tensor("I64", np.array([n, k], "<i8"))}
        if not symmetric:
            out["weight_zero_point"] = tensor("I32", words(zeros.T, bits).T)
        if act_order:
            out["weight_g_idx"] = tensor("I32", groups.astype("<i4"))
        return out, values

    return write, compressed("pack-quantized", bits, "group", symmetric)


def int8(w, rng):
    """Quantises with one scale for each output."""
    scale = scales_of(np.abs(w).max(-1) / 127, "BF16")[:, None]
    q = np.clip(np.rint(w / scale), -127, 127).astype(np.int8)
    return {"weight": tensor("I8", q), "weight_scale": store_scales(scale, "BF16")}, scale * q


def compressed(form, bits, strategy, symmetric=True):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy,
               "group_size": GROUP if strategy == "group" else None}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


E4M3 = np.array([m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127])


def e4m3(y):
    """Returns codes without their sign, rounded to the nearest, ties to the even code."""
    high = np.clip(np.searchsorted(E4M3, np.abs(y).astype(np.float64)), 1, 126)
    up, down = E4M3[high] - np.abs(y), np.abs(y) - E4M3[high - 1]
    return np.where((up < down) | ((up == down) & (high % 2 == 0)), high, high - 1)


def fp8(size):
    """Quantises with a scale for each block of size x size; size 0 means a scale for each output."""
    def write(w, rng):
        n, k = w.shape
        rows, columns = (np.arange(n) // size, np.arange(k) // size) if size else (np.arange(n), np.zeros(k, np.int64))
        scale = np.zeros((rows[-1] + 1, columns[-1] + 1), np.float32)
        np.maximum.at(scale, (rows[:, None], columns), np.abs(w) / np.float32(448))
        full = scale[rows[:, None], columns]
        y = w / full
        code = e4m3(y)
        name = "weight_scale_inv" if size else "weight_scale"
        return ({"weight": ("F8_E4M3", w.shape, (code | np.where(y < 0, 128, 0)).astype(np.uint8).tobytes()), name: tensor("F32", scale)},
                full.astype(np.float64) * E4M3[code] * np.sign(y))

    if size:
        return write, {"quant_method": "fp8", "weight_block_size": [size, size]}
    return write, {"quant_method": "compressed-tensors", "format": "float-quantized"}


# KV_B lists the formats of DeepSeek's kv_b_proj. The loader splits this matrix and transposes one half.
KV_B = {"fp8_blocks": fp8(32), "fp8_rows": fp8(0), "gptq4": gptq(4)}
SCHEMES = {
    "gptq2": gptq(2),
    "gptq3": gptq(3),
    "gptq8": gptq(8, symmetric=True),
    "gptq4_v2": gptq(4, version=2),
    "gptq4_act_order": gptq(4, act_order=True),
    "w4a16": packed(4, True),
    "w4a16_act_order": packed(4, False, act_order=True),
    "w8a16": packed(8, False),
    "w8a8": (int8, compressed("int-quantized", 8, "channel")),
}


# ---- quantisation of plain weights by the loader (--quantization), with its roundings ----

def half(x):
    """Rounds to float16 through a float32."""
    return quant.f16(np.float32(x)).astype(np.float64)


def load_int8(w):
    x = w.reshape(len(w), -1, 32)
    d = half(np.abs(x).max(-1, keepdims=True) / np.float32(127))
    return (d * np.clip(np.rint(quant.divide(x.astype(np.float64), d)), -127, 127)).reshape(w.shape)


def load_int4(w):
    x = w.reshape(len(w), -1, 32)
    d = half(quant.extreme(x) / np.float32(-8))
    return (d * np.clip(np.rint(quant.divide(x.astype(np.float64), d)), -8, 7)).reshape(w.shape)


def load_fp8(w):
    scale = np.abs(w).max(-1, keepdims=True) / np.float32(448)
    y = w / scale
    return scale.astype(np.float64) * E4M3[e4m3(y)] * np.sign(y)


AT_LOAD = {"int8": load_int8, "int4": load_int4, "fp8": load_fp8}
