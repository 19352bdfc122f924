#include "common/http/handlers/host_rule.h"

#include <string.h>
#include <strings.h>

#include "common/host/loopback.h"
#include "common/http/server/request.h"

/* BETWEEN lists the separators of a list. None of them can be in a host, an origin, a method or
 * a header's name. */
#define BETWEEN "[]\", "

bool option_list_has(const struct option_list *l, struct str want)
{
    for (size_t i = 0; l && i < l->n_items; i++) {
        const char *at = l->items[i] + strspn(l->items[i], BETWEEN);
        for (size_t n; *at; at += n, at += strspn(at, BETWEEN)) {
            n = strcspn(at, BETWEEN);
            if (n == want.len && strncasecmp(at, want.ptr, n) == 0)
                return true;
        }
    }
    return false;
}

bool host_rule_applies(const char *host, const char *uds, bool has_key)
{
    return !uds && !has_key && (!host || host_is_loopback(str_from(host)));
}

static bool is_ours(const struct host_rule *r, struct str authority)
{
    struct str host = authority_host(authority);
    return host_is_loopback(host) || option_list_has(r->hosts, STR("*")) ||
           (host.len > 0 && option_list_has(r->hosts, host));
}

/* Returns true when the origin is a web page's: http://..., https://... or null. Installed
 * programs (browser extensions, desktop applications) have a scheme of their own, which no web
 * page can send. */
static bool is_page(struct str origin, struct str *authority)
{
    static const char *const schemes[] = {"http://", "https://"};
    *authority = STR("");
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(schemes[i]);
        if (origin.len < n || strncasecmp(origin.ptr, schemes[i], n) != 0)
            continue;
        *authority = (struct str){origin.ptr + n, origin.len - n};
        return true;
    }
    return str_eq_c(origin, "null");
}

const char *host_rule_refuses(const struct host_rule *r, const struct http_request *q)
{
    struct str host = http_authority(q), origin = http_header(q, "Origin"), page;
    if (!r->on)
        return NULL;
    /* HTTP/1.0 tools may send no Host, but browsers always send it */
    if (host.len > 0 && !is_ours(r, host))
        return "The Host header must be a loopback name or address, because this server requires "
               "no key. Use localhost or 127.0.0.1, or start the server with --allowed-hosts NAME "
               "or with a key";
    if (is_page(origin, &page) && !option_list_has(r->origins, STR("*")) &&
        !option_list_has(r->origins, origin) && !(page.len > 0 && is_ours(r, page)))
        return "The Origin header must be a page of this machine, because this server requires no "
               "key. Start the server with --allowed-origins ORIGIN or with a key";
    return NULL;
}
