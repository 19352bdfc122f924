#include "gateway/serving/hand_over.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "gateway/request/end.h"
#include "gateway/serving/cluster.h"
#include "gateway/serving/pump.h"
#include "gateway/serving/refusal.h"
#include "gateway/serving/start.h"

/* Returns the request as it arrived, for another serving. The body moves to it. */
static struct api_request *renew(struct api_request *r, struct serving *to)
{
    struct api_request *n = mem_zalloc(sizeof *n);
    n->s = to;
    n->reply = r->reply;
    n->reply_ops = r->reply_ops;
    n->dialect = n->route_dialect = r->route_dialect;
    n->tenant = r->tenant;
    n->key = r->key;
    n->full_usage = r->full_usage;
    n->slo_ttft_ms = r->slo_ttft_ms;
    n->slo_is_of_key = r->slo_is_of_key;
    n->arrival_ns = r->arrival_ns;
    n->last_progress_ns = serving_now(to);
    n->created_s = r->created_s;
    n->asked_model = r->asked_model;
    r->asked_model = NULL;
    memcpy(n->id_text, r->id_text, sizeof n->id_text);
    random_secure(&n->id, sizeof n->id);
    n->is_ours = r->is_ours;
    n->is_handed_over = true;
    n->body = r->body;
    n->owned_body = r->owned_body;
    r->owned_body = NULL;
    r->keeps_body = false;
    r->reply = NULL;
    return n;
}

bool api_request_hand_over(struct api_request *r, uint32_t retry_after_s)
{
    struct api_error e = {0};
    const char *why;
    struct serving *to = r->keeps_body && r->reply && r->state == API_RUNNING
                             ? r->find_fallback(r->fallback_ctx)
                             : NULL;
    if (!to || !serving_healthy(to, &why) || to->cluster.n_replicas_ready == 0 ||
        serving_refuses(to, &e))
        return false;
    if (r->reply_ops->add_header)
        r->reply_ops->add_header(r->reply, "X-Coxswain-Fallback-Of", r->s->o.served_names[0]);
    struct api_request *n = renew(r, to);
    n->refused_ttft_ms = r->predicted_ttft_ms;
    n->refused_retry_s = retry_after_s;
    api_request_enter_serving(n);         /* before `r` ends, so that its key stays */
    api_request_retire(r, OUTCOME_COUNT); /* its choices end in the fallback */
    serving_pump_on(to);
    return true;
}
