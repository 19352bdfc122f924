#pragma once
/* Guards a listener on loopback that requires no key. The listener is safe because only this
 * machine reaches it, but a web page in a local browser must not use it. Such a page could use
 * its own name that resolves to 127.0.0.1 (DNS rebinding: the Host is the page's), or post a
 * form (the Origin is the page's). Tools that send neither header are allowed. */
#include "common/config/config.h"
#include "common/http/server/server.h"

struct host_rule {
    bool on;                         /* true = the rule applies; false = every request is allowed */
    const struct option_list *hosts; /* more allowed hosts, "*" = all; NULL = none */
    const struct option_list *origins; /* pages that may call the API, as in CORS; NULL = none */
};

/* Returns true when a server that listens at `host` needs the rule. `has_key` is true when
 * requests must carry a key. */
bool host_rule_applies(const char *host, const char *uds, bool has_key);
/* Returns NULL when the request is allowed, otherwise the reason for a 403. */
const char *host_rule_refuses(const struct host_rule *r, const struct http_request *q);
/* Returns true when the list contains the word, in upper or lower case. An item of the list may
 * be JSON: ["a", "b"]. */
bool option_list_has(const struct option_list *l, struct str want);
