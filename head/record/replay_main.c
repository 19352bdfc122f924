/* Reads the options of `cox replay FILE` and prints the output of a replay. */
#include "head/record/replay_main.h"

#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/config/help.h"
#include "head/record/replay.h"

extern char **environ;

enum { EXIT_EQUAL = 0, EXIT_DIFFERS = 1, EXIT_USAGE = 2 };

static int fail(const struct error *err, int code)
{
    fprintf(stderr, "cox replay: %s\n", err->text);
    return code;
}

static void print_totals(const char *path, const struct replay_totals *t, size_t n_cut)
{
    printf("%s: %llu replicas, %llu requests, %llu steps with %llu runs and %llu tokens, %llu "
           "results\n",
           path, (unsigned long long)t->n_replicas, (unsigned long long)t->n_requests,
           (unsigned long long)t->n_steps, (unsigned long long)t->n_runs,
           (unsigned long long)t->n_tokens, (unsigned long long)t->n_results);
    if (n_cut > 0)
        printf("the log ends in the middle of a write: its last %zu bytes were not replayed\n",
               n_cut);
    if (t->died_in_step)
        printf("the head ended inside a step, but the replay's scheduler completed it\n");
}

static int replay_file(const char *path, const struct replay_options *o)
{
    struct error err = {0};
    struct step_log_reader *log = NULL;
    struct replay_totals totals;
    if (step_log_open(path, &log, &err) != STATUS_OK)
        return fail(&err, EXIT_USAGE);
    enum status s = replay_run(log, o, stdout, &totals, &err);
    print_totals(path, &totals, s == STATUS_OK ? step_log_n_cut(log) : 0);
    if (s == STATUS_OK)
        printf("all plans are equal%s\n", o->check ? ", all invariants hold" : "");
    step_log_close(log);
    fflush(stdout);
    return s == STATUS_OK ? EXIT_EQUAL : fail(&err, EXIT_DIFFERS);
}

static int with_options(const struct replay_options *o, const struct config_result *res)
{
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    if (res->help) {
        const struct help h = {.usage = "cox replay FILE [OPTION...]",
                               .specs = replay_specs,
                               .n_specs = replay_n_specs,
                               .topic = res->help_topic};
        return help_print(&h);
    }
    if (res->version)
        strbuf_printf(&b, "cox %s\n", COX_VERSION);
    if (b.len > 0) {
        fwrite(b.ptr, 1, b.len, stdout);
        strbuf_fini(&b);
        return EXIT_EQUAL;
    }
    strbuf_fini(&b);
    for (size_t i = 0; i < res->warnings.n_items; i++)
        fprintf(stderr, "cox replay: warning: %s\n", res->warnings.items[i]);
    if (res->positional.n_items == 1)
        return replay_file(res->positional.items[0], o);
    error_set(&err, STATUS_INVALID,
              "exactly one step log must be named; usage: cox replay FILE [OPTION...]");
    return fail(&err, EXIT_USAGE);
}

int replay_main(int argc, char **argv)
{
    struct replay_options o = {0};
    struct config_result res = {0};
    struct error err = {0};
    enum status s = config_parse(replay_specs, replay_n_specs, argc, argv, environ, &o, &res, &err);
    int code = s == STATUS_OK ? with_options(&o, &res) : fail(&err, EXIT_USAGE);
    config_fini(&res);
    return code;
}
