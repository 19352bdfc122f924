#pragma once
/* `served_model` is one model of a gateway: its tokenizer and templates, the link to its head, its
 * open requests and its adapters. Models share pools, keys and metrics, and nothing else.
 *   OPENING ──files read──▶ OPEN ──leaves──▶ gone, after its last request
 *      └──a file is missing or wrong──▶ FAILED ──a missing file has come──▶ OPEN
 * Requests that arrive while a model is OPENING wait in its serving. Only the loop thread calls
 * these functions; the files are read on a thread of the set. */
#include "gateway/models/file.h"
#include "gateway/models/link.h"
#include "gateway/models/model.h"
#include "gateway/serving/adapters.h"
#include "gateway/serving/serving.h"

enum served_phase { SERVED_OPENING, SERVED_OPEN, SERVED_FAILED };
/* state of a model for clients, the value of "state" in /v1/models */
enum served_state { STATE_LOADING, STATE_SERVING, STATE_ASLEEP, STATE_FAILED };

/* `served_world` holds what all models of a gateway share; borrowed for the life of the models. */
struct served_world {
    struct loop *loop;
    const struct gateway_config *config; /* options of the gateway itself */
    const char *cache_dir;
    struct metrics *metrics;
    const struct reply_ops *reply;
    struct encode_pool *pool, *compile_pool;
    struct encode_pool *opener; /* thread that reads the files of models; NULL = this thread */
    char node[256];             /* name of this host */
    /* Reports that a head has only one class of priorities. NULL = nobody wants to know. */
    void (*on_one_class)(void *ctx);
    void *ctx;
};

struct served_model {
    struct encode_job job; /* must be the first field: the job's address is the model's */
    const struct served_world *world;
    enum served_phase phase;
    bool is_reading; /* the opener's thread has the model, so it must not be freed */
    char *name;      /* first name; never changes */
    char **names;    /* [n_names]: the name, then the aliases; owned */
    uint32_t n_names;
    char *options;   /* options of the entry as text (models_file_entry); NULL = the gateway's */
    bool is_leaving; /* no name leads here; the model is freed after its last request */
    struct gateway_config config;
    struct config_result config_strings;
    struct gateway_model model;
    struct gateway_link link;
    struct serving serving;
    struct gateway_adapters adapters;
    enum status read_status;
    uint64_t read_ns; /* when the last try to read the files ended */
    struct error read_error;
    uint32_t max_requests;         /* most open requests here; 0 = --max-open-choices alone */
    struct served_model *fallback; /* model that answers when this one is out; NULL = none */
    char failure[600];             /* why the model cannot serve; "" = it can */
    struct served_model *next;
};

/* Makes a model from an entry and begins to read its files. Never fails: a fault becomes the phase
 * FAILED. */
struct served_model *served_model_new(const struct served_world *w,
                                      const struct models_file_entry *e, const char *path);
/* Makes the only model of a gateway without --models, from the gateway's own options, and reads
 * its files on this thread. *out is set also after a failure. */
MUST_USE enum status served_model_own(const struct served_world *w, struct served_model **out,
                                      struct error *err);
/* Reads the files again, after a pause, when they were missing the last time: another process may
 * be downloading them into the cache. */
void served_model_try_again(struct served_model *m);
/* Sets the names of the model. names[0] must be its name. */
void served_model_rename(struct served_model *m, const char *const *names, uint32_t n);
/* Sets why the model cannot serve, as the file says; NULL = it can. */
void served_model_mark(struct served_model *m, const char *reason);
/* Returns the state, and sets *why to a text for clients; "" for SERVING. */
enum served_state served_model_state(const struct served_model *m, const char **why);
const char *served_state_name(enum served_state s);
/* Returns true when requests may be sent to the model, perhaps to wait there. */
bool served_model_healthy(const struct served_model *m, const char **why);
/* Returns true when the model can be freed: it leaves and no request or thread needs it. */
bool served_model_is_gone(const struct served_model *m);
void served_model_free(struct served_model *m);
