#pragma once
/* Who may call which route: one pure decision, so that a test walks every route with every key.
 * Denied by default: once keys are configured, whatever is not open wants one, also paths and
 * methods that nobody knows, so that a stranger cannot tell what there is. */
#include "gateway/routes/route.h"

struct access_rules {
    bool keys, admin_key; /* there are any */
    bool admin_address;   /* routes of ACCESS_ADMIN and ACCESS_METRICS have one of their own */
    bool metrics_public;
};

struct access_caller {
    bool on_admin_address;
    bool has_key, has_admin_key; /* it sent a valid one */
};

enum access_verdict {
    ACCESS_GRANTED,
    ACCESS_WANTS_KEY,    /* 401 */
    ACCESS_NOT_HERE,     /* 404: not at this address */
    ACCESS_NO_ADMIN_KEY, /* 403: nobody may, no admin key is configured */
};

/* row: NULL for what no row matches; granted means then that the 404 or 405 may be told. */
enum access_verdict access_decide(const struct access_rules *r, const struct access_caller *c,
                                  const struct http_route *row);
