#include "gateway/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

#define NUMBER_MAX 1e12

enum { RETRY_MAX_S = 3600 };

/* ---- options ---- */

static bool parse_number(struct str text, double min, double max, double *out)
{
    char buf[32], *end;
    if (text.len == 0 || text.len >= sizeof buf)
        return false;
    memcpy(buf, text.ptr, text.len);
    buf[text.len] = '\0';
    if (strspn(buf, "+-0123456789.eE") != text.len)
        return false; /* strtod takes "inf", hexadecimal and spaces as well */
    *out = strtod(buf, &end);
    return *end == '\0' && *out >= min && *out <= max;
}

static bool parse_models(struct key_limits *l, struct str value)
{
    if (value.len == 0 || l->models)
        return false;
    l->models = mem_alloc(value.len + 1);
    memcpy(l->models, value.ptr, value.len);
    l->models[value.len] = '\0';
    return true;
}

bool limits_parse(struct key_limits *l, struct str option)
{
    const char *equals = memchr(option.ptr, '=', option.len);
    if (!equals)
        return false;
    struct str name = {option.ptr, (size_t)(equals - option.ptr)};
    struct str value = {equals + 1, option.len - name.len - 1};
    double n = 0;
    if (str_eq_c(name, "rate"))
        return parse_number(value, 1e-6, NUMBER_MAX, &l->requests_per_s);
    if (str_eq_c(name, "tokens"))
        return parse_number(value, 1e-6, NUMBER_MAX, &l->tokens_per_min);
    if (str_eq_c(name, "models"))
        return parse_models(l, value);
    if (str_eq_c(name, "streams")) {
        if (!parse_number(value, 1, 1 << 20, &n) || n != floor(n))
            return false;
        l->max_open = (uint32_t)n;
        return true;
    }
    if (!str_eq_c(name, "priority") || !parse_number(value, INT32_MIN, INT32_MAX, &n) ||
        n != floor(n))
        return false;
    l->priority = (int32_t)n;
    l->has_priority = true;
    return true;
}

void limits_fini(struct key_limits *l)
{
    mem_free(l->models);
    *l = (struct key_limits){0};
}

/* ---- keys ---- */

void api_key_hold(struct api_key *k)
{
    k->n_refs++;
}

void api_key_drop(struct api_key *k)
{
    if (--k->n_refs > 0)
        return;
    limits_fini(&k->limits);
    mem_free(k);
}

/* ---- buckets ---- */

static void fill(struct bucket *b, double per_s, double size, uint64_t now_ns)
{
    if (b->filled_ns == 0)
        b->level = size;
    else if (now_ns > b->filled_ns)
        b->level += (double)(now_ns - b->filled_ns) / 1e9 * per_s;
    if (b->level > size)
        b->level = size; /* also when a new file made it smaller */
    b->filled_ns = now_ns ? now_ns : 1;
}

/* A second's worth, but one request always fits. */
static void fill_requests(struct api_key *k, uint64_t now_ns)
{
    double rate = k->limits.requests_per_s;
    fill(&k->requests, rate, rate > 1 ? rate : 1, now_ns);
}

static void fill_tokens(struct api_key *k, uint64_t now_ns)
{
    fill(&k->tokens, k->limits.tokens_per_min / 60, k->limits.tokens_per_min, now_ns);
}

static bool refuse(struct api_error *e, double wait_s, const char *what, double bound)
{
    double s = ceil(wait_s);
    e->code = "rate_limit_exceeded";
    e->retry_after_s = s < 1 ? 1 : s > RETRY_MAX_S ? RETRY_MAX_S : (uint32_t)s;
    return api_error_set(e, 429, NULL, "This API key may %s%g: try again in %u s.", what, bound,
                         e->retry_after_s);
}

bool limits_admit(struct api_key *k, uint64_t now_ns, struct api_error *e)
{
    const struct key_limits *l = k ? &k->limits : NULL;
    if (!k)
        return true;
    if (l->max_open && k->n_open >= l->max_open)
        return refuse(e, 1, "have so many requests open at once: ", l->max_open);
    if (l->tokens_per_min > 0) {
        fill_tokens(k, now_ns);
        if (k->tokens.level < 1 && k->tokens.level < l->tokens_per_min)
            return refuse(e, (1 - k->tokens.level) * 60 / l->tokens_per_min,
                          "use so many tokens a minute: ", l->tokens_per_min);
    }
    if (l->requests_per_s > 0) {
        fill_requests(k, now_ns);
        if (k->requests.level < 1)
            return refuse(e, (1 - k->requests.level) / l->requests_per_s,
                          "make so many requests a second: ", l->requests_per_s);
        k->requests.level -= 1;
    }
    return true;
}

void limits_open(struct api_key *k)
{
    if (!k)
        return;
    api_key_hold(k);
    k->n_open++;
}

void limits_close(struct api_key *k)
{
    if (!k)
        return;
    k->n_open--;
    api_key_drop(k);
}

void limits_spend(struct api_key *k, uint64_t n_tokens, uint64_t now_ns)
{
    if (!k || k->limits.tokens_per_min <= 0)
        return;
    fill_tokens(k, now_ns);
    k->tokens.level -= (double)n_tokens;
}

bool limits_any(const struct api_key *k)
{
    return k && (k->limits.requests_per_s > 0 || k->limits.tokens_per_min > 0 ||
                 k->limits.max_open > 0 || k->limits.has_priority || k->limits.models);
}

bool limits_allow_model(const struct api_key *k, struct str name)
{
    const char *at = k ? k->limits.models : NULL;
    if (!at)
        return true;
    for (size_t n; *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        if (n == name.len && memcmp(at, name.ptr, n) == 0)
            return true;
    }
    return false;
}

int64_t limits_priority(const struct api_key *k, int64_t asked)
{
    if (!k || !k->limits.has_priority)
        return asked;
    return asked > k->limits.priority ? asked : k->limits.priority;
}
