#pragma once
/* Converts the settings of DJL Serving's LMI containers to arguments of `cox up`, for `cox
 * serve` as the command of a SageMaker container. The settings are in the environment, and in
 * serving.properties next to the weights. docs/reference/sagemaker.md describes them. The
 * functions are pure: the caller passes the environment and the file's text. */
#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum { SAGEMAKER_MAX_ARGS = 96, SAGEMAKER_MAX_WARNINGS = 16 };

struct sagemaker_input {
    char *const *environ_; /* environment: NAME=VALUE strings, NULL at the end */
    struct str properties; /* text of serving.properties; empty = no file */
    bool has_weights;      /* the model store contains weights */
    uint32_t n_gpus;
};

struct sagemaker_output { /* Holds the arguments and warnings. The strings are on the arena. */
    const char *args[SAGEMAKER_MAX_ARGS];
    /* number of arguments, without the command's name; the first argument is the model */
    uint32_t n_args;
    const char *warnings[SAGEMAKER_MAX_WARNINGS];
    uint32_t n_warnings;
    uint32_t n_model_gpus;       /* GPUs of one copy of the model: TP x PP */
    uint64_t required_memory_mb; /* host memory that the model needs, in MB; 0 = not given */
    uint64_t reserved_memory_mb; /* host memory that must stay free, in MB */
};

/* Returns true when SageMaker, or a user who sets its variables, has started this process. */
bool sagemaker_is_here(char *const *environ_);
/* Returns true when SAGEMAKER_MULTI_MODEL is set: models are loaded and unloaded by request
 * (cli/multi_model). */
bool sagemaker_is_multi_model(char *const *environ_);
/* Returns the value of a variable; NULL = not set, or empty. */
const char *sagemaker_variable(char *const *environ_, const char *name);
/* Returns the folder where the model is mounted: SERVING_MODEL_STORE, or /opt/ml/model. */
const char *sagemaker_model_store(char *const *environ_);
/* Splits a line of a Java properties file, KEY = VALUE or KEY: VALUE, and removes the whitespace
 * around key and value. Returns false for a comment or a blank line. */
bool sagemaker_split_property(struct str line, struct str *key, struct str *value);
MUST_USE enum status sagemaker_read(const struct sagemaker_input *in, struct arena *arena,
                                    struct sagemaker_output *out, struct error *err);
