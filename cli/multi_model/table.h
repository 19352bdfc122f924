#pragma once
/* The models of one process that loads and unloads them by request (SageMaker's multi-model
 * containers): their names, the GPUs and ports they have, and what is said of them. Pure: it starts
 * nothing. */
#include "common/base/status.h"
#include "common/base/str.h"

enum {
    MODEL_TABLE_MAX = 31,
    MODEL_NAME_MAX = 128,
    MODEL_URL_MAX = 1024,
    MODEL_PORTS = 32, /* of each: gateway, head, its admin API, then workers */
    MODEL_MAX_GPUS = 64
};

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED, MODEL_STOPPING };

struct loaded_model {
    char name[MODEL_NAME_MAX + 1], url[MODEL_URL_MAX + 1];
    enum model_state state;
    uint64_t gpus; /* bit i: GPU i is its own */
    uint16_t port; /* of its gateway; the others follow */
    bool used;
    void *user; /* the owner's */
};

struct model_table {
    struct loaded_model models[MODEL_TABLE_MAX]; /* by slot: its ports */
    uint32_t n_gpus;
    uint16_t first_port, n_slots;
};

/* ports: "LOW-HIGH" (SAGEMAKER_SAFE_PORT_RANGE), NULL: 29000-29999. */
MUST_USE enum status model_table_init(struct model_table *t, uint32_t n_gpus, const char *ports,
                                      struct error *err);
/* Whether a model has it, or would. */
bool model_table_has_port(const struct model_table *t, uint64_t port);
struct loaded_model *model_table_find(struct model_table *t, struct str name);
/* The only one that is ready or loading; NULL: there are none, or several. */
struct loaded_model *model_table_only(struct model_table *t);
uint32_t model_table_free_gpus(const struct model_table *t);
/* A new row, LOADING, with so many GPUs. STATUS_INVALID: a name that is none; STATUS_EXISTS;
 * STATUS_LIMIT: not so many GPUs or ports are free. */
MUST_USE enum status model_table_add(struct model_table *t, struct str name, struct str url,
                                     uint32_t n_gpus, struct loaded_model **out, struct error *err);
void model_table_remove(struct loaded_model *m);
/* "2,3" of the GPUs. */
void model_table_devices(const struct loaded_model *m, struct strbuf *out);

/* Whether url is below root, both absolute and without "." and "..". */
bool model_url_is_below(const char *url, const char *root);

/* {"modelName","modelUrl","status"}. */
void model_table_describe(const struct loaded_model *m, struct strbuf *out);
/* {"models":[...]}: up to limit from slot `from` on, and "nextPageToken" when there are more. */
void model_table_list(const struct model_table *t, uint32_t from, uint32_t limit,
                      struct strbuf *out);
/* /ping's body; false: one has failed. */
bool model_table_ping(const struct model_table *t, struct strbuf *out);
