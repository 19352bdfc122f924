#pragma once
/* What a choice says, in parts: between the text of a generation and the dialect that writes it.
 *
 *   text ──▶ reasoning parser ──▶ tool parser ──▶ parts
 *                └─▶ REASONING        └─▶ CONTENT, CALL, ARGUMENTS
 *
 * Without a parser the text is one CONTENT part, a view of what came, and costs nothing per token.
 * With one, what may still become a marker is held back; the parts do not depend on how the text
 * was cut. Plain data in the request; loop thread only. */
#include <jansson.h>

#include "gateway/answer/answer_parser.h"
#include "gateway/answer/reasoning_count.h"
#include "gateway/generation/generation.h"
#include "gateway/generation/prompt.h"

enum answer_part_kind {
    ANSWER_REASONING, /* text */
    ANSWER_CONTENT,   /* text */
    ANSWER_CALL,      /* i_call, id, name: a tool call begins */
    /* i_call, text: the next piece of its arguments. All of them joined are what the model wrote,
     * which is JSON unless it made a mistake or was cut: nothing is closed or put right, so that a
     * client never runs a call that the model did not finish. */
    ANSWER_ARGUMENTS,
    ANSWER_PART_KIND_COUNT
};

struct answer_part { /* views; good until the answer is fed again */
    enum answer_part_kind kind;
    uint32_t i_call;
    struct str id, name, text;
};

enum answer_finish { ANSWER_STOP, ANSWER_LENGTH, ANSWER_TOOL_CALLS, ANSWER_FINISH_COUNT };

struct answer_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    bool has_reasoning; /* the server has a parser of it, and answers of this kind go through it */
    uint64_t reasoning_tokens;
};

/* What a dialect writes at once: all that came of one choice since the last one, or all of it. Each
 * part, id and log-probability is given once. Views, good for the call. */
struct answer_delta {
    uint32_t i_choice; /* of the answer: prompt × n + choice */
    const struct prompt *prompt;
    const struct answer_part *parts; /* [n_parts] in order; two neighbours of one text are one */
    uint32_t n_parts;
    const uint32_t *ids;                   /* [n_ids] */
    const struct token_logprobs *logprobs; /* [n_ids], or NULL: not asked for */
    uint32_t n_ids;
    bool first, end;            /* of this choice */
    enum answer_finish finish;  /* with end */
    struct str stop_string;     /* with end: the stop string that ended it; ptr NULL: none did */
    uint32_t stop_id;           /* with end: the stop id that did, UINT32_MAX: none (EOS) */
    struct answer_usage usage;  /* of this choice so far */
    const struct generation *g; /* all ids, for dialects that repeat them at the end */
    const struct prompt_logprobs
        *prompt_logprobs; /* of the prompt, all of them; NULL: nobody asked */
};

struct answer_rules {                              /* shared by the choices of a request */
    const struct answer_parser *reasoning, *tools; /* NULL: none */
    const json_t *tool_list;                       /* the request's; NULL: none */
    bool drop_reasoning;                           /* include_reasoning: false */
    bool one_call;                                 /* parallel_tool_calls: false */
    const char *call_prefix;                       /* of the ids of calls */
    uint32_t n_call_id;                            /* answer_parser.h, n_id */
    struct str raw_name;                           /* of tool_parser_raw: the tool */
    uint64_t id_hi, id_lo;                         /* the request's: calls' ids are made of it */
};

struct answer {
    const struct answer_rules *rules; /* borrowed */
    uint32_t i_choice;
    struct answer_part only; /* without parsers */
    struct parser_state reasoning, tools;
    struct strbuf before_reasoning, before_tools; /* what the parsers have not consumed */
    uint64_t n_before; /* bytes of text that the reasoning's parser has consumed */
    struct reasoning_count reasoning_count;
    struct strbuf bytes; /* of the parts, in their order: id, name, text */
    struct answer_part *parts;
    uint32_t n_parts, cap_parts;
    uint32_t n_calls;
    bool is_cut; /* it ended for its length or at the client's stop: more might have come */
};

/* prompt: its text may have begun the reasoning. */
void answer_init(struct answer *a, const struct answer_rules *rules, uint32_t i_choice,
                 const struct prompt *prompt);
void answer_fini(struct answer *a);
/* text: what came since the last call; it must stay until the parts have been used. end: nothing
 * follows. Sets parts, n_parts and, where a call was made, finish of out. */
void answer_feed(struct answer *a, struct str text, bool end, struct answer_delta *out);

/* ---- for parsers ---- */

void answer_reasoning(struct answer *a, struct str text);
/* From a reasoning parser this goes on to the tool parser, from a tool parser to the client. */
void answer_past_reasoning(struct answer *a, struct str text);
/* From a reasoning parser: reasoning follows what went past it, and is given behind that. */
void answer_reasoning_again(struct answer *a);
void answer_content(struct answer *a, struct str text);
/* A call begins; its number, which its arguments come with. */
uint32_t answer_call(struct answer *a, struct str name);
/* The same with an id that the model gave, which is not empty. */
uint32_t answer_call_of_id(struct answer *a, struct str name, struct str id);
void answer_arguments(struct answer *a, uint32_t i_call, struct str text);
