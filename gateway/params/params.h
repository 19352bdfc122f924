#pragma once
/* A JSON body as checked values. One table (fields/table.h) has a row per field: name, type, range,
 * which dialects know it, what becomes of it. A wrong type or range is a 400 that names the field;
 * null is the same as absent; a field that changes the answer and is not supported is refused by
 * name; of unknown ones the policy says what becomes. Pure, no I/O; any thread, one thread per
 * value. */
#include <jansson.h>

#include "common/base/arena.h"
#include "common/json/bounded.h"
#include "common/model/info/sampling_defaults.h"
#include "gateway/base/api_error.h"
#include "gateway/generation/stop_strings.h"
#include "proto/messages.h"

/* A dialect's bit in the field table. */
enum api_kind {
    API_COMPLETIONS = 1,
    API_CHAT = 2,
    API_TOKENIZE = 4,
    API_DETOKENIZE = 8,
    API_MESSAGES = 16,
    API_COUNT_TOKENS = 32,
    API_EMBEDDINGS = 64,
    API_RESPONSES = 128,
};
/* REQUIRED: tool_name's, or any where that is empty. Its answer is a list of calls by a grammar. */
enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED };

enum unknown_fields { UNKNOWN_REFUSE, UNKNOWN_WARN, UNKNOWN_IGNORE };

struct params_policy {        /* what this server lets requests say */
    uint32_t vocab_size;      /* bounds token ids; 0: unknown */
    uint32_t max_logprobs;    /* <= PARAMS_MAX_LOGPROBS */
    bool auto_tools;          /* tool_choice auto: there is a parser, and it was enabled */
    bool trust_chat_template; /* chat_template of a request */
    bool compact_json;        /* JSON of a schema has no white space between tokens */
    enum unknown_fields unknown;
    const struct sampling_defaults *defaults; /* borrowed; NULL: OpenAI's */
};

#define PARAMS_MAX_CHOICES         128u       /* n */
#define PARAMS_MAX_LOGPROBS        64u        /* a rank's */
#define PARAMS_MAX_PROMPT_LOGPROBS (1u << 19) /* of a request's prompts: ids, each with so many */
#define PARAMS_MAX_STREAMED        (1u << 14) /* of these in a stream, which writes them at once */
#define PARAMS_MAX_STOP_IDS        1024u
#define PARAMS_MAX_LOGIT_BIAS      4096u
#define PARAMS_MAX_BAD_WORDS       128u
#define PARAMS_MAX_REQUEST_ID      64u
#define PARAMS_MAX_CACHE_SALT      128u
#define PARAMS_MAX_TIMEOUT_S       86400
#define PARAMS_NO_TRUNCATION       (-2)
#define PARAMS_MAX_DEPTH           JSON_BODY_MAX_DEPTH /* nesting of the body */
#define PARAMS_MAX_VALUES                                                                          \
    JSON_BODY_MAX_VALUES /* in the body and the arguments inside: bounds its JSON trees */

struct params {
    enum api_kind kind;
    json_t *body;        /* owned; every str and json_t below is borrowed from it or from own */
    json_t *own;         /* what is made of the body and outlives it (tools/set.h); NULL: nothing */
    uint64_t tree_bytes; /* that body and own take, once params_settle was called */
    struct arena arena;  /* arrays of sampling */
    struct str model;    /* empty: the first served one */
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
    bool return_token_strs;
    bool want_logprobs;      /* chat: logprobs: true */
    int64_t logprobs;        /* completions' logprobs, chat's top_logprobs; -1: not given */
    int64_t prompt_logprobs; /* -1: not given */
    bool prompt_only;        /* max_tokens 0: the prompt is answered, and nothing generated */
    int64_t top_k, min_tokens, priority;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    struct str stops[STOP_MAX_STRINGS];
    uint32_t n_stops;
    double timeout_s; /* 0: not given */
    struct str cache_salt;
    json_t *prompt, *messages, *template_kwargs, *tools, *documents; /* NULL: not given */
    json_t *system;              /* of messages: a text, or blocks; of responses: instructions */
    struct str reasoning_effort; /* empty: not given */
    enum tool_choice tool_choice;
    struct str tool_name;
    bool any_role; /* --unknown-fields: messages of roles that nobody knows are the template's */
    bool answer_is_input; /* of the custom tool tool_name, by its grammar */
    bool parallel_tool_calls, include_reasoning, return_tokens_as_token_ids, return_prompt_text;
    uint32_t stream_interval;       /* least tokens of a chunk that is not the first or the last */
    int64_t truncate_prompt_tokens; /* so many are kept; -1: what fits; PARAMS_NO_TRUNCATION */
    bool truncate_right;            /* the beginning is kept, not the end */
    struct str request_id, chat_template; /* empty: not given */
    json_t *bad_words;                    /* checked; prepare.c makes ids of it */
    const char *grammar_field; /* which gave sampling its grammar, on the arena; NULL: none did */
    uint32_t n_ignored;        /* fields that nobody knows, and members, let pass */
    uint32_t dimensions;       /* of embeddings; 0: all */
    struct str asked;          /* of responses: what their answers repeat, `,"NAME":VALUE` each */
    bool embed_base64, use_activation;
    struct djl_params { /* what DJL's schema says beside these (djl.c) */
        bool is_async, is_tgi, sse, details, input_details, return_full_text;
    } djl;
};

/* Scans the text for its depth and number of values before a tree is built, then parses. body is
 * not kept. NULL with e filled: not JSON, not UTF-8, not an object, too deep, or too large. */
json_t *params_parse_json(struct str body, struct api_error *e);
void params_fini(struct params *p);
/* When the request is prepared: lets go of what nobody reads from here on, which is all of the body
 * but a few short texts. Its tree takes up to a hundred times the bytes of the body's text, and an
 * answer may take an hour. The prompt, the messages, what goes with them into a template, and
 * bad_words are NULL afterwards; tools stay, for the parsers of answers. */
void params_settle(struct params *p);
/* A JSON string's bytes, borrowed. */
struct str params_json_str(const json_t *string);
