#include "tests/golden/golden_kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum dtype golden_kv_dtype(const char *name)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } known[] = {{"f32", DTYPE_F32},
                 {"f16", DTYPE_F16},
                 {"bf16", DTYPE_BF16},
                 {"fp8", DTYPE_F8_E4M3},
                 {"int8", DTYPE_I8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].dtype;
    fprintf(stderr, "--kv %s: not a dtype of the KV cache\n", name);
    exit(1);
}
