#pragma once
/* A JSON body as checked values. One table (fields/table.h) has a row per field: name, type,
 * range, dialects, and how it is used. A wrong type or range gets a 400 that names the field.
 * null is the same as absent. An unsupported field that changes the answer is refused by name.
 * The policy decides about unknown fields. Pure, no I/O; any thread, one thread per value. */
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
/* REQUIRED: the answer must call `tool_name`, or any tool when that is empty. A grammar makes
 * the answer a list of calls. */
enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED };

enum unknown_fields { UNKNOWN_REFUSE, UNKNOWN_WARN, UNKNOWN_IGNORE };

struct params_policy {        /* limits and defaults of this server for requests */
    uint32_t vocab_size;      /* bound of token ids; 0 = unknown */
    uint32_t max_logprobs;    /* largest top_logprobs, <= PARAMS_MAX_LOGPROBS */
    bool auto_tools;          /* tool_choice auto is enabled and has a parser */
    bool trust_chat_template; /* accept chat_template in a request */
    bool compact_json;        /* JSON by a schema has no white space between tokens */
    enum unknown_fields unknown;
    const struct sampling_defaults *defaults; /* borrowed; NULL = OpenAI's */
};

#define PARAMS_MAX_CHOICES  128u /* limit of `n` */
#define PARAMS_MAX_LOGPROBS 64u  /* largest top_logprobs */
/* limit of prompt ids × log-probabilities in a request */
#define PARAMS_MAX_PROMPT_LOGPROBS (1u << 19)
/* the same limit for a stream, which writes them at once */
#define PARAMS_MAX_STREAMED   (1u << 14)
#define PARAMS_MAX_STOP_IDS   1024u
#define PARAMS_MAX_LOGIT_BIAS 4096u
#define PARAMS_MAX_BAD_WORDS  128u
#define PARAMS_MAX_REQUEST_ID 64u
#define PARAMS_MAX_CACHE_SALT 128u
#define PARAMS_MAX_TIMEOUT_S  86400
#define PARAMS_NO_TRUNCATION  (-2)
#define PARAMS_MAX_DEPTH      JSON_BODY_MAX_DEPTH /* deepest nesting of the body */
#define PARAMS_MAX_VALUES                                                                          \
    JSON_BODY_MAX_VALUES /* in the body and in arguments within it; bounds its JSON trees */

struct params {
    enum api_kind kind;
    json_t *body;        /* owned; every str and json_t below is borrowed from `body` or `own` */
    json_t *own;         /* values made from the body that outlive it (tools/set.h); NULL = none */
    uint64_t tree_bytes; /* memory of `body` and `own`, set by `params_settle` */
    struct arena arena;  /* memory of the arrays in `sampling` */
    struct str model;    /* empty = the first served model */
    struct sampling_params
        sampling; /* without eos_ids, i_prompt, i_choice, lora; the seed is always set */
    uint32_t n;
    uint32_t best_of;           /* value of best_of; 0 = not given */
    uint32_t n_generated;       /* sequences per prompt: best_of, or n; n of them are answered */
    uint32_t max_tokens;        /* 0 = not given */
    bool max_tokens_is_default; /* set by the server, so it is lowered to fit the context */
    int64_t seed;               /* -1 = not given */
    bool stream, include_usage, continuous_usage_stats;
    bool echo, ignore_eos, skip_special_tokens, include_stop_str_in_output;
    bool add_special_tokens, add_generation_prompt, continue_final_message, return_token_ids;
    bool return_token_strs;
    bool want_logprobs;      /* chat's logprobs: true */
    int64_t logprobs;        /* logprobs of completions, top_logprobs of chat; -1 = not given */
    int64_t prompt_logprobs; /* -1 = not given */
    bool prompt_only;        /* max_tokens is 0: answer the prompt, generate nothing */
    int64_t top_k, min_tokens, priority;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    struct str stops[STOP_MAX_STRINGS];
    uint32_t n_stops;
    double timeout_s; /* limit of the whole request; 0 = not given */
    struct str cache_salt;
    json_t *prompt, *messages, *template_kwargs, *tools, *documents; /* NULL = not given */
    json_t *system;              /* messages: system, a text or blocks; responses: instructions */
    struct str reasoning_effort; /* empty = not given */
    enum tool_choice tool_choice;
    struct str tool_name;
    bool any_role; /* --unknown-fields: pass messages with unknown roles to the template */
    /* the answer is the input of the custom tool `tool_name`, by its grammar */
    bool answer_is_input;
    bool parallel_tool_calls, include_reasoning, return_tokens_as_token_ids, return_prompt_text;
    uint32_t stream_interval;       /* fewest tokens of a chunk, except the first and the last */
    int64_t truncate_prompt_tokens; /* tokens to keep; -1 = as many as fit; PARAMS_NO_TRUNCATION */
    bool truncate_right;            /* keep the beginning, not the end */
    struct str request_id, chat_template; /* empty = not given */
    json_t *bad_words;                    /* checked; prepare.c turns it into ids */
    /* on the arena; field that the grammar came from; NULL = no grammar */
    const char *grammar_field;
    uint32_t n_ignored;  /* number of unknown fields and members that were ignored */
    uint32_t dimensions; /* elements of an embedding; 0 = all */
    struct str asked;    /* for responses: members that the answer repeats, `,"NAME":VALUE` each */
    bool embed_base64, use_activation;
    struct djl_params { /* DJL's fields beyond these (djl.c) */
        bool is_async, is_tgi, sse, details, input_details, return_full_text;
    } djl;
};

/* Checks depth and number of values of the text before it builds a tree, then parses. `body` is
 * not kept. Returns NULL with an error in `e` when the body is not JSON, not UTF-8, not an
 * object, too deep or too large. */
json_t *params_parse_json(struct str body, struct api_error *e);
void params_fini(struct params *p);
/* Frees what is not needed after preparing: all of the body except a few short texts. The tree
 * takes up to a hundred times the memory of the body's text, and an answer may take an hour.
 * Prompt, messages, template arguments and bad_words are NULL afterwards. Tools stay, for the
 * parsers of answers. */
void params_settle(struct params *p);
/* Returns the bytes of a JSON string, borrowed. */
struct str params_json_str(const json_t *string);
