#pragma once
/* The load: requests of clients to a replica over a while, from a seed: each tenant is a Poisson
 * process with lognormal lengths, bursts on top, shared system prompts in front. Lengths like
 * ShareGPT's have the means that the PagedAttention paper gives (Kwon et al. 2023, figure 11:
 * prompts of 161.31 tokens, answers of 337.99); how wide they spread (sigma 1.2 and 0.9 of the
 * logarithm) is our choice. Everything is drawn at once and does not depend on who serves it. */
#include <stdint.h>

#define LOAD_MAX_TENANTS 8u

struct load_lengths {
    double mean, sigma; /* of the length; of its logarithm. sigma 0: always the mean */
    uint32_t longest;
};
#define LOAD_SHAREGPT_PROMPT                                                                       \
    {                                                                                              \
        161.31, 1.2, 1024                                                                          \
    }
#define LOAD_SHAREGPT_ANSWER                                                                       \
    {                                                                                              \
        337.99, 0.9, 1024                                                                          \
    }

struct load_tenant {
    const char *name;
    double per_second;       /* Poisson arrivals */
    uint64_t burst_every_ns; /* 0: no bursts; the first comes after half of it */
    uint32_t burst;          /* requests at once */
    int32_t priority;
    struct load_lengths prompt, answer;
    /* One of so many system prompts stands before the prompt; a burst's requests share one. */
    uint32_t n_system_prompts, system_tokens;
    uint32_t n_choices;                      /* at most, uniformly; 0 as 1 */
    uint32_t cancel_permille;                /* clients that go away, uniformly in 10 s */
    uint32_t deadline_permille, deadline_ms; /* requests with a timeout */
};

struct load_config {
    uint64_t seed, duration_ns;
    uint32_t max_model_len;
    struct load_tenant tenants[LOAD_MAX_TENANTS];
    uint32_t n_tenants;
};

struct load_request {
    uint64_t arrival_ns, cancel_ns; /* cancel_ns: UINT64_MAX: never */
    uint64_t deadline_ms;           /* from arrival; 0: none */
    uint64_t i_request;             /* choices share it */
    uint32_t i_tenant, i_choice;
    uint32_t n_prompt, n_answer;
    uint32_t *ids; /* [n_prompt], shared by the choices */
};

struct load {
    struct load_request *requests; /* by arrival */
    uint32_t n, cap;
    uint64_t n_requests;
};

/* Ids lie in [first, first + 10000): what a vocabulary of more than that has. */
#define LOAD_FIRST_ID 1000u
struct load *load_new(const struct load_config *c);
void load_free(struct load *l);
