"""Writes PyTorch's checkpoint files without PyTorch: a zip archive of stored members with a pickle, byte for byte as torch.save
writes them (pickle protocol 2, data at multiples of 64), and their index."""
import json
import os
import shutil
import struct
import zlib

ALIGNMENT = 64
STORAGES = {"F32": ("FloatStorage", 4), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2),
            "F64": ("DoubleStorage", 8), "I8": ("CharStorage", 1), "U8": ("ByteStorage", 1), "I16": ("ShortStorage", 2),
            "I32": ("IntStorage", 4), "I64": ("LongStorage", 8), "BOOL": ("BoolStorage", 1)}


class Pickler:
    """Writes the same bytes as Python's pickler for a dict of tensors. An object that was written before is fetched from the memo."""

    def __init__(self):
        self.out, self.memo, self.n = bytearray(b"\x80\x02"), {}, 0

    def put(self, key=None):
        self.out += b"q" + bytes([self.n]) if self.n < 256 else b"r" + struct.pack("<I", self.n)
        if key is not None:
            self.memo[key] = self.n
        self.n += 1

    def known(self, key):
        i = self.memo.get(key)
        if i is not None:
            self.out += b"h" + bytes([i]) if i < 256 else b"j" + struct.pack("<I", i)
        return i is not None

    def text(self, s, key=None):
        if key is None or not self.known(key):
            raw = s.encode()
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
            self.put(key)

    def name(self, module, name):
        if not self.known((module, name)):
            self.out += f"c{module}\n{name}\n".encode()
            self.put((module, name))

    def int(self, i):
        if i < 256:
            self.out += b"K" + bytes([i])
        elif i < 65536:
            self.out += b"M" + struct.pack("<H", i)
        elif i < 1 << 31:
            self.out += b"J" + struct.pack("<i", i)
        else:
            n = i.bit_length() // 8 + 1
            self.out += b"\x8a" + bytes([n]) + i.to_bytes(n, "little")

    def ints(self, values):
        if not values:
            self.out += b")"
            return
        self.out += b"(" if len(values) > 3 else b""
        for i in values:
            self.int(i)
        self.out += b"t" if len(values) > 3 else bytes([0x84 + len(values)])
        self.put()

    def call(self):
        self.out += b"R"
        self.put()

    def ordered_dict(self):
        self.name("collections", "OrderedDict")
        self.out += b")"
        self.call()

    def tensor(self, dtype, shape, key, n_elems):
        """Writes a tensor that is the whole of storage `key`, in contiguous order."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        self.name("torch._utils", "_rebuild_tensor_v2")
        self.out += b"(("
        self.text("storage", "storage")
        self.name("torch", STORAGES[dtype][0])
        self.text(str(key), ("key", key))
        self.text("cpu", "cpu")
        self.int(n_elems)
        self.out += b"t"
        self.put()
        self.out += b"Q"
        self.int(0)
        self.ints(shape)
        self.ints(strides)
        self.out += b"\x89"
        self.ordered_dict()
        self.out += b"t"
        self.put()
        self.call()


def state_dict(tensors):
    """Returns (pickle, storages). Tensors whose bytes are one object share a storage, as tied weights do."""
    p, storages, keys = Pickler(), [], {}
    p.ordered_dict()
    for i, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        if i % 1000 == 0:  # 1000 is the size of a batch of Python's pickler
            p.out += (b"u" if i else b"") + b"("
        if id(data) not in keys:
            keys[id(data)] = len(storages)
            storages.append(data)
        p.text(name)
        p.tensor(dtype, shape, keys[id(data)], len(data) // STORAGES[dtype][1])
    p.out += b"u."
    return bytes(p.out), storages


def write_zip(path, folder, members):
    """Writes members: (name, bytes). Sizes and checksums are behind each member and also in the directory."""
    directory, at = [], 0
    with open(path, "wb") as f:
        for name, data in members:
            raw = f"{folder}/{name}".encode()
            pad = -(at + 30 + len(raw) + 4) % ALIGNMENT
            extra = struct.pack("<2sH", b"FB", pad) + b"Z" * pad
            sums = struct.pack("<III", zlib.crc32(data), len(data), len(data))
            head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 0, 0x0808, 0, 0, 0, 0, 0, 0, len(raw), len(extra))
            whole = head + raw + extra + data + b"PK\7\x08" + sums
            f.write(whole)
            directory.append(b"PK\1\2" + struct.pack("<HHHHHH", 0, 0, 0x0808, 0, 0, 0) + sums
                             + struct.pack("<HHHHHII", len(raw), 0, 0, 0, 0, 0, at) + raw)
            at += len(whole)
        entries = b"".join(directory)
        n = len(members)
        f.write(entries)
        f.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 0, 798, 0, 0, n, n, len(entries), at))
        f.write(struct.pack("<4sIQI", b"PK\6\7", 0, at + len(entries), 1))
        f.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, n, n, len(entries), at, 0))


def write_torch(path, tensors):
    """Writes a checkpoint. tensors: name -> (dtype name, shape, bytes), as for files.write_safetensors."""
    pickle, storages = state_dict(tensors)
    members = [("data.pkl", pickle), (".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")]
    members += [(f"data/{i}", data) for i, data in enumerate(storages)]
    members += [("version", b"3\n"), (".data/serialization_id", b"0" * 40)]
    write_zip(path, os.path.basename(path).rsplit(".", 1)[0], members)


def write_shards(folder, tensors, n_shards):
    """Writes pytorch_model-0000N-of-0000M.bin and their index. Tensors of one storage stay together."""
    total, done, shards, home = sum(len(d) for _, _, d in tensors.values()), 0, [{} for _ in range(n_shards)], {}
    for name, t in tensors.items():
        i = home.setdefault(id(t[2]), min(done * n_shards // total, n_shards - 1))
        shards[i][name] = t
        done += len(t[2])
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"pytorch_model-{i + 1:05d}-of-{n_shards:05d}.bin"
        write_torch(os.path.join(folder, name), shard)
        weight_map |= {tensor: name for tensor in shard}
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w", encoding="ascii") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=2, sort_keys=True)
        f.write("\n")


def read_safetensors(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items()}


def rewrite_folder(source, folder, n_shards):
    """Copies a model's folder. The copy has PyTorch's shards instead of model.safetensors."""
    os.makedirs(folder)
    for name in os.listdir(source):
        if name != "model.safetensors" and os.path.isfile(os.path.join(source, name)):
            shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    write_shards(folder, read_safetensors(os.path.join(source, "model.safetensors")), n_shards)
