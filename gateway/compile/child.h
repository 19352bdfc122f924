#pragma once
/* Runs the process that compiles sources written by clients
 * (docs/develop/decisions/0028-compiling-elsewhere.md):
 *   cox-gateway ──control──▶ the parent of compiles ──fork──▶ one process per compile
 *      └────────────────────── a socket of its own ──────────────────┘
 * The parent of compiles keeps tokenizer and vocabulary open and reads no byte of a client. It
 * forks a process for each job. That process starts with clean memory, has limits and a single
 * descriptor, and ends with its verdict. */
#include <stdint.h>

#include "gateway/compile/wire.h"

/* `COMPILE_CHILD_COMMAND` is the first argument that makes a cox-gateway the parent of compiles.
 * The other arguments are numbers and paths from the gateway (compilers.c). */
#define COMPILE_CHILD_COMMAND "compile-processes"

/* `COMPILE_EXIT_LIMIT` is the exit code of a process whose job exceeded the limit of counted
 * work. The code is a verdict on the source, not a failure. The parent of compiles reports it to
 * the gateway. */
enum { COMPILE_EXIT_LIMIT = 77 };

enum compile_order_what {
    /* fork a process that reads its job from the socket sent with this order */
    COMPILE_ORDER_RUN = 1,
    COMPILE_ORDER_KILL, /* kill the process with the `id` of this order */
};

struct compile_order { /* one order, sent as one packet on the control socket */
    uint32_t what;
    uint32_t wants_vocabulary; /* in a RUN order: the job is a grammar */
    uint32_t is_heavy;         /* in a RUN order: the job runs at the lowest priority (debts.h) */
    uint32_t reserved;
    uint64_t id;
};

/* Runs the parent of compiles as a main function. `argv` is made by compilers.c. Returns 0 when
 * the gateway has closed the control socket. */
int compile_child_main(int argc, char **argv);

/* Runs one job in this process. `verdict` borrows its text from `out`. `v` may be NULL for a
 * template. */
void compile_run(const struct text_vocabulary *v, const struct compile_frame *job,
                 struct strbuf *out, struct compile_frame *verdict);
