#include "cli/up/plan/argv.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const log_levels[] = {"debug", "info", "warn", "error"};
static const char *const log_formats[] = {"logfmt", "json"};

const char *up_text(struct up_builder *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *s = arena_try_alloc(b->arena, (size_t)n + 1);
    assert(s); /* the arena has no limit */
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

void up_arg(struct up_child *c, const char *a)
{
    assert(c->n_args < UP_ARGV_MAX - 1);
    c->argv[c->n_args++] = a;
}

void up_flag(struct up_child *c, const char *name, const char *value)
{
    if (!value)
        return;
    up_arg(c, name);
    up_arg(c, value);
}

void up_flag_int(struct up_builder *b, struct up_child *c, const char *name, int64_t value)
{
    up_flag(c, name, up_text(b, "%lld", (long long)value));
}

void up_flag_if(struct up_builder *b, struct up_child *c, const char *name, int64_t value)
{
    if (value > 0)
        up_flag_int(b, c, name, value);
}

const char *up_host_port(struct up_builder *b, const char *host, int64_t port)
{
    bool bare_ipv6 = strchr(host, ':') && host[0] != '[';
    return up_text(b, bare_ipv6 ? "[%s]:%lld" : "%s:%lld", host, (long long)port);
}

const char *up_reachable_host(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0)
        return "127.0.0.1";
    return strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0 ? "::1" : host;
}

const char *up_reachable(struct arena *arena, const char *host, int64_t port)
{
    struct up_builder b = {.arena = arena};
    return up_host_port(&b, up_reachable_host(host), port);
}

void up_listens(struct up_builder *b, struct up_child *c, const char *of, const char *flag_name,
                const char *host, int64_t port)
{
    if (port <= 0)
        return;
    assert(c->n_listeners < UP_LISTENERS_MAX);
    c->listeners[c->n_listeners++] = (struct up_listener){.what = up_text(b, "%s%s", c->name, of),
                                                          .flag = flag_name,
                                                          .host = host,
                                                          .port = (uint16_t)port};
}

void up_common(struct up_builder *b, struct up_child *c, const char *program)
{
    up_arg(c, up_text(b, "%s/%s", b->place->bin_dir, program));
    up_flag(c, "--keys-dir", b->place->keys_dir);
    up_flag(c, "--log-level", log_levels[b->o->log_level]);
    up_flag(c, "--log-format", log_formats[b->o->log_format]);
    if (b->o->metrics_public)
        up_arg(c, "--metrics-public");
}

void up_flags_of_adapters(struct up_builder *b, struct up_child *c)
{
    const struct up_options *o = b->o;
    if (!o->enable_lora)
        return;
    up_arg(c, "--enable-lora");
    /* vLLM's --max-loras limits the adapters of a batch, while more adapters may be loaded. In
     * cox-head, --max-loras limits all loaded adapters. */
    up_flag_int(b, c, "--max-loras",
                (size_t)o->max_loras < o->lora_modules.n_items ? (int64_t)o->lora_modules.n_items
                                                               : o->max_loras);
    if (c->role != UP_WORKER)
        return;
    up_flag_int(b, c, "--max-lora-rank", o->max_lora_rank);
    up_flag(c, "--lora-root", o->lora_root);
}

void up_flags_of_names(struct up_builder *b, struct up_child *c)
{
    const struct option_list *names = &b->o->served_model_names;
    for (size_t i = 0; i < names->n_items; i++)
        up_flag(c, "--served-model-name", names->items[i]);
}

void up_flag_of_list(struct up_builder *b, struct up_child *c, const char *name,
                     const struct option_list *l)
{
    const char *all = l->n_items ? l->items[0] : NULL;
    for (size_t i = 1; i < l->n_items; i++)
        all = up_text(b, "%s,%s", all, l->items[i]);
    up_flag(c, name, all);
}

const char *up_heads(struct up_builder *b)
{
    const char *host = up_reachable_host(b->o->head_host);
    const char *first = up_host_port(b, host, b->o->head_port);
    if (!b->o->standby)
        return first;
    return up_text(b, "%s,%s", first, up_host_port(b, host, b->o->standby_port));
}
