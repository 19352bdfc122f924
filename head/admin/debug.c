/* Answers GET /api/debug with the internal state of the head, for debugging. Requests appear
 * only as counts and keys only as public keys. Long lists are cut, and the answer says how long
 * they were. */
#include "head/admin/debug.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/version.h"
#include "head/admin/json.h"
#include "head/state/head_core.h"

enum { MAX_SESSIONS = 256, MAX_ENGINE_SLOTS = 64, MAX_EVENTS = 64 };

static json_int_t whole(uint64_t v)
{
    return (json_int_t)(v > INT64_MAX ? INT64_MAX : v);
}

static json_int_t ms_since(const struct head_core *h, uint64_t at_ns)
{
    return h->now_ns > at_ns ? whole((h->now_ns - at_ns) / NS_PER_MS) : 0;
}

/* Converts a text to a JSON string with valid UTF-8. A peer's text may not be valid UTF-8. */
static json_t *text(const char *s)
{
    json_t *v = json_string(s);
    return v ? v : json_string("(not UTF-8)");
}

static json_t *session(const struct head_core *h, const struct peer *p)
{
    char instance[17];
    snprintf(instance, sizeof instance, "%016llx", (unsigned long long)p->instance);
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, "
                     "s:I, s:I}",
                     "role", peer_role_name(p->role), "node", text(p->node), "instance", instance,
                     "version", text(p->version), "public_key", text(p->key), "open", p->open,
                     "suspect", p->suspect, "blocked", p->blocked, "key_gone", p->key_gone,
                     "frames_in", whole(p->link.seq_in), "frames_out", whole(p->link.seq_out),
                     "window_out", whole(p->link.window_out), "in_flight_out",
                     whole(p->link.in_flight_out), "consumed_in", whole(p->link.consumed_in),
                     "opened_ms_ago", ms_since(h, p->opened_ns), "heard_ms_ago",
                     ms_since(h, p->heard_ns), "sent_ms_ago", ms_since(h, p->sent_ns));
}

static json_t *sessions(const struct head_core *h)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < h->peers.n && i < MAX_SESSIONS; i++)
        json_array_append_new(all, session(h, h->peers.all[i]));
    return all;
}

/* Returns the sizes of the last plans as [step, tokens], oldest first. */
static json_t *plans(const struct engine_slot *l)
{
    json_t *all = json_array();
    uint64_t n = l->last_step < ENGINE_SLOT_STEPS ? l->last_step : ENGINE_SLOT_STEPS;
    for (uint64_t step = l->last_step - n + 1; n > 0 && step <= l->last_step; step++)
        json_array_append_new(
            all, json_pack("[I, I]", whole(step), whole(l->n_tokens[step % ENGINE_SLOT_STEPS])));
    return all;
}

static json_t *engine_slot(const struct head_core *h, const struct engine_slot *l)
{
    char epoch[32];
    struct scheduler_load load;
    struct scheduler_stats s;
    scheduler_get_load(l->scheduler, &load);
    scheduler_get_stats(l->scheduler, &s);
    cluster_epoch_text(l->replica->epoch, epoch);
    return json_pack(
        "{s:I, s:s, s:I, s:I, s:b, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:o}",
        "group", whole(l->replica->id), "epoch", epoch, "last_step", whole(l->last_step),
        "last_result", whole(l->last_result), "plan_pending", l->plan_pending, "plan_bytes",
        whole(l->plan.len), "idle", l->idle, "due", l->due, "active_ms_ago",
        ms_since(h, l->activity_ns), "running", whole(load.running), "waiting", whole(load.waiting),
        "prompt_tokens_to_do", whole(load.n_prompt_tokens), "free_slots", whole(load.n_free_slots),
        "free_tokens", whole(load.n_free_tokens), "steps", whole(s.n_steps), "preemptions",
        whole(s.n_preemptions), "left_without_place", whole(l->n_left), "last_plans", plans(l));
}

static json_t *engine_slots(const struct head_core *h)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < h->n_live && i < MAX_ENGINE_SLOTS; i++)
        json_array_append_new(all, engine_slot(h, &h->engine_slots[h->live[i]]));
    return all;
}

static json_t *counts(const struct head_core *h)
{
    const struct peers *p = &h->peers;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                     "sessions", whole(p->n), "frames_of_no_session", whole(p->n_unknown_session),
                     "frames_malformed", whole(p->n_malformed), "hellos_refused",
                     whole(p->n_refused), "sessions_broken", whole(p->n_broken), "keys_authorized",
                     whole(p->authorized ? p->authorized->n_entries : 0), "groups_live",
                     whole(h->n_live), "requests_held", whole(h->n_held),
                     "requests_awaiting_grammar", whole(h->grammars.n_waiting),
                     "results_while_grammars_were_awaited", whole(h->grammars.n_results_meanwhile),
                     "requests_put_aside_for_grammars", whole(h->grammars.n_put_aside),
                     "requests_placed", whole(h->n_placed), "finished", whole(h->n_finished),
                     "failed", whole(h->n_failed), "cancelled", whole(h->n_cancelled));
}

json_t *admin_json_debug(const struct head_core *h)
{
    uint64_t next = h->events.next_seq;
    json_t *o = json_object();
    json_object_set_new(o, "version", json_string(COX_VERSION));
    json_object_set_new(o, "uptime_s",
                        json_real((double)(h->now_ns - h->start_ns) / (double)NS_PER_S));
    json_object_set_new(o, "tick_ms_ago", json_integer(ms_since(h, h->tick_ns)));
    json_object_set_new(o, "counts", counts(h));
    json_object_set_new(o, "sessions", sessions(h));
    json_object_set_new(o, "groups_live", engine_slots(h));
    json_object_set_new(o, "status", admin_json_status(h, false));
    json_object_set_new(o, "events",
                        admin_json_events(h, next > MAX_EVENTS ? next - MAX_EVENTS : 0));
    return o;
}
