"""Makes tokenizer.model files and computes the ids of texts with them. SentencePiece is implemented simply (quadratic, dicts) after
its papers (Sennrich et al. 2016, Kudo 2018) and its .proto, so this file shares no code with the engine. It also makes a
tokenizer.model for a tokenizer.json that came from one, since Llama 2 was published with both."""
import json
import os
import re
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
BLANK = "\u2581"


def single(x):
    """Rounds to a 32-bit float."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


# ---- the file ----

def varint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """Encodes a field. bytes and str are length-delimited, a float has 32 bits, and any other value is a varint."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, (bytes, str)):
        raw = value.encode() if isinstance(value, str) else value
        return varint(number << 3 | 2) + varint(len(raw)) + raw
    return varint(number << 3) + varint(int(value))


def charsmap(rules):
    """Returns the double array (Darts-clone's units) of {key: replacement}, with the replacements behind it. A node's bytes lead
    from an offset to the node's place; its leaf is at the offset itself."""
    texts, at = b"", {}
    for key, to in rules.items():
        at[key.encode()] = len(texts)
        texts += to.encode() + b"\0"
    units = {0: 0}
    taken, bases = {0}, set()

    def place(node, prefix):
        labels = sorted({k[len(prefix)] for k in at if k.startswith(prefix) and len(k) > len(prefix)})
        leaf = prefix in at
        places = ([0] if leaf else []) + labels
        # Two nodes never share a base: otherwise a byte of one node would be found under the other node.
        base = next(b for b in range(1, 1 << 20) if b not in bases and not any(b ^ p in taken for p in places))
        bases.add(base)
        taken.update(base ^ p for p in places)
        units[node] |= (node ^ base) << 10 | (0x100 if leaf else 0)
        if leaf:
            units[base] = 1 << 31 | at[prefix]
        for byte in labels:
            units[base ^ byte] = byte
            place(base ^ byte, prefix + bytes([byte]))

    place(0, b"")
    n = (max(units) | 0xFF) + 1
    # A free place has a label that is no byte.
    array = b"".join(struct.pack("<I", units.get(i, 1 << 31)) for i in range(n))
    return struct.pack("<I", len(array)) + array + texts


