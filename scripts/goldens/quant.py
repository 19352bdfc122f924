"""Makes quantised blocks of GGUF files (layouts: ggml-common.h). Each function takes float32 rows [n, k] and returns the bytes [n,
row_bytes] and the values that a reader must see, in float64. The rounding is the simplest rounding, not that of a tuned
quantiser: bytes and values only have to agree."""
import numpy as np


def f16(x):
    return np.asarray(x, np.float64).astype(np.float16)


def to_bytes(x):
    """Views [..., m] of any type as [..., bytes] of uint8."""
    x = np.ascontiguousarray(x)
    return x.view(np.uint8).reshape(*x.shape[:-1], -1)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(x):
    """Rounds to the nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def plain_f32(w):
    return to_bytes(w.astype(np.float32)), w.astype(np.float64)


def plain_f16(w):
    return to_bytes(w.astype(np.float16)), w.astype(np.float16).astype(np.float64)


def plain_bf16(w):
    bits = to_bf16(w)
    return to_bytes(bits), from_bf16(bits).astype(np.float64)


def divide(x, d):
    """Returns x / d, and 0 where d is 0."""
    d = np.asarray(d, np.float64)
    return np.divide(x, d, out=np.zeros(np.broadcast(x, d).shape), where=d != 0)


def blocks(w, size):
    return w.astype(np.float64).reshape(w.shape[0], -1, size)


def join(n, *parts):
    return np.concatenate(parts, -1).reshape(n, -1)


def extreme(x):
    """Returns the value of largest magnitude of each block, with its sign."""
    i = np.abs(x).argmax(-1)
    return np.take_along_axis(x, i[..., None], -1)


def nibbles(q):
    """Packs element j into the low half of byte j, and element j + half into its high half."""
    half = q.shape[-1] // 2
    return (q[..., :half] | q[..., half:] << 4).astype(np.uint8)


def q8_0(w):
    x = blocks(w, 32)
    d = f16(np.abs(x).max(-1, keepdims=True) / 127)
    q = np.clip(np.rint(divide(x, d)), -127, 127).astype(np.int8)
    return join(len(w), to_bytes(d), to_bytes(q)), (d.astype(np.float64) * q).reshape(w.shape)


def q4_0(w):
    x = blocks(w, 32)
    d = f16(extreme(x) / -8)
    q = np.clip(np.rint(divide(x, d)) + 8, 0, 15).astype(np.int64)
    return join(len(w), to_bytes(d), nibbles(q)), (d.astype(np.float64) * (q - 8)).reshape(w.shape)


def q5_0(w):
    x = blocks(w, 32)
    d = f16(extreme(x) / -16)
    q = np.clip(np.rint(divide(x, d)) + 16, 0, 31).astype(np.int64)
    high = ((q >> 4) << np.arange(32)).sum(-1, keepdims=True).astype(np.uint32)
    packed = join(len(w), to_bytes(d), to_bytes(high), nibbles(q & 15))
    return packed, (d.astype(np.float64) * (q - 16)).reshape(w.shape)


def with_min(w, levels):
    """Quantises blocks of 32 to a scale d and a least value. The codes are steps above that value."""
    x = blocks(w, 32)
    low = f16(x.min(-1, keepdims=True))
    d = f16((x.max(-1, keepdims=True) - low) / levels)
    q = np.clip(np.rint(divide(x - low, d)), 0, levels).astype(np.int64)
    return d, low, q, (d.astype(np.float64) * q + low.astype(np.float64)).reshape(w.shape)


def q4_1(w):
    d, low, q, values = with_min(w, 15)
    return join(len(w), to_bytes(d), to_bytes(low), nibbles(q)), values


def q5_1(w):
    d, low, q, values = with_min(w, 31)
    high = ((q >> 4) << np.arange(32)).sum(-1, keepdims=True).astype(np.uint32)
    return join(len(w), to_bytes(d), to_bytes(low), to_bytes(high), nibbles(q & 15)), values


IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def nearest(x, table):
    return np.abs(x[..., None] - table).argmin(-1)


def iq4_nl(w):
    x = blocks(w, 32)
    d = f16(extreme(x) / -127)
    q = nearest(divide(x, d), IQ4_NL)
    return join(len(w), to_bytes(d), nibbles(q)), (d.astype(np.float64) * IQ4_NL[q]).reshape(w.shape)


def mxfp4(w):
    """Quantises as in OCP microscaling: 32 elements share a power of two, chosen so that the largest is near e2m1's maximum."""
    x = blocks(w, 32)
    e = np.floor(np.log2(np.maximum(np.abs(x).max(-1, keepdims=True), 1e-30))) - 2
    q = nearest(x / 2.0**e, E2M1)
    return join(len(w), (e + 127).astype(np.uint8), nibbles(q)), (2.0**e * E2M1[q]).reshape(w.shape)


