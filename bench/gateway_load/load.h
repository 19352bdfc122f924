#pragma once
/* The inside of gateway_load, the client of bench/gateway: connections (stream.c), what the
 * head's step log says of the same tokens (trace.c), the run (main.c). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "proto/null_tokens.h"

enum { LOAD_PROMPT_IDS = 16, LOAD_READ_BYTES = 256 << 10 };

struct load_options {
    const char *host, *path, *model; /* model NULL: none in the body */
    int port;
    uint32_t n_streams, n_tokens;
    double warm_s, seconds;
    bool any;  /* the text is a model's: events are counted, not compared */
    bool hold; /* ends when every stream has a token */
    const char *step_log;
    const char *pids; /* NAME=PID,NAME=PID: whose CPU time is told */
};

/* One answer that was received to its end. */
struct load_answer {
    char *text;        /* [n_tokens] letters */
    uint64_t *time_ns; /* [n_tokens] of the read that brought them */
};

struct load_stream {
    int fd;
    bool has_head;                        /* of the answer being read */
    bool done;                            /* its [DONE] came */
    uint32_t n_text;                      /* events with text */
    uint32_t n_tokens;                    /* letters; 0 with `any` */
    uint32_t text_at;                     /* where the text was in the event before */
    uint64_t n_answers, n_answers_before; /* this connection */
    struct null_hash expected;
    char *rest; /* read, not yet a whole chunk */
    size_t n_rest;
    struct load_answer answer; /* with a step log */
};

struct load {
    struct load_options o;
    struct load_stream *streams; /* [o.n_streams] */
    int epoll;
    uint64_t now_ns; /* of the read */
    uint64_t n_events, n_tokens, n_ended_events /* of answers that ended */, n_bytes, n_reads,
        n_answers;
    uint32_t n_begun; /* streams with a token */
    bool recording;
    struct load_answer *answers; /* [n_recorded] begun and ended while recording */
    uint32_t n_recorded, cap_recorded;
    char *buffer; /* [2 * LOAD_READ_BYTES] */
};
