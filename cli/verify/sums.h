#pragma once
/* Reads a list of SHA-256 sums in the format of `sha256sum`. The text is untrusted. The functions
 * are pure. */
#include "common/base/str.h"

enum {
    SUMS_LINES_MAX = 10000,
    SUMS_BYTES_MAX = 2 << 20, /* maximum bytes of the whole list */
    SUMS_PATH_MAX = 512,      /* maximum bytes of a path */
    SUM_HEX = 64
};

/* `sum` is one line. `path` is relative, has only printable ASCII, and no part of it is empty,
 * "." or "..". Both texts are borrowed from the list. */
struct sum {
    struct str path, hex;
};

struct sums {
    struct sum *items; /* sorted by path, each path once */
    size_t n_items;
};

/* Refuses a list with a line of another form, a path twice, or no line at all. */
MUST_USE enum status sums_parse(struct str text, struct sums *out, struct error *err);
void sums_fini(struct sums *s);
const struct sum *sums_find(const struct sums *s, struct str path); /* NULL = not in the list */
/* Returns true when all bytes are printable ASCII, and may thus be shown on a terminal. */
bool sums_printable(struct str s);
