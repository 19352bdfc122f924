#include "head/routing/roles.h"

#include "head/routing/kv_compat.h"

const char *roles_advice(enum role_trouble t)
{
    static const char *const texts[ROLE_TROUBLE_COUNT] = {
        [ROLE_FINE] = "",
        [ROLE_NO_ADDRESS] = "no KV blocks can be copied between prefill and decode replicas, "
                            "because a worker has no address for it. Start all workers without "
                            "--kv-port -1 (each then logs kv_listening)",
        [ROLE_OTHER_CACHE] =
            "no KV blocks can be copied between prefill and decode replicas, because their KV "
            "caches differ. Start their workers on the same device with the same --block-size and "
            "--kv-cache-dtype. A replica with fewer ranks gets its role back when it is whole",
        [ROLE_NO_CACHING] =
            "roles need the prefix cache: start the head without --no-enable-prefix-caching",
    };
    return texts[t];
}

/* Returns true when one of the two replicas sends blocks to the other. A prefill replica sends
 * blocks to every replica that is not a prefill replica. */
static bool is_partner(enum replica_role mine, enum replica_role other)
{
    return mine == REPLICA_PREFILL ? other != REPLICA_PREFILL : other == REPLICA_PREFILL;
}

/* Returns the smallest obstacle between an engine slot and its partners. *none is true when
 * there is no partner. */
static enum role_trouble find_trouble(const struct head_core *h, const struct engine_slot *l,
                                      bool *none)
{
    enum role_trouble least = ROLE_TROUBLE_COUNT;
    *none = false;
    if (!h->config.enable_prefix_caching)
        return ROLE_NO_CACHING;
    for (uint32_t i = 0; i < h->n_live && least != ROLE_FINE; i++) {
        const struct replica *other = h->engine_slots[h->live[i]].replica;
        if (other == l->replica || !is_partner(l->replica->role, other->role))
            continue;
        bool gives = l->replica->role == REPLICA_PREFILL;
        enum transfer_way way =
            gives ? transfer_way(l->replica, other) : transfer_way(other, l->replica);
        enum role_trouble t = way == TRANSFER_WAY          ? ROLE_FINE
                              : way == TRANSFER_NO_ADDRESS ? ROLE_NO_ADDRESS
                                                           : ROLE_OTHER_CACHE;
        least = t < least ? t : least;
    }
    *none = least == ROLE_TROUBLE_COUNT;
    return *none ? ROLE_FINE : least;
}

void roles_settle(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        struct engine_slot *l = &h->engine_slots[h->live[i]];
        enum role_trouble before = l->role_trouble;
        bool none = false;
        l->role = l->replica->role;
        l->role_trouble = ROLE_FINE;
        if (l->role == REPLICA_BOTH)
            continue;
        l->role_trouble = find_trouble(h, l, &none);
        if (none || l->role_trouble != ROLE_FINE)
            l->role = REPLICA_BOTH;
        l->look_due = true;
        if (l->role_trouble != ROLE_FINE && l->role_trouble != before)
            events_add(&h->events, h->now_ns, LOG_WARN, "group_role_ignored", "group=%llu text=%s",
                       (unsigned long long)l->replica->id,
                       log_quote(roles_advice(l->role_trouble)));
    }
}
