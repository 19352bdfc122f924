#pragma once
/* `prepare_model` has the settings of this server for preparing a request, and `prepared` is the
 * result. prepare.h makes a `prepared` from a `prepare_model` and a body. */
#include "gateway/answer/answer_parser.h"
#include "gateway/compile/grammar_check.h"
#include "gateway/generation/prompt.h"
#include "gateway/params/params.h"
#include "text/text.h"

struct prepare_model { /* settings of this server; borrowed, read-only */
    const struct text_tokenizer *tokenizer;
    const struct text_template *chat_template; /* template of the model; NULL = none */
    uint32_t max_model_len;
    uint32_t max_choices; /* most choices (prompts × n) of one request */
    /* cache of verdicts on grammars; NULL = grammars are not checked */
    struct grammar_check *grammars;
    const struct answer_parser *reasoning; /* parser of reasoning; NULL = no reasoning in answers */
    int64_t now_unix;
    enum pooling_kind pooling; /* how the model computes a prompt's vector; NONE = not supported */
    bool chunks;               /* true = cut texts longer than the context and join their vectors */
    /* most ids of one text to embed; 0 = the context, or no limit with `chunks` */
    uint32_t max_embed_len;
    uint32_t n_dimensions; /* elements of a prompt's vector; 0 = unknown */
    struct params_policy policy;
    enum prepare_place place;
    /* compile processes; NULL = this thread renders a request's own template */
    struct compilers *compilers;
    uint64_t tenant; /* tenant of the request */
    /* becomes true when the request has ended; NULL = never */
    const atomic_bool *dropped;
};

/* `PREPARE_LOOP_FUEL` limits one rendering on the loop (text_template_render) to about 2 ms of
 * processor time. A usual chat of 4 KiB takes a twentieth of this fuel. */
enum { PREPARE_LOOP_FUEL = 50000 };

struct dialect;
struct prepared {
    struct params params;
    struct prompt_list prompts;
    uint32_t max_tokens_room; /* tokens that are left in the context after the longest prompt */
    /* dialect of the answer when the body decides it; NULL = the dialect that read the body */
    const struct dialect *dialect;
    /* The error of preparing. http_status 0 = no error; PREPARE_WANTS_… = prepare again in
     * another place. */
    struct api_error error;
};

void prepared_fini(struct prepared *p);
