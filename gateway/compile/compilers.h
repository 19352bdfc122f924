#pragma once
/* Compiles sources written by clients in separate processes (child.h): grammars, and chat
 * templates of requests. An expensive source costs at most one process, which is ended at its
 * limits of memory and processor time.
 * `compilers_run` blocks. Several threads may call it, each with one process at a time. The
 * loop's thread must not. `compilers_start` or the first job starts the parent of compiles.
 * After a death of the parent the next job starts it again. The parent holds tokenizer and
 * vocabulary, so the caller needs no vocabulary. */
#include <stdatomic.h>

#include "common/base/metrics.h"
#include "gateway/compile/wire.h"

enum compile_outcome {
    COMPILE_DONE, /* `status` and `text` hold the result */
    /* the limit of memory ended the process; there is no verdict on the source */
    COMPILE_OVER_MEMORY,
    COMPILE_OVER_TIME,
    COMPILE_CRASHED,     /* the source triggered a fault of the compiler */
    COMPILE_LOST,        /* two processes in a row ended for other reasons */
    COMPILE_UNAVAILABLE, /* no process could be started */
    COMPILE_CANCELLED,   /* the job was dropped, because its result is no longer needed */
    COMPILE_OUTCOME_COUNT
};

struct compile_result {
    enum compile_outcome outcome;
    int status;         /* status of the compile, an `enum text_status` */
    bool unread;        /* true when the template had errors and was not rendered */
    struct strbuf text; /* text of the verdict or the rendered text; the caller frees it */
};

/* `compile_client` describes the client that wants a job done. */
struct compile_client {
    uint64_t tenant;            /* tenant charged for the processor time (debts.h) */
    const atomic_bool *dropped; /* becomes true when the result is no longer needed; NULL = never */
};

struct compiler_options {
    /* paths of the model, copied; `cache_dir` may be NULL */
    const char *tokenizer_path, *cache_dir;
    const char *program;     /* program to start; NULL = this program; tests may start another */
    uint32_t memory_mib;     /* most MiB of one process beyond its size at the start */
    uint32_t cpu_s;          /* most seconds of processor time of one process */
    uint32_t wall_s;         /* most seconds from the start of a job to its verdict */
    struct metrics *metrics; /* metrics of the gateway, borrowed; NULL = no metrics */
};

struct compilers;
/* Creates the compilers and never fails. When no process can be started, each job tries again
 * and ends with COMPILE_UNAVAILABLE. */
struct compilers *compilers_new(const struct compiler_options *o);
/* starts the parent before the first job; `c` may be NULL */
void compilers_start(struct compilers *c);
/* Makes running jobs end with COMPILE_CANCELLED within 0.1 s, and later jobs at once. Any thread
 * may call it. */
void compilers_stop(struct compilers *c);
/* frees the compilers, when no job runs; `c` may be NULL */
void compilers_free(struct compilers *c);
void compilers_run(struct compilers *c, const struct compile_frame *job,
                   const struct compile_client *client, struct compile_result *out);
/* Returns true when the source itself reached a limit, so that another try would reach the limit
 * again. */
bool compile_met_limit(enum compile_outcome o);
/* Returns a text that tells a client why there is no verdict, such as "its process was ended at
 * its limit of memory". */
const char *compile_outcome_words(enum compile_outcome o);
