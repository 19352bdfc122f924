#include "gateway/keys.h"

#include "common/base/log.h"

void keys_tell_unused_priorities(const struct api_server *a)
{
    uint32_t n = auth_count_priorities(&a->auth);
    if (n > 0 && model_set_has_one_class(&a->models))
        log_error("key_priorities_unused",
                  "keys=%u why=\"the cluster does not use priorities: start it with "
                  "--scheduling-policy priority, or remove priority= from --api-key-file\"",
                  n);
}

void keys_look(struct api_server *a, struct quotas *q)
{
    struct error err = {0};
    bool changed;
    if (auth_look(&a->auth, &changed, &err) != STATUS_OK)
        log_error("keys_not_read", "kept=%u why=%s", a->auth.n_entries, log_quote(err.text));
    if (!changed)
        return;
    quotas_share(q, &a->auth);
    log_info("keys_read", "keys=%u", a->auth.n_entries);
    keys_tell_unused_priorities(a);
}