def scales_and_mins(x, levels):
    """Computes scales and mins for Q4_K and Q5_K: 256 elements are 8 groups of 32; a value is d * scale * q - dmin * min."""
    low = np.maximum(-x.min(-1), 0)  # shape [n, super, 8]
    step = (x.max(-1) + low) / levels
    d, dmin = f16(step.max(-1, keepdims=True) / 63), f16(low.max(-1, keepdims=True) / 63)
    sc = np.clip(np.rint(divide(step, d)), 0, 63).astype(np.int64)
    mn = np.clip(np.rint(divide(low, dmin)), 0, 63).astype(np.int64)
    return d, dmin, sc, mn


def pack_scales(sc, mn):
    """Packs 8 scales and 8 mins of six bits into 12 bytes. The upper two bits of the last four scales and mins lie above the bits of
    the first four."""
    first = sc[..., :4] | (sc[..., 4:] >> 4) << 6
    second = mn[..., :4] | (mn[..., 4:] >> 4) << 6
    third = (sc[..., 4:] & 15) | (mn[..., 4:] & 15) << 4
    return np.concatenate([first, second, third], -1).astype(np.uint8)


def k_quant(w, levels):
    x = blocks(w, 256).reshape(w.shape[0], -1, 8, 32)
    d, dmin, sc, mn = scales_and_mins(x, levels)
    step = d.astype(np.float64)[..., None] * sc[..., None]
    low = dmin.astype(np.float64)[..., None] * mn[..., None]
    q = np.clip(np.rint(divide(x + low, step)), 0, levels).astype(np.int64)
    head = [to_bytes(d), to_bytes(dmin), pack_scales(sc, mn)]
    return q, head, (step * q - low).reshape(w.shape)


def pair_nibbles(q):
    """Packs [n, super, 8, 32] into 128 bytes. Groups 2c and 2c + 1 share 32 bytes, as low and high halves."""
    return (q[..., 0::2, :] | q[..., 1::2, :] << 4).astype(np.uint8).reshape(*q.shape[:2], 128)


def q4_k(w):
    q, head, values = k_quant(w, 15)
    return join(len(w), *head, pair_nibbles(q)), values


def q5_k(w):
    q, head, values = k_quant(w, 31)
    high = ((q >> 4) << np.arange(8)[:, None]).sum(-2).astype(np.uint8)  # bit g of byte l belongs to group g
    return join(len(w), *head, high, pair_nibbles(q & 15)), values


def pairs_of_bits(q):
    """Packs [n, super, 256] of two bits into 64 bytes: in each half of 128, elements i, i + 32, ... share byte i."""
    h = q.reshape(*q.shape[:2], 2, 4, 32)
    return (h << 2 * np.arange(4)[:, None]).sum(-2).astype(np.uint8).reshape(*q.shape[:2], 64)


