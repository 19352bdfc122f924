#pragma once
/* Has the frame of the commands that call a head: parse the options, reach the head, call it, and
 * print its answer or the error. */
#include "cli/base/command_line.h"
#include "cli/client/admin.h"

enum { EXIT_UNREACHABLE = 2 };

/* Parses the options and calls `run`, whose result is the exit code. `words` are the words that are
 * no options. */
int reach_run(int argc, char **argv, const struct command_line *line,
              int (*run)(const char *command, struct admin_access *o,
                         const struct option_list *words));
/* Follows a standby to the serving head (`admin_follow`). When no head answers, it tells where this
 * user's clusters are. */
bool reach_head(struct admin_access *o, const char *command, bool tell);
/* Prints the error of a call in its printable form. Returns the exit code: EXIT_UNREACHABLE when no
 * server answers or the key is refused, otherwise EXIT_FAILED. */
int reach_fail(const char *command, enum status s, const struct error *err);
/* Prints an answer as JSON, with the flags of jansson. */
void reach_print(const json_t *answer, size_t flags);
