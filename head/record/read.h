#pragma once
/* Reads a step log, event by event. The file is foreign: every number is checked before it is used,
 * so that what comes out can be given to a scheduler. */
#include "head/record/format.h"
#include "head/request/request.h"
#include "head/scheduler/scheduler.h"

struct step_log_event {
    enum step_log_kind kind;
    uint32_t i_replica;
    uint64_t now_ns;    /* of the kinds that have a time */
    struct str version; /* START */
    uint64_t wall_offset_ns;
    uint64_t id, term_epoch; /* REPLICA */
    struct scheduler_config config;
    struct request request; /* ADD, IMPORT: without a scheduler, an arena and room for more ids */
    uint64_t n_idle;        /* IDLE */
    uint64_t arrival_seq;   /* REMOVE, ENDED, HOLD, LEAVE */
    uint32_t n_tokens;      /* HOLD, IMPORT; their id, IMPORTED's and LET_GO's is id */
    enum finish_reason finish;
    struct str plan; /* PLAN: as step_log_put_plan wrote it */
    struct msg_result result;
    enum status status; /* REFUSED, DONE */
    uint32_t n_events, n_ended;
};

struct step_log_reader;

/* The file must not be cut while it is read; one that still grows is read as it was. */
MUST_USE enum status step_log_open(const char *path, struct step_log_reader **out,
                                   struct error *err);
/* bytes live as long as the reader. */
MUST_USE enum status step_log_open_bytes(struct str bytes, struct step_log_reader **out,
                                         struct error *err);
void step_log_close(struct step_log_reader *r);
/* The data that e points to lives until the next call. STATUS_CLOSED: there is no more.
 * STATUS_INVALID: the file is damaged here. */
MUST_USE enum status step_log_next(struct step_log_reader *r, struct step_log_event *e,
                                   struct error *err);
/* After STATUS_CLOSED: bytes of a chunk that was not written to its end; 0: the log is whole. */
size_t step_log_n_cut(const struct step_log_reader *r);

/* A logged plan; ids of its admissions have a length only. STATUS_INVALID: it is none. */
MUST_USE enum status step_log_get_plan(struct str bytes, struct arena *arena, struct msg_plan *out,
                                       struct error *err);
