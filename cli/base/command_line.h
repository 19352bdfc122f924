#pragma once
/* Reads the command line of one command of `cox`. The words are parsed by the command's option
 * table. This header also declares the exit codes, usage lines and warnings. */
#include "common/config/config.h"
#include "common/config/help.h"

enum exit_code { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Copies the strings of argv into the arena `a`, for child processes. They need copies because
 * `command_parse` overwrites secrets in argv itself. */
struct arena;
char **command_copy_words(struct arena *a, int argc, char **argv);

/* Returns the usage line as the command was called. "cox up MODEL" becomes "cox serve MODEL"
 * when `name` is serve. It becomes "vllm serve MODEL" when `cox` was called through a link named
 * vllm. */
enum { COMMAND_USAGE_BYTES = 512 };
const char *command_usage(const char *name, const char *usage, char out[COMMAND_USAGE_BYTES]);

/* Every command calls `command_parse` with its option table. It parses the words and prints
 * --help, warnings and errors.
 * Returns true when the command should continue. Otherwise, *exit_code is set. More than
 * `max_positional` positional words are an error. */
struct command_line {
    const char *usage; /* usage line, such as "cox status [OPTION...]" */
    const struct option_spec *specs;
    size_t n_specs, max_positional;
    /* groups of options in the --help of a long table; NULL = no groups */
    const struct option_group *groups;
    /* value of --log-format in `config`, or NULL; with JSON, warnings are events */
    const int *log_format;
};
bool command_parse(const struct command_line *line, int argc, char **argv, void *config,
                   struct config_result *res, int *exit_code);
/* Writes one line to stderr: "cox up: warning: ...", or an event when the log is JSON. */
void command_warn(const char *name, const char *text);
/* Writes the whole text to stdout. Returns the exit code. */
int command_print(const struct strbuf *b);
