#pragma once
/* The subcommands of `cox`: one row each, one function each. A command gets argv with its own name
 * at argv[0] and returns the process's exit code. */
#include <stddef.h>

#include "common/config/config.h"

enum exit_code { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct command {
    const char *name; /* "bench serve": a second word chooses among those of the first */
    const char *arguments, *help; /* help NULL: not listed */
    int (*run)(int argc, char **argv);
    const struct option_spec *specs; /* for completion and docs/flags.md; may be NULL */
    const size_t *n_specs;
};

extern const struct command commands[];
extern const size_t n_commands;

const struct command *command_find(const char *name);
/* The listed command that is nearest to a name that does not exist, or NULL when none is near. */
const struct command *command_nearest(const char *name);

int cmd_up(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_head(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_workers(int argc, char **argv);
int cmd_gateway(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_scale(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_undrain(int argc, char **argv);
int cmd_debug(int argc, char **argv);
int cmd_lora(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_complete(int argc, char **argv);
int cmd_smoke(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_run_batch(int argc, char **argv);
int cmd_keys(int argc, char **argv);
int cmd_join_token(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_flags(int argc, char **argv);

/* Copies of argv, for children: command_parse overwrites secrets in argv itself. */
struct arena;
char **command_copy_words(struct arena *a, int argc, char **argv);

/* usage as the command was called: "cox up MODEL" of a command called serve is "cox serve MODEL",
 * or "vllm serve MODEL" behind a link of that name. */
enum { COMMAND_USAGE_BYTES = 512 };
const char *command_usage(const char *name, const char *usage, char out[COMMAND_USAGE_BYTES]);

/* What every command does with its table: parse, print --help or warnings, say what is wrong.
 * Returns true to go on; else *exit_code is set. max_positional: more is an error. */
struct command_line {
    const char *usage; /* "cox status [OPTION...]" */
    const struct option_spec *specs;
    size_t n_specs, max_positional;
    const int *log_format; /* in the struct that is filled: warnings are events too; or NULL */
};
bool command_parse(const struct command_line *line, int argc, char **argv, void *config,
                   struct config_result *res, int *exit_code);
/* One line on stderr: "cox up: warning: ...", or an event where the log is JSON. */
void command_warn(const char *name, const char *text);
