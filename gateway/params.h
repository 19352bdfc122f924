#pragma once
/* The JSON body of /v1/completions and /v1/chat/completions as checked values. One table (params.c)
 * has a row per field: name, type, range, which of the two it applies to. A wrong type or range is
 * a 400 that names the field; null is the same as absent; a field that changes the answer and is
 * not supported is refused by name; an unknown one is ignored with a debug line, as vLLM does.
 * Pure, no I/O; any thread, one thread per value. */
#include <jansson.h>

#include "common/base/arena.h"
#include "gateway/api_error.h"
#include "gateway/stop_strings.h"
#include "proto/messages.h"

enum api_kind { API_COMPLETIONS = 1, API_CHAT = 2 };

#define PARAMS_MAX_CHOICES    128u /* n */
#define PARAMS_MAX_LOGPROBS   20u
#define PARAMS_MAX_STOP_IDS   1024u
#define PARAMS_MAX_LOGIT_BIAS 4096u
#define PARAMS_MAX_DEPTH      64u        /* nesting of the body */
#define PARAMS_MAX_VALUES     (1u << 20) /* commas and colons in the body: bounds its JSON tree */

struct params {
    enum api_kind kind;
    json_t *body;       /* owned; every str and json_t below is borrowed from it */
    struct arena arena; /* arrays of sampling */
    struct str model;   /* empty: the first served one */
    struct sampling_params
        sampling; /* without eos_ids, i_prompt, i_choice, lora; the seed is set */
    uint32_t n;
    uint32_t best_of;           /* 0: not given */
    uint32_t n_generated;       /* sequences per prompt, of which n are answered: best_of, or n */
    uint32_t max_tokens;        /* 0: not given */
    bool max_tokens_is_default; /* ours, so it bends to the room there is */
    int64_t seed;               /* -1: not given */
    bool stream, include_usage, continuous_usage_stats;
    bool echo, ignore_eos, skip_special_tokens, include_stop_str_in_output;
    bool add_special_tokens, add_generation_prompt, continue_final_message, return_token_ids;
    bool want_logprobs; /* chat: logprobs: true */
    int64_t logprobs;   /* completions' logprobs, chat's top_logprobs; -1: not given */
    int64_t top_k, min_tokens, priority;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    struct str stops[STOP_MAX_STRINGS];
    uint32_t n_stops;
    double timeout_s; /* 0: not given */
    struct str cache_salt;
    json_t *prompt, *messages, *template_kwargs; /* NULL: not given */
};

/* Scans the text for its depth and number of values before a tree is built, then parses. body is
 * not kept. NULL with e filled: not JSON, not UTF-8, not an object, too deep, or too large. */
json_t *params_parse_json(struct str body, struct api_error *e);
/* owned_body moves into out, also on failure. vocab_size bounds token ids (0: unknown). False: e
 * says why, and params_fini is still due. */
bool params_init(struct params *out, enum api_kind kind, json_t *owned_body, uint32_t vocab_size,
                 struct api_error *e);
void params_fini(struct params *p);
/* A JSON string's bytes, borrowed. */
struct str params_json_str(const json_t *string);
