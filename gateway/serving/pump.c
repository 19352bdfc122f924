#include "gateway/serving/pump.h"

#include "gateway/request/end.h"
#include "gateway/request/submit.h"

void serving_add_pending(struct serving *s, struct api_choice *c)
{
    submit_queue_add(&s->pending, &c->pending, c->owner->tenant, serving_now(s));
}

/* Submits waiting choices and stops at the first choice without credit, so that a large choice
 * gets its turn. Each try costs time in proportion to the size. A large choice is therefore
 * tried again only after new credit, not at each event. */
void serving_pump_on(struct serving *s)
{
    struct submit_entry *next;
    while (s->cluster.link_up && !s->awaits_credit &&
           (next = submit_queue_next(&s->pending)) != NULL) {
        struct api_choice *c = (struct api_choice *)next;
        uint64_t bytes;
        enum status st = api_choice_submit(c, &bytes);
        if (st == STATUS_OK) {
            submit_queue_sent(&s->pending, next, bytes);
            stream_sent(&c->g.stream);
            if (!c->g.first_token_ns)
                c->submit_ns = serving_now(s);
        } else if (st == STATUS_LIMIT) {
            struct api_error e = {0};
            api_error_set(
                &e, 413, NULL,
                "The prompt is too large for one message to the cluster. Send a shorter prompt.");
            api_request_fail(c->owner, &e);
        } else {
            s->awaits_credit = bytes >= SUBMIT_QUANTUM_BYTES;
            return;
        }
    }
}

void serving_pump(struct serving *s)
{
    s->awaits_credit = false;
    serving_pump_on(s);
}
