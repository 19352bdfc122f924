/* Runs cox-head: reads the options and runs the loop. `cox-head replay` is `cox replay`. SIGTERM
 * and SIGINT end the head at once: workers and gateways detect the silence, keep their state,
 * and send Hello to its successor. A head with a lease releases it first. A head that has lost
 * its lease exits with 0. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/config/help.h"
#include "common/config/hide.h"
#include "common/config/print.h"
#include "common/host/crash.h"
#include "common/host/first_process.h"
#include "common/options/groups.h"
#include "head/head.h"
#include "head/record/replay_main.h"

extern char **environ;

enum { EXIT_RUNTIME = 1, EXIT_CONFIG = 2 };

static void on_signal(void *ctx, int signum)
{
    struct head *const *head = ctx;
    log_info("head_stopping", "signal=%d", signum);
    head_stop(*head);
}

static int fail(const struct error *err, int code)
{
    log_error("start_failed", "status=%s error=%s", status_name(err->status), log_quote(err->text));
    return code;
}

static int run(const struct head_options *o)
{
    struct error err = {0};
    struct loop *loop = NULL;
    struct head *head = NULL;
    signal(SIGPIPE, SIG_IGN);
    enum status s = loop_new(&loop, &err);
    if (s == STATUS_OK)
        s = loop_on_signal(loop, SIGTERM, on_signal, &head);
    if (s == STATUS_OK)
        s = loop_on_signal(loop, SIGINT, on_signal, &head);
    if (s == STATUS_OK)
        s = head_start(loop, o, &head, &err);
    if (s == STATUS_OK)
        loop_run(loop);
    bool failed = s == STATUS_OK && head_failed(head);
    head_free(head);
    if (loop)
        loop_free(loop);
    if (s == STATUS_OK)
        return failed ? EXIT_RUNTIME : 0;
    return fail(&err, status_is_configuration(s) ? EXIT_CONFIG : EXIT_RUNTIME);
}

static int print(struct strbuf *b)
{
    fwrite(b->ptr, 1, b->len, stdout);
    strbuf_fini(b);
    return 0;
}

static int with_config(const struct head_options *o, const struct config_result *res)
{
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    if (res->help) {
        const struct help h = {.usage = "cox-head [OPTION...]",
                               .specs = head_option_specs,
                               .n_specs = head_n_option_specs,
                               .groups = option_groups,
                               .topic = res->help_topic};
        return help_print(&h);
    }
    if (res->version) {
        strbuf_printf(&b, "cox-head %s\n", COX_VERSION);
        return print(&b);
    }
    log_init("head", (enum log_level)o->log_level, (enum log_format)o->log_format);
    config_log(head_option_specs, head_n_option_specs, o);
    for (size_t i = 0; i < res->warnings.n_items; i++)
        log_warn("option_warning", "text=%s", log_quote(res->warnings.items[i]));
    if (res->positional.n_items > 0) {
        error_set(&err, STATUS_INVALID, "unexpected argument %s: cox-head accepts only options",
                  res->positional.items[0]);
        return fail(&err, EXIT_CONFIG);
    }
    if (head_options_check(o, &err) != STATUS_OK)
        return fail(&err, EXIT_CONFIG);
    return run(o);
}

int main(int argc, char **argv)
{
    struct head_options o = {0};
    struct config_result res = {0};
    struct error err = {0};
    crash_install();
    first_process_install();
    mem_give_back_large();
    if (argc > 1 && strcmp(argv[1], "replay") == 0)
        return replay_main(argc - 1, argv + 1);
    log_init("head", LOG_INFO, LOG_LOGFMT);
    enum status s =
        config_parse(head_option_specs, head_n_option_specs, argc, argv, environ, &o, &res, &err);
    if (s == STATUS_OK)
        config_hide(head_option_specs, head_n_option_specs, argc, argv);
    int code = s == STATUS_OK ? with_config(&o, &res) : fail(&err, EXIT_CONFIG);
    config_fini(&res);
    return code;
}
