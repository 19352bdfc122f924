#pragma once
/* `struct answer` splits one choice's text into parts. Its input is the text of a generation,
 * and the dialect writes its output.
 *   text ──▶ reasoning parser ──▶ tool parser ──▶ parts
 *                  └─▶ REASONING        └─▶ CONTENT, CALL, ARGUMENTS
 * Without a parser the text is a single CONTENT part, a view of the input, at no cost per token.
 * A parser holds back text that may still become a marker. The parts do not depend on how the
 * text was split. An answer is plain data in the request. Only the loop thread calls these
 * functions. */
#include <jansson.h>

#include "gateway/answer/answer_parser.h"
#include "gateway/answer/reasoning_count.h"
#include "gateway/generation/generation.h"
#include "gateway/generation/prompt.h"

enum answer_part_kind {
    ANSWER_REASONING, /* reasoning of the model, in `text` */
    ANSWER_CONTENT,   /* text for the user, in `text` */
    ANSWER_CALL,      /* a tool call begins; i_call, id and name are set */
    /* An ARGUMENTS part has i_call and text: the next piece of the call's arguments. All pieces
     * together are the text that the model wrote. They are JSON unless the model made a mistake
     * or was cut off. Nothing is closed or repaired, so that a client never runs an unfinished
     * call. */
    ANSWER_ARGUMENTS,
    ANSWER_PART_KIND_COUNT
};

/* one part of an answer; its texts are views, valid until the answer is fed again */
struct answer_part {
    enum answer_part_kind kind;
    uint32_t i_call;
    struct str id, name, text;
};

enum answer_finish { ANSWER_STOP, ANSWER_LENGTH, ANSWER_TOOL_CALLS, ANSWER_FINISH_COUNT };

struct answer_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    bool has_reasoning; /* true when a reasoning parser reads the answers of this model */
    uint64_t reasoning_tokens;
    /* is_full: the client asked for the rest, which is complete at the end of a choice. block_ms:
     * KV blocks held times milliseconds; step_ns: part of the time of steps, both 0 under a head
     * that does not count; queue_ns: longest wait of a choice */
    bool is_full;
    uint64_t block_ms, step_ns, queue_ns;
};

/* `answer_delta` holds the new parts of one choice for a dialect to write, or all of its parts.
 * Each part, id and log-probability is given once. All pointers are views, valid during the
 * call. */
struct answer_delta {
    uint32_t i_choice; /* index of the choice in the answer: prompt × n + choice */
    const struct prompt *prompt;
    /* Parts of the choice in order, [n_parts]. Neighbouring text of one kind is merged. */
    const struct answer_part *parts;
    uint32_t n_parts;
    const uint32_t *ids; /* [n_ids]: ids of the new tokens */
    /* [n_ids]: log-probabilities of `ids`; NULL = not requested */
    const struct token_logprobs *logprobs;
    uint32_t n_ids;
    bool first, end;           /* true for the first and for the last delta of the choice */
    enum answer_finish finish; /* reason of the end; valid when `end` is set */
    /* when `end` is set: stop string that ended the choice; ptr NULL = none */
    struct str stop_string;
    /* when `end` is set: stop id that ended the choice; UINT32_MAX = EOS or none */
    uint32_t stop_id;
    struct answer_usage usage; /* usage of the choice so far */
    /* generation with all ids of the choice, for dialects that repeat the ids at the end */
    const struct generation *g;
    /* log-probabilities of the whole prompt; NULL = not requested */
    const struct prompt_logprobs *prompt_logprobs;
};

struct answer_rules { /* rules of an answer, shared by the choices of a request */
    /* `reasoning` is the parser of reasoning, and `tools` is the parser of tool calls. NULL =
     * none. */
    const struct answer_parser *reasoning, *tools;
    const json_t *tool_list; /* tools of the request; NULL = none */
    bool drop_reasoning;     /* the request has include_reasoning: false */
    bool one_call;           /* the request has parallel_tool_calls: false */
    const char *call_prefix; /* prefix of the ids of calls */
    uint32_t n_call_id;      /* number of letters and digits in a call's id; 0 = any number */
    struct str raw_name;     /* name of the tool, for tool_parser_raw */
    uint64_t id_hi, id_lo;   /* id of the request, from which the ids of calls are made */
};

struct answer {
    const struct answer_rules *rules; /* rules of the request; borrowed */
    uint32_t i_choice;
    struct answer_part only; /* the only part of an answer without parsers */
    struct parser_state reasoning, tools;
    struct strbuf before_reasoning, before_tools; /* input that the parsers have not consumed */
    uint64_t n_before; /* bytes of input that the reasoning parser has consumed */
    struct reasoning_count reasoning_count;
    struct strbuf bytes; /* bytes of the parts in order: id, name, text */
    struct answer_part *parts;
    uint32_t n_parts, cap_parts;
    uint32_t n_calls;
    /* max_tokens or the client's stop ended the choice, so more text could have followed */
    bool is_cut;
};

/* Initialises the answer `a`. Checks `prompt`, because the prompt may already contain the start
 * of the reasoning. */
void answer_init(struct answer *a, const struct answer_rules *rules, uint32_t i_choice,
                 const struct prompt *prompt);
void answer_fini(struct answer *a);
/* Feeds new text of the choice to `a`. `text` must stay valid until the parts have been used.
 * `end` means that no more text follows. Sets `parts` and `n_parts` of `out`. At the end of an
 * answer with a tool call, changes `out->finish` from STOP to TOOL_CALLS. */
void answer_feed(struct answer *a, struct str text, bool end, struct answer_delta *out);

/* ---- for parsers ---- */

void answer_reasoning(struct answer *a, struct str text);
/* Passes text after the reasoning from a reasoning parser to the tool parser. */
void answer_past_reasoning(struct answer *a, struct str text);
/* Places the following reasoning after all text so far. A reasoning parser calls this function
 * when reasoning begins again after other text. */
void answer_reasoning_again(struct answer *a);
void answer_content(struct answer *a, struct str text);
/* Begins a tool call and returns its number, which `answer_arguments` needs. */
uint32_t answer_call(struct answer *a, struct str name);
/* Begins a tool call with an id that the model wrote, and returns the call's number. The id must
 * not be empty. */
uint32_t answer_call_of_id(struct answer *a, struct str name, struct str id);
void answer_arguments(struct answer *a, uint32_t i_call, struct str text);
