#pragma once
/* Records a step log: all inputs of a scheduler, and every plan that it made, so that `cox
 * replay FILE` can run it again and compare. One log covers the schedulers of all replicas. The
 * arguments of a call are written before the call, so that a call in which the process dies is
 * reproduced too. Bytes go to a sink once per turn. Without a log (NULL) every function returns
 * at once.
 *
 *   step_log_replica   a new scheduler's first scheduler_reset
 *   step_log_add     before scheduler_add; step_log_refused when it did not take the request
 *   step_log_remove  scheduler_remove
 *   step_log_step    before scheduler_step; step_log_plan with the plan that it returned, or NULL
 *   step_log_result  before scheduler_on_result; step_log_done with its outcome
 *   step_log_ended   each request that scheduler_pop_ended returned
 *   step_log_down    scheduler_free
 *   step_log_hold, _import, _imported, _let_go, _leave: before the calls of a move
 *
 * The file's format is in format.h. The log has prompts as token ids, so it contains user
 * content. */
#include "head/scheduler/scheduler.h"

struct step_log;

/* Receives the log's bytes. An error of `write` ends the log, and `err` has the reason.
 * `restart` is called when no replica is up. The sink may then begin a new file; `restart`
 * returns true when it did. */
struct step_log_sink {
    void *ctx;
    enum status (*write)(void *ctx, struct str bytes, struct error *err);
    bool (*restart)(void *ctx);
};

struct step_log *step_log_new(const struct step_log_sink *sink, uint64_t wall_offset_ns);
void step_log_free(struct step_log *l);

/* Logs a replica. `i_replica` is the index of the replica's scheduler. `id` and `term_epoch` are
 * shown to operators. */
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

/* Passes the logged bytes to the sink. Returns false once when the log has ended; `err` has the
 * reason. */
bool step_log_flush(struct step_log *l, struct error *err);
/* Returns the bytes that the sink has not received yet, sealed as the end of the log, for a
 * process that is about to die. The function is async-signal-safe: it only reads and writes
 * memory. */
struct str step_log_last_words(struct step_log *l);
