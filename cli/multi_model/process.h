#pragma once
/* Runs the process of a loaded model: a `cox serve` with its own ports, GPUs and settings. The
 * struct also keeps each request that waits until a model is loaded or unloaded. Only the loop
 * thread calls these functions. */
#include "cli/multi_model/table.h"
#include "cli/sagemaker/host.h"
#include "common/loop/loop.h"

struct http_request;

struct model_host {
    struct loop *loop;
    struct model_table *table; /* table of the models, borrowed */
    const char *root;          /* folder above all models */
    char *const *environ_;
    const char *const *argv; /* options of `cox up` that every model gets */
    uint32_t n_argv;
    /* Called when model `m` serves. `loader` is the request that loaded the model and waits for
     * an answer, or NULL. */
    void (*on_ready)(void *ctx, struct loaded_model *m, struct http_request *loader);
    /* Called when the process of model `m` has ended. `last_words` is the last line of its log. */
    void (*on_ended)(void *ctx, struct loaded_model *m, struct http_request *loader,
                     struct http_request *unloader, const char *last_words);
    void *ctx;
    char exe[4096];
    uint32_t n_alive;
};

MUST_USE enum status model_host_init(struct model_host *h, struct error *err);
/* Frees the struct; the model processes end together with this process. */
void model_host_fini(struct model_host *h);
/* Starts the process of a model.
 * STATUS_OK: on_ready or on_ended answers the loader. STATUS_LIMIT and STATUS_NO_MEMORY: there
 * are not enough resources now. Any status except STATUS_OK means that no process was started. */
MUST_USE enum status model_process_start(struct model_host *h, struct str name, const char *url,
                                         struct http_request *loader, struct error *err);
/* Stops the model's process. Returns false when the process is already being stopped. Otherwise,
 * on_ended answers the unload request. */
bool model_process_stop(struct model_host *h, struct loaded_model *m,
                        struct http_request *unloader);
/* Stops all processes when this program ends. A second call kills the processes. */
void model_processes_stop(struct model_host *h);
uint32_t model_processes(const struct model_host *h);
/* Drops a request whose client has left. Returns false when the request is not in this struct. */
bool model_process_forget(struct model_host *h, const struct http_request *r);
