#pragma once
/* A loaded model's process: a `cox serve` of its own, with its ports, GPUs and settings. Requests
 * that wait for one to be loaded or unloaded are kept here until then. Loop thread only. */
#include "cli/multi_model/table.h"
#include "cli/sagemaker/host.h"
#include "common/loop/loop.h"

struct http_request;

struct model_host {
    struct loop *loop;
    struct model_table *table; /* borrowed */
    const char *root;          /* models are below it */
    char *const *environ_;
    const char *const *argv; /* options of every model */
    uint32_t n_argv;
    /* m serves; loader: who has asked for it, to be answered, or NULL. */
    void (*on_ready)(void *ctx, struct loaded_model *m, struct http_request *loader);
    /* Its process is gone. last_words: its last line, where that was not asked for. */
    void (*on_ended)(void *ctx, struct loaded_model *m, struct http_request *loader,
                     struct http_request *unloader, const char *last_words);
    void *ctx;
    char exe[4096];
    uint32_t n_alive;
};

MUST_USE enum status model_host_init(struct model_host *h, struct error *err);
void model_host_fini(struct model_host *h); /* processes end with us */
/* STATUS_OK: the loader is answered by on_ready or on_ended. Else nothing was started; STATUS_LIMIT
 * and _NO_MEMORY: there is no room now. */
MUST_USE enum status model_process_start(struct model_host *h, struct str name, const char *url,
                                         struct http_request *loader, struct error *err);
/* False: it is being stopped already. Else the unloader is answered by on_ended. */
bool model_process_stop(struct model_host *h, struct loaded_model *m,
                        struct http_request *unloader);
void model_processes_stop(struct model_host *h); /* all, at the end; a second time kills them */
uint32_t model_processes(const struct model_host *h);
/* The client has left. False: nothing here waits for it. */
bool model_process_forget(struct model_host *h, const struct http_request *r);
