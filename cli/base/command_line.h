#pragma once
/* A command of `cox` and its command line: exit codes, usages, warnings, and the options that its
 * table names. */
#include "common/config/config.h"
#include "common/config/help.h"

enum exit_code { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Copies of argv, for children: command_parse overwrites secrets in argv itself. */
struct arena;
char **command_copy_words(struct arena *a, int argc, char **argv);

/* usage as the command was called: "cox up MODEL" of a command called serve is "cox serve MODEL",
 * or "vllm serve MODEL" behind a link of that name. */
enum { COMMAND_USAGE_BYTES = 512 };
const char *command_usage(const char *name, const char *usage, char out[COMMAND_USAGE_BYTES]);

/* Every command calls command_parse with its table: it parses, prints --help or warnings, says what
 * is wrong. Returns true to go on; else *exit_code is set. max_positional: more is an error. */
struct command_line {
    const char *usage; /* "cox status [OPTION...]" */
    const struct option_spec *specs;
    size_t n_specs, max_positional;
    const struct option_group *groups; /* groups of --help, for a long table; or NULL */
    const int *log_format; /* in the struct that is filled: warnings are events too; or NULL */
};
bool command_parse(const struct command_line *line, int argc, char **argv, void *config,
                   struct config_result *res, int *exit_code);
/* One line on stderr: "cox up: warning: ...", or an event where the log is JSON. */
void command_warn(const char *name, const char *text);
/* The whole text on stdout; the exit code. */
int command_print(const struct strbuf *b);
