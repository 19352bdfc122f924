#pragma once
/* Decides about access to routes in one pure function, so that a test can try each route with
 * each key. Access is denied by default. When keys are configured, every route that is not open
 * requires a key. Unknown paths and methods require a key too, so that an unauthenticated client
 * cannot learn which paths exist. */
#include "gateway/routes/route.h"

struct access_rules {
    bool keys, admin_key; /* true when API keys, or an admin key, are configured */
    bool admin_address;   /* admin routes and metrics have an address of their own */
    bool metrics_public;
};

struct access_caller {
    bool on_admin_address;
    bool has_key, has_admin_key; /* true when the request has a valid key of this kind */
};

enum access_verdict {
    ACCESS_GRANTED,
    ACCESS_WANTS_KEY,    /* 401: a key is missing or wrong */
    ACCESS_NOT_HERE,     /* 404: the route is not served at this address */
    ACCESS_NO_ADMIN_KEY, /* 403: no admin key is configured, so no client has access */
};

/* Decides whether one request has access. `row` is NULL for an unknown path or method.
 * ACCESS_GRANTED then means that the caller may get the 404 or 405. */
enum access_verdict access_decide(const struct access_rules *r, const struct access_caller *c,
                                  const struct http_route *row);