def q2_k(w):
    """Quantises 16 groups of 16, with a scale and a min of four bits each."""
    x = blocks(w, 256).reshape(w.shape[0], -1, 16, 16)
    low = np.maximum(-x.min(-1), 0)
    step = (x.max(-1) + low) / 3
    d, dmin = f16(step.max(-1, keepdims=True) / 15), f16(low.max(-1, keepdims=True) / 15)
    sc, mn = (np.clip(np.rint(divide(a, b)), 0, 15).astype(np.int64) for a, b in ((step, d), (low, dmin)))
    full, least = d.astype(np.float64)[..., None] * sc[..., None], dmin.astype(np.float64)[..., None] * mn[..., None]
    q = np.clip(np.rint(divide(x + least, full)), 0, 3).astype(np.int64)
    packed = join(len(w), (sc | mn << 4).astype(np.uint8), pairs_of_bits(q.reshape(*q.shape[:2], 256)), to_bytes(d), to_bytes(dmin))
    return packed, (full * q - least).reshape(w.shape)


def q3_k(w):
    """Quantises 16 groups of 16 with a scale of six bits. The third bit of a code is stored apart: the third bit of element 32 g + i
    is bit g of byte i."""
    x = blocks(w, 256).reshape(w.shape[0], -1, 16, 16)
    step = extreme(x)[..., 0] / -4
    d = f16(extreme(step) / -32)
    sc = np.clip(np.rint(divide(step, d)), -32, 31).astype(np.int64)
    full = d.astype(np.float64)[..., None] * sc[..., None]
    q = np.clip(np.rint(divide(x, full)) + 4, 0, 7).astype(np.int64)
    flat, u = q.reshape(*q.shape[:2], 256), sc + 32
    high = ((flat >> 2).reshape(*q.shape[:2], 8, 32) << np.arange(8)[:, None]).sum(-2).astype(np.uint8)
    low4 = (u[..., :8] & 15 | (u[..., 8:] & 15) << 4).astype(np.uint8)
    high2 = ((u >> 4).reshape(*q.shape[:2], 4, 4) << 2 * np.arange(4)[:, None]).sum(-2).astype(np.uint8)
    packed = join(len(w), high, pairs_of_bits(flat & 3), low4, high2, to_bytes(d))
    return packed, (full * (q - 4)).reshape(w.shape)


def q6_k(w):
    """Quantises 16 groups of 16 with signed scales of eight bits. A half of 128 elements has 64 bytes of low halves (elements 0..63
    low, 64..127 high) and 32 bytes with two high bits of four elements each."""
    x = blocks(w, 256).reshape(w.shape[0], -1, 16, 16)
    step = extreme(x)[..., 0] / -32
    d = f16(extreme(step) / -128)
    sc = np.clip(np.rint(divide(step, d)), -128, 127).astype(np.int64)
    full = d.astype(np.float64)[..., None] * sc[..., None]
    q = np.clip(np.rint(divide(x, full)) + 32, 0, 63).astype(np.int64)
    h = q.reshape(*q.shape[:2], 2, 4, 32)  # shape: halves, then quarters of 32
    low = np.stack([h[..., 0, :] & 15 | (h[..., 2, :] & 15) << 4, h[..., 1, :] & 15 | (h[..., 3, :] & 15) << 4], -2)
    high = ((h >> 4) << 2 * np.arange(4)[:, None]).sum(-2)
    shape = q.shape[:2]
    packed = join(len(w), low.astype(np.uint8).reshape(*shape, 128), high.astype(np.uint8).reshape(*shape, 64),
                  to_bytes(sc.astype(np.int8)), to_bytes(d))
    return packed, (full * (q - 32)).reshape(w.shape)


# FORMATS maps a name to (GGML's type id, file_type of such a model, function).
FORMATS = {
    "f32": (0, 0, plain_f32),
    "f16": (1, 1, plain_f16),
    "bf16": (30, 32, plain_bf16),
    "q8_0": (8, 7, q8_0),
    "q4_0": (2, 2, q4_0),
    "q5_0": (6, 8, q5_0),
    "q4_k": (12, 14, q4_k),
    "q5_k": (13, 16, q5_k),
    "q6_k": (14, 18, q6_k),
}
# RARE names rarely used formats.
RARE = {
    "q4_1": (3, 3, q4_1),
    "q5_1": (7, 9, q5_1),
    "q2_k": (10, 10, q2_k),
    "q3_k": (11, 12, q3_k),
    "iq4_nl": (20, 25, iq4_nl),
    "mxfp4": (39, 38, mxfp4),
}
