#pragma once
/* Declares the commands of `cox`. Each command has one row in cli/table.c and one function,
 * which gets argv with the command's name at argv[0]. The function returns the process's exit
 * code (enum exit_code). */
#include <stddef.h>

#include "common/config/config.h"
#include "common/config/help.h"

struct command_table;

struct command {
    const char *name; /* name; in "bench serve" the second word is a subcommand of the first */
    /* arguments in the usage line; text in `cox help`, NULL = not listed */
    const char *arguments, *help;
    int (*run)(int argc, char **argv);
    /* option table, for completion and docs/reference/flags.md; NULL = no options */
    const struct option_spec *specs;
    const size_t *n_specs;
    /* groups of a long option table in --help; NULL = no groups */
    const struct option_group *groups;
    /* function of a command that needs the table with this row; it replaces `run` */
    int (*run_among)(const struct command_table *t, int argc, char **argv);
};

/* `command_section` describes the commands that `cox help` lists below one title. */
struct command_section {
    const char *title; /* title above the commands; NULL ends the list */
    const char *names; /* names of the commands in their order, separated by spaces */
};

struct command_table {
    const struct command *rows;
    size_t n;
    const struct command_section *sections;
};

int cmd_up(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_head(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_workers(int argc, char **argv);
int cmd_gateway(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_usage(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_scale(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_undrain(int argc, char **argv);
int cmd_sleep(int argc, char **argv);
int cmd_wake(int argc, char **argv);
int cmd_debug(int argc, char **argv);
int cmd_lora(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_complete(int argc, char **argv);
int cmd_smoke(int argc, char **argv);
int cmd_pull(int argc, char **argv);
/* Lists the cache; with a subcommand it runs that one. */
int cmd_models(const struct command_table *t, int argc, char **argv);
int cmd_models_list(int argc, char **argv);
int cmd_models_add(int argc, char **argv);
int cmd_models_rm(int argc, char **argv);
int cmd_models_alias(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_run_batch(int argc, char **argv);
int cmd_keys(int argc, char **argv);
int cmd_join_token(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_version_line(void); /* `cox --version` and `vllm --version`: one line */
int cmd_completion(const struct command_table *t, int argc, char **argv);
int cmd_help(const struct command_table *t, int argc, char **argv);
int cmd_flags(const struct command_table *t, int argc, char **argv);

/* Implements `cox run`: with -f FILE it runs the file, otherwise a subcommand. */
int cmd_run(const struct command_table *t, int argc, char **argv);
int cmd_run_create(int argc, char **argv);
int cmd_run_list(int argc, char **argv);
int cmd_run_show(int argc, char **argv);
int cmd_run_logs(int argc, char **argv);
int cmd_run_terminate(int argc, char **argv);
int cmd_run_delete(int argc, char **argv);
int cmd_run_render(int argc, char **argv);
/* Runs a subcommand of `cox bench`. */
int cmd_bench(const struct command_table *t, int argc, char **argv);
int cmd_bench_serve(int argc, char **argv);
int cmd_bench_throughput(int argc, char **argv);
int cmd_bench_latency(int argc, char **argv);
int cmd_bench_startup(int argc, char **argv);
