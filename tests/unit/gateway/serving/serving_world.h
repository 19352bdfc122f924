#pragma once
/* Provides a world for tests of `serving` without sockets: a head and a client in a few arrays,
 * new for each test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/request/state.h"
#include "gateway/serving/serving.h"

enum { MAX_SUBMITS = 64 };

struct fake_client {
    struct api_request *request;
    int status; /* HTTP status of the answer; 0 = no answer yet */
    uint32_t retry_after_s;
    struct strbuf body;
    bool begun, ended, dropped;
    size_t room;
    char header[256]; /* last header that was added, as "name: value" */
};

struct world {
    struct serving s;
    struct metrics *metrics;
    struct text_tokenizer *tokenizer;
    uint64_t now_ns;
    bool no_credit, keeps_grammar;
    struct {
        struct request_id id;
        uint32_t i_choice, attempt, n_prompt, n_ids, last_id, n_known_logprobs;
        struct sampling_params sampling;
        bool same_grammar;
        int32_t priority;
        uint64_t deadline_ms;
    } submits[MAX_SUBMITS];
    uint32_t n_submits, n_cancels, n_finishes, n_tried;
    uint32_t most_submits; /* credit in submits; 0 = unlimited */
    struct msg_finish last_finish;
    struct fake_client client;
    const char *id_prefix;
    struct api_key key; /* key of the posted requests */
    struct text_template *chat_template;
    struct u32_span last_bad_words;
    uint32_t bad_words[8];
};

extern struct world w;

int setup(void **state);
int teardown(void **state);
void set_cluster(uint32_t n_ready);
/* Posts a body. The client has one request at a time, so the previous request must have ended. */
void post_as(const struct dialect *d, const char *body);
/* Sends `text` as tokens of submit `i`. The first token has the position `start`. */
void tokens(uint32_t i, uint32_t start, const char *text, enum finish_reason finish);
/* Compares the answer's body, with the request's random id written as ID. */
void assert_body(const char *want);

/* These macros hold the members that are null in OpenAI's whole answers when the request did not
 * ask for them. */
#define ABSENT_OF_TEXT   ",\"prompt_token_ids\":null,\"prompt_logprobs\":null" ABSENT_OF_CHOICE
#define ABSENT_OF_CHOICE ",\"token_ids\":null,\"routed_experts\":null"
#define ABSENT_AT_END                                                                              \
    ",\"kv_transfer_params\":null,\"ec_transfer_params\":null,\"service_tier\":null,"              \
    "\"metrics\":null}"
#define ABSENT_OF_CHAT ",\"prompt_text\":null,\"prompt_logprobs\":null" ABSENT_AT_END
#define DETAILS(cached)                                                                            \
    "\"prompt_tokens_details\":{\"cached_tokens\":" #cached                                        \
    ",\"created_cache_tokens\":null,\"multimodal_tokens\":null}"
#define NO_REASONING ",\"completion_tokens_details\":null"
#define REASONING(n) ",\"completion_tokens_details\":{\"reasoning_tokens\":" #n "}"
#define ABSENT_OF_MESSAGE                                                                          \
    "\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,"
