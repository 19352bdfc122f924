#include "gateway/models/mirror.h"

#include <string.h>

#include "common/base/mem.h"
#include "gateway/serving/serving.h"

enum {
    COPIES_MAX = 256,     /* most copies at once */
    BYTES_MAX = 64 << 20, /* most bytes of their bodies */
};
enum { ANSWERED, FAILED, SKIPPED };

/* `copy` is the receiver of a copy's answer. It owns the body until serving takes it. */
struct copy {
    struct mirror *mirror;
    struct serving *to;
    char *body;
    size_t n;
};

static void end(struct copy *c, int outcome)
{
    metric_add(c->mirror->outcomes[outcome], 1);
    c->to->n_copies--;
    c->mirror->n_open--;
    c->mirror->bytes -= c->n;
    mem_free(c->body);
    mem_free(c);
}

static void attach(void *reply, struct api_request *r)
{
    (void)reply;
}

static void respond(void *reply, int http_status, struct str json, uint32_t retry_after_s)
{
    end(reply, http_status == 200 ? ANSWERED : FAILED);
}

static void begin(void *reply, const char *content_type)
{
    (void)reply;
}

static size_t room(void *reply)
{
    return SIZE_MAX;
}

static void write_nothing(void *reply, struct str chunk)
{
    (void)reply;
}

static void end_stream(void *reply)
{
    end(reply, ANSWERED);
}

static void drop(void *reply, bool begun)
{
    end(reply, FAILED);
}

static char *take_body(void *reply)
{
    struct copy *c = reply;
    char *body = c->body;
    c->body = NULL;
    return body;
}

static const struct reply_ops copy_ops = {.attach = attach,
                                          .respond = respond,
                                          .begin = begin,
                                          .room = room,
                                          .write = write_nothing,
                                          .end = end_stream,
                                          .drop = drop,
                                          .take_body = take_body};

void mirror_init(struct mirror *m, struct metrics *registry)
{
    static const char *const labels[] = {[ANSWERED] = "outcome=\"answered\"",
                                         [FAILED] = "outcome=\"failed\"",
                                         [SKIPPED] = "outcome=\"skipped\""};
    for (int i = 0; i < 3; i++)
        m->outcomes[i] = metrics_counter(
            registry, "coxswain_gateway_mirrored_total", labels[i],
            "Copies of requests for the mirrors of routes: answered, failed, or not sent because "
            "too many were open.");
}

void mirror_send(void *mirror, const struct serving_request *q)
{
    struct mirror *m = mirror;
    char *body = m->n_open < COPIES_MAX && m->bytes + q->body.len <= BYTES_MAX
                     ? mem_try_array(1, q->body.len + 1)
                     : NULL;
    if (!body) {
        metric_add(m->outcomes[SKIPPED], 1);
        return;
    }
    struct copy *c = mem_zalloc(sizeof *c);
    *c = (struct copy){.mirror = m, .to = q->mirror, .body = body, .n = q->body.len};
    memcpy(body, q->body.ptr, q->body.len);
    q->mirror->n_copies++;
    m->n_open++;
    m->bytes += c->n;
    struct serving_request copied = *q;
    copied.body.ptr = body;
    copied.key = NULL;
    copied.tenant = 0;
    copied.full_usage = false;
    copied.slo_ttft = STR(""); /* a refusal of the copy would compare nothing */
    copied.admitted = NULL;
    copied.fallback_of = NULL;
    copied.find_fallback = NULL;
    copied.reply_ops = &copy_ops;
    copied.request_id = STR("");
    serving_on_request(q->mirror, c, &copied);
}
