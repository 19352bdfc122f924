#pragma once
/* The lines of a SageMaker container's log, as DJL writes them: the settings at the start, and a
 * model's way until it is served. Pure. */
#include "cli/sagemaker/settings.h"

/* The settings as DJL logs them at its start, secrets masked: those of the
 * server, and, behind its line about the model's kind, those of the model. o: of sagemaker_read. */
void sagemaker_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                        struct strbuf *out);
void sagemaker_model_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                              struct strbuf *out);
/* The model in the lines that DJL writes when it is about to be loaded, and when it is served. */
struct sagemaker_model {
    const char *name, *family,
        *rolling_batch; /* family: as its config.json says; NULL: not known */
    const char *host;
    uint32_t port, tp, dp, n_gpus;
    const char *settings; /* of sagemaker_model_settings; NULL: none */
};
void sagemaker_loading(const struct sagemaker_model *m, struct strbuf *out);
void sagemaker_ready(const struct sagemaker_model *m, struct strbuf *out);
