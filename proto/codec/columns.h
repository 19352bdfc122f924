#pragma once
/* Packs columns: one field of an array of structs is sent as one packed array. The file is
 * private to proto/codec. */
#include "proto/codec/wire.h"

/* WIRE_NEW_COLUMN allocates a column of n values, which the caller fills in at once.
 * WIRE_DROP_COLUMN removes a column in which every value is the usual one. */
#define WIRE_NEW_COLUMN(w, p, column, n)                                                           \
    do {                                                                                           \
        (p)->column = wire_uncleared((w), (n), sizeof *(p)->column);                               \
        (p)->n_##column = (n);                                                                     \
    } while (0)
#define WIRE_DROP_COLUMN(p, column, usual)                                                         \
    do {                                                                                           \
        if (usual)                                                                                 \
            (p)->n_##column = 0;                                                                   \
    } while (0)

/* Appends a span to a column that has enough memory, and returns the column's new end. */
static inline uint32_t *wire_put_words(uint32_t *end, struct u32_span s)
{
    for (uint32_t i = 0; i < s.n; i++)
        *end++ = s.ptr[i];
    return end;
}

/* Names the value that each item has where a column is absent. WIRE_ALWAYS means that the column
 * must not be absent. */
enum wire_usual { WIRE_USUAL_0, WIRE_USUAL_1, WIRE_ALWAYS };

/* Describes a received column. With step 0 every item has the usual value. */
struct wire_column {
    const uint32_t *ptr;
    size_t step;
};
/* Reads a column, which has one value per item. A column may be absent unless `usual` is
 * WIRE_ALWAYS. Then every item has the usual value. Any other size sets the context's error and
 * gives usual values too. */
struct wire_column wire_get_column(struct wire *w, const uint32_t *column, size_t n_column,
                                   size_t n, enum wire_usual usual, const char *what);
#define WIRE_GET_COLUMN(w, p, column, n, usual)                                                    \
    wire_get_column((w), (p)->column, (p)->n_##column, (n), (usual),                               \
                    #column " does not have one value per item")
static inline uint32_t wire_at(struct wire_column c, size_t i)
{
    return c.ptr[i * c.step];
}

/* Holds words that are assigned to items in order. It is an error when words are left over or
 * missing at the end. */
struct wire_rest {
    const uint32_t *ptr;
    size_t n;
    bool missing;
};
struct wire_rest wire_get_rest(const uint32_t *words, size_t n);
static inline struct u32_span wire_take(struct wire_rest *r, uint32_t n)
{
    if (n > r->n) {
        r->missing = true;
        n = 0;
    }
    struct u32_span s = {r->ptr, n};
    r->ptr += n;
    r->n -= n;
    return s;
}
