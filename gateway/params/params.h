#pragma once
/* `params` holds a JSON body as checked values. One table (fields/table.h) has a row per field:
 * name, type, range, dialects, and how the field is used. A wrong type or range gets a 400 that
 * names the field. null has the same effect as an absent field. An unsupported field that
 * changes the answer is refused by name. The policy decides about unknown fields. The functions
 * are pure and do no I/O. Any thread may use a value, but only one thread at a time. */
#include <jansson.h>

#include "common/base/arena.h"
#include "common/json/bounded.h"
#include "common/model/info/sampling_defaults.h"
#include "gateway/base/api_error.h"
#include "gateway/generation/stop_strings.h"
#include "proto/messages.h"

/* `api_kind` is a dialect's bit in the table of fields. */
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
/* `TOOL_CHOICE_REQUIRED` means that the answer must call `tool_name`, or any tool when that name
 * is empty. A grammar makes the answer a list of calls. */
enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED };

enum unknown_fields { UNKNOWN_REFUSE, UNKNOWN_WARN, UNKNOWN_IGNORE };

struct params_policy {        /* limits and defaults of this server for requests */
    uint32_t vocab_size;      /* upper bound of token ids; 0 = unknown */
    uint32_t max_logprobs;    /* largest top_logprobs, <= PARAMS_MAX_LOGPROBS */
    bool auto_tools;          /* tool_choice auto is enabled and has a parser */
    bool trust_chat_template; /* accept chat_template in a request */
    bool compact_json;        /* JSON by a schema has no white space between tokens */
    enum unknown_fields unknown;
    const struct sampling_defaults *defaults; /* defaults of sampling, borrowed; NULL = OpenAI's */
};

#define PARAMS_MAX_CHOICES  128u /* limit of `n` */
#define PARAMS_MAX_LOGPROBS 64u  /* largest value of top_logprobs */
/* limit of prompt ids × log-probabilities in a request */
#define PARAMS_MAX_PROMPT_LOGPROBS (1u << 19)
/* limit of prompt ids × log-probabilities in a stream, which writes them at once */
#define PARAMS_MAX_STREAMED   (1u << 14)
#define PARAMS_MAX_STOP_IDS   1024u
#define PARAMS_MAX_LOGIT_BIAS 4096u
#define PARAMS_MAX_BAD_WORDS  128u
#define PARAMS_MAX_REQUEST_ID 64u
#define PARAMS_MAX_CACHE_SALT 128u
#define PARAMS_MAX_TIMEOUT_S  86400
#define PARAMS_NO_TRUNCATION  (-2)
#define PARAMS_MAX_DEPTH      JSON_BODY_MAX_DEPTH /* deepest nesting of the body */
/* most values in the body and in arguments within it; bounds its JSON trees */
#define PARAMS_MAX_VALUES JSON_BODY_MAX_VALUES

struct params {
    enum api_kind kind;
    /* body of the request, owned; each str and json_t below is borrowed from `body` or `own` */
    json_t *body;
    json_t *own; /* values derived from the body that outlive it (tools/set.h); NULL = none */
    uint64_t tree_bytes; /* bytes of `body` and `own`, set by `params_settle` */
    struct arena arena;  /* memory of the arrays in `sampling` */
    struct str model;    /* name of the model; empty = the first served model */
    struct sampling_params
        sampling; /* all but eos_ids, i_prompt, i_choice, lora; the seed is always set */
    uint32_t n;
    uint32_t best_of;     /* value of best_of; 0 = not given */
    uint32_t n_generated; /* sequences per prompt: best_of or n; the best n are answered */
    uint32_t max_tokens;  /* most tokens of the answer; 0 = not given */
    /* the server set max_tokens, so it may be lowered to fit the context */
    bool max_tokens_is_default;
    int64_t seed; /* seed of the request; -1 = not given */
    bool stream, include_usage, continuous_usage_stats;
    bool echo, ignore_eos, skip_special_tokens, include_stop_str_in_output;
    bool add_special_tokens, add_generation_prompt, continue_final_message, return_token_ids;
    bool return_token_strs;
    bool want_logprobs;      /* true when chat's field logprobs is true */
    int64_t logprobs;        /* logprobs of completions or top_logprobs of chat; -1 = not given */
    int64_t prompt_logprobs; /* number of prompt_logprobs; -1 = not given */
    bool prompt_only; /* max_tokens is 0: the answer has the prompt and no token is generated */
    int64_t top_k, min_tokens, priority;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    struct str stops[STOP_MAX_STRINGS];
    uint32_t n_stops;
    double timeout_s; /* seconds for the whole request; 0 = not given */
    struct str cache_salt;
    /* values of these fields; NULL = not given */
    json_t *prompt, *messages, *template_kwargs, *tools, *documents;
    json_t *system; /* `system` of messages (a text or blocks), or instructions of responses */
    struct str reasoning_effort; /* effort of reasoning; empty = not given */
    enum tool_choice tool_choice;
    struct str tool_name;
    bool any_role; /* pass messages with unknown roles to the template (--unknown-fields) */
    /* the answer is the input of the custom tool `tool_name`, in the form of the tool's grammar */
    bool answer_is_input;
    bool parallel_tool_calls, include_reasoning, return_tokens_as_token_ids, return_prompt_text;
    uint32_t stream_interval; /* fewest tokens of a chunk, except the first and the last */
    /* prompt tokens to keep; -1 = as many as fit; PARAMS_NO_TRUNCATION = all */
    int64_t truncate_prompt_tokens;
    bool truncate_right;                  /* keep the beginning of the prompt, not its end */
    struct str request_id, chat_template; /* texts of these fields; empty = not given */
    json_t *bad_words; /* checked list of words, which prepare.c turns into ids */
    /* name of the field with the grammar, on the arena; NULL = no grammar */
    const char *grammar_field;
    uint32_t n_ignored;  /* number of unknown fields and members that were ignored */
    uint32_t dimensions; /* elements of an embedding; 0 = all */
    struct str asked;    /* members that an answer of responses repeats, each as `,"NAME":VALUE` */
    bool embed_base64, use_activation;
    struct djl_params { /* additional fields of DJL (djl.c) */
        bool is_async, is_tgi, sse, details, input_details, return_full_text;
    } djl;
};

/* Parses a body. Checks depth and number of values of the text before it builds a tree. `body`
 * is not kept. Returns NULL with an error in `e` when the body is not JSON, not UTF-8, not an
 * object, too deep or too large. */
json_t *params_parse_json(struct str body, struct api_error *e);
void params_fini(struct params *p);
/* Frees the values that are not needed after preparing: all of the body except a few short
 * texts. The tree takes up to a hundred times the memory of the body's text, and an answer may
 * take an hour. Prompt, messages, template arguments and bad_words are NULL afterwards. Tools
 * are kept for the parsers of answers. */
void params_settle(struct params *p);
/* Returns the text of a JSON string, borrowed. */
struct str params_json_str(const json_t *string);
