/* Moves requests between their places. A request is in one of three places. It is held here (no
 * replica can take it yet), in the scheduler of engine slot i_replica, or ended and waiting in
 * its gateway's outbox. routing/admission.c places held requests; all other moves between places
 * are in this file. */
#include "head/state/requests.h"

#include <stdio.h>

#include "head/record/step_log.h"
#include "head/request/request.h"
#include "head/state/outbox.h"

/* ---- memory of requests ---- */

/* Returns the bytes that are charged for a request until it has ended. Its answer is not
 * included. */
static uint64_t bytes_of(const struct request *r)
{
    return request_held_bytes(r) + SCHEDULER_SEQ_BYTES;
}

enum status requests_has_room(const struct head_core *h, const struct request *r, struct error *err)
{
    const uint64_t n = bytes_of(r);
    if (room_is_wide(&h->room, n) || room_has(&h->room, r->tenant, n))
        return STATUS_OK;
    if (n > h->room.total / 2)
        return error_set(
            err, STATUS_INVALID,
            "the prompt of %u tokens and its parameters need %llu bytes in the head, more than one "
            "tenant may have: half of --max-request-bytes. Shorten the prompt",
            r->n_prompt, (unsigned long long)n);
    return error_set(err, STATUS_LIMIT,
                     "the cluster is overloaded: the prompts of open requests leave no memory for "
                     "another one of %u tokens. Try again later",
                     r->n_prompt);
}

void requests_take_room(struct head_core *h, struct request *r)
{
    room_set(&h->room, &r->charge, r->tenant, bytes_of(r));
}

static void leave_room(struct head_core *h, struct request *r)
{
    room_set(&h->room, &r->charge, r->tenant, 0);
}

void requests_leave_all(struct head_core *h)
{
    for (struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r))
        leave_room(h, r);
    room_fini(&h->room);
}

/* ---- held requests ---- */

void requests_hold(struct head_core *h, struct request *r)
{
    r->i_replica = NO_REPLICA;
    r->salt = r->own_salt; /* from here the request may be placed in any replica, without blocks */
    r->grammar_id = 0;
    r->next = NULL;
    r->prev = h->held_last;
    if (h->held_last)
        h->held_last->next = r;
    else
        h->held_first = r;
    h->held_last = r;
    h->n_held++;
    h->n_waiting++;
}

void requests_unhold(struct head_core *h, struct request *r)
{
    *(r->prev ? &r->prev->next : &h->held_first) = r->next;
    *(r->next ? &r->next->prev : &h->held_last) = r->prev;
    r->next = r->prev = NULL;
    h->n_held--;
    h->grammars.n_waiting -= r->awaits_grammar;
    r->awaits_grammar = false;
}

/* ---- ends ---- */

static bool is_live(const struct request *r)
{
    return r->state == REQUEST_QUEUED || r->state == REQUEST_RUNNING ||
           r->state == REQUEST_PREEMPTED;
}

/* Removes a request from its scheduler or the held list. An ended request is in neither of them,
 * except while scheduler_pop_ended has not returned it yet. */
static void withdraw(struct head_core *h, struct request *r)
{
    if (r->sched) {
        step_log_remove(h->config.step_log, r->i_replica, r);
        scheduler_remove(h->engine_slots[r->i_replica].scheduler, r);
        h->engine_slots[r->i_replica].due = true;
    } else if (is_live(r) && r->i_replica == NO_REPLICA) {
        requests_unhold(h, r);
    }
    r->i_replica = NO_REPLICA;
}

void requests_leave_replica(struct request *r)
{
    r->i_replica = NO_REPLICA;
}

void requests_send_away(struct head_core *h, struct request *r)
{
    withdraw(h, r);
    requests_hold(h, r);
}

void requests_drop(struct head_core *h, struct request *r)
{
    withdraw(h, r);
    if (is_live(r))
        h->n_cancelled++;
    outbox_remove(h, r);
    ended_requests_add(&h->ended, r, h->now_ns);
    h->gateways[r->i_gateway]->n_open--;
    usage_close(&h->usage, &r->usage);
    request_table_remove(h->requests, r);
    leave_room(h, r);
    request_free(r);
}

void requests_end(struct head_core *h, struct request *r, enum finish_reason why,
                  enum status status, const char *text)
{
    withdraw(h, r);
    bool is_end = why == FINISH_STOP || why == FINISH_LENGTH;
    request_enter(r, is_end ? REQUEST_FINISHED : REQUEST_FAILED);
    *(is_end ? &h->n_finished : &h->n_failed) += 1;
    r->finish = why;
    r->status = status;
    snprintf(r->text, sizeof r->text, "%s", text);
    r->text[str_utf8_valid(str_from(r->text))] = '\0'; /* the text is cut at a UTF-8 boundary */
    outbox_add(h, r);
}
