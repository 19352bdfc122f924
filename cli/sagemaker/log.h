#pragma once
/* Writes the lines of a SageMaker container's log, as DJL writes them: the settings at the
 * start, and the model while it is loaded and served. The functions are pure and may run on any
 * thread. */
#include "cli/sagemaker/settings.h"

/* Appends the settings as DJL logs them at its start, with secrets masked. The settings of the
 * server are first. DJL's line about the model's kind follows, then the settings of the model.
 * `o` comes from sagemaker_read. */
void sagemaker_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                        struct strbuf *out);
void sagemaker_model_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                              struct strbuf *out);
/* `sagemaker_model` describes the model for the lines that DJL writes when it begins to load a
 * model, and when the model is served. */
struct sagemaker_model {
    /* family: the model's family from config.json; NULL = unknown */
    const char *name, *family, *rolling_batch;
    const char *host;
    uint32_t port, tp, dp, n_gpus;
    const char *settings; /* text of the model's settings (sagemaker_model_settings); NULL = none */
};
void sagemaker_loading(const struct sagemaker_model *m, struct strbuf *out);
void sagemaker_ready(const struct sagemaker_model *m, struct strbuf *out);
