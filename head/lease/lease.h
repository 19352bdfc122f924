#pragma once
/* The lease decides which of two heads serves: the state machine of docs/develop/recovery.md ("A
 * standby head"). Pure: what the store answers, whether it can be reached and what time it is go
 * in; what to ask next and what to do come out. The clock is one that is only ever compared with
 * itself. Loop thread. */
#include <stdbool.h>
#include <stdint.h>

enum lease_state { LEASE_WAITING, LEASE_SERVING, LEASE_ENDED };

/* Questions to the store. LOOK changes no lease; TAKE takes one that is free and raises the term;
 * RENEW, of the head that serves, also writes the term that it wants. BOUND gives a lease of
 * another that would not end, and that nobody renews, our TTL. */
enum lease_question { LEASE_NOTHING, LEASE_LOOK, LEASE_TAKE, LEASE_RENEW, LEASE_BOUND };

/* In the store. GONE, to a RENEW: there is none, and another head has had it since. LATE, to the
 * others: there is none, and no question of ours came a moment before: it is to be watched anew. */
enum lease_holder {
    LEASE_FREE,
    LEASE_OURS,
    LEASE_OTHERS,
    LEASE_GONE,
    LEASE_LATE,
    LEASE_HOLDER_COUNT
};

/* No term above it has room for the next ones; a peer that claims one is not believed. */
#define LEASE_TERM_MAX (UINT32_MAX - 1024u)

struct lease_answer {
    enum lease_holder holder;
    uint64_t term;   /* the store's, after the question */
    int64_t left_ms; /* of another's lease: until it ends; below 0: never */
};

enum lease_order {
    LEASE_STAY,
    LEASE_SERVE,    /* with lease.term */
    LEASE_RAISE,    /* the term: lease.term, which the store has */
    LEASE_STEP_DOWN /* for good: the process ends */
};

struct lease {
    enum lease_state state;
    uint64_t ttl_ns;
    uint64_t term;      /* ours; 0: none yet */
    uint64_t term_seen; /* the highest of peers that is not ours */
    uint64_t store_term;
    bool is_up;
    bool is_watching; /* since watched_ns every question has been answered */
    uint64_t watched_ns;
    enum lease_question open; /* asked, not answered */
    uint64_t asked_ns;        /* when open was */
    uint64_t ask_ns;          /* not before */
    struct lease_long {
        bool is;          /* another's lease has longer to go than a TTL of ours */
        int64_t left_ms;  /* as last heard */
        int64_t begun_ms; /* at since_ns; it was not renewed since then */
        uint64_t since_ns;
    } longer;
};

void lease_init(struct lease *l, uint64_t ttl_ns);
void lease_on_store(struct lease *l, bool up, uint64_t now_ns);
/* The question to ask now; one question at a time. For whoever cannot ask it: lease_on_answer with
 * NULL. */
enum lease_question lease_next(struct lease *l, uint64_t now_ns);
/* NULL: there will be none, or it made no sense. */
enum lease_order lease_on_answer(struct lease *l, const struct lease_answer *a, uint64_t now_ns);
/* A peer has seen a term that is not below ours and that we did not tell it: who has the lease? */
void lease_see_term(struct lease *l, uint64_t term, uint64_t now_ns);
/* Another's lease has no end, or one that no head writes: somebody else wrote it, or the store's
 * clock jumped back. */
bool lease_has_no_end(const struct lease *l);
/* The term that goes with a question: TAKE makes it 1 + this and the store's, RENEW writes it. */
uint64_t lease_wanted_term(const struct lease *l);
