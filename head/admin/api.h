#pragma once
/* Serves the head's HTTP port 8265: the dashboard, the admin API (docs/reference/admin-api.md),
 * and /livez, /readyz and /metrics through common/http/handlers/admin.
 *
 * With an admin key, every path needs the key except /livez, /readyz and the dashboard page,
 * which has no data. Without a key the server binds loopback only. Requests must then name a
 * loopback host, so that no web page can reach the API through a browser. The server runs on the
 * loop thread. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"
#include "common/keys/key_files.h"
#include "head/core/core.h"
#include "head/lease/standby.h"

/* Reads the head's own key again from its folder and writes the fingerprint of the key that is
 * now in use. Sets `changed` to true when the key differs from the previous one. */
typedef enum status admin_take_key_fn(void *ctx, char fingerprint[KEYS_FINGERPRINT_BYTES],
                                      bool *changed, struct error *err);

struct admin_api_options {
    const char *host;
    uint16_t port;
    const struct admin_keys *keys; /* borrowed; without keys, every local client is accepted */
    const char *model;             /* name of the model for metric labels; NULL = none */
    /* path of the program `cox` that lists and ends runs; NULL = no page of runs */
    const char *runs;
    bool metrics_public;
    /* standby state of this head, borrowed; NULL = the head has no lease store */
    const struct standby *standby;
    admin_take_key_fn *take_key;
    void *ctx; /* passed to `take_key` */
};

struct admin_api;
MUST_USE enum status admin_api_start(struct loop *l, const struct admin_api_options *o,
                                     struct head_core *core, struct admin_api **out,
                                     struct error *err);
/* Answers requests that waited for a change. Call it at the end of each turn of the loop. */
void admin_api_turn(struct admin_api *a);
uint16_t admin_api_port(const struct admin_api *a);
void admin_api_free(struct admin_api *a); /* `a` may be NULL */
