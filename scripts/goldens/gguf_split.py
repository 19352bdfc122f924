"""Splits a GGUF into several files, like llama.cpp's gguf-split: the metadata is in the first file, the tensors are in order over
all files, and each file has its part number."""
import os
import shutil
import struct

import files

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, files.U32: 4, files.I32: 4, files.F32: 4, files.BOOL: 1, 10: 8, 11: 8, 12: 8}
U16 = 2


def skip_value(b, at, kind):
    if kind == files.STRING:
        return at + 8 + struct.unpack_from("<Q", b, at)[0]
    if kind == files.ARRAY:
        kind, n = struct.unpack_from("<IQ", b, at)
        at += 12
        if kind != files.STRING:
            return at + n * SIZES[kind]
        for _ in range(n):
            at = skip_value(b, at, kind)
        return at
    return at + SIZES[kind]


def take_string(b, at):
    n, = struct.unpack_from("<Q", b, at)
    return b[at + 8:at + 8 + n], at + 8 + n


def read(path):
    """Returns (number of keys, their bytes, [(name, type id, shape as stored, bytes)])."""
    with open(path, "rb") as f:
        b = f.read()
    n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
    at = 24
    for _ in range(n_keys):
        _, at = take_string(b, at)
        at = skip_value(b, at + 4, struct.unpack_from("<I", b, at)[0])
    keys, infos = b[24:at], []
    for _ in range(n_tensors):
        name, at = take_string(b, at)
        n_dims, = struct.unpack_from("<I", b, at)
        shape = struct.unpack_from(f"<{n_dims}Q", b, at + 4)
        kind, offset = struct.unpack_from("<IQ", b, at + 4 + 8 * n_dims)
        at += 16 + 8 * n_dims
        infos.append((name, kind, shape, offset))
    start = at + -at % files.ALIGNMENT
    ends = [offset for *_, offset in infos[1:]] + [len(b) - start]  # the tensors are stored in order, so a tensor ends where the next one begins
    return n_keys, keys, [(*t[:3], b[start + t[3]:start + end]) for t, end in zip(infos, ends)]


def split_keys(i, n, n_tensors):
    out = b""
    for key, kind, value in (("split.no", U16, i), ("split.count", U16, n), ("split.tensors.count", files.I32, n_tensors)):
        out += files.gguf_string(key) + struct.pack("<I", kind) + struct.pack("<H" if kind == U16 else "<i", value)
    return out


def write_part(path, n_keys, keys, tensors):
    infos, at = b"", 0
    for name, kind, shape, data in tensors:
        infos += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
        at += len(data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_keys) + keys + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % files.ALIGNMENT) + b"".join(t[3] for t in tensors))


def split_folder(source, folder, n_parts):
    """Copies a model's folder. The copy has parts instead of model.gguf."""
    n_keys, keys, tensors = read(os.path.join(source, "model.gguf"))
    per_part = -(-len(tensors) // n_parts)
    os.makedirs(folder)
    for name in os.listdir(source):
        if name != "model.gguf" and os.path.isfile(os.path.join(source, name)):
            shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    for i in range(n_parts):
        more = split_keys(i, n_parts, len(tensors))
        write_part(os.path.join(folder, f"model-{i + 1:05d}-of-{n_parts:05d}.gguf"), 3 + (0 if i else n_keys),
                   more if i else keys + more, tensors[i * per_part:(i + 1) * per_part])
