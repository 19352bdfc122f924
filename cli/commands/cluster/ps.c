/* Implements `cox ps` and `cox stop`, which list and stop the clusters that `cox up` runs on
 * this machine.
 * Both commands find clusters by their control sockets (cli/up/local/find.h). `cox ps` prints a
 * table or JSON and requests the number of running requests from each head. `cox stop` requests
 * a shutdown through the socket and waits until the process has ended.
 * Invariants: only clusters of this user are found. On a terminal no line is wider than the
 * terminal. The command runs in one thread. */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/local_options.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/local/find.h"
#include "cli/view/answer.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/terminal_width.h"

enum { LOOK_MS = 5000, WAIT_MS = 50, GONE_MS = 2000, UPTIME_BYTES = 24 };

const struct option_spec ps_specs[] = {
    OPT_BOOL(local_options, json, "json", NULL, "Print a JSON array."),
};
const size_t ps_n_specs = sizeof ps_specs / sizeof ps_specs[0];

const struct option_spec stop_specs[] = {
    OPT_STRING(local_options, address, "address", NULL,
               "HOST:PORT of the cluster's admin API, if two clusters have the same name."),
    OPT_BOOL(local_options, all, "all", NULL, "Stop every cluster of this user on this machine."),
    OPT_FLOAT(local_options, timeout_s, "timeout", 0, 86400, "60",
              "Seconds to wait for each cluster to stop."),
};
const size_t stop_n_specs = sizeof stop_specs / sizeof stop_specs[0];

/* ---- ps ---- */

/* Returns the number of running requests. Returns -1 when the head does not report the number,
 * for example because it requires a key. */
static long long running_of(const struct local_cluster *c)
{
    struct error err;
    json_t *status = NULL;
    const struct admin_access head = {.address = c->admin};
    if (admin_call(&head, "GET", "/api/status", NULL, &status, &err) != STATUS_OK)
        return -1;
    const json_t *requests = json_object_get(status, "requests");
    long long n = json_is_object(requests)
                      ? answer_integer(requests, "running") + answer_integer(requests, "waiting")
                      : -1;
    json_decref(status);
    return n;
}

