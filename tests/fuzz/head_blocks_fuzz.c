/* Fuzzes the block table against a model of plain arrays (unit/head/kv/blocks_model.h). The
 * input decides which requests arrive, how many tokens they run in each step, which leave, and
 * how late results are. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/head/kv/blocks_model.c"
#include "tests/unit/head/kv/blocks_play.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    if (!blocks_play(data, size, NULL, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return 0;
}
