#pragma once
/* `stream_state` is the state of one choice's token stream. It decides which ids of a Tokens
 * item are new and whether tokens are missing. It is pure data with pure functions. generation.c
 * uses it, and tests/model and tests/sim drive it without text or HTTP.
 *   WAITING ──sent──▶ OPEN ──end──▶ ENDED
 *    ▲                │ link back, gap: attempt + 1
 *    └────────────────┘ */
#include "proto/messages.h"

enum stream_phase {
    STREAM_WAITING, /* a Submit of `attempt` must be sent */
    STREAM_OPEN,    /* the Submit was sent */
    STREAM_ENDED,
    STREAM_PHASE_COUNT
};

struct stream_state {
    enum stream_phase phase;
    uint32_t attempt;    /* number of the current Submit, from 1 */
    uint32_t n_received; /* generated tokens received, contiguous from 0 */
};

enum stream_verdict {
    STREAM_DROP, /* the item has an old attempt number, has nothing new, or arrived after the end */
    STREAM_ACCEPT,   /* `ids[*skip ..]` are new, and so is the end if the item has one */
    STREAM_RESUBMIT, /* tokens are missing, so the stream is WAITING again with attempt + 1 */
    STREAM_BROKEN,   /* the head ended the choice before tokens that it already sent */
    STREAM_VERDICT_COUNT
};

void stream_init(struct stream_state *s);
void stream_sent(struct stream_state *s);
/* Starts the stream again in a new session with the head, because everything sent before must be
 * sent again. Returns true when the stream is WAITING now. */
bool stream_link_up(struct stream_state *s);
enum stream_verdict stream_on_tokens(struct stream_state *s, const struct tokens_item *t,
                                     uint32_t *skip);
/* Returns to WAITING with attempt + 1, because something other than tokens is missing. */
void stream_again(struct stream_state *s);
void stream_end(struct stream_state *s);
