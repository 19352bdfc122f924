"""Makes wrong model files from the tiny models of scripts/make-goldens. Each case has words that the error must contain."""
import io
import json
import os
import pickle
import shutil
import struct
import zipfile

from cluster import ROOT

GGUF = ROOT / "build/goldens/llama_tiny_gguf_q8_0/model.gguf"
FOLDER = ROOT / "build/goldens/llama_tiny"


def _u32(at, value):
    return lambda b: b[:at] + struct.pack("<I", value) + b[at + 4:]


def _u64(at, value):
    return lambda b: b[:at] + struct.pack("<Q", value) + b[at + 8:]


def _after(text, fmt, value, skip=0):
    """Returns a change that overwrites the bytes behind the first `text`."""
    def change(b):
        at = b.index(text) + len(text) + skip
        return b[:at] + struct.pack(fmt, value) + b[at + struct.calcsize(fmt):]
    return change


def _replace(old, new):
    def change(b):
        assert old in b and len(old) == len(new)
        return b.replace(old, new)
    return change


def _cut(n):
    return lambda b: b[:n]


TENSOR = b"blk.0.attn_q.weight"  # the name is followed by: u32 dims, dims x u64, u32 type, u64 offset
GGUFS = {
    "empty": (_cut(0), "not a GGUF"),
    "another-magic": (_replace(b"GGUF", b"GGML"), "not a GGUF"),
    "cut-in-header": (_cut(20), "ends in the middle of its header"),
    "cut-in-keys": (_cut(100), "metadata entries"),
    "cut-in-tensors": (lambda b: b[:b.index(TENSOR) + 30], "states 22 tensors"),
    "cut-in-data": (lambda b: b[:len(b) // 2], "Check that the download is complete"),
    "last-byte-missing": (lambda b: b[:-1], "Check that the download is complete"),
    "version-99": (_u32(4, 99), "the GGUF version 99"),
    "big-endian": (lambda b: b[:4] + b[4:8][::-1] + b[8:], "big-endian"),
    "tensors-2^63": (_u64(8, 1 << 63), "states 9223372036854775808 tensors"),
    "keys-2^63": (_u64(16, 1 << 63), "metadata entries"),
    "keys-2^32": (_u64(16, 1 << 32), "metadata entries"),
    "string-2^64": (_u64(24, (1 << 64) - 1), "a string of 18446744073709551615 bytes"),
    "array-2^60": (_after(b"tokenizer.ggml.tokens", "<Q", 1 << 60, skip=8), "tokenizer.ggml.tokens has 1152921504606846976 elements"),
    "array-of-arrays": (_after(b"tokenizer.ggml.tokens", "<I", 9, skip=4), "an array of arrays"),
    "value-type-77": (_after(b"general.architecture", "<I", 77), "unknown type 77"),
    **{f"alignment-{n}": (lambda b, n=n: _after(b"general.alignment", "<I", n, skip=4)(
        b.replace(b"llama.block_count", b"general.alignment")), "alignment") for n in (0, 3)},
    "dims-9": (_after(TENSOR, "<I", 9), "attn_q.weight has 9 dimensions"),
    "dim-0": (_after(TENSOR, "<Q", 0, skip=4), "is not possible for the type Q8_0"),
    "dim-2^62": (_after(TENSOR, "<Q", 1 << 62, skip=4), "is not possible for the type Q8_0"),
    "tensor-type-255": (_after(TENSOR, "<I", 255, skip=20), "unknown (255)"),
    "offset-outside": (_after(TENSOR, "<Q", 1 << 40, skip=24), "ends after the end of the file"),
    "offset-2^64": (_after(TENSOR, "<Q", (1 << 64) - 32, skip=24), "ends after the end of the file"),
    "overlap": (_after(TENSOR, "<Q", 0, skip=24), "overlap"),
    "offset-odd": (_after(TENSOR, "<Q", 33, skip=24), "is not a multiple of the alignment 32"),
    "name-twice": (_replace(b"blk.0.attn_q.weight", b"blk.1.attn_q.weight"), "blk.1.attn_q.weight"),
    "name-unknown": (_replace(b"blk.0.attn_q.weight", b"blk.0.attn_Q.weight"), "blk.0.attn_q.weight"),
    "architecture": (_replace(b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
                              b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0mamba"), "mamba"),
    "no-layers": (_after(b"llama.block_count", "<I", 0, skip=4), "block_count"),
    "layers-2^31": (_after(b"llama.block_count", "<I", 1 << 31, skip=4), "block_count"),
    "heads-7": (_after(b"llama.attention.head_count\x04", "<I", 7, skip=3), "head"),
    "tokenizer": (_after(b"tokenizer.ggml.model\x08\0\0\0\x04\0\0\0\0\0\0\0", "<4s", b"what"), "what"),
}


def make_gguf(folder, name):
    path = folder / f"{name}.gguf"
    path.write_bytes(GGUFS[name][0](GGUF.read_bytes()))
    return path


# ---- a folder ----

def _write(name, change):
    """Returns a function that writes `change(bytes)` over the file `name`."""
    def apply(folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes()))
    return apply


def _config(**values):
    def change(b):
        config = {**json.loads(b), **values}
        return json.dumps({k: v for k, v in config.items() if v is not None}).encode()
    return _write("config.json", change)


def _header(change):
    """Returns a change of model.safetensors: `change(json)` edits the header in place, and its length is adapted."""
    def rewrite(b):
        n, = struct.unpack("<Q", b[:8])
        header = json.loads(b[8:8 + n])
        text = json.dumps(change(header) or header).encode()
        return struct.pack("<Q", len(text)) + text + b[8 + n:]
    return _write("model.safetensors", rewrite)


Q = "model.layers.0.self_attn.q_proj.weight"


def _tensor(**values):
    return _header(lambda h: h[Q].update(values))


def _index(shard):
    def apply(folder):
        os.rename(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
        text = json.dumps({"metadata": {}, "weight_map": {Q: shard}})
        (folder / "model.safetensors.index.json").write_text(text)
    return apply


FOLDERS = {
    "empty": (_write("model.safetensors", _cut(0)), "not a safetensors file: it has only 0 bytes"),
    "cut-in-length": (_write("model.safetensors", _cut(5)), "not a safetensors file: it has only 5 bytes"),
    "cut-in-header": (_write("model.safetensors", _cut(900)), "is incomplete"),
    "cut-in-data": (_write("model.safetensors", lambda b: b[:len(b) // 2]), "Check that the download is complete"),
    "longer": (_write("model.safetensors", lambda b: b + b"\0" * 64), "its tensors use only"),
    "header-2^63": (_write("model.safetensors", _u64(0, 1 << 63)), "a header of 9223372036854775808 bytes"),
    "header-0": (_write("model.safetensors", _u64(0, 0)), "not a safetensors file"),
    "no-json": (_write("model.safetensors", lambda b: b[:9] + b"\xff" + b[10:]), "is not valid JSON at byte"),
    "deep-json": (_write("model.safetensors", lambda b: struct.pack("<Q", 100000) + b'{"a":' * 20000 + b),
                  "the header of"),
    "no-object": (_header(lambda h: [h]), "its header does not begin with {"),
    "overlap": (_header(lambda h: h[Q].update(data_offsets=h["model.layers.1.self_attn.q_proj.weight"]
                                                        ["data_offsets"])), "leaves a gap"),
    "offsets-backwards": (_header(lambda h: h[Q].update(data_offsets=h[Q]["data_offsets"][::-1])), Q),
    "offset-2^63": (_tensor(data_offsets=[0, 1 << 63]), "the header of"),
    "offset-negative": (_tensor(data_offsets=[-4, 0]), Q),
    "offset-1e999": (_write("model.safetensors", lambda b: b.replace(b'"shape":[', b'"shape":[1e999,', 1)), "the header of"),
    "dtype": (_tensor(dtype="F99"), Q),
    "shape": (_tensor(shape=[1 << 40, 1 << 40]), Q),
    "shape-of-another": (_tensor(shape=[32, 128]), Q),
    "tensor-missing": (_header(lambda h: {k.replace("layers.0.self_attn.q_", "x_"): v for k, v in h.items()}), Q),
    "architecture": (_config(model_type="architecture MambaForCausalLM", architectures=["MambaForCausalLM"]), "MambaForCausalLM"),
    "no-model-type": (_config(model_type=None, architectures=None), "model_type"),
    "layers-99": (_config(num_hidden_layers=99), "layers.2"),
    "hidden-0": (_config(hidden_size=0), "hidden_size"),
    "heads-7": (_config(num_attention_heads=7), "head"),
    "vocabulary": (_config(vocab_size=1 << 40), "vocab_size"),
    "config-cut": (_write("config.json", _cut(60)), "config.json"),
    "config-utf8": (_write("config.json", lambda b: b.replace(b'"model_type"', b'"model_t\xffpe"')), "config.json"),
    "config-1e999": (_write("config.json", lambda b: b.replace(b'"hidden_size":', b'"hidden_size": 1e999, "x":', 1)),
                     "config.json"),
    "config-deep": (_write("config.json", lambda b: b'{"model_type":' + b"[" * 100000), "config.json"),
    "config-wide": (_write("config.json", lambda b: b'{"model_type":[' + b"[]," * (5 << 20)), "config.json has more than"),
    **{f"config-2^60-{key}": (_config(**{key: 1 << 60}), key)
       for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")},
    "generation-deep": (lambda f: (f / "generation_config.json").write_text('{"eos_token_id":' + "[" * 100000),
                        "generation_config.json"),
    "dtype-of-no-kernel": (_tensor(dtype="I16"), Q),
    "config-missing": (lambda f: (f / "config.json").unlink(), "config.json"),
    "config-is-a-folder": (lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()), "config.json"),
    "weights-missing": (lambda f: (f / "model.safetensors").unlink(), "safetensors"),
    "tokenizer-cut": (_write("tokenizer.json", _cut(5000)), "tokenizer.json"),
    "tokenizer-missing": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer"),
    "tokenizer-model-cut": (lambda f: ((f / "tokenizer.json").unlink(), (f / "tokenizer.model").write_bytes(b"\x0a\x7f\x0a")),
                            "tokenizer.model"),
    "template": (_write("tokenizer_config.json", lambda b: b.replace(b'"chat_template": "', b'"chat_template": "{% if', 1)),
                 "template"),
    "shard-outside": (_index("../../../etc/passwd"), "index.json"),
    "shard-missing": (_index("model-00002-of-00002.safetensors"), "model-00002-of-00002"),
}


def make_folder(folder, name):
    path = folder / name
    path.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FOLDER / file, path / file)
    FOLDERS[name][0](path)
    return path


# ---- folders of PyTorch shards and of GGUF parts ----

SHARD = "pytorch_model-00001-of-00003.bin"
PART = "model-00002-of-00003.gguf"
INDEX = "pytorch_model.bin.index.json"


class Evil:
    """`Evil` is an object whose pickle contains a call of a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def _members(change, method=zipfile.ZIP_STORED):
    """Returns a change of a shard: `change(members)` edits a dict of names and bytes in place, or returns a new one."""
    def rewrite(b):
        with zipfile.ZipFile(io.BytesIO(b)) as old:
            members = {i.filename: old.read(i) for i in old.infolist()}
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as new:
            for name, data in (change(members) or members).items():
                new.writestr(name, data)
        return out.getvalue()
    return _write(SHARD, rewrite)


def _pickle(change):
    def apply(members):
        name = next(n for n in members if n.endswith("/data.pkl"))
        members[name] = change(members[name])
    return _members(apply)


def _evil(*call):
    return _pickle(lambda b: pickle.dumps({"w": Evil(*call)}, 2))


def _all_in_one(folder):
    """Removes the index, so that all shards are found by their suffix. Two of them have the same tensors."""
    (folder / INDEX).unlink()
    shutil.copy(folder / SHARD, folder / "more.bin")


TORCH = {
    "empty": (_write(SHARD, _cut(0)), f"{SHARD} is not a PyTorch checkpoint (0 bytes)"),
    "html": (_write(SHARD, lambda b: b"<html>Not found"), "is not a PyTorch checkpoint"),
    "legacy": (_write(SHARD, lambda b: b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\2M\xe9\3."), "of PyTorch before 1.6"),
    "cut": (_write(SHARD, lambda b: b[:len(b) // 2]), "Check that the download is complete"),
    "longer": (_write(SHARD, lambda b: b + b"\0"), "does not end as a zip archive does"),
    "bomb": (_members(lambda m: {n: b"\0" * (64 << 20) if n.endswith("/data/0") else d for n, d in m.items()},
                      zipfile.ZIP_DEFLATED), "is compressed (method 8)"),
    "system": (_evil(os.system, "touch /tmp/cox-test-owned"), "needs posix.system"),
    "eval": (_evil(eval, "open('/tmp/cox-test-owned', 'w')"), "needs __builtin__.eval"),
    "getattr": (_evil(getattr, "", "join"), "needs __builtin__.getattr"),
    "hub": (_pickle(lambda b: b"\x80\2}ctorch.hub\nload\n)Rs."), "needs torch.hub.load"),
    "instance": (_pickle(lambda b: b"\x80\2(ios\nsystem\n."), "the opcode INST"),
    "pickle-cut": (_pickle(lambda b: b[:-9]), "the pickle in this file cannot be read at byte"),
    "pickle-deep": (_pickle(lambda b: b"\x80\2" + b"(" * (1 << 20)), "more than 65536 values"),
    "no-pickle": (_members(lambda m: {n: d for n, d in m.items() if not n.endswith("/data.pkl")}), "without data.pkl"),
    "no-storage": (_members(lambda m: {n: d for n, d in m.items() if not n.endswith("/data/0")}),
                   "tensor model.embed_tokens.weight: its storage data/0 is not in the archive"),
    "short-storage": (_members(lambda m: {n: d[:-1] if n.endswith("/data/0") else d for n, d in m.items()}),
                      "tensor model.embed_tokens.weight: its storage"),
    "script": (_members(lambda m: m.update({next(iter(m)).split("/")[0] + "/constants.pkl": b""})), "TorchScript"),
    "twice": (_all_in_one, "contain the tensor"),
    "shard-outside": (_write(INDEX, lambda b: b.replace(SHARD.encode(), b"../" + SHARD.encode())), "must be the name of a .bin file in the same folder"),
    "shard-missing": (lambda f: (f / SHARD).unlink(), SHARD),
    "index-names-more": (_write(INDEX, lambda b: b.replace(b'"model.norm.weight"', b'"model.norn.weight"')),
                         "does not contain the tensor model.norn.weight"),
    "index-deep": (_write(INDEX, lambda b: b'{"weight_map":' + b"[" * 100000), "index.json"),
    "index-huge": (_write(INDEX, lambda b: b" " * ((64 << 20) + 1) + b), "is larger than 67108864 bytes"),
}
SPLIT = {
    "part-missing": (lambda f: (f / PART).unlink(), f"{PART} is missing; it is part 2 of 3"),
    "first-missing": (lambda f: (f / "model-00001-of-00003.gguf").unlink(), "model-00001-of-00003.gguf: No such file"),
    "part-cut": (_write(PART, lambda b: b[:-1]), "Check that the download is complete"),
    "part-twice": (lambda f: shutil.copy(f / PART, f / "model-00003-of-00003.gguf"), "must be part 3 of 3"),
    "renamed": (lambda f: (f / "model-00001-of-00003.gguf").rename(f / "model-00001-of-00002.gguf"), "Give the path of one file instead of the folder"),
    "another-count": (_write(PART, _after(b"split.tensors.count", "<I", 99, skip=4)), "with 99"),
    "tensor-twice": (_write(PART, _replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight")), "both contain the tensor blk.0.attn_q.weight"),
    "two-models": (lambda f: shutil.copy(f / PART, f / "other.gguf"), "Give the path of one file instead of the folder"),
}


def make_other(folder, source, cases, name):
    path = folder / name
    shutil.copytree(source, path, ignore=shutil.ignore_patterns("expected*"))
    cases[name][0](path)
    return path
