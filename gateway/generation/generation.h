#pragma once
/* `generation` is one choice of a request: it turns Tokens items into text, stop strings and
 * deltas. It keeps every received token for a resubmission. It also keeps the text that was not
 * sent to the client yet. A slow client gets larger deltas, and an answer in one piece is a
 * single delta. The owner submits, cancels and writes. This module does no I/O. Only the loop
 * thread calls these functions. */
#include "gateway/base/api_error.h"
#include "gateway/generation/forbidden.h"
#include "gateway/generation/prompt_logprobs.h"
#include "gateway/generation/stop_strings.h"
#include "gateway/generation/stream_state.h"
#include "text/text.h"

#define GENERATION_LATE "The request was not finished before its timeout."
/* most entries per position: the chosen token and the top 64 */
#define GENERATION_MAX_LOGPROBS 65u

struct generation_rules { /* rules of a request, shared by its choices; borrowed */
    const struct text_tokenizer *tokenizer;
    const struct stop_set *stops;
    bool skip_special, include_stop;
    uint32_t min_tokens;
    const uint32_t *marker_ids; /* [n_marker_ids]: special tokens whose text is kept for parsers */
    uint32_t n_marker_ids;
    bool want_logprobs; /* true = keep each row for the answer; the sum is always kept */
    bool keep_said;
    struct forbidden forbidden; /* tokens that the request forbids; `params` NULL = none */
    bool prompt_only;           /* max_tokens is 0, so sampled tokens are dropped */
};

/* `token_logprobs` holds log-probabilities at one position: the chosen token first, then the top
 * tokens in descending order. */
struct token_logprobs {
    uint32_t n, chosen_rank;
    uint32_t offset; /* code points of text before the token */
    uint32_t ids[GENERATION_MAX_LOGPROBS];
    float values[GENERATION_MAX_LOGPROBS];
};

struct generation {
    struct stream_state stream;
    uint32_t *ids; /* [n_ids]: all tokens of the answer; tokens after a stop string are not kept */
    uint32_t n_ids, cap_ids;
    struct text_decoder *decoder;
    struct stop_matcher stop;
    /* rows of `ids[n_given_ids ..]`, if the request asks for them */
    struct token_logprobs *logprobs;
    uint32_t n_logprobs, cap_logprobs;
    double logprob_sum;   /* sum of the log-probabilities of all `ids` */
    struct strbuf text;   /* decoded text that was not emitted yet; its end may be held back */
    struct strbuf said;   /* with `keep_said`: all emitted text */
    uint32_t n_given_ids; /* number of emitted ids */
    /* number of code points of all text, counted after an echoed prompt; kept with
     * `want_logprobs` */
    uint32_t n_chars;
    uint32_t n_cached;
    /* log-probabilities of the prompt, used by its first choice */
    struct prompt_logprobs prompt_logprobs;
    float *vector; /* [n_vector]: result of a pooling request */
    uint32_t n_vector;
    enum finish_reason finish; /* STOP or LENGTH once the choice ended without an error */
    int32_t i_stop;            /* index of the stop string that ended the choice; -1 = none */
    uint32_t stop_id;          /* stop id that ended the choice; UINT32_MAX = EOS or none */
    bool begun, end_given;     /* the first and the last delta were emitted */
    uint64_t first_token_ns, last_token_ns;
};

enum generation_event {
    GENERATION_NOTHING,
    GENERATION_PROGRESS, /* there are new tokens, or the choice ended (see `finish`) */
    GENERATION_STOPPED,  /* a stop string ended the choice; send Finish{n_ids} to the head */
    GENERATION_RESUBMIT, /* `stream.attempt` was raised; submit the prompt and the ids again */
    GENERATION_FAILED,   /* the choice failed */
};

/* `generation_delta` is a view of the text and tokens that can be written now. */
struct generation_delta {
    struct str text;
    const uint32_t *ids;
    const struct token_logprobs *logprobs; /* log-probabilities of each id; NULL = not requested */
    uint32_t n_ids;
    bool end;
};

/* Initialises a choice. `prompt` is the end of the prompt's ids, for decoders that need tokens
 * before the first generated token. */
void generation_init(struct generation *g, const struct generation_rules *r, const uint32_t *prompt,
                     uint32_t n_prompt);
void generation_fini(struct generation *g);
/* Takes an item of the choice. Sets *why when it returns GENERATION_FAILED. */
enum generation_event generation_on_tokens(struct generation *g, const struct generation_rules *r,
                                           const struct tokens_item *item, struct api_error *why);
/* Sets `out` to the text and ids that can be written. Returns false when there is nothing to
 * write. With `ids_matter`, tokens without text count too. */
bool generation_delta(const struct generation *g, const struct generation_rules *r, bool ids_matter,
                      struct generation_delta *out);
/* Marks the text of a delta as taken by a parser that has nothing to emit yet. The ids are
 * emitted with the next delta. */
void generation_took_text(struct generation *g, const struct generation_delta *d);
/* Confirms that the delta was written. */
void generation_given(struct generation *g, const struct generation_rules *r,
                      const struct generation_delta *d);
bool generation_ended(const struct generation *g);
/* Returns the mean log-probability of the tokens. It is known only when the head sends
 * log-probabilities. */
double generation_mean_logprob(const struct generation *g);
/* Returns true when the token's bytes are in the text. Special tokens may be left out. */
bool generation_shows(const struct generation_rules *r, uint32_t id);
/* Counts the code points of valid UTF-8. */
uint32_t generation_count_chars(struct str s);
