#pragma once
/* Asks the head of one model again and again how many workers it needs (GET /scale), on a thread
 * of its own, so that a head that hangs disturbs no other model. */
#include "common/loop/loop.h"

/* `set_heard` is the last answer. */
struct set_heard {
    bool is_known;         /* the head has answered since the last order or start */
    uint32_t wanted;       /* workers that the head needs */
    uint32_t n_open;       /* open requests */
    uint32_t n_replicas;   /* replicas that serve */
    bool held, asleep;     /* the head waits for an order to wake; the workers sleep */
    uint32_t sleep_level;  /* ordered level; 0 = none */
    uint32_t n_asleep;     /* workers that have reached that level */
    double unused_s;       /* seconds since the last request */
    uint64_t rest_answers; /* answers to set_watch_rest so far */
    bool rests;            /* last answer: the head agrees. false: requests are open */
    /* These times pass without on_change, so only set_watch_look shows their last values. */
    uint64_t answered_ns;   /* last time at which the head answered; 0 = never */
    uint64_t idle_since_ns; /* since then each answer had no open request; 0 = the last one had,
                               or did not come */
};

struct set_watch_options {
    struct loop *loop;
    const char *admin, *admin_key_file; /* HOST:PORT of the head's admin API; key file or NULL */
    loop_fn *on_change;                 /* called on the loop's thread after a changed answer */
    void *ctx;
};

struct set_watch;
/* Returns NULL when no thread can be started. The strings are borrowed. */
struct set_watch *set_watch_start(const struct set_watch_options *o);
/* Asks the head to need no workers (POST /api/rest), and to let them sleep at `sleep_level`, 0 =
 * not. The answer changes `rest_answers`; a head that does not answer has not agreed. */
void set_watch_rest(struct set_watch *w, uint32_t sleep_level);
/* Orders the head to wake its workers. Only `held` shows whether the order has arrived. */
void set_watch_wake(struct set_watch *w);
/* With `hurries` the head reports each change at once, because a request may have to wait for
 * workers. */
void set_watch_hurry(struct set_watch *w, bool hurries);
void set_watch_look(struct set_watch *w, struct set_heard *out);
/* Ends the thread. Waits at most for a call that the head should answer at once. Accepts NULL. */
void set_watch_free(struct set_watch *w);
