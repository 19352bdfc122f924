#include "cli/base/command_line.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/tables.h"
#include "cli/bench/bench.h"
#include "cli/commands/vllm.h"
#include "cli/run/source.h"
#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/config/distance.h"
#include "common/config/hide.h"
#include "common/config/print.h"
#include "common/options/gateway.h"
#include "common/options/head.h"
#include "common/options/plan.h"
#include "common/options/replay.h"
#include "common/options/worker.h"

extern char **environ;

#define TABLE(t) .specs = t##_specs, .n_specs = &t##_n_specs

const struct command commands[] = {
    {"up", "MODEL [OPTION...]", "a whole cluster on this machine, supervised", cmd_up, TABLE(up)},
    {"serve", "MODEL [OPTION...]", "the same as up, by vLLM's name", cmd_serve, TABLE(up)},
    {"pull", "MODEL [OPTION...]", "fetch a model into the cache", cmd_pull, TABLE(pull)},
    {"models", "[OPTION...]", "list the models in the cache", cmd_models, TABLE(models)},
    {"rm", "MODEL... [OPTION...]", "remove models from the cache", cmd_rm, TABLE(rm)},
    {"head", "[OPTION...]", "one head (cox-head)", cmd_head, head_option_specs,
     &head_n_option_specs},
    {"worker", "[OPTION...]", "one worker (cox-worker)", cmd_worker, worker_option_specs,
     &worker_n_option_specs},
    {"workers", "--ranks N [OPTION...]", "several workers of one pod, supervised", cmd_workers,
     TABLE(workers)},
    {"gateway", "[OPTION...]", "one gateway (cox-gateway)", cmd_gateway, gateway_options,
     &n_gateway_options},
    {"status", "[OPTION...]", "nodes, groups, KV blocks, requests of a running cluster", cmd_status,
     TABLE(status)},
    {"top", "[OPTION...]", "the same live: tokens/s, sequences, bars of the KV cache", cmd_top,
     TABLE(top)},
    {"chat", "[OPTION...]", "talk to a model, streamed", cmd_chat, TABLE(chat)},
    {"complete", "[TEXT] [OPTION...]", "continue a text, or what comes on stdin", cmd_complete,
     TABLE(complete)},
    {"smoke", "[OPTION...]", "ask a gateway for a little of everything, until it answers right",
     cmd_smoke, TABLE(smoke)},
    {"run", "-f FILE [OPTION...]",
     "what a run file says, here; create, list, show, logs, terminate, delete, render", cmd_run,
     TABLE(run)},
    {"run create", "-f FILE | --from ID [OPTION...]", "in the background", cmd_run_create,
     TABLE(run_create)},
    {"run list", "[OPTION...]", "the runs that are kept here", cmd_run_list, TABLE(run_list)},
    {"run show", "ID [OPTION...]", "what a run is, and where it listens", cmd_run_show,
     TABLE(run_show)},
    {"run logs", "ID [OPTION...]", "what a run said", cmd_run_logs, TABLE(run_logs)},
    {"run terminate", "ID [OPTION...]", "end a run", cmd_run_terminate, TABLE(run_terminate)},
    {"run delete", "ID [OPTION...]", "forget a run that has ended", cmd_run_delete,
     TABLE(run_delete)},
    {"run render", "-f FILE [OPTION...]", "a run file as Kubernetes objects", cmd_run_render,
     TABLE(run_render)},
    {"run-batch", "[MODEL] -i IN.jsonl -o OUT.jsonl [OPTION...]", "a file of requests to a cluster",
     cmd_run_batch, TABLE(run_batch)},
    {"bench", "serve|throughput|latency|startup [OPTION...]",
     "benchmarks with the flags and the figures of vLLM's", cmd_bench, NULL, NULL},
    {"bench serve", "[OPTION...]", "a load of streams against a server that runs", cmd_bench_serve,
     TABLE(bench_serve)},
    {"bench throughput", "--model MODEL [OPTION...]",
     "all prompts at once, in requests and tokens/s", cmd_bench_throughput,
     TABLE(bench_throughput)},
    {"bench latency", "--model MODEL [OPTION...]", "a batch after the other, in seconds",
     cmd_bench_latency, TABLE(bench_latency)},
    {"bench startup", "--model MODEL [OPTION...]", "until requests are served, cold and warm",
     cmd_bench_startup, TABLE(bench_startup)},
    {"drain", "WORKER|all [OPTION...]", "take the work away from a worker", cmd_drain,
     TABLE(drain)},
    {"undrain", "WORKER|all [OPTION...]", "let it have work again: drain --undo", cmd_undrain,
     TABLE(undrain)},
    {"lora", "list | load NAME=FOLDER | unload NAME [OPTION...]",
     "adapters that are loaded, while the cluster runs", cmd_lora, TABLE(lora)},
    {"ps", "[NAME] [OPTION...]", "list the clusters that `cox up` runs on this machine", cmd_ps,
     TABLE(ps)},
    {"stop", "[NAME] [OPTION...]", "stop a cluster that `cox up` runs on this machine", cmd_stop,
     TABLE(stop)},
    {"scale", "[NAME] N [OPTION...]", "change the number of workers of a local cluster", cmd_scale,
     TABLE(scale)},
    {"logs", "[NAME] [PROCESS...] [OPTION...]", "print the last log lines of a local cluster",
     cmd_logs, TABLE(logs)},
    {"events", "[OPTION...]", "what happened in the cluster", cmd_events, TABLE(events)},
    {"debug", "dump [OPTION...]", "what stands inside the head, for who looks into a fault",
     cmd_debug, TABLE(debug)},
    {"keys", "--keys-dir DIR", "make the keys of a cluster, one pair per role", cmd_keys,
     TABLE(keys)},
    {"join-token", "--keys-dir DIR --head HOST:PORT", "one string that a worker can join with",
     cmd_join_token, TABLE(join_token)},
    {"plan", "[MODEL] [OPTION...]",
     "what a model takes, here or on GPUs by name, and how fast it could be", cmd_plan,
     TABLE(plan)},
    {"replay", "FILE [OPTION...]", "run a head's --step-log again and compare every plan",
     cmd_replay, TABLE(replay)},
    {"version", "", "the version of this build", cmd_version, NULL, NULL},
    {"completion", "bash|zsh|fish", "a script for the shell's completion", cmd_completion, NULL,
     NULL},
    {"help", "[COMMAND]", "this list, or a command's options", cmd_help, NULL, NULL},
    {"flags", "", NULL, cmd_flags, NULL, NULL},
};
const size_t n_commands = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const struct command *command_nearest(const char *name)
{
    const struct command *best = NULL;
    size_t best_distance = strlen(name) / 3 + 2;
    for (size_t i = 0; i < n_commands; i++) {
        bool is_first = commands[i].help && !strchr(commands[i].name, ' ');
        size_t d =
            is_first ? str_distance(str_from(name), str_from(commands[i].name)) : best_distance;
        if (d < best_distance) {
            best_distance = d;
            best = &commands[i];
        }
    }
    return best;
}

