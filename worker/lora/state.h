#pragma once
/* Declares a rank's adapters in memory, and the rows of the present pass that use them. */
#include "common/model/config/config.h"
#include "proto/adapters.h"
#include "worker/lora/setup.h"

struct lora_slot {
    uint64_t id; /* id of the adapter; 0 = free slot */
    char *path;
    struct adapter_identity identity; /* hash of the files from which the id was first loaded */
    struct lora_pair *pairs;          /* [n_weights] of the shard; NULL = not loaded */
    uint64_t digest;                  /* hash of the set of matrices that the adapter changes */
};

struct lora_loss {
    uint64_t id;
    struct error why;
};

struct lora_set {
    struct lora_setup s;
    struct lora_loss *losses; /* [max_loras]; the first n_losses are not reported yet */
    uint32_t n_losses;
    /* configuration of the model as in its checkpoint, to which adapters refer */
    struct model_config config;
    struct program *whole;   /* the model on one rank: names and shapes of its modules */
    const struct program *p; /* program of the shard; NULL = none */
    uint8_t *memory;
    uint64_t n_bytes, slot_bytes;
    /* [max_loras] tables in the device's format; NULL = the device uses no tables */
    uint8_t *tables;
    uint64_t table_stride; /* bytes of one adapter's table */
    struct lora_slot slots[LORA_MAX_SLOTS];
    /* The rows of slot i in the pass are list[first[i]] .. list[first[i + 1] - 1]. */
    uint32_t first[LORA_MAX_SLOTS + 1];
    uint32_t *list;           /* [pass_rows] row numbers, grouped by slot */
    const uint32_t *uploaded; /* `list` or table in device memory */
    struct view gathered, low, high;
};
