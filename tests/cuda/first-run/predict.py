#!/usr/bin/env python3
"""Predicts the time of a step and of a prompt on an H100: the table of docs/develop/gpu-day.md.
  tests/cuda/first-run/predict.py [--check docs/develop/gpu-day.md | --write docs/develop/gpu-day.md]

This is a model, not a measurement. Shapes come from bench/models/*/config.json. Bytes and operations are those that
bench/gpu/work.h counts for cuda_model_bench. Rates, gaps and latencies are the assumptions named below. The floor of a row is its
bytes at the copy's rate, or its operations at cuBLAS's rate, whichever takes longer.

  decode: weights / (COPY x their rate) + KV / (COPY x its rate) + kernels x gap + layers x merge + mixtures x sum
  prefill: operations of products, mixtures and attention, each at its own rate, + the conversion of codes to bfloat16

"before" is the code of 73d671b9, which was reviewed before the changes. It is the review's figure if the review gives one for a
row; otherwise it is this model's, with a ~. tests/scripts/first_run_test.py compares the model with the review's figures. "after"
is this model with the changes that were made since."""
import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BEGIN, END = "<!-- predict.py begins -->", "<!-- predict.py ends -->"

# ---- assumptions. Each has a source: measured on such a machine, read from the code's SASS (review), or estimated.
COPY = 3.0e12  # bytes/s read and written by a copy of 1 GiB; measured on an H100 of this kind (2026-11-13)
CUBLAS = 798e12  # operations/s of 8192 x 8192 x 8192 in bfloat16; measured there as well

# LAUNCH_GAP is the time in seconds between a kernel's end and the next one's full rate, in a graph with early launches. It is the rest of the review's steps
# without bytes and merges (0.5 ms for 8B's 328 kernels, 1 ms for DeepSeek's 623).
LAUNCH_GAP = 1.6e-6
PREFETCH_GAP = 1.2e-6  # LAUNCH_GAP with the next stages prefetched into L2; the review expects 3 to 6 % of 8B's step

# Rates of weights and KV as shares of COPY, at 1 row and at 64 rows (review, section 2 and finding 5).
WEIGHTS = {"bf16": {1: 1.0, 64: 0.82}, "int4": {1: 0.95, 64: 0.40}}
EXPERTS = {1: 0.95, 64: 0.80}  # rates of grouped products of any format; an estimate, not a figure of the review
KV = {"heads": 0.88, "latent": 0.80}  # attention of 32 x 8k without its merge; review: 0.85-0.92 and 0.75-0.85

# MERGE_BEFORE and MERGE_AFTER are seconds to merge the splits of a layer (finding 1), at a context of 1.2k. Before: splits x dims / 64
# loads of 0.19 us, one after the other. After: a block for each (row, head), whose warps divide the splits. It costs the latency of a
# few loads.
MERGE_BEFORE = {("heads", 1): 7e-6, ("heads", 64): 2e-6, ("latent", 1): 50e-6, ("latent", 64): 25e-6}
MERGE_AFTER = {("heads", 1): 2.5e-6, ("heads", 64): 2e-6, ("latent", 1): 4e-6, ("latent", 64): 4e-6}
SUM_BEFORE, SUM_AFTER = 4e-6, 1.5e-6  # seconds of a mixture's sum beyond its bytes (finding 3: 3 to 5 us)

# Rates of a prompt's parts in operations/s (review, section 2). GEMM is the rest of 8B's 250 ms without attention, so it includes
# norms and activations.
GEMM, ATTENTION, GROUPED = 611e12, 280e12, 375e12  # rates of cuBLASLt on 8B's shapes; of heads of 128 with mma.sync; of mixtures
LATENT_ABSORBED = 200e12  # operations/s of the absorbed form, which has 3.4 times the operations of the model's own form (finding 2)
ATTENTION_192 = 230e12  # operations/s for heads of 192/128, which the kernel pads to 256; an estimate from ATTENTION
DEQUANTISED = 0.5 + 2  # bytes moved for each weight that is converted to bfloat16, besides the product: code read, 16 bits written
CONTEXT = 1192  # positions that a row sees in the middle of cuda_model_bench's rounds (1,024 + 8 warm + 2.5 x 64)
PROMPT = 8192

# KERNELS holds the kernels of a step, with sampling: in a layer, in a layer that is a mixture, outside of the layers. They were counted over the
# emulation (emulate_n_launches, bench/gpu/drive.h) on tiny models of two and of three layers, 2026-11-28, at 73d671b9. A gated epilogue of gate and
# up saves one kernel in each layer: a mixture's shared experts have it now, its grouped products had it before.
KERNELS = {"llama": (10, 0, 8), "gemma3_text": (14, 0, 9), "deepseek_v2": (17, 23, 8)}
FUSED = 1

