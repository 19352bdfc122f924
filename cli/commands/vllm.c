/* Implements `vllm serve|bench|chat|complete|run-batch`. It passes the words behind the name to
 * the equivalent command of `cox`. vLLM's flags are in those commands' own tables, so `cox`
 * accepts them too. */
#include "cli/commands/vllm.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/base/program_name.h"
#include "cli/commands/list.h"
#include "common/base/mem.h"
#include "common/base/version.h"

enum { UP_SPECS_MAX = 512 };

static const struct {
    const char *name, *help;
} vllm_commands[] = {
    {"serve", "Start an OpenAI-compatible server for a model on this machine."},
    {"chat", "Talk to a model that is served, in the terminal or with --quick."},
    {"complete", "Continue texts with a model that is served."},
    {"bench", "Run a benchmark: serve, throughput, latency or startup."},
    {"run-batch", "Answer a file of requests and write a file of answers."},
};
enum { N_VLLM_COMMANDS = sizeof vllm_commands / sizeof *vllm_commands };

bool vllm_is_called(const char *argv0)
{
    const char *slash = argv0 ? strrchr(argv0, '/') : NULL;
    return argv0 && strcmp(slash ? slash + 1 : argv0, "vllm") == 0;
}

const struct option_spec *vllm_up_specs(const struct option_spec *specs, size_t n_specs)
{
    static struct option_spec copy[UP_SPECS_MAX];
    if (!program_is_vllm() || n_specs > UP_SPECS_MAX)
        return specs;
    memcpy(copy, specs, n_specs * sizeof *copy);
    for (size_t i = 0; i < n_specs; i++)
        if (strcmp(copy[i].name, "host") == 0)
            copy[i].def = "0.0.0.0"; /* vllm serve listens on every address */
    return copy;
}

static void print_help(FILE *to)
{
    fprintf(to,
            "vllm: vLLM's command lines, run by Coxswain %s\n\n"
            "usage: vllm COMMAND [OPTION...]\n\n",
            COX_VERSION);
    for (size_t i = 0; i < N_VLLM_COMMANDS; i++)
        fprintf(to, "  %-11s %s\n", vllm_commands[i].name, vllm_commands[i].help);
    fprintf(to, "\n`vllm COMMAND --help` lists the options of a command. `cox help` lists the "
                "commands that only cox has.\n");
}

static bool has_option(int argc, char **argv, const char *name)
{
    size_t n = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && (argv[i][n] == '\0' || argv[i][n] == '='))
            return true;
    return false;
}

/* `vllm complete` reads one prompt after another, like `cox chat --completion`. With --quick, it
 * completes one prompt and ends, like `cox complete`. */
static int complete(int argc, char **argv)
{
    static char completion[] = "--completion";
    if (has_option(argc, argv, "-q") || has_option(argc, argv, "--quick") ||
        has_option(argc, argv, "-h") || has_option(argc, argv, "--help"))
        return cmd_complete(argc, argv);
    char **words = mem_array((size_t)argc + 2, sizeof *words);
    words[0] = argv[0];
    words[1] = completion;
    for (int i = 1; i < argc; i++)
        words[i + 1] = argv[i];
    int code = cmd_chat(argc + 1, words);
    mem_free(words);
    return code;
}

/* Replaces vLLM's --help=ModelConfig, --help=listgroup and --help=page by --help=all. Other
 * values of --help are groups or options of `cox`. */
static void forget_help_groups(int argc, char **argv)
{
    static char all[] = "--help=all";
    for (int i = 1; i < argc; i++) {
        const char *word = strncmp(argv[i], "--help=", 7) == 0 ? argv[i] + 7 : "";
        bool is_group = word[0] >= 'A' && word[0] <= 'Z';
        if (is_group || strcmp(word, "listgroup") == 0 || strcmp(word, "page") == 0)
            argv[i] = all;
    }
}

int vllm_main(const struct command_table *t, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    program_name_set_vllm();
    if (strcmp(name, "--version") == 0 || strcmp(name, "-v") == 0)
        return cmd_version_line();
    bool asks = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (argc < 2 || asks) {
        print_help(asks ? stdout : stderr);
        return asks ? EXIT_FINE : EXIT_USAGE;
    }
    for (size_t i = 0; i < N_VLLM_COMMANDS; i++) {
        if (strcmp(name, vllm_commands[i].name) != 0)
            continue;
        forget_help_groups(argc - 1, argv + 1);
        if (strcmp(name, "complete") == 0)
            return complete(argc - 1, argv + 1);
        return command_run(t, command_find(t, name), argc - 1, argv + 1);
    }
    fprintf(stderr,
            "vllm: unknown command \"%.40s\". This vllm is Coxswain and has the commands serve, "
            "chat, complete, bench and run-batch; `vllm --help` describes them.\n",
            name);
    return EXIT_USAGE;
}
