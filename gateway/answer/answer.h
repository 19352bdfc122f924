#pragma once
/* One choice's answer in parts, between the text of a generation and the dialect that writes it.
 *   text ──▶ reasoning parser ──▶ tool parser ──▶ parts
 *                  └─▶ REASONING        └─▶ CONTENT, CALL, ARGUMENTS
 * Without a parser the text is a single CONTENT part, a view of the input, at no cost per token.
 * With a parser, text that may still become a marker is held back. The parts do not depend on
 * how the text was split. Plain data in the request; loop thread only. */
#include <jansson.h>

#include "gateway/answer/answer_parser.h"
#include "gateway/answer/reasoning_count.h"
#include "gateway/generation/generation.h"
#include "gateway/generation/prompt.h"

enum answer_part_kind {
    ANSWER_REASONING, /* has `text` */
    ANSWER_CONTENT,   /* has `text` */
    ANSWER_CALL,      /* has i_call, id, name: a tool call begins */
    /* Has i_call, text: the next piece of the call's arguments. All pieces together are what the
     * model wrote. They are JSON unless the model made a mistake or was cut off. Nothing is
     * closed or repaired, so that a client never runs an unfinished call. */
    ANSWER_ARGUMENTS,
    ANSWER_PART_KIND_COUNT
};

struct answer_part { /* views, valid until the answer is fed again */
    enum answer_part_kind kind;
    uint32_t i_call;
    struct str id, name, text;
};

enum answer_finish { ANSWER_STOP, ANSWER_LENGTH, ANSWER_TOOL_CALLS, ANSWER_FINISH_COUNT };

struct answer_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    bool has_reasoning; /* true when a reasoning parser handles answers of this kind */
    uint64_t reasoning_tokens;
};

/* New parts of one choice for a dialect to write, or all of them. Each part, id and
 * log-probability is given once. Views, valid during the call. */
struct answer_delta {
    uint32_t i_choice; /* index in the answer: prompt × n + choice */
    const struct prompt *prompt;
    /* [n_parts] in order; neighbouring text of one kind is merged */
    const struct answer_part *parts;
    uint32_t n_parts;
    const uint32_t *ids;                   /* [n_ids] new tokens */
    const struct token_logprobs *logprobs; /* [n_ids] of `ids`; NULL = not wanted */
    uint32_t n_ids;
    bool first, end;           /* first and last delta of the choice */
    enum answer_finish finish; /* valid with `end` */
    struct str stop_string; /* with `end`: the stop string that ended the choice; ptr NULL = none */
    uint32_t stop_id;       /* with `end`: the stop id that ended it; UINT32_MAX = EOS or none */
    struct answer_usage usage;  /* usage of the choice so far */
    const struct generation *g; /* has all ids, for dialects that repeat them at the end */
    const struct prompt_logprobs *prompt_logprobs; /* all rows of the prompt; NULL = not wanted */
};

struct answer_rules { /* shared by the choices of a request */
    /* parsers of reasoning and of tool calls; NULL = none */
    const struct answer_parser *reasoning, *tools;
    const json_t *tool_list; /* tools of the request; NULL = none */
    bool drop_reasoning;     /* the request has include_reasoning: false */
    bool one_call;           /* the request has parallel_tool_calls: false */
    const char *call_prefix; /* prefix of the ids of calls */
    uint32_t n_call_id;      /* letters and digits in a call's id; see `n_id` in answer_parser.h */
    struct str raw_name;     /* name of the tool, for tool_parser_raw */
    uint64_t id_hi, id_lo;   /* id of the request, from which the ids of calls are made */
};

struct answer {
    const struct answer_rules *rules; /* borrowed; rules of the request */
    uint32_t i_choice;
    struct answer_part only; /* the single part when there are no parsers */
    struct parser_state reasoning, tools;
    struct strbuf before_reasoning, before_tools; /* input that the parsers have not consumed */
    uint64_t n_before; /* bytes of text that the reasoning parser has consumed */
    struct reasoning_count reasoning_count;
    struct strbuf bytes; /* bytes of the parts in order: id, name, text */
    struct answer_part *parts;
    uint32_t n_parts, cap_parts;
    uint32_t n_calls;
    bool is_cut; /* ended by max_tokens or the client's stop: more text could have come */
};

/* The prompt's text may have begun the reasoning already. */
void answer_init(struct answer *a, const struct answer_rules *rules, uint32_t i_choice,
                 const struct prompt *prompt);
void answer_fini(struct answer *a);
/* Feeds new text. `text` must stay valid until the parts were used. `end` means that nothing
 * follows. Sets `parts` and `n_parts` of `out`, and `finish` when there was a call. */
void answer_feed(struct answer *a, struct str text, bool end, struct answer_delta *out);

/* ---- for parsers ---- */

void answer_reasoning(struct answer *a, struct str text);
/* Text after the reasoning: it goes from a reasoning parser to the tool parser. */
void answer_past_reasoning(struct answer *a, struct str text);
/* Called by a reasoning parser when reasoning begins again after other text. The new reasoning
 * is placed after that text. */
void answer_reasoning_again(struct answer *a);
void answer_content(struct answer *a, struct str text);
/* Begins a call and returns its number, which `answer_arguments` needs. */
uint32_t answer_call(struct answer *a, struct str name);
/* Begins a call with an id that the model wrote. The id must not be empty. */
uint32_t answer_call_of_id(struct answer *a, struct str name, struct str id);
void answer_arguments(struct answer *a, uint32_t i_call, struct str text);
