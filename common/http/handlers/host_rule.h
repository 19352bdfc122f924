#pragma once
/* The rule says who may talk to a listener on loopback that asks for no key. Its guard is that only
 * this machine reaches it, and a web page in a browser on this machine must not get round that:
 * neither by a name of its own that resolves to 127.0.0.1 (DNS rebinding: the Host is the page's),
 * nor by a form that it posts (the Origin is the page's). Tools that send neither header are let
 * in. */
#include "common/config/config.h"
#include "common/http/server/server.h"

struct host_rule {
    bool on;                           /* else everybody may */
    const struct option_list *hosts;   /* allowed as well, "*": all; NULL: none */
    const struct option_list *origins; /* pages that may call, as CORS has them; NULL: none */
};

/* Whether the rule is for a server that listens at host. has_key: requests must carry one. */
bool host_rule_applies(const char *host, const char *uds, bool has_key);
/* NULL: it may. Else why not, for a 403. */
const char *host_rule_refuses(const struct host_rule *r, const struct http_request *q);
/* A word of a list, in any case; a list may have come as JSON, ["a", "b"]. */
bool option_list_has(const struct option_list *l, struct str want);