class Model:
    """`Model` is a SentencePiece model. pieces: (text, score, type) by id. rules: replacements of the normalizer."""

    def __init__(self, kind, pieces, rules=None, dummy_prefix=True, remove_extra=False, byte_fallback=True):
        self.kind, self.pieces, self.rules = kind, pieces, rules or {}
        self.dummy_prefix, self.remove_extra, self.byte_fallback = dummy_prefix, remove_extra, byte_fallback
        self.texts = {t: i for i, (t, _, k) in enumerate(pieces) if k in (NORMAL, USER_DEFINED, UNUSED)}
        self.unknown = next(i for i, p in enumerate(pieces) if p[2] == UNKNOWN)
        self.defined = sorted((t for t, _, k in pieces if k == USER_DEFINED), key=len, reverse=True)
        self.bytes = [next((i for i, p in enumerate(pieces) if p[0] == f"<0x{b:02X}>"), None) for b in range(256)]

    def write(self, path):
        out = b"".join(field(1, field(1, t) + field(2, float(s)) + (field(3, k) if k != NORMAL else b""))
                       for t, s, k in self.pieces)
        out += field(2, field(3, self.kind) + field(35, self.byte_fallback))
        out += field(3, field(1, "own") + (field(2, charsmap(self.rules)) if self.rules else b"")
                     + field(3, self.dummy_prefix) + field(4, self.remove_extra) + field(5, 1))
        with open(path, "wb") as f:
            f.write(out)

    # ---- ids ----

    def defined_at(self, text, at):
        return next((d for d in self.defined if text.startswith(d, at)), None)

    def normalize(self, text):
        parts, at = [], 0
        while at < len(text):
            key = self.defined_at(text, at)
            value = key
            if key is None:
                key = max((k for k in self.rules if text.startswith(k, at)), key=len, default=text[at])
                value = self.rules.get(key, key)
            parts.append(value)
            at += len(key)
        if self.remove_extra:
            kept, blank = [], True
            for p in parts:
                p = p.lstrip(" ") if blank else p
                blank = p.endswith(" ") if p else blank
                kept.append(p)
            out = "".join(kept).rstrip(" ")
        else:
            out = "".join(parts)
        if not out and (self.remove_extra or not text):
            return ""
        return ((" " if self.dummy_prefix else "") + out).replace(" ", BLANK)

    def bpe(self, text):
        parts, at = [], 0
        while at < len(text):
            d = self.defined_at(text, at)
            parts.append((d or text[at], d is not None))
            at += len(parts[-1][0])
        made = {}
        while True:
            best = None
            for i in range(len(parts) - 1):
                (a, fa), (b, fb) = parts[i], parts[i + 1]
                piece = self.texts.get(a + b)
                if fa or fb or piece is None:
                    continue
                if self.pieces[piece][2] == UNUSED:
                    made[a + b] = a, b
                if best is None or self.pieces[piece][1] > best[0]:
                    best = self.pieces[piece][1], i
            if best is None:
                break
            i = best[1]
            parts[i:i + 2] = [(parts[i][0] + parts[i + 1][0], False)]
        out = []

        def give(t):
            i = self.texts.get(t)
            if i is not None and self.pieces[i][2] == UNUSED:
                for half in made[t]:
                    give(half)
            else:
                out.append((t, i))

        for t, _ in parts:
            give(t)
        return out

    def unigram(self, text):
        # This code uses the library's types. Sums are kept in single precision; a piece's sum is compared in double first.
        unknown = single(min(single(s) for _, s, k in self.pieces if k == NORMAL) - 10)
        ways = [(0.0, [])] + [None] * len(text)  # for each number of characters: the best sum and the pieces of that sum
        for at in range(len(text)):
            alone = False
            for end in range(at + 1, len(text) + 1):
                i = self.texts.get(text[at:end])
                if i is None or self.pieces[i][2] == UNUSED:
                    continue
                alone |= end == at + 1
                total = ways[at][0] + (-0.1 if self.pieces[i][2] == USER_DEFINED else single(self.pieces[i][1]))
                if ways[end] is None or total > ways[end][0]:
                    ways[end] = single(total), ways[at][1] + [(text[at:end], i)]
            total = single(ways[at][0] + unknown)
            if not alone and (ways[at + 1] is None or total > ways[at + 1][0]):
                ways[at + 1] = total, ways[at][1] + [(text[at], None)]
        return ways[-1][1]

    def encode(self, text):
        out, before = [], False
        for t, i in (self.bpe if self.kind == BPE else self.unigram)(self.normalize(text)):
            if i is not None:
                out.append(i)
            elif self.byte_fallback:
                out += [self.bytes[b] for b in t.encode()]
            elif not before:
                out.append(self.unknown)
            before = i is None
        return out

    def decode(self, ids):
        """Returns the text without control and unknown symbols, and without the space that was put before the text. A model that
        drops spaces at the beginning loses all of them."""
        raw = b""
        for i in ids:
            text, _, kind = self.pieces[i]
            if kind == BYTE:
                raw += bytes([int(text[3:5], 16)])
            elif kind not in (CONTROL, UNKNOWN):
                raw += text.replace(BLANK, " ").encode()
        if self.remove_extra:
            return raw.decode().lstrip(" ")
        return raw.decode().removeprefix(" " if self.dummy_prefix else "")

    def cases(self, texts):
        """Returns the ids that transformers' LlamaTokenizer gives with only this model. Control symbols are searched for in the
        text, the text between them is encoded separately, and <s> is first."""
        control = {t: i for i, (t, _, k) in enumerate(self.pieces) if k in (CONTROL, UNKNOWN)}
        out = []
        for text in texts:
            ids = [control["<s>"]]
            for part in re.split("(" + "|".join(control) + ")", text):
                ids += [control[part]] if part in control else self.encode(part)
            out.append({"text": text, "ids": ids, "decoded": self.decode(ids)})
        return out


# ---- models ----

RULES = {"\t": " ", "\u3000": " ", "\u200b": "", "\ufb01": "fi", "e\u0301": "\xe9", "\u2460": "1", "\xbd": "1/2", "\uff21": "A"}


def own_model(kind, rng, words, **how):
    """Makes a model whose pieces overlap in many ways: beginnings, ends and insides of words, with random scores. Ties, and pieces
    that can be made in two ways, occur by themselves."""
    fallback = how.get("byte_fallback", True)
    pieces = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL), ("<tool>", 0, USER_DEFINED),
              (BLANK * 2, 0, USER_DEFINED), ("oa", 0, USER_DEFINED)]
    pieces += [(f"<0x{b:02X}>", 0, BYTE) for b in range(256)] if fallback else []
    seen = {p[0] for p in pieces}
    parts = {(BLANK + w)[a:b] for w in words for a in range(len(w) + 1) for b in range(a + 2, len(w) + 2)} - seen
    parts = sorted(parts)
    for t in rng.permutation(parts)[:400]:
        score = -float(rng.integers(4, 60)) / 4
        pieces.append((str(t), score, UNUSED if rng.random() < 0.05 else NORMAL))
    letters = [BLANK, *"abcdefghijklmnopqrstuvwxyz.,1/A\xe9"]
    pieces += [(c, -20 - float(i), NORMAL) for i, c in enumerate(letters) if c not in seen]
    return Model(kind, pieces, **how)


