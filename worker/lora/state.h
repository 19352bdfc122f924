#pragma once
/* A rank's adapters in memory, and the rows of the pass at hand that have one. */
#include "common/model/config/config.h"
#include "proto/adapters.h"
#include "worker/lora/setup.h"

struct lora_slot {
    uint64_t id; /* 0: free */
    char *path;
    struct adapter_identity identity; /* of what was read first under the id */
    struct lora_pair *pairs;          /* [n_weights] of the shard; NULL: not read */
    uint64_t digest;                  /* of which matrices it has something for */
};

struct lora_loss {
    uint64_t id;
    struct error why;
};

struct lora_set {
    struct lora_setup s;
    struct lora_loss *losses; /* [max_loras]; n_losses that nobody asked for yet */
    uint32_t n_losses;
    struct model_config config; /* as if the model were a checkpoint, which adapters are made for */
    struct program *whole; /* of one rank: what the model's modules are called, and their shapes */
    const struct program *p; /* the shard; NULL: there is none */
    uint8_t *memory;
    uint64_t n_bytes, slot_bytes;
    uint8_t *tables;       /* [max_loras], as the device wants adapters told; NULL: it does not */
    uint64_t table_stride; /* bytes */
    struct lora_slot slots[LORA_MAX_SLOTS];
    /* of the pass: rows of slot i are list[first[i]] .. list[first[i + 1] - 1] */
    uint32_t first[LORA_MAX_SLOTS + 1];
    uint32_t *list;           /* [pass_rows] */
    const uint32_t *uploaded; /* as the device reads it */
    struct view gathered, low, high;
};
