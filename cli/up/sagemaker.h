#pragma once
/* `cox serve` as the command of a SageMaker container: what is of the machine, around
 * cli/sagemaker/, which is pure. */
#include "cli/base/command_line.h"
#include "cli/sagemaker/log.h"
#include "cli/sagemaker/settings.h"
#include "cli/up/plan/options.h"

/* Whether `serve` takes DJL's settings: in SageMaker's environment, or where HF_MODEL_ID or
 * OPTION_MODEL_ID names the model and the command line does not, as in a container elsewhere. */
bool up_sagemaker_is_wanted(const struct command_line *line, int argc, char **argv);
/* `serve` alone in SageMaker's environment: prints the settings, and gives them as arguments with
 * those of argv behind them. False: *code says why. owned_argv is for mem_free, its texts and
 * *settings_text (the model's settings for the log, or NULL) are the arena's. */
bool up_sagemaker_argv(int *argc, char **argv, struct arena *arena, char ***owned_argv,
                       const char **settings_text, int *code);
/* The model for the log's lines. */
struct up_sagemaker_model {
    const char *name;               /* as the children get it */
    const char *served_as, *family; /* family NULL: not known */
    const char *settings;           /* of the model, as up_sagemaker_argv gives them; NULL: none */
};
/* With --sagemaker: on stderr in DJL's words, where its users look for them, what `say` says
 * (sagemaker_loading, sagemaker_ready); with sagemaker_loading also how the engine is configured.
 */
void up_sagemaker_say(const struct up_options *o, const struct up_sagemaker_model *model,
                      void (*say)(const struct sagemaker_model *m, struct strbuf *out));
