"""Wraps the grammars and matchers of text.h for Python tests; text_golden.py has the tokenizers."""
import ctypes as C

import text_golden
from text_golden import Lib, TextError, Tokenizer

JSON_SCHEMA, REGEX, LARK, STRUCTURAL_TAG = 1, 2, 3, 4


class GrammarLib(Lib):
    def __init__(self, archive):
        super().__init__(archive)
        for name in ("text_vocabulary_free", "text_grammar_free", "text_matcher_free", "text_matcher_is_done"):
            getattr(self.c, name).argtypes = [C.c_void_p]
        self.c.text_matcher_is_done.restype = C.c_bool


class Vocabulary:
    """Holds a tokenizer's tokens by their bytes."""

    def __init__(self, lib, path, cache=None):
        self.lib, self.h = lib, C.c_void_p()
        t = Tokenizer(lib, path, cache)
        self.n = lib.c.text_vocab_size(t.h)
        self.eos = lib.c.text_eos_id(t.h)
        n = C.c_size_t()
        self.special = [bool(lib.c.text_token_is_special(t.h, C.c_uint32(i))) for i in range(self.n)]
        self.tokens = [C.string_at(p, n.value) if (p := lib.c.text_token_bytes(t.h, C.c_uint32(i), C.byref(n))) else b""
                       for i in range(self.n)]
        try:
            lib.call("text_vocabulary_new", t.h, C.byref(self.h))
        finally:
            t.close()

    def close(self):
        self.lib.c.text_vocabulary_free(self.h)

    def grammar(self, kind, source):
        return Grammar(self, kind, source)


class Grammar:
    """Holds a compiled grammar. Raises TextError when the source is not a grammar."""

    def __init__(self, v, kind, source):
        self.v, self.h, raw = v, C.c_void_p(), source.encode("utf-8", "surrogatepass")
        v.lib.call("text_grammar_compile", v.h, C.c_int(kind), raw, C.c_size_t(len(raw)), C.byref(self.h))

    def close(self):
        self.v.lib.c.text_grammar_free(self.h)

    def matcher(self):
        return Matcher(self)


class Matcher:
    def __init__(self, g):
        self.v, self.h = g.v, C.c_void_p()
        g.v.lib.call("text_matcher_new", g.h, None, C.c_size_t(0), C.byref(self.h))
        self.words = (C.c_uint32 * ((self.v.n + 31) // 32))()

    def close(self):
        self.v.lib.c.text_matcher_free(self.h)

    def mask(self):
        """Returns the mask as one number: bit i is set when token i may come next."""
        self.v.lib.call("text_matcher_mask", self.h, self.words, C.c_size_t(len(self.words)))
        return int.from_bytes(bytes(self.words), "little")

    def accept(self, token):
        """Returns False when the grammar does not allow the token."""
        try:
            self.v.lib.call("text_matcher_accept", self.h, C.c_uint32(token))
            return True
        except TextError as e:
            if e.code != 1:
                raise
            return False


def default_lib():
    import os
    return os.path.join(text_golden.ROOT, "build", "text", "release", "libcoxtext.a")
