#pragma once
/* The preparing of a request: `prepare_model` has the settings of this server that it needs,
 * `prepared` is the result. prepare.h makes the second from the first and a body. */
#include "gateway/answer/answer_parser.h"
#include "gateway/compile/grammar_check.h"
#include "gateway/generation/prompt.h"
#include "gateway/params/params.h"
#include "text/text.h"

struct prepare_model { /* settings of this server; borrowed, read-only */
    const struct text_tokenizer *tokenizer;
    const struct text_template *chat_template; /* template of the model; NULL = none */
    uint32_t max_model_len;
    uint32_t max_choices;                  /* most prompts × n of one request */
    struct grammar_check *grammars;        /* cache of verdicts; NULL = grammars are not checked */
    const struct answer_parser *reasoning; /* parser of reasoning; NULL = no reasoning in answers */
    int64_t now_unix;
    enum pooling_kind pooling; /* how the model computes a prompt's vector; NONE = not supported */
    bool chunks;               /* cut texts longer than the context and join their vectors */
    uint32_t max_embed_len;    /* ids of one text to embed; 0 = the context, or any with `chunks` */
    uint32_t n_dimensions;     /* elements of such a vector; 0 = unknown */
    struct params_policy policy;
    enum prepare_place place;
    struct compilers *compilers; /* NULL = a request's own template is rendered on this thread */
    uint64_t tenant;             /* tenant of the request */
    const atomic_bool *dropped;  /* becomes true when nobody waits any more; NULL = never */
};

/* Fuel of one rendering on the loop (text_template_render), at most about 2 ms of processor
 * time. A usual chat of 4 KiB takes a twentieth of it. */
enum { PREPARE_LOOP_FUEL = 50000 };

struct dialect;
struct prepared {
    struct params params;
    struct prompt_list prompts;
    uint32_t max_tokens_room; /* tokens that the context leaves after the longest prompt */
    /* dialect of the answer when the body decides it; NULL = the reader's */
    const struct dialect *dialect;
    /* http_status 0 = no error; PREPARE_WANTS_… = prepare again in another place. */
    struct api_error error;
};

void prepared_fini(struct prepared *p);
