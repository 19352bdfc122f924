#include "cli/pull/worker_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/pull/options.h"
#include "cli/pull/place.h"
#include "cli/pull/stream.h"
#include "common/base/mem.h"

/* Returns the last value of a flag, "--flag V" or "--flag=V". *i is set to the index of that
 * argument. */
static const char *value_of(int argc, char **argv, const char *flag, int *i)
{
    const char *out = NULL;
    size_t n = strlen(flag);
    for (int k = 1; k < argc; k++) {
        if (strncmp(argv[k], flag, n) != 0)
            continue;
        if (argv[k][n] == '=') {
            out = argv[k] + n + 1;
            *i = k;
        } else if (!argv[k][n] && k + 1 < argc) {
            out = argv[++k];
            *i = k;
        }
    }
    return out;
}

static bool is_stopped(void)
{
    return false; /* a signal ends the process and frees its memory */
}

static void say(const char *text)
{
    fprintf(stderr, "cox worker: %s\n", text);
}

static enum status fetch(const char *model, struct pull_stream *stream, bool *is_wanted,
                         struct error *err)
{
    struct pull_options o = {0};
    struct config_result res = {0};
    const char *tmp_dir = getenv("TMPDIR");
    enum status s = pull_options_read(&o, &res, err);
    o.is_stopped = is_stopped;
    o.say = say;
    *is_wanted = s == STATUS_OK && pull_stream_wanted(&o, model);
    if (*is_wanted)
        s = pull_stream_open(&o, model, tmp_dir && tmp_dir[0] ? tmp_dir : "/tmp", stream, err);
    if (s == STATUS_OK && *is_wanted)
        s = pull_stream_keep(stream, err);
    if (s != STATUS_OK && *is_wanted)
        pull_stream_close(stream);
    config_fini(&res);
    return s;
}

int worker_stream(int argc, char **argv, char ***args)
{
    static struct pull_stream stream;
    struct error err = {0};
    int i_format = 0, i_model = 0, i_name = 0;
    bool is_wanted = false;
    const char *format = value_of(argc, argv, "--load-format", &i_format),
               *model = value_of(argc, argv, "--model", &i_model);
    if (!format || (strcmp(format, "stream") != 0 && strcmp(format, "runai_streamer") != 0))
        return EXIT_FINE;
    enum status s = model ? fetch(model, &stream, &is_wanted, &err) : STATUS_OK;
    if (s != STATUS_OK) {
        say(err.text);
        return pull_exit_code(s);
    }
    char **out = mem_array((size_t)argc + 3, sizeof *out);
    memcpy(out, argv, (size_t)argc * sizeof *out);
    out[i_format] =
        pull_join(strncmp(argv[i_format], "--", 2) == 0 ? "--load-format=" : "", "auto", "");
    if (is_wanted) {
        out[i_model] = pull_join(strncmp(argv[i_model], "--", 2) == 0 ? "--model=" : "",
                                 stream.folder.path, "");
        if (!value_of(argc, argv, "--served-model-name", &i_name))
            out[argc] = pull_join("--served-model-name=", stream.name, "");
    }
    *args = out;
    return EXIT_FINE;
}