def own_texts(rng, words):
    out = ["", " ", "   ", "a", " a", "a ", "the  oar  ", "<s>", "<tool>x", "a\u2581b", "\tx\u3000\u200by ", "\u4e2d\u6587", "naive caf\xe9, cafe\u0301 \ufb01n \u2460\xbd\uff21\uff22",
           "\U0001f600 a\U0001f600\U0001f601b", "aaaaaaa", "eeee  ee e", "QRS TUV", "row\nrow\r\n", "boatload of oars"]
    for _ in range(120):
        joined = str(rng.choice(["", " ", "  ", " ", ", "])).join(str(w) for w in rng.choice(words, rng.integers(1, 9)))
        out.append(joined)
        cut = rng.integers(0, len(joined) + 1)
        out.append(joined[:cut] + str(rng.choice(["<tool>", "\t", "\u200b", "Z", "\xe9", "e\u0301", "\u4e2d", "oa"])) + joined[cut:])
    return out


VARIANTS = {"bpe": (BPE, {}), "bpe_rules": (BPE, {"rules": RULES, "remove_extra": True}),
            "bpe_plain": (BPE, {"dummy_prefix": False, "byte_fallback": False}),
            "unigram": (UNIGRAM, {"rules": RULES, "remove_extra": True, "byte_fallback": False}),
            "unigram_bytes": (UNIGRAM, {}), "unigram_plain": (UNIGRAM, {"dummy_prefix": False, "remove_extra": True})}


def tied_model():
    """Makes a model with two ways through zqz (an unknown z, then qz; zq, then an unknown z) whose sums differ only by rounding."""
    return Model(UNIGRAM, [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL), (BLANK, -2.3, NORMAL),
                           ("a", -1.1, NORMAL), ("b", -7.7, NORMAL), ("zq", 0, USER_DEFINED), ("qz", 0, USER_DEFINED)],
                 byte_fallback=False)


def write_folder(path, model, texts):
    os.makedirs(path)
    model.write(os.path.join(path, "tokenizer.model"))
    with open(os.path.join(path, "cases.json"), "w", encoding="ascii") as f:
        json.dump(model.cases(texts), f, indent=0)


def make(folder, words, seed, np):
    """Makes a folder for each variant: tokenizer.model and cases.json."""
    for i, (name, (kind, how)) in enumerate(VARIANTS.items()):
        rng = np.random.default_rng([seed, i])
        write_folder(os.path.join(folder, name), own_model(kind, rng, words, **how), own_texts(rng, words))
    # a text is the tied model's text, with one, two, ... other characters before the tie
    before = [a * n + b * k for a in "ab" for b in "ab " for n in range(1, 8) for k in range(4)]
    write_folder(os.path.join(folder, "unigram_tied"), tied_model(), [b + t for b in before for t in ("zqz", "qzq", "zqzqz")])


def of_tokenizer_json(path):
    """Makes a model from a tokenizer.json whose merges came from a tokenizer.model's scores."""
    with open(path, encoding="utf-8") as f:
        whole = json.load(f)
    vocab, control = whole["model"]["vocab"], {a["content"] for a in whole["added_tokens"]}
    ranks = {}
    for i, merge in enumerate(whole["model"]["merges"]):
        ranks.setdefault(merge.replace(" ", "") if isinstance(merge, str) else "".join(merge), i)
    pieces = []
    for t, _ in sorted(vocab.items(), key=lambda e: e[1]):
        kind = (UNKNOWN if t == whole["model"]["unk_token"] else CONTROL if t in control
                else BYTE if len(t) == 6 and t.startswith("<0x") else NORMAL)
        pieces.append((t, -float(ranks.get(t, len(ranks) + len(pieces))) if kind == NORMAL else 0, kind))
    return Model(BPE, pieces, dummy_prefix="Prepend" in json.dumps(whole["normalizer"]))


def replace_tokenizer(folder):
    """Replaces the tokenizer.json by a tokenizer.model."""
    source, config = (os.path.join(folder, name) for name in ("tokenizer.json", "tokenizer_config.json"))
    m = of_tokenizer_json(source)
    m.write(os.path.join(folder, "tokenizer.model"))
    os.remove(source)
    with open(config, encoding="utf-8") as f:
        said = json.load(f)
    said["tokenizer_class"] = "LlamaTokenizer" if m.dummy_prefix else "GemmaTokenizer"
    with open(config, "w", encoding="ascii") as f:
        json.dump(said, f)
