#pragma once
/* Keeps the LoRA adapters of a gateway: the names that requests may use, as the head reports
 * them. Also handles vLLM's two calls that change them (POST /v1/load_lora_adapter,
 * /v1/unload_lora_adapter). A call is forwarded to the head and answered when the head answers.
 * routes.c decides which keys may make these calls. Time is an argument. Only the loop thread
 * calls these functions. */
#include "gateway/request/reply.h"
#include "proto/limits.h"

#define ADAPTER_CALLS_MAX 32u
/* nanoseconds for a call, enough for a large adapter on a slow disk */
#define ADAPTER_CALL_TIMEOUT_NS (300ull * 1000000000ull)

struct adapter_call {
    uint64_t ticket, since_ns;
    bool on;
    char name[256];
    void *reply; /* reply of the call; NULL = the entry is free, or the client has disconnected */
};

struct gateway_adapters {
    char *names[PROTO_MAX_ADAPTERS]; /* [n_names]: names of the adapters; owned */
    /* [n_names]: source path of each adapter, or its name; owned */
    char *paths[PROTO_MAX_ADAPTERS];
    uint32_t n_names;
    struct adapter_call calls[ADAPTER_CALLS_MAX];
    uint64_t n_tickets;
    const char *const *taken; /* [n_taken]: names of the model itself; borrowed */
    size_t n_taken;
    const struct reply_ops *ops;
    void *engine; /* first argument of `send` */
    enum status (*send)(void *engine, const struct msg_adapter_order *m);
};

void gateway_adapters_fini(struct gateway_adapters *a);
/* Returns the adapter's name, or NULL when there is no such adapter. The name is valid until the
 * head reports other names. */
const char *gateway_adapters_find(const struct gateway_adapters *a, struct str name);
void gateway_adapters_on_names(struct gateway_adapters *a, const struct msg_adapters *m);

/* Handles the body of one of the two calls. The call is answered now or when the head answers.
 * `by` is the name of the caller's key, for the head's events, or "" without a key. */
void gateway_adapters_call(struct gateway_adapters *a, void *reply, bool on, struct str body,
                           const char *by, uint64_t now_ns);
void gateway_adapters_on_answer(struct gateway_adapters *a, const struct msg_adapter_answer *m);
/* Handles a client that has disconnected. Returns false when the reply belongs to no call here. */
bool gateway_adapters_on_abort(struct gateway_adapters *a, const void *reply);
/* Returns true while a call waits for the head. */
bool gateway_adapters_has_calls(const struct gateway_adapters *a);
void gateway_adapters_on_link_lost(struct gateway_adapters *a);
void gateway_adapters_tick(struct gateway_adapters *a, uint64_t now_ns);
