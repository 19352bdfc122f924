#pragma once
/* Decides by a lease which of two heads serves: the state machine of docs/develop/recovery.md
 * ("A standby head"). Its inputs are the store's answers, the store's reachability and the time.
 * Its outputs are the next question and orders. It never compares the head's clock with the
 * store's. The code does no I/O and runs on the loop thread. */
#include <stdbool.h>
#include <stdint.h>

enum lease_state { LEASE_WAITING, LEASE_SERVING, LEASE_ENDED };

/* Names the questions to the store. LOOK changes no lease. TAKE takes a free lease and raises
 * the term. The serving head sends RENEW, which also writes the term that it needs. BOUND sets
 * another head's endless lease, which no head renews, to our TTL. */
enum lease_question { LEASE_NOTHING, LEASE_LOOK, LEASE_TAKE, LEASE_RENEW, LEASE_BOUND };

/* Names the holder in the store. GONE answers only RENEW: the lease is free, and another head
 * has had it since. LATE answers other questions: the lease is free, but this head asked no
 * question shortly before, so the watch must start again. */
enum lease_holder {
    LEASE_FREE,
    LEASE_OURS,
    LEASE_OTHERS,
    LEASE_GONE,
    LEASE_LATE,
    LEASE_HOLDER_COUNT
};

/* LEASE_TERM_MAX is the highest term that a peer may report. The head ignores a report above it,
 * because later terms need higher numbers. */
#define LEASE_TERM_MAX (UINT32_MAX - 1024u)

struct lease_answer {
    enum lease_holder holder;
    uint64_t term;   /* term in the store after the question */
    int64_t left_ms; /* time until another head's lease ends; negative = never */
};

enum lease_order {
    LEASE_STAY,
    LEASE_SERVE,    /* the head begins to serve with the term lease.term */
    LEASE_RAISE,    /* the term has risen to lease.term, which the store has */
    LEASE_STEP_DOWN /* the head stops serving for good, and the process ends */
};

struct lease {
    enum lease_state state;
    uint64_t ttl_ns;
    uint64_t term;      /* this head's term; 0 = none yet */
    uint64_t term_seen; /* highest term of other heads that peers have reported */
    uint64_t store_term;
    bool is_up;
    bool is_watching; /* every question since watched_ns has been answered */
    uint64_t watched_ns;
    enum lease_question open; /* question that has no answer yet */
    uint64_t asked_ns;        /* time at which the question `open` was asked */
    uint64_t ask_ns;          /* earliest time of the next question */
    struct lease_long {
        bool is;         /* true when another head's lease lasts longer than our TTL */
        int64_t left_ms; /* remaining time of the other head's lease in the last answer */
        /* remaining time of the lease at since_ns; the lease was not renewed since then */
        int64_t begun_ms;
        uint64_t since_ns;
    } longer;
};

void lease_init(struct lease *l, uint64_t ttl_ns);
void lease_on_store(struct lease *l, bool up, uint64_t now_ns);
/* Returns the question to ask now, or LEASE_NOTHING. One question is open at a time. If the
 * question cannot be asked, call lease_on_answer with NULL. */
enum lease_question lease_next(struct lease *l, uint64_t now_ns);
/* Handles an answer. `a` is NULL when no answer will come, or when the answer was invalid. */
enum lease_order lease_on_answer(struct lease *l, const struct lease_answer *a, uint64_t now_ns);
/* Handles the term that a peer reports. The caller reports only terms that are not below ours
 * and did not come from us. While this head serves, its next question is then due at once. */
void lease_see_term(struct lease *l, uint64_t term, uint64_t now_ns);
/* Returns true when another head's lease has no end, or an end that no head writes. Then an
 * operator wrote it, or the store's clock jumped back. */
bool lease_has_no_end(const struct lease *l);
/* Returns the term to send with a question. TAKE sets the new term to 1 + the higher of this
 * term and the store's. RENEW writes this term. */
uint64_t lease_wanted_term(const struct lease *l);