void command_warn(const char *name, const char *text)
{
    if (log_is_json())
        log_warn("warning", "text=%s", log_quote(text));
    else
        fprintf(stderr, "cox %s: warning: %s\n", name, text);
}

char **command_copy_words(struct arena *a, int argc, char **argv)
{
    char **copies = arena_try_alloc(a, ((size_t)argc + 1) * sizeof *copies);
    for (int i = 0; i < argc; i++) {
        size_t n = strlen(argv[i]) + 1;
        copies[i] = memcpy(arena_try_alloc(a, n), argv[i], n);
    }
    copies[argc] = NULL;
    return copies;
}

const char *command_usage(const char *name, const char *usage, char out[COMMAND_USAGE_BYTES])
{
    static const char *const others[][2] = {{"serve", "up "}, {"complete", "chat "}};
    const char *rest = strncmp(usage, "cox ", 4) == 0 ? usage + 4 : usage, *called = "";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0 &&
            strncmp(rest, others[i][1], strlen(others[i][1])) == 0) {
            rest += strlen(others[i][1]) - 1;
            called = name;
        }
    snprintf(out, COMMAND_USAGE_BYTES, "%s %s%s", vllm_program(), called, rest);
    return out;
}

bool command_parse(const struct command_line *line, int argc, char **argv, void *config,
                   struct config_result *res, int *exit_code)
{
    struct error err = {0};
    char usage[COMMAND_USAGE_BYTES];
    memset(res, 0, sizeof *res);
    *exit_code = EXIT_FINE;
    if (config_parse(line->specs, line->n_specs, argc, argv, environ, config, res, &err) !=
        STATUS_OK) {
        fprintf(stderr, "cox %s: %s\n", argv[0], err.text);
        *exit_code = EXIT_USAGE;
        return false;
    }
    config_hide(line->specs, line->n_specs, argc, argv);
    if (res->version) {
        printf("cox %s\n", COX_VERSION);
        return false;
    }
    if (res->help) {
        struct strbuf b;
        strbuf_init(&b, 0);
        config_print_help(&b, command_usage(argv[0], line->usage, usage), line->specs,
                          line->n_specs);
        fwrite(b.ptr, 1, b.len, stdout);
        strbuf_fini(&b);
        return false;
    }
    if (res->positional.n_items > line->max_positional) {
        fprintf(stderr, "cox %s: unexpected argument \"%s\"; usage: %s\n", argv[0],
                res->positional.items[line->max_positional],
                command_usage(argv[0], line->usage, usage));
        *exit_code = EXIT_USAGE;
        return false;
    }
    if (line->log_format)
        log_init("cox", LOG_INFO, (enum log_format) * line->log_format);
    for (size_t i = 0; i < res->warnings.n_items; i++)
        command_warn(argv[0], res->warnings.items[i]);
    return true;
}

int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("cox %s\n", COX_VERSION);
    return EXIT_FINE;
}

int cmd_help(int argc, char **argv)
{
    if (argc > 1) {
        const struct command *c = command_find(argv[1]);
        if (!c || c->run == cmd_help) {
            fprintf(stderr, "cox help: no command \"%s\"; `cox help` lists them\n", argv[1]);
            return EXIT_USAGE;
        }
        char name[32], help[] = "--help";
        snprintf(name, sizeof name, "%s", c->name);
        return c->run(2, (char *[]){name, help, NULL});
    }
    printf("cox: LLM inference on a cluster\n\nusage: cox COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < n_commands; i++)
        if (commands[i].help && !strchr(commands[i].name, ' '))
            printf("  %-11s %s\n", commands[i].name, commands[i].help);
    printf("\n`cox COMMAND --help` lists a command's options. Exit codes: 0 fine, 1 failed, "
           "2 wrong usage or configuration.\n");
    return EXIT_FINE;
}
