#pragma once
/* `served_model` is one model of a gateway: its tokenizer and templates, the link to its head, its
 * open requests and its adapters. Models share pools, keys and metrics, and nothing else.
 *   OPENING ──files read──▶ OPEN ──leaves──▶ gone, after its last request
 *      └──a file is missing or wrong──▶ FAILED ──a missing file has come──▶ OPEN
 * served.h has the functions. Only the loop thread uses the structs, except while `is_reading`. */
#include "gateway/models/file.h"
#include "gateway/models/link.h"
#include "gateway/models/model.h"
#include "gateway/serving/adapters.h"
#include "gateway/serving/serving.h"

enum served_phase { SERVED_OPENING, SERVED_OPEN, SERVED_FAILED };
/* `served_world` holds what all models of a gateway share; borrowed for the life of the models. */
struct served_world {
    struct loop *loop;
    const struct gateway_config *config; /* options of the gateway itself */
    const char *cache_dir;
    struct metrics *metrics;
    const struct reply_ops *reply;
    struct encode_pool *pool, *compile_pool;
    struct encode_pool *opener; /* thread that reads the files of models; NULL = this thread */
    struct due_list *due;       /* models with work at the end of a turn */
    char node[256];             /* name of this host */
    /* Reports that a head has only one class of priorities. NULL = nobody wants to know. */
    void (*on_one_class)(void *ctx);
    void *ctx;
};

struct served_model {
    struct encode_job job; /* must be the first field: the job's address is the model's */
    const struct served_world *world;
    struct due due; /* in the list while the model has work at the end of a turn */
    enum served_phase phase;
    bool is_reading; /* the opener's thread has the model, so it must not be freed */
    char *name;      /* first name; never changes */
    /* [n_names]: the name, then the aliases. names[0] is `name` itself, because open requests
     * borrow it for their answers; the aliases are owned, and no request keeps one. */
    char **names;
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
    uint64_t
        pause_ns; /* pause before the next try; 0 = the entry itself is wrong, so no try helps */
    struct error read_error;
    uint32_t max_requests;         /* most open requests here; 0 = --max-open-choices alone */
    struct served_model *fallback; /* model that answers when this one is out; NULL = none */
    char fault[600];               /* why the model cannot serve, found here; "" = it can */
    char mark[600]; /* why it cannot serve, as the file says; "" = it does not say so */
    struct served_model *next;
};
