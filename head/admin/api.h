#pragma once
/* The head's HTTP side on 8265: dashboard, admin API (docs/reference/admin-api.md), and through
 * common/http/handlers/admin /livez, /readyz and /metrics. With an admin key everything but
 * /livez, /readyz and the (empty) dashboard page needs it; without one only loopback is bound, and
 * then requests must name a loopback host, so that no web page can reach the API through a browser.
 * Loop thread. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"
#include "common/keys/key_files.h"
#include "head/core/core.h"
#include "head/lease/standby.h"

/* Takes up the head's own key as its folder has it now. fingerprint: of that; changed: it was
 * another. */
typedef enum status admin_take_key_fn(void *ctx, char fingerprint[KEYS_FINGERPRINT_BYTES],
                                      bool *changed, struct error *err);

struct admin_api_options {
    const char *host;
    uint16_t port;
    const struct admin_keys *keys; /* borrowed; none: whoever is on this machine may ask */
    const char *model;             /* for metric labels; NULL: none */
    const char *runs;              /* the program that is asked about runs; NULL: none */
    bool metrics_public;
    const struct standby *standby; /* borrowed; NULL: this head alone serves */
    admin_take_key_fn *take_key;
    void *ctx; /* of take_key */
};

struct admin_api;
MUST_USE enum status admin_api_start(struct loop *l, const struct admin_api_options *o,
                                     struct head_core *core, struct admin_api **out,
                                     struct error *err);
uint16_t admin_api_port(const struct admin_api *a);
void admin_api_free(struct admin_api *a); /* NULL is fine */
