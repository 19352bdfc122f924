#pragma once
/* Reads the file of --models: which models a gateway serves, by which heads. The file's form is in
 * docs/develop/many-models.md. Reading is pure over the text, except for `models_file_read`. Only
 * one thread uses a `struct models_file`. */
#include "common/base/arena.h"
#include "common/config/config.h"
#include "common/options/gateway.h"

enum {
    MODELS_FILE_MAX = 1 << 20, /* most bytes of the file */
    MODELS_MAX = 256,          /* most models of one gateway */
    MODEL_ALIASES_MAX = 64,    /* most aliases of one model */
    MODEL_NAME_MAX = 255,      /* most bytes of a name */
    ROUTE_TARGETS_MAX = 16,    /* most models of one route */
    ROUTE_WEIGHT_MAX = 1000000
};

/* `models_file_entry` describes one model. All texts belong to the file's arena. */
struct models_file_entry {
    const char *name;
    const char *names[1 + MODEL_ALIASES_MAX]; /* [n_names]: the name, then the aliases */
    uint32_t n_names;
    size_t line;
    struct config_pair *pairs; /* [n_pairs]: options of cox-gateway that belong to a model */
    size_t n_pairs;
    const char *options;   /* the pairs as text; equal texts mean equal options */
    const char *reason;    /* why the model cannot serve (`state: failed`); NULL = it can */
    const char *fallback;  /* name of the model that answers when this one cannot; NULL = none */
    uint32_t max_requests; /* most open requests of one gateway; 0 = --max-open-choices alone */
};

/* `models_file_route` describes a public name that leads to several models. */
struct models_file_route {
    const char *name;
    size_t line;
    struct {
        const char *model;
        uint32_t weight; /* 0 = only for requests that ask for this model by header or key */
    } targets[ROUTE_TARGETS_MAX]; /* [n_targets] */
    uint32_t n_targets;
    const char *mirror; /* name of the model that gets a copy of each request; NULL = none */
};

struct models_file {
    struct arena texts;
    struct models_file_entry *entries; /* [n_entries] */
    uint32_t n_entries;
    struct models_file_route *routes; /* [n_routes] */
    uint32_t n_routes;
};

/* Reads a text. `path` is for error texts. Call `models_file_fini` also after a failure. */
MUST_USE enum status models_file_parse(struct str text, const char *path, struct models_file *out,
                                       struct error *err);
/* Appends the bytes of the file at `path` to `text`, which must have the limit MODELS_FILE_MAX. */
MUST_USE enum status models_file_text(const char *path, struct strbuf *text, struct error *err);
/* Reads the file at `path`. */
MUST_USE enum status models_file_read(const char *path, struct models_file *out, struct error *err);
void models_file_fini(struct models_file *f);
/* Sets the options of an entry in `config`, which holds the gateway's own options. `owned` gets the
 * strings. */
MUST_USE enum status models_file_options(const struct models_file_entry *e, const char *path,
                                         struct gateway_config *config, struct config_result *owned,
                                         struct error *err);
