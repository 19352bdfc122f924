#include "gateway/auth/api_key.h"

#include "common/base/mem.h"

void key_limits_fini(struct key_limits *l)
{
    mem_free(l->models);
    *l = (struct key_limits){0};
}

void api_key_hold(struct api_key *k)
{
    k->n_refs++;
}

void api_key_drop(struct api_key *k)
{
    if (--k->n_refs > 0)
        return;
    key_limits_fini(&k->limits);
    mem_free(k);
}
