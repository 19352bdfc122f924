#pragma once
/* Where one choice's token stream stands, and what a Tokens item means for it: which of its ids are
 * new, whether something is missing. Pure data and functions: generation.c lives by it, and
 * tests/model and tests/sim drive it without text or HTTP.
 *
 *   WAITING ──sent──▶ OPEN ──end──▶ ENDED
 *      ▲                │ link back, gap: attempt + 1
 *      └────────────────┘
 */
#include "proto/messages.h"

enum stream_phase {
    STREAM_WAITING, /* a Submit of `attempt` is to be sent */
    STREAM_OPEN,    /* it was sent */
    STREAM_ENDED,
    STREAM_PHASE_COUNT
};

struct stream_state {
    enum stream_phase phase;
    uint32_t attempt;    /* from 1 */
    uint32_t n_received; /* generated tokens held, contiguous from 0 */
};

enum stream_verdict {
    STREAM_DROP,     /* old attempt, nothing new, or after the end */
    STREAM_ACCEPT,   /* ids[*skip ..] are new, and the end if there is one */
    STREAM_RESUBMIT, /* tokens are missing: the state went back to WAITING, attempt + 1 */
    STREAM_BROKEN,   /* the head contradicts itself: an end before what it has sent already */
    STREAM_VERDICT_COUNT
};

void stream_init(struct stream_state *s);
void stream_sent(struct stream_state *s);
/* A new session with the head: what was sent before must be sent again. True: it is waiting. */
bool stream_link_up(struct stream_state *s);
enum stream_verdict stream_on_tokens(struct stream_state *s, const struct tokens_item *t,
                                     uint32_t *skip);
/* Something is missing that tokens do not tell: back to WAITING, attempt + 1. */
void stream_again(struct stream_state *s);
void stream_end(struct stream_state *s);
