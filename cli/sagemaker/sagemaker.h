#pragma once
/* `cox serve` as a SageMaker container's command: the settings of DJL Serving's LMI containers
 * (environment, and serving.properties beside the weights) as arguments of `cox up`.
 * docs/sagemaker.md has them. Pure: it reads no file and no environment of its own. */
#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum { SAGEMAKER_MAX_ARGS = 96, SAGEMAKER_MAX_WARNINGS = 16 };

struct sagemaker_input {
    char *const *environ_; /* NULL-terminated NAME=VALUE */
    struct str properties; /* of serving.properties; empty: there is none */
    bool has_weights;      /* the model store holds a model of its own */
    uint32_t n_gpus;
};

struct sagemaker_output { /* texts are the arena's */
    const char *args[SAGEMAKER_MAX_ARGS];
    uint32_t n_args; /* the model first; without the command's name */
    const char *warnings[SAGEMAKER_MAX_WARNINGS];
    uint32_t n_warnings;
    uint32_t n_model_gpus;       /* of one copy of the model: shares by stages */
    uint64_t required_memory_mb; /* of the host; 0: not given */
    uint64_t reserved_memory_mb; /* to be left free */
};

/* Whether SageMaker, or somebody who wants its ways, has started us. */
bool sagemaker_is_here(char *const *environ_);
/* Models come and go by request: SAGEMAKER_MULTI_MODEL (models.h). */
bool sagemaker_is_multi_model(char *const *environ_);
/* A variable; NULL: not set, or empty. */
const char *sagemaker_variable(char *const *environ_, const char *name);
/* Where the model is mounted: SERVING_MODEL_STORE, or /opt/ml/model. */
const char *sagemaker_model_store(char *const *environ_);
MUST_USE enum status sagemaker_read(const struct sagemaker_input *in, struct arena *arena,
                                    struct sagemaker_output *out, struct error *err);
/* The settings as DJL logs them at its start, secrets masked (sagemaker_log.c): those of the
 * server, and, behind its line about the model's kind, those of the model. o: of sagemaker_read. */
void sagemaker_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                        struct strbuf *out);
void sagemaker_model_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                              struct strbuf *out);
/* What DJL says when a model is about to be loaded, and when it is served. */
struct sagemaker_model {
    const char *name, *family,
        *rolling_batch; /* family: as its config.json says; NULL: not known */
    const char *host;
    uint32_t port, tp, dp, n_gpus;
    const char *settings; /* of sagemaker_model_settings; NULL: none */
};
void sagemaker_loading(const struct sagemaker_model *m, struct strbuf *out);
void sagemaker_ready(const struct sagemaker_model *m, struct strbuf *out);
