#include "common/base/random.h"

#include <sodium.h>

void random_secure(void *out, size_t n)
{
    randombytes_buf(out, n);
}

uint64_t random_secure_u64(void)
{
    uint64_t v;
    random_secure(&v, sizeof v);
    return v;
}
