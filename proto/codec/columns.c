/* Packs columns: one field of an array of structs is sent as one packed array. protobuf-c copies
 * a packed array of fixed32 as a block, so the price of an item is one load and one store per
 * column. */
#include "proto/codec/columns.h"

static const uint32_t usual_values[] = {0, 1};

struct wire_column wire_get_column(struct wire *w, const uint32_t *column, size_t n_column,
                                   size_t n, enum wire_usual usual, const char *what)
{
    if (n_column == n && n > 0)
        return (struct wire_column){column, 1};
    if (n_column != 0 || usual == WIRE_ALWAYS)
        wire_must(w, n_column == n, what);
    return (struct wire_column){&usual_values[usual == WIRE_USUAL_1], 0};
}

struct wire_rest wire_get_rest(const uint32_t *words, size_t n)
{
    return (struct wire_rest){n ? words : usual_values, n, false};
}
