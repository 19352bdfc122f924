#pragma once
/* Describes the load: requests of clients to a replica over a period, generated from a seed.
 * Each tenant is a Poisson process with lognormal lengths, with additional bursts and shared
 * system prompts in front. Lengths like ShareGPT's have the means of the PagedAttention paper
 * (Kwon et al. 2023, figure 11: prompts of 161.31 tokens, answers of 337.99). Their spread
 * (sigma 1.2 and 0.9 of the logarithm) is our choice. The load is generated at once and does not
 * depend on the policy. */
#include <stdint.h>

#define LOAD_MAX_TENANTS 8u

struct load_lengths {
    double mean, sigma; /* mean of the length; sigma of its logarithm, 0 = always the mean */
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
    double per_second; /* rate of Poisson arrivals */
    /* interval of bursts; 0 = no bursts; the first one is after half of it */
    uint64_t burst_every_ns;
    uint32_t burst; /* requests in a burst */
    int32_t priority;
    struct load_lengths prompt, answer;
    /* Each prompt begins with one of n_system_prompts system prompts. All requests of a burst
     * share one system prompt. */
    uint32_t n_system_prompts, system_tokens;
    uint32_t n_choices;       /* most choices, uniformly distributed; 0 counts as 1 */
    uint32_t cancel_permille; /* clients that cancel, at a random time within 10 s */
    uint32_t deadline_permille, deadline_ms; /* requests with a timeout */
};

struct load_config {
    uint64_t seed, duration_ns;
    uint32_t max_model_len;
    struct load_tenant tenants[LOAD_MAX_TENANTS];
    uint32_t n_tenants;
};

struct load_request {
    uint64_t arrival_ns, cancel_ns; /* cancel_ns: UINT64_MAX = never */
    uint64_t deadline_ms;           /* deadline from arrival; 0 = none */
    uint64_t i_request;             /* number of the request, the same for all its choices */
    uint32_t i_tenant, i_choice;
    uint32_t n_prompt, n_answer;
    uint32_t *ids; /* prompt of n_prompt ids, shared by the choices */
};

struct load {
    struct load_request *requests; /* requests in order of arrival */
    uint32_t n, cap;
    uint64_t n_requests;
};

/* LOAD_FIRST_ID is the first id. Ids lie in [LOAD_FIRST_ID, LOAD_FIRST_ID + 10000); the
 * vocabulary must be larger. */
#define LOAD_FIRST_ID 1000u
struct load *load_new(const struct load_config *c);
void load_free(struct load *l);
