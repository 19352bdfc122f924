#pragma once
/* Keeps the models of a process that loads and unloads them by request (SageMaker's multi-model
 * containers): names, GPUs, ports, and the JSON about them. The functions are pure and may run
 * on any thread. */
#include "common/base/status.h"
#include "common/base/str.h"

enum {
    MODEL_TABLE_MAX = 31,
    MODEL_NAME_MAX = 128,
    MODEL_URL_MAX = 1024,
    MODEL_PORTS = 32, /* number of ports per model: gateway, head, its admin API, then workers */
    MODEL_MAX_GPUS = 64
};

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED, MODEL_STOPPING };

struct loaded_model {
    char name[MODEL_NAME_MAX + 1], url[MODEL_URL_MAX + 1];
    enum model_state state;
    uint64_t gpus; /* mask of the model's GPUs; bit i = GPU i */
    uint16_t port; /* port of the model's gateway; the model's other ports follow */
    bool used;
    void *user; /* data of the table's owner */
};

struct model_table {
    /* rows of the table; a row's index is its slot, which gives the ports */
    struct loaded_model models[MODEL_TABLE_MAX];
    uint32_t n_gpus;
    uint16_t first_port, n_slots;
};

/* Makes an empty table. `ports` is "LOW-HIGH" (SAGEMAKER_SAFE_PORT_RANGE); NULL = 29000-29999. */
MUST_USE enum status model_table_init(struct model_table *t, uint32_t n_gpus, const char *ports,
                                      struct error *err);
/* Returns true when a model has the port, or may get it. */
bool model_table_has_port(const struct model_table *t, uint64_t port);
struct loaded_model *model_table_find(struct model_table *t, struct str name);
/* Returns the only model that is ready or loading; NULL = none, or several. */
struct loaded_model *model_table_only(struct model_table *t);
uint32_t model_table_free_gpus(const struct model_table *t);
/* Adds a row in state LOADING with n_gpus GPUs. STATUS_INVALID: the name is not valid.
 * STATUS_EXISTS: the name is taken. STATUS_LIMIT: not enough free GPUs or ports. */
MUST_USE enum status model_table_add(struct model_table *t, struct str name, struct str url,
                                     uint32_t n_gpus, struct loaded_model **out, struct error *err);
void model_table_remove(struct loaded_model *m);
/* Appends the numbers of a model's GPUs: "2,3". */
void model_table_devices(const struct loaded_model *m, struct strbuf *out);

/* Returns true when `url` is below `root`. Both must be absolute, without "." and "..". */
bool model_url_is_below(const char *url, const char *root);

/* Appends the JSON object of a model: {"modelName","modelUrl","status"}. */
void model_table_describe(const struct loaded_model *m, struct strbuf *out);
/* Appends the list {"models":[...]}: up to `limit` models from slot `from` on. The list has a
 * "nextPageToken" when there are more models. */
void model_table_list(const struct model_table *t, uint32_t from, uint32_t limit,
                      struct strbuf *out);
/* Appends the body of /ping. Returns false when a model has failed. */
bool model_table_ping(const struct model_table *t, struct strbuf *out);
