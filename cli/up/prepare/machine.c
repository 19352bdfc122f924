#include "cli/up/prepare/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/up/plan/numa.h"
#include "cli/up/prepare/preflight.h"
#include "common/host/host.h"
#include "common/keys/key_files.h"
#include "common/keys/key_folder.h"

static enum status find_bin_dir(char *out, size_t size, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return error_set(err, STATUS_IO, "cannot find the program's folder: /proc/self/exe: %s",
                         strerror(errno));
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash)
        return error_set(err, STATUS_IO,
                         "cannot find the program's folder: /proc/self/exe is \"%s\", which is not "
                         "an absolute path",
                         out);
    *slash = '\0';
    return STATUS_OK;
}

enum status up_machine_find_programs(struct up_machine *m, struct error *err)
{
    return find_bin_dir(m->bin_dir, sizeof m->bin_dir, err);
}

static enum status make_keys(struct up_machine *m, const struct up_options *o, const char *tmp_dir,
                             struct error *err)
{
    if (o->keys_dir) {
        /* a missing folder is not fatal: only the control socket needs it */
        struct error no_folder = {0};
        if (throw_away_make(&m->throw_away, tmp_dir, "up", &no_folder) != STATUS_OK)
            throw_away_remove(&m->throw_away);
        snprintf(m->keys_dir, sizeof m->keys_dir, "%s", o->keys_dir);
        return keys_make_dir(m->keys_dir, err);
    }
    TRY(throw_away_make(&m->throw_away, tmp_dir, "keys", err));
    snprintf(m->keys_dir, sizeof m->keys_dir, "%s", m->throw_away.path);
    return keys_make_dir(m->keys_dir, err);
}

/* Reads the NUMA nodes. An error is not reported here, because the workers report it. */
static void find_nodes(struct up_machine *m, const struct up_options *o, const char *command)
{
    struct error err;
    if (sched_getaffinity(0, sizeof m->place.allowed, &m->place.allowed) != 0)
        m->place.numa = NULL;
    if (up_numa_is_wanted(o) && numa_read("", &m->numa, &err) != STATUS_OK)
        command_warn(command, err.text);
}

enum status up_machine_prepare(struct up_machine *m, const struct up_options *o,
                               const char *command, const char *tmp_dir, struct error *err)
{
    TRY(make_keys(m, o, tmp_dir, err));
    /* the folder's name is random, so it is a unique name for the cluster */
    const char *thrown = strrchr(m->throw_away.path, '/');
    m->place = (struct up_place){.bin_dir = m->bin_dir,
                                 .keys_dir = m->keys_dir,
                                 .own_name = thrown && !o->keys_dir ? thrown + 1 : NULL,
                                 .n_cores = host_cpus(),
                                 .numa = &m->numa};
    find_nodes(m, o, command);
    return STATUS_OK;
}

enum status up_machine_check_ports(const struct up_child *c, struct error *err)
{
    for (uint32_t k = 0; k < c->n_listeners; k++) {
        const struct up_listener *l = &c->listeners[k];
        if (l->host)
            TRY(preflight_port(l->host, l->port, l->what, l->flag, err));
    }
    return STATUS_OK;
}

/* Checks the ports of all processes. The error names each port that is in use, so that the user
 * can change all of them at once. */
static enum status check_all_ports(const struct up_plan *plan, struct error *err)
{
    struct strbuf more;
    enum status s = STATUS_OK;
    strbuf_init(&more, sizeof err->text);
    for (uint32_t i = 0; i < plan->n_children; i++)
        for (uint32_t k = 0; k < plan->children[i].n_listeners; k++) {
            const struct up_listener *l = &plan->children[i].listeners[k];
            struct error other = {0};
            enum status of = l->host ? preflight_port(l->host, l->port, l->what, l->flag,
                                                      s == STATUS_OK ? err : &other)
                                     : STATUS_OK;
            if (s == STATUS_EXISTS && of == STATUS_EXISTS)
                strbuf_printf(&more, "%s%u (%s)", more.len > 0 ? ", " : ". Also in use: ", l->port,
                              l->flag);
            else if (s == STATUS_OK)
                s = of;
        }
    if (more.len > 0) {
        struct error first = *err;
        s = error_set(err, s, "%s" STR_FMT, first.text, STR_ARG(strbuf_str(&more)));
    }
    strbuf_fini(&more);
    return s;
}

enum status up_machine_check(const struct up_options *o, const struct up_plan *plan,
                             const char *command, struct error *err)
{
    struct machine_limits limits;
    struct strbuf warnings;
    strbuf_init(&warnings, 0);
    preflight_read(&limits);
    preflight_warnings(&limits, plan->n_workers, o->device == UP_DEVICE_CUDA, &warnings);
    up_options_warnings(o, &warnings);
    for (char *line = warnings.len > 0 ? strtok(warnings.ptr, "\n") : NULL; line;
         line = strtok(NULL, "\n"))
        command_warn(command, line);
    strbuf_fini(&warnings);
    if (plan->n_workers < o->tp * o->pp) {
        char text[256];
        snprintf(
            text, sizeof text,
            "--workers %u is too few for a replica of %lld x %lld ranks: the cluster serves only "
            "after workers of other machines join. Without --workers, enough workers start here",
            plan->n_workers, (long long)o->tp, (long long)o->pp);
        command_warn(command, text);
    }
    return check_all_ports(plan, err);
}

enum status up_machine_export_secrets(const struct up_options *o, struct error *err)
{
    struct strbuf keys;
    enum status s = STATUS_OK;
    strbuf_init(&keys, 0);
    for (size_t i = 0; i < o->api_keys.n_items; i++) {
        if (strchr(o->api_keys.items[i], ','))
            s = error_set(err, STATUS_INVALID,
                          "an API key contains a comma, which separates keys. Put the key into a "
                          "file and give --api-key-file");
        strbuf_append_c(&keys, i ? "," : "");
        strbuf_append_c(&keys, o->api_keys.items[i]);
    }
    const char *password = o->ssl.keyfile_password;
    if (s == STATUS_OK && password && setenv("COX_SSL_KEYFILE_PASSWORD", password, 1) != 0)
        s = error_set(err, STATUS_LIMIT,
                      "cannot pass --ssl-keyfile-password to the gateways: there is no memory for "
                      "one more environment variable");
    const char *collector = o->trace.endpoint;
    if (s == STATUS_OK && collector && setenv("COX_OTLP_TRACES_ENDPOINT", collector, 1) != 0)
        s = error_set(err, STATUS_LIMIT,
                      "cannot pass --otlp-traces-endpoint to the processes: there is no memory for "
                      "one more environment variable");
    if (s == STATUS_OK && o->redis && setenv("COX_REDIS", o->redis, 1) != 0)
        s = error_set(err, STATUS_LIMIT,
                      "cannot pass --redis to the head: there is no memory for one more "
                      "environment variable");
    if (s == STATUS_OK && keys.len > 0 && setenv("COX_API_KEY", keys.ptr, 1) != 0)
        s = error_set(err, STATUS_LIMIT,
                      "cannot pass the API keys to the gateways: there is no memory for one more "
                      "environment variable. Use --api-key-file");
    strbuf_fini(&keys);
    return s;
}
