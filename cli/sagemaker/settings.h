#pragma once
/* `cox serve` as a SageMaker container's command: the settings of DJL Serving's LMI containers
 * (environment, and serving.properties beside the weights) as arguments of `cox up`.
 * docs/reference/sagemaker.md has them. Pure: it reads no file and no environment of its own. */
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
/* Models come and go by request: SAGEMAKER_MULTI_MODEL (cli/multi_model). */
bool sagemaker_is_multi_model(char *const *environ_);
/* A variable; NULL: not set, or empty. */
const char *sagemaker_variable(char *const *environ_, const char *name);
/* The folder that the model is mounted at: SERVING_MODEL_STORE, or /opt/ml/model. */
const char *sagemaker_model_store(char *const *environ_);
MUST_USE enum status sagemaker_read(const struct sagemaker_input *in, struct arena *arena,
                                    struct sagemaker_output *out, struct error *err);
