#pragma once
/* What a choice says, in parts: between the text of a generation and the dialect that writes it.
 * Without a parser the text is one CONTENT part, a view of what came, and costs nothing per token.
 * Plain data in the request; loop thread only. */
#include "gateway/generation.h"
#include "gateway/prompt.h"

enum answer_part_kind {
    ANSWER_REASONING, /* text */
    ANSWER_CONTENT,   /* text */
    ANSWER_CALL,      /* i_call, id, name: a tool call begins */
    ANSWER_ARGUMENTS, /* i_call, text: the next piece of its arguments, JSON when all are joined */
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
    uint32_t text_offset;       /* code points of the tokens given before */
    bool first, end;            /* of this choice */
    enum answer_finish finish;  /* with end */
    struct str stop_string;     /* with end: the stop string that ended it; ptr NULL: none did */
    uint32_t stop_id;           /* with end: the stop id that did, UINT32_MAX: none (EOS) */
    struct answer_usage usage;  /* of this choice so far */
    const struct generation *g; /* all ids, for dialects that repeat them at the end */
};

struct answer {
    struct answer_part only;
};

void answer_init(struct answer *a);
void answer_fini(struct answer *a);
/* text: what came since the last call; it must stay until the parts have been used. end: nothing
 * follows. Sets parts and n_parts of out. */
void answer_feed(struct answer *a, struct str text, bool end, struct answer_delta *out);
