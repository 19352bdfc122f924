#pragma once
/* `cox serve` as the command of a SageMaker container: what is of the machine, around sagemaker.c,
 * which is pure. */
#include "cli/base/command_line.h"
#include "cli/sagemaker/sagemaker.h"
#include "cli/up/plan/options.h"

/* Whether `serve` takes DJL's settings: in SageMaker's environment, or where HF_MODEL_ID or
 * OPTION_MODEL_ID names the model and the command line does not, as in a container elsewhere. */
bool up_sagemaker_is_wanted(const struct command_line *line, int argc, char **argv);
/* `serve` alone in SageMaker's environment: prints the settings, and gives them as arguments with
 * those of argv behind them. False: *code says why. owned_argv is for mem_free, its texts and
 * *settings_text (the model's settings for the log, or NULL) are the arena's. */
bool up_sagemaker_argv(int *argc, char **argv, struct arena *arena, char ***owned_argv,
                       const char **settings_text, int *code);
/* Appends one line, "… Initializing an LLM engine (v…) with config: …". model: as it was given;
 * name: as it is served. Reads the model's files for its length. */
void up_sagemaker_engine(const struct up_options *o, const char *model, const char *name,
                         struct strbuf *out);
