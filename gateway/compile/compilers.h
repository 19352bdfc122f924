#pragma once
/* Compiling of what clients write, in processes of its own (child.h): grammars, and the
 * chat templates that requests bring. Whatever a source costs, it costs a process with limits of
 * memory and of processor time, which is ended when it goes beyond them.
 *
 * compilers_run blocks and may be called by several threads, each of which has one process at a
 * time; never by the loop. The parent of compiles is started by compilers_start or the first job,
 * and anew when it has died. It holds tokenizer and vocabulary: the caller needs no vocabulary of
 * its own. */
#include <stdatomic.h>

#include "common/base/metrics.h"
#include "gateway/compile/wire.h"

enum compile_outcome {
    COMPILE_DONE,        /* status and text say what came of it */
    COMPILE_OVER_MEMORY, /* its process was ended by a limit; the verdict is unknown */
    COMPILE_OVER_TIME,
    COMPILE_CRASHED,     /* a fault of the compiler's that the source has met */
    COMPILE_LOST,        /* its process, and that of a second try, ended for another reason */
    COMPILE_UNAVAILABLE, /* no process could be started */
    COMPILE_CANCELLED,   /* nobody waits for it any more */
    COMPILE_OUTCOME_COUNT
};

struct compile_result {
    enum compile_outcome outcome;
    int status;         /* enum text_status */
    bool unread;        /* the template could not be read, and so was not rendered */
    struct strbuf text; /* the verdict's words, or the rendered text; the caller's to free */
};

/* The client that wants a job done. */
struct compile_client {
    uint64_t tenant;            /* whose processor time it is (debts.h) */
    const atomic_bool *dropped; /* becomes true when nobody waits for it any more; NULL: somebody
                                 * always does */
};

struct compiler_options {
    const char *tokenizer_path, *cache_dir; /* copied; cache_dir NULL: none */
    const char *program;     /* NULL: this one; a test's may be another, which is started alike */
    uint32_t memory_mib;     /* what one process may have beyond what it begins with */
    uint32_t cpu_s;          /* processor time of one process */
    uint32_t wall_s;         /* from a job's beginning to its verdict */
    struct metrics *metrics; /* borrowed; NULL: nothing is counted */
};

struct compilers;
/* Never fails: without a process each job says COMPILE_UNAVAILABLE, and tries to start one. */
struct compilers *compilers_new(const struct compiler_options *o);
void compilers_start(struct compilers *c); /* so that the first job finds it; NULL is fine */
/* Jobs that run end as COMPILE_CANCELLED within 0.1 s, later ones at once. Any thread. */
void compilers_stop(struct compilers *c);
void compilers_free(struct compilers *c); /* no job runs any more; NULL is fine */
void compilers_run(struct compilers *c, const struct compile_frame *job,
                   const struct compile_client *client, struct compile_result *out);
/* The source itself has met a limit: compiled again it would meet it again. */
bool compile_met_limit(enum compile_outcome o);
/* In words for a client, why there is no verdict: "it was ended at its limit of memory". */
const char *compile_outcome_words(enum compile_outcome o);
