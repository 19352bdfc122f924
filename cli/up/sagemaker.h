#pragma once
/* Implements the parts of `cox serve` in a SageMaker container that read files or print.
 * cli/sagemaker/settings.h and cli/sagemaker/log.h have the pure parts. */
#include "cli/base/command_line.h"
#include "cli/sagemaker/log.h"
#include "cli/sagemaker/settings.h"
#include "cli/up/plan/options.h"

/* Returns true when `serve` uses DJL's settings. It does so in SageMaker's environment, and when
 * HF_MODEL_ID or OPTION_MODEL_ID names the model and the command line does not. */
bool up_sagemaker_is_wanted(const struct command_line *line, int argc, char **argv);
/* Prints the settings and builds a new argv: the settings as arguments, followed by the words of
 * argv. Returns false with *code set on an error. The caller frees owned_argv with mem_free. The
 * strings of owned_argv and *settings_text (the model's settings for the log, or NULL) are on
 * the arena. */
bool up_sagemaker_argv(int *argc, char **argv, struct arena *arena, char ***owned_argv,
                       const char **settings_text, int *code);
/* `up_sagemaker_model` describes the model for DJL's log lines. */
struct up_sagemaker_model {
    const char *name;               /* MODEL on the children's command lines */
    const char *served_as, *family; /* served name and model family; family NULL = unknown */
    const char *settings; /* text of the model's settings from up_sagemaker_argv; NULL = none */
};
/* With --sagemaker, prints the lines of `say` (sagemaker_loading or sagemaker_ready) to stderr
 * in DJL's words. sagemaker_loading is followed by the engine's configuration. Without
 * --sagemaker it does nothing. */
void up_sagemaker_say(const struct up_options *o, const struct up_sagemaker_model *model,
                      void (*say)(const struct sagemaker_model *m, struct strbuf *out));