static void uptime_text(long long s, char out[UPTIME_BYTES])
{
    if (s < 60)
        snprintf(out, UPTIME_BYTES, "%llds", s);
    else if (s < 3600)
        snprintf(out, UPTIME_BYTES, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, UPTIME_BYTES, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, UPTIME_BYTES, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

/* `ps_column` numbers the columns of the table. On a narrow terminal the columns in drop_order
 * are left out one by one. */
enum ps_column { PS_NAME, PS_PID, PS_MODEL, PS_STATE, PS_URL, PS_WORKERS, PS_UPTIME, PS_REQUESTS };
enum { PS_COLUMNS = PS_REQUESTS + 1, CELL_BYTES = 320, GAP = 2 };
static const enum ps_column drop_order[] = {PS_PID, PS_MODEL, PS_WORKERS, PS_UPTIME, PS_REQUESTS};

struct ps_row {
    char cells[PS_COLUMNS][CELL_BYTES];
};

static void fill_row(const struct local_cluster *c, struct ps_row *r)
{
    char uptime[UPTIME_BYTES];
    long long running = strcmp(c->state, "serving") == 0 ? running_of(c) : -1;
    uptime_text(c->uptime_s, uptime);
    snprintf(r->cells[PS_NAME], CELL_BYTES, "%s", c->name);
    snprintf(r->cells[PS_PID], CELL_BYTES, "%lld", c->pid);
    snprintf(r->cells[PS_MODEL], CELL_BYTES, "%s", c->model);
    snprintf(r->cells[PS_STATE], CELL_BYTES, "%s", c->state);
    snprintf(r->cells[PS_URL], CELL_BYTES, "%s", c->url);
    snprintf(r->cells[PS_WORKERS], CELL_BYTES, "%lld", c->workers);
    snprintf(r->cells[PS_UPTIME], CELL_BYTES, "%s", uptime);
    snprintf(r->cells[PS_REQUESTS], CELL_BYTES, running >= 0 ? "%lld" : "-", running);
}

static size_t total_of(const size_t widths[PS_COLUMNS])
{
    size_t total = 0;
    for (int k = 0; k < PS_COLUMNS; k++)
        total += widths[k] > 0 ? widths[k] + (total > 0 ? GAP : 0) : 0;
    return total;
}

/* Chooses the column widths; 0 = the column is left out. */
static void choose_widths(const struct ps_row *rows, size_t n, size_t room,
                          size_t widths[PS_COLUMNS])
{
    for (int k = 0; k < PS_COLUMNS; k++) {
        widths[k] = 0;
        for (size_t i = 0; i < n; i++) {
            size_t len = strlen(rows[i].cells[k]);
            widths[k] = len > widths[k] ? len : widths[k];
        }
    }
    for (size_t i = 0; room > 0 && i < sizeof drop_order / sizeof drop_order[0]; i++)
        if (total_of(widths) > room)
            widths[drop_order[i]] = 0;
}

static void print_row(const struct ps_row *r, const size_t widths[PS_COLUMNS], size_t room)
{
    static const bool is_number[PS_COLUMNS] = {
        [PS_PID] = true, [PS_WORKERS] = true, [PS_UPTIME] = true, [PS_REQUESTS] = true};
    char line[PS_COLUMNS * (CELL_BYTES + GAP)];
    size_t used = 0;
    for (int k = 0; k < PS_COLUMNS; k++)
        if (widths[k] > 0)
            used +=
                (size_t)snprintf(line + used, sizeof line - used, is_number[k] ? "%s%*s" : "%s%-*s",
                                 used > 0 ? "  " : "", (int)widths[k], r->cells[k]);
    while (used > 0 && line[used - 1] == ' ')
        used--;
    printf("%.*s\n", (int)(room > 0 && used > room ? room : used), line);
}

/* Prints the table. On a terminal the table fits the terminal's width. Elsewhere the table has
 * all columns. */
static void print_list(const struct local_cluster *all, size_t n)
{
    struct ps_row *rows = mem_array(n + 1, sizeof *rows);
    size_t widths[PS_COLUMNS], room = terminal_width(STDOUT_FILENO);
    rows[0] =
        (struct ps_row){{"NAME", "PID", "MODEL", "STATE", "URL", "WORKERS", "UPTIME", "REQUESTS"}};
    for (size_t i = 0; i < n; i++)
        fill_row(&all[i], &rows[i + 1]);
    choose_widths(rows, n + 1, room, widths);
    for (size_t i = 0; i <= n; i++)
        print_row(&rows[i], widths, room);
    mem_free(rows);
}

static void print_json(const struct local_cluster *all, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct local_cluster *c = &all[i];
        long long running = strcmp(c->state, "serving") == 0 ? running_of(c) : -1;
        json_t *o = json_pack("{s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:I}", "name", c->name, "pid",
                              (json_int_t)c->pid, "model", c->model, "state", c->state, "url",
                              c->url, "admin", c->admin, "workers", (json_int_t)c->workers,
                              "uptime_s", (json_int_t)c->uptime_s);
        if (!o)
            /* a row is NULL when the name is not UTF-8, and `cox up` makes no such cluster */
            continue;
        json_object_set_new(o, "requests", running >= 0 ? json_integer(running) : json_null());
        json_object_set_new(o, "log", c->log_file[0] ? json_string(c->log_file) : json_null());
        json_array_append_new(list, o);
    }
    (void)json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(list);
}

/* Removes the clusters with other names from the array. Returns the number of the remaining
 * clusters. */
static size_t keep_named(struct local_cluster *all, size_t n, const char *name)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            all[n_kept++] = all[i];
    return n_kept;
}

