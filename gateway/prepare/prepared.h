#pragma once
/* A request that is being prepared: `prepare_model` is what its preparing reads of this server,
 * `prepared` is the result. prepare.h makes the second from the first and a body. */
#include "gateway/answer/answer_parser.h"
#include "gateway/compile/grammar_check.h"
#include "gateway/generation/prompt.h"
#include "gateway/params/params.h"
#include "text/text.h"

struct prepare_model { /* borrowed, read-only */
    const struct text_tokenizer *tokenizer;
    const struct text_template *chat_template; /* NULL: none */
    uint32_t max_model_len;
    uint32_t max_choices;                  /* prompts × n of one request */
    struct grammar_check *grammars;        /* NULL: grammars are not looked into */
    const struct answer_parser *reasoning; /* NULL: answers have none */
    int64_t now_unix;
    enum pooling_kind pooling; /* how the model makes a vector of a prompt; NONE: not here */
    bool chunks;               /* texts longer than the context are cut, and their vectors joined */
    uint32_t max_embed_len;    /* ids of one text to embed; 0: the context's, with chunks any */
    uint32_t n_dimensions;     /* of such a vector; 0: unknown */
    struct params_policy policy;
    enum prepare_place place;
    struct compilers *compilers; /* NULL: a request's own template is rendered in this thread */
    uint64_t tenant;             /* who asks */
    const atomic_bool *dropped;  /* becomes true when nobody waits any more; NULL: somebody does */
};

/* Fuel of one rendering on the loop (text_template_render), some 2 ms of a processor at most; a
 * usual chat of 4 KiB takes a twentieth. */
enum { PREPARE_LOOP_FUEL = 50000 };

struct dialect;
struct prepared {
    struct params params;
    struct prompt_list prompts;
    uint32_t max_tokens_room;      /* what the context leaves for the longest prompt */
    const struct dialect *dialect; /* who answers, where the body says it; NULL: who has read it */
    /* http_status 0: fine; PREPARE_WANTS_…: to be prepared again, at another place. */
    struct api_error error;
};

void prepared_fini(struct prepared *p);
