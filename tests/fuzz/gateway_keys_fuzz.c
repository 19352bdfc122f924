/* Fuzzes files of API keys. A file is read completely, or refused with a message that does not
 * repeat its content. The keys that are read must have usable limits, and must be the same when
 * the file is read again. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/auth/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct api_key *k)
{
    const struct key_limits *l = &k->limits;
    if (!(l->requests_per_s >= 0 && l->requests_per_s <= 1e12) ||
        !(l->tokens_per_min >= 0 && l->tokens_per_min <= 1e12) || l->max_open > 1 << 20 ||
        k->n_refs != 1 || k->n_open != 0)
        abort();
}

/* Uses a key now and one second later: no bucket may become NaN. */
static void use(struct api_key *k)
{
    struct api_error e = {0};
    for (uint64_t t = 1; t < 3; t++) {
        (void)limits_admit(k, t * 1000000000u, &e);
        limits_spend(k, 100, t * 1000000000u);
    }
    if (!isfinite(k->buckets[QUOTA_REQUESTS].level) || !isfinite(k->buckets[QUOTA_TOKENS].level))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    const struct option_list none = {0};
    struct auth a, again;
    struct api_keys front;
    struct error err = {0};
    int fd = memfd_create("keys", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (auth_init(&a, &none, path, &err) == STATUS_OK) {
        if (a.n_entries == 0 || auth_init(&again, &none, path, &err) != STATUS_OK ||
            again.n_entries != a.n_entries)
            abort();
        for (uint32_t i = 0; i < a.n_entries; i++) {
            check(a.entries[i].key);
            use(a.entries[i].key);
            if (memcmp(a.entries[i].digest, again.entries[i].digest, 32) != 0 ||
                a.entries[i].key->tenant != again.entries[i].key->tenant)
                abort();
        }
        /* a set of keys without tenants and limits must read the same keys from the file */
        if (api_keys_init(&front, &none, path, &err) != STATUS_OK || front.n != a.n_entries)
            abort();
        api_keys_fini(&front);
        auth_fini(&again);
        auth_fini(&a);
    } else if (!err.text[0]) {
        abort();
    }
    close(fd);
    return 0;
}
