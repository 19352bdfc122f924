#pragma once
/* Reads a step log, event by event. The file is not trusted: every number is checked before use,
 * so that events are safe inputs for a scheduler. */
#include "head/record/format.h"
#include "head/request/request.h"
#include "head/scheduler/scheduler.h"

struct step_log_event {
    enum step_log_kind kind;
    uint32_t i_replica;
    uint64_t now_ns;    /* time of the event, for kinds with a time */
    struct str version; /* START: the writer's version */
    uint64_t wall_offset_ns;
    uint64_t id, term_epoch; /* REPLICA: the replica's id, its epoch and the configuration below */
    struct scheduler_config config;
    /* ADD, IMPORT: the request, without scheduler, arena or memory for more ids */
    struct request request;
    uint64_t n_idle;      /* IDLE: steps without a plan */
    uint64_t arrival_seq; /* REMOVE, ENDED, HOLD, LEAVE: the request's arrival number */
    /* HOLD, IMPORT: number of tokens to move; both kinds, IMPORTED and LET_GO also set `id` */
    uint32_t n_tokens;
    enum finish_reason finish;
    struct str plan; /* PLAN: bytes of step_log_put_plan */
    struct msg_result result;
    enum status status; /* REFUSED, DONE: outcome of the call */
    uint32_t n_events, n_ended;
};

struct step_log_reader;

/* Opens a file, which must not be truncated while it is read. A file that still grows is read up
 * to the length that it has now. */
MUST_USE enum status step_log_open(const char *path, struct step_log_reader **out,
                                   struct error *err);
/* Reads the log from `bytes`, which must live as long as the reader. */
MUST_USE enum status step_log_open_bytes(struct str bytes, struct step_log_reader **out,
                                         struct error *err);
void step_log_close(struct step_log_reader *r);
/* Reads the next event. Its data is valid until the next call. Returns STATUS_CLOSED when the
 * log has ended, and STATUS_INVALID when the file is damaged here. */
MUST_USE enum status step_log_next(struct step_log_reader *r, struct step_log_event *e,
                                   struct error *err);
/* Returns the number of bytes in a last chunk that was not completely written; 0 = the log is
 * complete. Call it after STATUS_CLOSED. */
size_t step_log_n_cut(const struct step_log_reader *r);

/* Decodes a logged plan. For the ids of its admissions the log has only their number. Returns
 * STATUS_INVALID when the bytes are not a plan. */
MUST_USE enum status step_log_get_plan(struct str bytes, struct arena *arena, struct msg_plan *out,
                                       struct error *err);
