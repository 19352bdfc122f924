#pragma once
/* Declares the internals of gateway_load, the client of bench/gateway: connections (stream.c),
 * the head's step log of the same tokens (trace.c), and the run (main.c). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "proto/null_tokens.h"

enum { LOAD_PROMPT_IDS = 16, LOAD_READ_BYTES = 256 << 10 };

struct load_options {
    const char *host, *path, *model; /* model: NULL = the request's body names no model */
    int port;
    uint32_t n_streams, n_tokens;
    double warm_s, seconds;
    bool any;  /* the text is that of a real model: events are counted, not compared */
    bool hold; /* hold: the run ends when every stream has a token */
    const char *step_log;
    const char *pids; /* NAME=PID,NAME=PID: processes whose CPU time is printed */
};

/* `load_answer` keeps one answer that was received to its end. */
struct load_answer {
    char *text;        /* [n_tokens] letters */
    uint64_t *time_ns; /* [n_tokens] times of the reads in which the tokens arrived */
};

struct load_stream {
    int fd;
    bool has_head;     /* the answer's HTTP headers were read */
    bool done;         /* the answer's [DONE] was read */
    uint32_t n_text;   /* events with text */
    uint32_t n_tokens; /* letters received; 0 with `any` */
    uint32_t text_at;  /* offset of the text in the previous event */
    /* n_answers: all answers so far; n_answers_before: their count when this connection was opened
     */
    uint64_t n_answers, n_answers_before;
    struct null_hash expected;
    char *rest; /* bytes that were read and are not a complete chunk yet */
    size_t n_rest;
    struct load_answer answer; /* the current answer; filled only with a step log */
};

struct load {
    struct load_options o;
    struct load_stream *streams; /* all streams, [o.n_streams] */
    int epoll;
    uint64_t now_ns; /* time of the last read */
    uint64_t n_events, n_tokens, n_ended_events /* events of answers that ended */, n_bytes,
        n_reads, n_answers;
    uint32_t n_begun; /* streams that have a token */
    bool recording;
    struct load_answer *answers; /* [n_recorded] answers that began and ended while recording */
    uint32_t n_recorded, cap_recorded;
    char *buffer; /* read buffer, [2 * LOAD_READ_BYTES] */
};
