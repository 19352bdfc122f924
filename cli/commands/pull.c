/* Implements `cox pull MODEL`, which fetches a model into the cache (cli/pull/). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/pull/options.h"
#include "cli/pull/pull.h"
#include "cli/pull/stop.h"
#include "common/base/mem.h"

/* Prints a line. If a progress bar is shown, the line replaces it. */
static void say(const char *text)
{
    fprintf(stderr, "%scox pull: %s\n", isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", text);
}

static int pull(struct pull_options *o, const char *model)
{
    struct pull_result result;
    struct error err = {0};
    pull_stop_on_signals();
    if (!pull_options_complete(o)) {
        say("the cache folder's path is too long: set COX_CACHE to another place");
        return EXIT_USAGE;
    }
    o->is_stopped = pull_is_stopped;
    o->say = say;
    enum status s = pull_model(o, model, &result, &err);
    if (s == STATUS_OK) {
        if (result.was_there && !o->quiet)
            say("it is there");
        printf("%s\n", result.path);
    } else if (pull_is_stopped()) {
        say("stopped; the downloaded part is kept, and the next `cox pull` continues it");
    } else {
        say(err.text);
    }
    mem_free(result.path);
    return s == STATUS_NOT_FOUND && o->check ? EXIT_FAILED : pull_exit_code(s);
}

int cmd_pull(int argc, char **argv)
{
    struct pull_options o = {0};
    struct config_result res;
    const struct command_line line = {.usage = "cox pull MODEL [OPTION...]",
                                      .specs = pull_specs,
                                      .n_specs = pull_n_specs,
                                      .max_positional = 1};
    int code;
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        if (res.positional.n_items == 0) {
            fprintf(stderr,
                    "cox pull: the model is missing; usage: %s; MODEL is demo, "
                    "hf:ORG/NAME[@REVISION], hf:ORG/NAME/FILE.gguf, "
                    "https://HOST/FILE.gguf[#sha256=HEX], s3://BUCKET/FOLDER, or a path\n",
                    line.usage);
            code = EXIT_USAGE;
        } else {
            code = pull(&o, res.positional.items[0]);
        }
    }
    config_fini(&res);
    return code;
}
