#include "cli/base/command_line.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/program_name.h"
#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/config/hide.h"

extern char **environ;

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
    snprintf(out, COMMAND_USAGE_BYTES, "%s %s%s", program_name(), called, rest);
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
        const struct help h = {.usage = command_usage(argv[0], line->usage, usage),
                               .specs = line->specs,
                               .n_specs = line->n_specs,
                               .groups = line->groups,
                               .topic = res->help_topic};
        *exit_code = help_print(&h);
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

int command_print(const struct strbuf *b)
{
    bool ok = fwrite(b->ptr, 1, b->len, stdout) == b->len && fflush(stdout) == 0;
    return ok ? EXIT_FINE : EXIT_FAILED;
}
