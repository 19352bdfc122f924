#include "gateway/routes/access.h"

static enum access_verdict granted_if(bool ok)
{
    return ok ? ACCESS_GRANTED : ACCESS_WANTS_KEY;
}

/* Returns true for a caller that has a key of either kind. Such a caller may learn which paths
 * exist, and read /metrics. At the admin address only the admin key counts, if there is one. */
static bool is_known(const struct access_rules *r, const struct access_caller *c)
{
    if (c->on_admin_address && r->admin_key)
        return c->has_admin_key;
    return !r->keys || c->has_key || (r->admin_key && c->has_admin_key);
}

static enum access_verdict decide_admin(const struct access_rules *r, const struct access_caller *c)
{
    bool elsewhere = r->admin_address && !c->on_admin_address;
    if (r->admin_key && !elsewhere)
        return granted_if(c->has_admin_key);
    if (!is_known(r, c))
        return ACCESS_WANTS_KEY;
    return elsewhere ? ACCESS_NOT_HERE : ACCESS_NO_ADMIN_KEY;
}

/* Decides about metrics. Without --metrics-public, and when metrics have an address of their
 * own, the public address requires a key for them. Any client on the Internet may reach that
 * address. */
static enum access_verdict decide_metrics(const struct access_rules *r,
                                          const struct access_caller *c)
{
    if (r->metrics_public || c->on_admin_address || !r->admin_address)
        return granted_if(r->metrics_public || is_known(r, c));
    if (!r->keys && !r->admin_key)
        return ACCESS_NOT_HERE;
    return granted_if(c->has_key || c->has_admin_key);
}

enum access_verdict access_decide(const struct access_rules *r, const struct access_caller *c,
                                  const struct http_route *row)
{
    enum route_access access = row ? row->access : ACCESS_METRICS;
    switch (access) {
    case ACCESS_OPEN:
        return ACCESS_GRANTED;
    case ACCESS_PROBE:
        return granted_if(c->on_admin_address || is_known(r, c));
    case ACCESS_ADMIN:
        return decide_admin(r, c);
    case ACCESS_METRICS:
        return row ? decide_metrics(r, c) : granted_if(is_known(r, c));
    case ACCESS_KEY:
        break;
    }
    if (c->on_admin_address)
        return is_known(r, c) ? ACCESS_NOT_HERE : ACCESS_WANTS_KEY;
    return granted_if(!r->keys || c->has_key); /* the admin key gives no access to tokens */
}
