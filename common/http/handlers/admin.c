#include "common/http/handlers/admin.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"

#define LIVE_LAG_MAX_NS (5 * NS_PER_S)

static void respond_text(struct http_request *r, int status, const char *text)
{
    http_respond(r, status, "text/plain; charset=utf-8", str_from(text), NULL, 0);
}

static void respond_metrics(const struct admin_options *o, struct http_request *r)
{
    if (o->metrics_keys && !admin_keys_admit(o->metrics_keys, http_header(r, "authorization"))) {
        const struct http_header_kv h = {"WWW-Authenticate", "Bearer"};
        http_respond(r, 401, "text/plain; charset=utf-8",
                     STR("/metrics requires a key. Send the header Authorization: Bearer KEY\n"),
                     &h, 1);
        return;
    }
    if (o->before_metrics)
        o->before_metrics(o->ctx);
    struct strbuf b;
    strbuf_init(&b, 64 << 20);
    metrics_render(o->metrics, &b);
    http_respond(r, 200, "text/plain; version=0.0.4; charset=utf-8", strbuf_str(&b), NULL, 0);
    strbuf_fini(&b);
}

bool admin_handle(const struct admin_options *o, struct http_request *r)
{
    struct str path = http_path(r), method = http_method(r);
    bool live = str_eq_c(path, "/livez"), ready = str_eq_c(path, "/readyz");
    bool metrics = str_eq_c(path, "/metrics");
    const struct host_rule rule = {.on = o->names_itself};
    if (!live && !ready && !metrics)
        return false;
    const char *stranger = host_rule_refuses(&rule, r);
    if (stranger) {
        respond_text(r, 403, stranger);
        return true;
    }
    if (!str_eq_c(method, "GET") && !str_eq_c(method, "HEAD")) {
        const struct http_header_kv h = {"Allow", "GET, HEAD"};
        http_respond(r, 405, "text/plain; charset=utf-8",
                     STR("only GET and HEAD are allowed here\n"), &h, 1);
        return true;
    }
    if (metrics) {
        respond_metrics(o, r);
        return true;
    }
    bool ok = live ? loop_lag_ns(o->loop) <= LIVE_LAG_MAX_NS : o->ready(o->ctx);
    char why[128] = "ok\n";
    if (!ok)
        snprintf(why, sizeof why, "%s\n",
                 ready && o->why_not_ready ? o->why_not_ready(o->ctx) : "not ready");
    respond_text(r, ok ? 200 : 503, why);
    return true;
}
