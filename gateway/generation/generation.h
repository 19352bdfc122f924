#pragma once
/* One choice: from Tokens items to text, stop strings and deltas. It holds every token received
 * (for a resubmission) and the delta that the client has not been given yet; a client that reads
 * slowly gets larger deltas, and a reply in one piece is one delta with everything in it. The owner
 * submits, cancels and writes; this module has no I/O. Loop thread only. */
#include "gateway/base/api_error.h"
#include "gateway/generation/forbidden.h"
#include "gateway/generation/prompt_logprobs.h"
#include "gateway/generation/stop_strings.h"
#include "gateway/generation/stream_state.h"
#include "text/text.h"

#define GENERATION_LATE         "The request's timeout passed before it was finished."
#define GENERATION_MAX_LOGPROBS 65u /* the chosen token and the top 64 */

struct generation_rules { /* shared by the choices of a request; borrowed */
    const struct text_tokenizer *tokenizer;
    const struct stop_set *stops;
    bool skip_special, include_stop;
    uint32_t min_tokens;
    const uint32_t *marker_ids; /* [n_marker_ids] special tokens whose text counts all the same */
    uint32_t n_marker_ids;
    bool want_logprobs; /* to be given; the sum is kept whenever rows come */
    bool keep_said;
    struct forbidden forbidden; /* params NULL: nothing is */
    bool prompt_only;           /* max_tokens 0: what is sampled behind the prompt is nobody's */
};

/* The chosen token first, then the top ones, best first. */
struct token_logprobs {
    uint32_t n, chosen_rank;
    uint32_t offset; /* code points of the text in front of it */
    uint32_t ids[GENERATION_MAX_LOGPROBS];
    float values[GENERATION_MAX_LOGPROBS];
};

struct generation {
    struct stream_state stream;
    uint32_t *ids; /* [n_ids] all that count; the tokens after a stop string do not */
    uint32_t n_ids, cap_ids;
    struct text_decoder *decoder;
    struct stop_matcher stop;
    struct token_logprobs *logprobs; /* of ids[n_given_ids ..] when wanted */
    uint32_t n_logprobs, cap_logprobs;
    double logprob_sum;   /* of all ids */
    struct strbuf text;   /* decoded, not yet given to the client; its end may be held back */
    struct strbuf said;   /* with keep_said: all text that was given */
    uint32_t n_given_ids; /* ids the client's deltas cover */
    uint32_t n_chars; /* code points of all its text, behind those of an echo; with want_logprobs */
    uint32_t n_cached;
    struct prompt_logprobs prompt_logprobs; /* of the prompt, in one choice of it */
    float *vector;                          /* [n_vector] of a pooling request that has ended */
    uint32_t n_vector;
    enum finish_reason finish; /* STOP or LENGTH once it has ended well */
    int32_t i_stop;            /* the stop string that ended it, -1: none */
    uint32_t stop_id;          /* the stop id that ended it, UINT32_MAX: EOS or none */
    bool begun, end_given;     /* the client has seen its first, its last delta */
    struct api_error error;
    uint64_t first_token_ns, last_token_ns;
};

enum generation_event {
    GENERATION_NOTHING,
    GENERATION_PROGRESS, /* new tokens, or the end: see finish */
    GENERATION_STOPPED,  /* ended by a stop string while the head goes on: send it Finish{n_ids} */
    GENERATION_RESUBMIT, /* stream.attempt was raised: submit prompt and ids again */
    GENERATION_FAILED,   /* error says why */
};

/* A view of what can be written now. */
struct generation_delta {
    struct str text;
    const uint32_t *ids;
    const struct token_logprobs *logprobs; /* one per id, or NULL */
    uint32_t n_ids;
    bool end;
};

/* prompt: the last ids before the first generated one, for decoders that look back. */
void generation_init(struct generation *g, const struct generation_rules *r, const uint32_t *prompt,
                     uint32_t n_prompt);
void generation_fini(struct generation *g);
enum generation_event generation_on_tokens(struct generation *g, const struct generation_rules *r,
                                           const struct tokens_item *item);
/* False: nothing worth a chunk. ids_matter: a delta with tokens but no text counts. */
bool generation_delta(const struct generation *g, const struct generation_rules *r, bool ids_matter,
                      struct generation_delta *out);
/* Its text was taken by a parser that has nothing to give yet; its ids come again. */
void generation_took_text(struct generation *g, const struct generation_delta *d);
/* The delta was written. */
void generation_given(struct generation *g, const struct generation_rules *r,
                      const struct generation_delta *d);
bool generation_ended(const struct generation *g);
/* Mean log-probability of its tokens, when the head sends them. */
double generation_mean_logprob(const struct generation *g);
/* Whether its bytes are in the text: not those of a special token that texts leave out. */
bool generation_shows(const struct generation_rules *r, uint32_t id);
/* Code points of valid UTF-8. */
uint32_t generation_count_chars(struct str s);