# ---- rows: folder, kind, rows or tokens, the review's milliseconds or share of the floor (low, high)
DECODE, PREFILL = "decode", "prefill"
ROWS = [
    ("llama31_8b", DECODE, 1, ("ms", 5.7, 5.9)),
    ("llama31_8b", DECODE, 64, ("share", 0.74, 0.80)),
    ("llama31_8b", PREFILL, PROMPT, ("share", 0.62, 0.68)),
    ("llama31_8b_awq", DECODE, 1, ("ms", 2.3, 2.5)),
    ("llama31_8b_awq", DECODE, 64, ("share", 0.60, 0.68)),
    ("llama31_8b_awq", PREFILL, PROMPT, None),
    ("deepseek_coder_v2_lite", DECODE, 1, ("share", 0.40, 0.40)),
    ("deepseek_coder_v2_lite", DECODE, 64, None),
    ("deepseek_coder_v2_lite", PREFILL, PROMPT, ("share", 0.20, 0.28)),
    ("deepseek_coder_v2_lite_awq", DECODE, 1, ("share", 0.20, 0.20)),
    ("deepseek_coder_v2_lite_awq", DECODE, 64, None),
    ("deepseek_coder_v2_lite_awq", PREFILL, PROMPT, None),
    ("gemma3_270m", DECODE, 1, None),
    ("gemma3_270m", DECODE, 64, None),  # no row for a prompt, since cuBLASLt's rate for its 640 wide matrices is unknown
]


class Shape:
    """Counts weights, bytes and operations of a model as bench/gpu/work.c does, from the model's config.json."""

    def __init__(self, folder):
        c = json.loads((ROOT / "bench/models" / folder / "config.json").read_text())
        self.folder, self.kind, self.layers, self.hidden = folder, c["model_type"], c["num_hidden_layers"], c["hidden_size"]
        quant = c.get("quantization_config")
        self.format = "int4" if quant else "bf16"
        # bits of a published weight: a code of 4 bits, and for each group a scale of 16 bits and a zero of 4 bits
        self.bits = 4 + 20 / quant["group_size"] if quant else 16
        self.heads, self.vocabulary = c["num_attention_heads"], c["vocab_size"] * self.hidden
        self.is_latent = bool(c.get("kv_lora_rank"))
        self.mixtures = self.experts = self.chosen = self.expert = self.routers = 0
        attention = self._latent(c) if self.is_latent else self._heads(c)
        self._windows(c)
        self._mlp(c)
        self.dense = self.layers * attention + self.dense_mlp

    def _heads(self, c):
        dim = c.get("head_dim") or self.hidden // self.heads
        kv = c["num_key_value_heads"]
        self.pair_ops = 2 * self.heads * 2 * dim  # operations for two positions that see each other
        self.kv_bytes = 2 * 2 * kv * dim  # bytes of a position's keys and values in a layer
        self.absorbed_pair_ops = self.pair_ops
        return self.hidden * dim * (self.heads + 2 * kv) + self.heads * dim * self.hidden

    def _latent(self, c):
        rank, rope, nope, v = c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"]
        self.pair_ops = 2 * self.heads * (nope + rope + v)
        self.absorbed_pair_ops = 2 * self.heads * (rank + rope + rank)
        self.kv_bytes = 2 * (rank + rope)
        return self.hidden * (self.heads * (nope + rope) + rank + rope) + rank * self.heads * (nope + v) + self.heads * v * self.hidden

    def _windows(self, c):
        """Sets [(layers, window)]; window 0 means all positions. In Gemma 3, every sixth layer sees all."""
        window = c.get("sliding_window")
        whole = self.layers // 6 if window else self.layers
        self.windows = [(whole, 0)] + ([(self.layers - whole, window)] if window else [])

    def _mlp(self, c):
        inner = 3 * self.hidden * c["intermediate_size"]
        if not c.get("n_routed_experts"):
            self.dense_mlp = self.layers * inner
            return
        self.experts, self.chosen = c["n_routed_experts"], c["num_experts_per_tok"]
        self.mixtures = self.layers - c["first_k_dense_replace"]
        self.expert = 3 * self.hidden * c["moe_intermediate_size"]
        self.routers = self.mixtures * self.experts * self.hidden
        self.dense_mlp = c["first_k_dense_replace"] * inner + self.mixtures * c["n_shared_experts"] * self.expert

    def layers_bytes(self):
        """Returns the bytes of the matrices that every step reads, without the head; routers are kept in 16 bits."""
        return self.dense * self.bits / 8 + 2 * self.routers

    def experts_bytes(self, rows):
        """Returns the number of experts that `rows` rows read if each chooses at random (work_random_experts)."""
        missed = (1 - self.chosen / self.experts) ** rows if self.experts else 1
        return self.mixtures * self.experts * (1 - missed) * self.expert * self.bits / 8

    def kv_step(self, rows, context):
        return rows * sum(n * self.kv_bytes * (min(context, w) if w else context) for n, w in self.windows)

    def pairs(self, n):
        """Returns the pairs of positions that see each other, over all layers."""
        return sum(k * (w * (w + 1) / 2 + (n - w) * w if w and w < n else n * (n + 1) / 2) for k, w in self.windows)

    def token_ops(self):
        return 2 * (self.dense + self.routers), 2 * self.mixtures * self.chosen * self.expert


