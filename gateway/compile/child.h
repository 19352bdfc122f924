#pragma once
/* The process that compiles what clients write
 * (docs/develop/decisions/0028-compiling-elsewhere.md):
 *
 *   cox-gateway ──control──▶ the parent of compiles ──fork──▶ one process per compile
 *        └────────────────────── a socket of its own ──────────────────┘
 *
 * The parent of compiles has tokenizer and vocabulary open, reads no client's byte, and forks a
 * process for each job, which begins with clean memory, has limits and one descriptor, and ends
 * with its verdict. */
#include <stdint.h>

#include "gateway/compile/wire.h"

/* The first argument that makes a cox-gateway the parent of compiles; the rest are numbers and
 * paths from the gateway (compilers.c). */
#define COMPILE_CHILD_COMMAND "compile-processes"

/* The exit code of a process whose job has cost more, by what is counted, than any may: a verdict,
 * not a mishap. The parent of compiles says it to the gateway. */
enum { COMPILE_EXIT_LIMIT = 77 };

enum compile_order_what {
    COMPILE_ORDER_RUN = 1, /* with a socket: fork a process that reads its job there */
    COMPILE_ORDER_KILL,    /* end that process */
};

struct compile_order { /* one packet on the control socket */
    uint32_t what;
    uint32_t wants_vocabulary; /* RUN: a grammar is to be compiled */
    uint32_t is_heavy;         /* RUN: behind everything else (debts.h) */
    uint32_t reserved;
    uint64_t id;
};

/* main of the parent of compiles: argv as compilers.c makes it. The exit code: 0 when the gateway
 * has closed the control socket. */
int compile_child_main(int argc, char **argv);

/* One job, in this process. The verdict borrows its text from out. v may be NULL for a template. */
void compile_run(const struct text_vocabulary *v, const struct compile_frame *job,
                 struct strbuf *out, struct compile_frame *verdict);
