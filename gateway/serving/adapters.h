#pragma once
/* LoRA adapters as a gateway knows them: the names that requests may use, as the head told them,
 * and vLLM's two calls that change them (POST /v1/load_lora_adapter, /v1/unload_lora_adapter),
 * which it passes on to the head and answers when the head does. Who may call them is routes.c's
 * matter. Time is an argument; loop thread only. */
#include "gateway/request/reply.h"
#include "proto/limits.h"

#define ADAPTER_CALLS_MAX       32u
#define ADAPTER_CALL_TIMEOUT_NS (300ull * 1000000000ull) /* a large one on a slow disk */

struct adapter_call {
    uint64_t ticket, since_ns;
    bool on;
    char name[256];
    void *reply; /* NULL: the place is free, or the client is gone */
};

struct gateway_adapters {
    char *names[PROTO_MAX_ADAPTERS]; /* [n_names], owned */
    char *paths[PROTO_MAX_ADAPTERS]; /* [n_names], owned: what each was loaded from, or its name */
    uint32_t n_names;
    struct adapter_call calls[ADAPTER_CALLS_MAX];
    uint64_t n_tickets;
    const char *const *taken; /* [n_taken]: the model's own names; borrowed */
    size_t n_taken;
    const struct reply_ops *ops;
    void *engine; /* of send */
    enum status (*send)(void *engine, const struct msg_adapter_order *m);
};

void gateway_adapters_fini(struct gateway_adapters *a);
/* NULL: no adapter is called so. Valid until the head tells of others. */
const char *gateway_adapters_find(const struct gateway_adapters *a, struct str name);
void gateway_adapters_on_names(struct gateway_adapters *a, const struct msg_adapters *m);

/* The body of one of the two calls. Answers it now, or when the head does. by: the name of the key
 * that asked, for the head's events; "": there is none. */
void gateway_adapters_call(struct gateway_adapters *a, void *reply, bool on, struct str body,
                           const char *by, uint64_t now_ns);
void gateway_adapters_on_answer(struct gateway_adapters *a, const struct msg_adapter_answer *m);
/* The client is gone. False: the reply is none of these. */
bool gateway_adapters_on_abort(struct gateway_adapters *a, const void *reply);
void gateway_adapters_on_link_lost(struct gateway_adapters *a);
void gateway_adapters_tick(struct gateway_adapters *a, uint64_t now_ns);
