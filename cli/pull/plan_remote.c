#include "cli/pull/plan_remote.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/pull/ensure.h"
#include "cli/pull/options.h"
#include "cli/pull/place.h"
#include "cli/pull/stop.h"
#include "cli/pull/stream.h"
#include "common/base/mem.h"
#include "common/options/plan.h"

extern char **environ;

enum { RETRIES = 2 }; /* few retries, because a user waits and little is fetched */

static void say(const char *text)
{
    fprintf(stderr, "cox plan: %s\n", text);
}

/* Returns MODEL and the cache folder of the command line. cox-worker's own parser reports wrong
 * options. The caller frees the strings with `mem_free`; NULL = no model is named. */
static char *model_of(int argc, char **argv, char **owned_cache_dir, bool *is_named,
                      bool *is_offline)
{
    struct plan_options o = {0};
    struct config_result res = {0};
    struct error err;
    char *out = NULL;
    if (config_parse(plan_specs, plan_n_specs, argc, argv, environ, &o, &res, &err) == STATUS_OK &&
        !res.help && !res.version && res.positional.n_items == 1) {
        out = mem_strdup(res.positional.items[0]);
        *owned_cache_dir = o.worker.cache_dir ? mem_strdup(o.worker.cache_dir) : NULL;
        *is_named = o.shown_as != NULL;
        *is_offline = o.worker.offline;
    }
    config_fini(&res);
    return out;
}

/* Runs the plan in a child and waits for it. A signal is forwarded to the child. Returns 2 when
 * the child was killed, because 1 means that the model does not fit. */
static int run(int argc, char **argv, int (*become)(int argc, char **argv))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(become(argc, argv));
    if (pid < 0) {
        fprintf(stderr, "cox plan: cannot start a process: %s\n", strerror(errno));
        return EXIT_USAGE;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        if (pull_is_stopped())
            (void)kill(pid, SIGTERM);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_USAGE;
}

/* Returns true when word i is the model, and not the value of --served-model-name. */
static bool is_model(char **argv, int i, const char *model)
{
    return i > 0 && strcmp(argv[i], model) == 0 && strcmp(argv[i - 1], "--served-model-name") != 0;
}

static int plan(int argc, char **argv, const char *model, const struct pull_stream *stream,
                bool is_named, int (*become)(int argc, char **argv))
{
    char *shown = is_named ? NULL : pull_join("--served-model-name=", model, "");
    char **args = mem_array((size_t)argc + 2, sizeof *args);
    for (int i = 0; i < argc; i++)
        args[i] = is_model(argv, i, model) ? (char *)stream->folder.path : argv[i];
    args[argc] = shown;
    int code = run(argc + (shown != NULL), args, become);
    mem_free(args);
    mem_free(shown);
    return code;
}

/* Prints the error. The exit code is never 1, because 1 means that the model does not fit. */
static int fail(const struct error *err)
{
    fprintf(stderr,
            "cox plan: %s. Without the hub, give a folder that contains the model's config.json, "
            "or run `cox pull` where there is a network\n",
            err->text);
    return EXIT_USAGE;
}

int plan_remote(int argc, char **argv, int (*become)(int argc, char **argv))
{
    struct pull_options o = {0};
    struct config_result res = {0};
    struct pull_stream stream = {.folder = {.dir_fd = -1, .lock_fd = -1}};
    struct error err = {0};
    const char *tmp_dir = getenv("TMPDIR");
    char *cache_dir = NULL;
    bool is_named = false, is_offline = false, was_fetched;
    char *model = model_of(argc, argv, &cache_dir, &is_named, &is_offline);
    int code = -1;
    enum status s = model ? pull_options_read(&o, &res, &err) : STATUS_OK;
    o.cache_dir = cache_dir ? cache_dir : o.cache_dir;
    o.is_stopped = pull_is_stopped;
    o.say = say;
    o.quiet = true;
    if (!getenv("COX_RETRIES"))
        o.retries = RETRIES;
    if (s != STATUS_OK) {
        code = fail(&err);
    } else if (model && is_offline) { /* huggingface_hub's cache may have the model */
        const struct pull_ensure e = {.command = "plan", .cache_dir = cache_dir, .offline = true};
        code = pull_ensure(&e, model, &was_fetched, &err) == STATUS_OK ? -1 : EXIT_USAGE;
        if (code == EXIT_USAGE)
            say(err.text);
    } else if (model && pull_stream_wanted(&o, model)) {
        pull_stop_on_signals();
        s = pull_stream_open_heads(&o, model, tmp_dir && tmp_dir[0] ? tmp_dir : "/tmp", &stream,
                                   &err);
        code = s == STATUS_OK ? plan(argc, argv, model, &stream, is_named, become) : fail(&err);
        pull_stream_close(&stream);
    }
    config_fini(&res);
    mem_free(model);
    mem_free(cache_dir);
    return code;
}