def decode(s, rows, is_after):
    """Returns (floor, predicted), both in seconds."""
    kind = "latent" if s.is_latent else "heads"
    layers, head, experts, kv = s.layers_bytes(), 2 * s.vocabulary, s.experts_bytes(rows), s.kv_step(rows, CONTEXT)
    plain, mixture, beside = KERNELS[s.kind]
    kernels = (s.layers - s.mixtures) * plain + s.mixtures * mixture + beside - (s.layers * FUSED if is_after else 0)
    floor = (layers + head + experts + kv) / COPY
    time = layers / COPY / WEIGHTS[s.format][rows] + head / COPY / WEIGHTS["bf16"][rows] + experts / COPY / EXPERTS[rows]
    time += kv / COPY / KV[kind] + kernels * (PREFETCH_GAP if is_after else LAUNCH_GAP)
    time += s.layers * (MERGE_AFTER if is_after else MERGE_BEFORE)[kind, rows] + s.mixtures * (SUM_AFTER if is_after else SUM_BEFORE)
    return floor, time


def prefill(s, tokens, is_after):
    dense, experts = (tokens * ops for ops in s.token_ops())
    pairs = s.pairs(tokens)
    floor = (dense + experts + pairs * s.pair_ops + 2 * s.vocabulary) / CUBLAS
    if not s.is_latent:
        attention = pairs * s.pair_ops / ATTENTION
    elif is_after:
        attention = pairs * s.pair_ops / ATTENTION_192
    else:
        attention = pairs * s.absorbed_pair_ops / LATENT_ABSORBED
    codes = s.dense * DEQUANTISED / COPY if s.format == "int4" else 0
    return floor, dense / GEMM + experts / GROUPED + attention + codes


def milliseconds(seconds):
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def review_range(floor, given):
    """Returns the (least, most) seconds that the review expects."""
    unit, low, high = given
    return (low / 1e3, high / 1e3) if unit == "ms" else (floor / high, floor / low)


def before_text(floor, model, given):
    if given is None:
        return "~" + milliseconds(model)
    least, most = (milliseconds(x) for x in review_range(floor, given))
    return least if least == most else f"{least} to {most}"


def key_of(folder, kind, n):
    """Returns the name that cuda_model_bench gives the figure, with its program in front."""
    what = f"decode at batch {n}, a step" if kind == DECODE else f"prefill of {n} tokens, time"
    return f"cuda_model_bench: {folder}, {what}"


def rows():
    for folder, kind, n, given in ROWS:
        model = decode if kind == DECODE else prefill
        shape = Shape(folder)
        floor, before = model(shape, n, False)
        yield key_of(folder, kind, n), floor, before, given, model(shape, n, True)[1]


def table(measured=None):
    lines = ["| key | floor, ms | before, ms | after, ms | floor / after | measured |", "|---|---|---|---|---|---|"]
    for key, floor, before, given, after in rows():
        lines.append(f"| `{key}` | {milliseconds(floor)} | {before_text(floor, before, given)} | {milliseconds(after)} "
                     f"| {floor / after:.2f} | {(measured or {}).get(key, '')} |".replace("|  |", "| |"))
    return lines


def of_page(path):
    """Returns (lines, first and last line of the table, measured cells by key)."""
    lines = path.read_text().split("\n")
    first, last = lines.index(BEGIN) + 1, lines.index(END)
    cells = [line.strip("|").split("|") for line in lines[first:last] if line.startswith("| `")]
    return lines, first, last, {c[0].strip().strip("`"): c[-1].strip() for c in cells}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, metavar="PAGE", help="compare the page's table with this output; exit status 1 if they differ")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into the page; measured figures stay")
    args = parser.parse_args()
    page = args.check or args.write
    if not page:
        print("\n".join(table()))
        return 0
    lines, first, last, measured = of_page(page)
    wanted = table(measured)
    if args.write:
        page.write_text("\n".join(lines[:first] + wanted + lines[last:]))
    elif lines[first:last] != wanted:
        print(f"{page}: the table differs from the output of predict.py. Run tests/cuda/first-run/predict.py --write {page}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
