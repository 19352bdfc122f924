#include "gateway/request/promise.h"

#include <stdio.h>
#include <string.h>

bool promise_read(struct str header, const struct api_key *key, uint32_t *slo_ms,
                  struct api_error *e)
{
    uint32_t n = 0;
    bool fine = header.len <= 7;
    *slo_ms = key ? key->limits.slo_ttft_ms : 0;
    if (header.len == 0)
        return true;
    for (size_t i = 0; fine && i < header.len; i++) {
        fine = header.ptr[i] >= '0' && header.ptr[i] <= '9';
        n = 10 * n + (uint32_t)(header.ptr[i] - '0');
    }
    if (!fine || n == 0 || n > SLO_TTFT_MS_MAX)
        return api_error_set(e, 400, "x-slo-ttft-ms",
                             "The header x-slo-ttft-ms is '%.*s', but it must be a number of "
                             "milliseconds from 1 to %u. Correct the header or leave it out.",
                             (int)(header.len < 40 ? header.len : 40), header.ptr, SLO_TTFT_MS_MAX);
    *slo_ms = n;
    return true;
}

uint32_t promise_left_ms(const struct api_request *r)
{
    uint64_t passed_ms = (serving_now(r->s) - r->arrival_ns) / NS_PER_MS;
    if (r->slo_ttft_ms == 0)
        return 0;
    return passed_ms < r->slo_ttft_ms ? r->slo_ttft_ms - (uint32_t)passed_ms : 1;
}

void promise_take(struct api_request *r, const struct api_choice *c, const struct tokens_item *t)
{
    if (r->slo_ttft_ms == 0 || t->predicted_ttft_ms == 0)
        return;
    uint64_t ms = (c->submit_ns - r->arrival_ns) / NS_PER_MS + t->predicted_ttft_ms;
    if (ms > r->predicted_ttft_ms)
        r->predicted_ttft_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static void explain(const struct api_request *r, uint32_t retry_after_s, struct api_error *e)
{
    *e = (struct api_error){.code = API_FIRST_TOKEN_TOO_LATE, .retry_after_s = retry_after_s};
    api_error_set(e, 429, NULL,
                  "The first token is predicted after %u ms, but %s allows %u ms. Try again later, "
                  "or allow more time%s.",
                  r->predicted_ttft_ms,
                  r->slo_is_of_key ? "slo_ttft_ms of this API key" : "x-slo-ttft-ms",
                  r->slo_ttft_ms, r->slo_is_of_key ? " with the header x-slo-ttft-ms" : "");
}

bool promise_explain(const struct api_request *r, const struct tokens_item *t, struct api_error *e)
{
    if (e->http_status != 429 || r->slo_ttft_ms == 0 || t->predicted_ttft_ms == 0)
        return false;
    explain(r, e->retry_after_s, e);
    return true;
}

void promise_explain_first(struct api_request *r, struct api_error *e)
{
    const bool is_refusal = e->code && strcmp(e->code, API_FIRST_TOKEN_TOO_LATE) == 0;
    if (e->http_status == 500 || e->http_status == 504 || api_request_has_tokens(r))
        return;
    if (r->refused_ttft_ms == 0 || (is_refusal && r->predicted_ttft_ms <= r->refused_ttft_ms))
        return;
    r->predicted_ttft_ms = r->refused_ttft_ms;
    explain(r, r->refused_retry_s, e);
}

bool promise_is_hopeless(const struct api_request *r, uint64_t now_ns)
{
    return r->refused_ttft_ms &&
           now_ns > r->arrival_ns + (2 * (uint64_t)r->slo_ttft_ms + 5000) * NS_PER_MS;
}

void promise_tell(const struct api_request *r)
{
    char text[16];
    if (r->predicted_ttft_ms == 0 || !r->reply || !r->reply_ops->add_header)
        return;
    snprintf(text, sizeof text, "%u", r->predicted_ttft_ms);
    r->reply_ops->add_header(r->reply, "X-Slo-Predicted-Ttft-Ms", text);
}
