#pragma once
/* The step log: everything a scheduler was told, and every plan that it made of that, so that
 * `cox replay FILE` can run it again and compare. One log holds the schedulers of all replicas.
 * What a call is given is written before the call, so that a scheduler that dies in it is
 * reproduced too. Pure: bytes go to a sink once per turn; without a log (NULL) every function
 * returns at once.
 *
 *   step_log_replica   a new scheduler's first scheduler_reset
 *   step_log_add     scheduler_add, before it; step_log_refused when it did not take the request
 *   step_log_remove  scheduler_remove
 *   step_log_step    scheduler_step, before it; step_log_plan what it returned, NULL too
 *   step_log_result  scheduler_on_result, before it; step_log_done what came of it
 *   step_log_ended   what scheduler_pop_ended gave
 *   step_log_down    scheduler_free
 *   step_log_hold, _import, _imported, _let_go, _leave: the same of a move, before it
 *
 * The file's format is in format.h. Prompts are in it as token ids: it is user content. */
#include "head/scheduler/scheduler.h"

struct step_log;

/* The sink of the bytes. write: anything but STATUS_OK ends the log, err says why. restart: no
 * replica is up, so the log may begin anew in a new file if the sink thinks it is time; true when
 * it did.
 */
struct step_log_sink {
    void *ctx;
    enum status (*write)(void *ctx, struct str bytes, struct error *err);
    bool (*restart)(void *ctx);
};

struct step_log *step_log_new(const struct step_log_sink *sink, uint64_t wall_offset_ns);
void step_log_free(struct step_log *l);

/* i_replica: which of the schedulers that live; id and term_epoch are for people. */
void step_log_replica(struct step_log *l, uint32_t i_replica, uint64_t id, uint64_t term_epoch,
                      const struct scheduler_config *c);
void step_log_add(struct step_log *l, uint32_t i_replica, const struct request *r, uint64_t now_ns);
void step_log_refused(struct step_log *l, uint32_t i_replica, enum status status);
void step_log_remove(struct step_log *l, uint32_t i_replica, const struct request *r);
void step_log_step(struct step_log *l, uint32_t i_replica, uint64_t now_ns);
void step_log_plan(struct step_log *l, uint32_t i_replica, const struct msg_plan *plan);
void step_log_result(struct step_log *l, uint32_t i_replica, const struct msg_result *m,
                     uint64_t now_ns);
void step_log_done(struct step_log *l, uint32_t i_replica, enum status status,
                   const struct scheduler_event *events, uint32_t n_events);
void step_log_ended(struct step_log *l, uint32_t i_replica, const struct request *r);
void step_log_down(struct step_log *l, uint32_t i_replica);
void step_log_hold(struct step_log *l, uint32_t i_replica, const struct request *r,
                   uint32_t n_tokens, uint64_t id);
void step_log_import(struct step_log *l, uint32_t i_replica, const struct request *r,
                     uint32_t n_tokens, uint64_t id);
void step_log_imported(struct step_log *l, uint32_t i_replica, uint64_t id);
void step_log_let_go(struct step_log *l, uint32_t i_replica, uint64_t id);
void step_log_leave(struct step_log *l, uint32_t i_replica, const struct request *r);

/* Hands what was logged to the sink. False, once, when the log has ended by it: err says why. */
bool step_log_flush(struct step_log *l, struct error *err);
/* The bytes that the sink has not got yet, as bytes that end the log: for a process that is about
 * to die. Only reads and writes memory, so that a signal handler may ask. */
struct str step_log_last_words(struct step_log *l);
