/* Runs the program cox-gateway: reads options, then runs the loop. Exit codes: 0 success, 1
 * failure while running, 2 wrong usage or configuration. */
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
#include "common/host/host.h"
#include "common/model/files/guard.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/options/groups.h"
#include "gateway/compile/child.h"
#include "gateway/fields/document.h"
#include "gateway/gateway.h"
#include "gateway/params/params.h"
#include "gateway/routes/openapi.h"
#include "gateway/routes/routes.h"

extern char **environ;

enum {
    /* `OTHER_FILES` counts descriptors for the admin address, refused connections (192) and
     * other uses. */
    OTHER_FILES = 384,
    FILES_PER_PROCESS = 4
};

#define USAGE "cox-gateway --model MODEL [OPTION...]"

static const char *environment(const char *name)
{
    size_t n = strlen(name);
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

static int print_help(const char *topic)
{
    const struct help h = {.usage = USAGE,
                           .specs = gateway_options,
                           .n_specs = n_gateway_options,
                           .groups = option_groups,
                           .topic = topic};
    return help_print(&h);
}

/* Prints a text to stdout: the page docs/reference/openai.md, or all routes with the keys they
 * accept. */
static void print_text(void (*text)(struct strbuf *out))
{
    struct strbuf b;
    strbuf_init(&b, 0);
    text(&b);
    fwrite(b.ptr, 1, b.len, stdout);
    strbuf_fini(&b);
}

static void print_openapi(const struct openapi_world *w)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    openapi_document(w, &b);
    fwrite(b.ptr, 1, b.len, stdout);
    strbuf_fini(&b);
}

/* Lowers `max_connections` when the limit of open files is too small. Idle clients must leave
 * descriptors for other uses: the bus, the admin address, the store, compile processes, logs,
 * and answers of 503 to refused connections. */
static void fit_connections(struct gateway_config *c)
{
    const uint64_t limit = host_raise_file_limit(),
                   others = OTHER_FILES + FILES_PER_PROCESS * (uint64_t)c->grammar_processes;
    const uint64_t most = limit > 2 * others ? limit - others : limit / 2;
    if ((uint64_t)c->max_connections <= most)
        return;
    log_warn("few_file_descriptors", "limit=%llu max_connections=%llu instead_of=%lld text=%s",
             (unsigned long long)limit, (unsigned long long)most, (long long)c->max_connections,
             log_quote("the limit of open files is too low for max_connections; raise it (ulimit "
                       "-n, LimitNOFILE)"));
    c->max_connections = (int64_t)most;
}

static int run(struct gateway_config *config)
{
    struct error err = {0};
    struct gateway *g;
    char cache_dir[4096];
    if (config->cache_dir)
        snprintf(cache_dir, sizeof cache_dir, "%s", config->cache_dir);
    else
        model_cache_dir(NULL, environment("HOME"), cache_dir, sizeof cache_dir);
    fit_connections(config);
    enum status s = gateway_new(config, cache_dir, &g, &err);
    if (s != STATUS_OK) {
        log_error("start_failed", "status=%s error=%s", status_name(s), log_quote(err.text));
        return status_is_configuration(s) ? 2 : 1;
    }
    gateway_run(g);
    gateway_free(g);
    log_info("gateway_ended", "ok=true");
    return 0;
}

int main(int argc, char **argv)
{
    struct gateway_config config = {0};
    struct config_result res = {0};
    struct error err = {0};
    int rc = 0;
    if (argc > 1 && strcmp(argv[1], COMPILE_CHILD_COMMAND) == 0)
        return compile_child_main(argc, argv); /* compilers.c starts the program in this mode */
    crash_install();
    first_process_install();
    /* request bodies of 10 MB arrive in bursts, so large blocks are returned to the system */
    mem_give_back_large();
    if (config_parse(gateway_options, n_gateway_options, argc, argv, environ, &config, &res,
                     &err) != STATUS_OK) {
        fprintf(stderr, "cox-gateway: %s\n", err.text);
        config_fini(&res);
        return 2;
    }
    config_hide(gateway_options, n_gateway_options, argc, argv);
    log_init("gateway", (enum log_level)config.log_level, (enum log_format)config.log_format);
    file_guard_install();
    for (size_t i = 0; i < res.warnings.n_items; i++)
        log_warn("option", "text=%s", log_quote(res.warnings.items[i]));
    if (res.help) {
        rc = print_help(res.help_topic);
    } else if (res.version) {
        puts("cox-gateway " COX_VERSION);
    } else if (res.positional.n_items == 1 && strcmp(res.positional.items[0], "fields") == 0) {
        print_text(fields_document);
    } else if (res.positional.n_items == 1 && strcmp(res.positional.items[0], "routes") == 0) {
        print_text(routes_print);
    } else if (res.positional.n_items == 1 && strcmp(res.positional.items[0], "openapi") == 0) {
        const struct openapi_world w = openapi_world_of(&config);
        print_openapi(&w);
    } else if (res.positional.n_items > 0) {
        fprintf(stderr, "cox-gateway: unexpected argument \"%s\". Usage: " USAGE "\n",
                res.positional.items[0]);
        rc = 2;
    } else {
        config_log(gateway_options, n_gateway_options, &config);
        rc = run(&config);
    }
    config_fini(&res);
    return rc;
}
