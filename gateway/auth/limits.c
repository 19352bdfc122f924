/* Reads the limits of one API key from its line, and counts use in two token buckets per key
 * (requests and tokens).
 * `limits_admit` is called before a request is queued, and `limits_spend` when its tokens are
 * known. `limits_open` and `limits_close` are called around a request.
 * leases.c fills a bucket that all gateways share; otherwise time fills the bucket here. The
 * level of a bucket may fall below 0, and never rises above its size. Only the loop thread calls
 * these functions, and time is an argument. */
#include "gateway/auth/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "gateway/auth/leases.h"

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
        return false; /* strtod would also take "inf", hexadecimal numbers and spaces */
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
    if (str_eq_c(name, "slo_ttft_ms")) {
        if (!parse_number(value, 1, SLO_TTFT_MS_MAX, &n) || n != floor(n))
            return false;
        l->slo_ttft_ms = (uint32_t)n;
        return true;
    }
    if (!str_eq_c(name, "priority") || !parse_number(value, INT32_MIN, INT32_MAX, &n) ||
        n != floor(n))
        return false;
    l->priority = (int32_t)n;
    l->has_priority = true;
    return true;
}

/* ---- buckets ---- */

/* Returns the terms of a bucket. Its burst capacity is one second of requests (at least one) or
 * one minute of tokens. */
static struct quota_terms terms_of(const struct api_key *k, enum quota q)
{
    double rate = k->limits.requests_per_s, tokens = k->limits.tokens_per_min;
    return q == QUOTA_REQUESTS ? (struct quota_terms){rate, fmax(rate, 1)}
                               : (struct quota_terms){tokens / 60, tokens};
}

/* Returns this gateway's share of the terms. The share applies while the store cannot be asked
 * and each gateway counts alone. */
static struct quota_terms share_of(const struct api_key *k, struct quota_terms t)
{
    double n = k->sharing ? k->sharing->n_gateways : 1;
    return (struct quota_terms){t.per_s / n, fmax(t.size / n, fmin(t.size, 1))};
}

static void fill(struct bucket *b, struct quota_terms t, uint64_t now_ns)
{
    if (b->filled_ns == 0)
        b->level = t.size;
    else if (now_ns > b->filled_ns)
        b->level += (double)(now_ns - b->filled_ns) / 1e9 * t.per_s;
    if (b->level > t.size)
        /* the level can be above the size after a new file made the bucket smaller */
        b->level = t.size;
    b->filled_ns = now_ns ? now_ns : 1;
}

static bool is_shared(const struct api_key *k)
{
    return k->sharing && k->sharing->up;
}

static double room(struct api_key *k, enum quota q, uint64_t now_ns)
{
    struct bucket *b = &k->buckets[q];
    if (is_shared(k)) {
        /* filling continues from this time when the store is lost */
        b->filled_ns = now_ns ? now_ns : 1;
        return leases_room(k->sharing, k, q, terms_of(k, q), now_ns);
    }
    fill(b, share_of(k, terms_of(k, q)), now_ns);
    return b->level;
}

static void spend(struct api_key *k, enum quota q, double amount, uint64_t now_ns)
{
    if (is_shared(k))
        leases_spend(k->sharing, k, q, amount, now_ns);
    else
        k->buckets[q].level -= amount;
}

/* Returns the seconds until the bucket holds one unit. */
static double wait_s(struct api_key *k, enum quota q, uint64_t now_ns)
{
    struct quota_terms t = share_of(k, terms_of(k, q));
    return is_shared(k) ? leases_refused(k->sharing, k, q, 1, now_ns)
                        : (1 - k->buckets[q].level) / t.per_s;
}

static bool refuse(struct api_error *e, double seconds, double bound, const char *of_what)
{
    double s = ceil(seconds);
    e->code = "rate_limit_exceeded";
    e->retry_after_s = s < 1 ? 1 : s > RETRY_MAX_S ? RETRY_MAX_S : (uint32_t)s;
    return api_error_set(e, 429, NULL,
                         "This API key has reached its limit of %g %s. Try again in %u s.", bound,
                         of_what, e->retry_after_s);
}

bool limits_admit(struct api_key *k, uint64_t now_ns, struct api_error *e)
{
    const struct key_limits *l = k ? &k->limits : NULL;
    if (!k)
        return true;
    if (l->max_open && k->n_open >= l->max_open)
        return refuse(e, 1, l->max_open, "open requests");
    if (l->tokens_per_min > 0 && room(k, QUOTA_TOKENS, now_ns) < fmin(1, l->tokens_per_min))
        return refuse(e, wait_s(k, QUOTA_TOKENS, now_ns), l->tokens_per_min, "tokens per minute");
    if (l->requests_per_s > 0) {
        if (room(k, QUOTA_REQUESTS, now_ns) < 1)
            return refuse(e, wait_s(k, QUOTA_REQUESTS, now_ns), l->requests_per_s,
                          "requests per second");
        spend(k, QUOTA_REQUESTS, 1, now_ns);
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
    (void)room(k, QUOTA_TOKENS, now_ns);
    spend(k, QUOTA_TOKENS, (double)n_tokens, now_ns);
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