int cmd_ps(int argc, char **argv)
{
    struct local_options o = {0};
    struct config_result res;
    int code;
    const struct command_line line = {.usage = "cox ps [NAME] [OPTION...]",
                                      .specs = ps_specs,
                                      .n_specs = ps_n_specs,
                                      .max_positional = 1};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        struct local_cluster *all;
        size_t n = local_cluster_list(LOOK_MS, &all);
        const char *name = res.positional.n_items > 0 ? res.positional.items[0] : NULL;
        n = name ? keep_named(all, n, name) : n;
        if (o.json)
            print_json(all, n);
        else if (n > 0)
            print_list(all, n);
        if (name && n == 0) {
            fprintf(stderr,
                    "cox ps: this user runs no cluster with the name %s on this machine. `cox ps` "
                    "lists all clusters\n",
                    name);
            code = EXIT_FAILED;
        } else if (n == 0 && !o.json)
            printf("This user runs no cluster on this machine (searched for control sockets in %s, "
                   "TMPDIR). `cox up MODEL` starts one.\n",
                   local_cluster_folder());
        mem_free(all);
    }
    config_fini(&res);
    return code;
}

/* ---- stop ---- */

/* Returns true when the cluster has ended. A cluster removes its socket as its last action. A
 * killed cluster leaves a socket on which no process answers. *in_order is then false. */
static bool has_ended(const struct local_cluster *c, bool *in_order)
{
    *in_order = access(c->socket, F_OK) != 0;
    return *in_order || (c->pid > 0 && kill((pid_t)c->pid, 0) != 0);
}

static int stop(const struct local_cluster *c, double timeout_s)
{
    struct strbuf answer;
    struct error err = {0};
    const char *name = c->name[0] ? c->name : c->admin;
    uint64_t begin_ns = clock_mono_ns();
    bool in_order = false;
    strbuf_init(&answer, 4096);
    enum status s = local_cluster_ask(c, "/stop", "{}", &answer, &err);
    strbuf_fini(&answer);
    if (s != STATUS_OK && !has_ended(c, &in_order)) {
        fprintf(stderr, "cox stop: cannot stop %s (process %lld): %s\n", name, c->pid, err.text);
        return EXIT_FAILED;
    }
    while (!has_ended(c, &in_order)) {
        if ((double)(clock_mono_ns() - begin_ns) / 1e9 > timeout_s) {
            fprintf(stderr,
                    "cox stop: %s (process %lld) has not ended within %g s. It lets open requests "
                    "finish (--shutdown-timeout of its `cox up`). `kill %lld` ends it at once\n",
                    name, c->pid, timeout_s, c->pid);
            return EXIT_FAILED;
        }
        usleep(WAIT_MS * 1000);
    }
    double took_s = (double)(clock_mono_ns() - begin_ns) / 1e9;
    if (in_order)
        printf("%s has stopped cleanly after %.1f s.\n", name, took_s);
    else
        printf("%s has ended after %.1f s because another process killed it.\n", name, took_s);
    return EXIT_FINE;
}

static int stop_all(double timeout_s)
{
    struct local_cluster *all;
    size_t n = local_cluster_list(LOOK_MS, &all);
    int code = EXIT_FINE;
    if (n == 0)
        printf("This user runs no cluster on this machine: there is nothing to stop.\n");
    for (size_t i = 0; i < n; i++)
        code = stop(&all[i], timeout_s) == EXIT_FINE ? code : EXIT_FAILED;
    mem_free(all);
    return code;
}

int cmd_stop(int argc, char **argv)
{
    struct local_options o = {0};
    struct config_result res;
    struct local_cluster c;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox stop [NAME] [OPTION...]",
                                      .specs = stop_specs,
                                      .n_specs = stop_n_specs,
                                      .max_positional = 1};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        const char *name = res.positional.n_items > 0 ? res.positional.items[0] : NULL;
        if (o.all && (name || o.address)) {
            fprintf(stderr, "cox stop: --all stops every cluster, so it cannot be used with NAME "
                            "or --address. Remove them\n");
            code = EXIT_USAGE;
        } else if (o.all) {
            code = stop_all(o.timeout_s);
        } else if (local_cluster_find(name, o.address, &c, &err) != STATUS_OK) {
            fprintf(stderr, "cox stop: %s\n", err.text);
            code = err.status == STATUS_INVALID ? EXIT_USAGE : EXIT_FAILED;
        } else {
            code = stop(&c, o.timeout_s);
        }
    }
    config_fini(&res);
    return code;
}
