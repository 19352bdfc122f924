/* Implements `cox logs` and `cox scale`, for a cluster that `cox up` runs on this machine. Both
 * commands find the cluster through its control socket (cli/up/local/find.h) and send requests
 * to that socket. `cox logs` prints lines; with --follow, it repeats the request from the last
 * position. `cox scale` sends a number of workers.
 * Invariants: a cluster of another user is never found. In a Kubernetes pod, `cox scale` changes
 * nothing and prints the kubectl command. The command runs in one thread. Each answer is freed
 * before the next call. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/cluster/local_options.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/local/find.h"

enum { FOLLOW_MS = 250, HOST_BYTES = 256, NAME_WIDTH = 10, NEXT_BYTES = 21 };

#define ROW_ADDRESS                                                                                \
    OPT_STRING(local_options, address, "address", NULL,                                            \
               "HOST:PORT of the cluster's admin API, if two clusters have the same name.")

const struct option_spec logs_specs[] = {
    ROW_ADDRESS,
    {.name = "lines",
     .aliases = "n",
     .type = OPTION_INT,
     .offset = offsetof(struct local_options, lines),
     .max = 4096,
     .def = "100",
     .help = "Number of lines to print from the end of the log."},
    {.name = "follow",
     .aliases = "f",
     .type = OPTION_BOOL,
     .offset = offsetof(struct local_options, follow),
     .help = "Print new lines until Ctrl-C."},
};
const size_t logs_n_specs = sizeof logs_specs / sizeof logs_specs[0];

const struct option_spec scale_specs[] = {ROW_ADDRESS};
const size_t scale_n_specs = sizeof scale_specs / sizeof scale_specs[0];

static int fail(const char *command, const struct error *err)
{
    fprintf(stderr, "cox %s: %s\n", command, err->text);
    return err->status == STATUS_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- logs ---- */

static bool is_wanted(const struct option_list *names, struct str line)
{
    for (size_t i = 0; i < names->n_items; i++) {
        size_t n = strlen(names->items[i]);
        if (line.len > n && line.ptr[n] == '\t' && memcmp(line.ptr, names->items[i], n) == 0)
            return true;
    }
    return names->n_items == 0;
}

/* Takes the next line, without its end, from *rest. Returns false when there is no further line. */
static bool next_line(struct str *rest, struct str *line)
{
    const char *end = rest->len > 0 ? memchr(rest->ptr, '\n', rest->len) : NULL;
    if (!end)
        return false;
    *line = (struct str){rest->ptr, (size_t)(end - rest->ptr)};
    *rest = (struct str){end + 1, rest->len - line->len - 1};
    return true;
}

static void print_line(struct str line)
{
    const char *tab = memchr(line.ptr, '\t', line.len);
    size_t n = tab ? (size_t)(tab - line.ptr) : 0, from = tab ? n + 1 : 0;
    printf("%-*.*s | %.*s\n", NAME_WIDTH, (int)n, line.ptr, (int)(line.len - from),
           line.ptr + from);
}

/* Prints the last `lines` lines of the named processes. A negative number means all. */
static enum status show(const struct local_cluster *c, const struct option_list *names,
                        long long lines, unsigned long long *since, struct error *err)
{
    char path[64];
    struct strbuf answer;
    struct str rest, line;
    long long n = 0;
    strbuf_init(&answer, 0);
    snprintf(path, sizeof path, "/logs?since=%llu", *since);
    enum status s = local_cluster_ask(c, path, NULL, &answer, err);
    if (s == STATUS_OK && answer.len < NEXT_BYTES)
        s = error_set(err, STATUS_PROTOCOL,
                      "cannot show the log: the answer of the cluster at %s contains none. Use the "
                      "cox of the same release as the cluster",
                      c->socket);
    if (s == STATUS_OK) {
        *since = strtoull(answer.ptr, NULL, 10);
        const struct str all = {answer.ptr + NEXT_BYTES, answer.len - NEXT_BYTES};
        for (rest = all; next_line(&rest, &line);)
            n += is_wanted(names, line);
        for (rest = all; next_line(&rest, &line);)
            if (is_wanted(names, line) && (n-- <= lines || lines < 0))
                print_line(line);
        fflush(stdout);
    }
    strbuf_fini(&answer);
    return s;
}

static bool has_name(const json_t *names, const char *name)
{
    size_t i;
    const json_t *n;
    json_array_foreach(names, i, n) if (strcmp(json_string_value(n), name) == 0) return true;
    return false;
}

/* Checks the names of processes. For an unknown name, the error lists the existing names (exit
 * code 2). */
static enum status check_names(const struct local_cluster *c, const struct option_list *wanted,
                               struct error *err)
{
    json_t *names = wanted->n_items > 0 ? local_cluster_processes(c) : NULL;
    enum status s = STATUS_OK;
    for (size_t i = 0; names && i < wanted->n_items && s == STATUS_OK; i++) {
        struct strbuf list;
        size_t k;
        const json_t *n;
        if (has_name(names, wanted->items[i]))
            continue;
        strbuf_init(&list, 0);
        json_array_foreach(names, k, n)
            strbuf_printf(&list, "%s%s", k > 0 ? ", " : "", json_string_value(n));
        s = error_set(err, STATUS_INVALID,
                      "the cluster has no process \"%s\". Processes of %s: %.400s",
                      wanted->items[i], c->name, list.ptr ? list.ptr : "none");
        strbuf_fini(&list);
    }
    json_decref(names);
    return s;
}

/* Finds the cluster. When the first word is a cluster's name, that word chooses the cluster and
 * is not part of *processes. */
static enum status find_logs(const char *address, const struct option_list *words,
                             struct local_cluster *c, struct option_list *processes,
                             struct error *err)
{
    *processes = *words;
    if (words->n_items > 0 &&
        local_cluster_find(words->items[0], address, c, err) != STATUS_NOT_FOUND) {
        *processes = (struct option_list){words->items + 1, words->n_items - 1};
        if (err->status != STATUS_OK)
            return err->status;
    } else {
        *err = (struct error){0};
        TRY(local_cluster_find(NULL, address, c, err));
    }
    return check_names(c, processes, err);
}

int cmd_logs(int argc, char **argv)
{
    struct local_options o = {0};
    struct config_result res;
    struct local_cluster c;
    struct error err = {0};
    int code;
    struct option_list processes;
    const struct command_line line = {.usage = "cox logs [NAME] [PROCESS...] [OPTION...]",
                                      .specs = logs_specs,
                                      .n_specs = logs_n_specs,
                                      .max_positional = 64};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        unsigned long long since = 0;
        enum status s = find_logs(o.address, &res.positional, &c, &processes, &err);
        if (s == STATUS_OK)
            s = show(&c, &processes, o.lines, &since, &err);
        while (s == STATUS_OK && o.follow && !ferror(stdout)) {
            usleep(FOLLOW_MS * 1000);
            s = show(&c, &processes, -1, &since, &err);
        }
        if (s != STATUS_OK)
            code = fail("logs", &err);
    }
    config_fini(&res);
    return code;
}

/* ---- scale ---- */

/* Prints the kubectl command in a pod. In a pod, Kubernetes starts the workers, and this process
 * has no permission to request more. Returns false outside a pod. */
static bool print_kubectl(unsigned long long n)
{
    char host[HOST_BYTES] = "";
    const char *service = getenv("KUBERNETES_SERVICE_HOST");
    if (!service || !service[0])
        return false;
    (void)gethostname(host, sizeof host - 1);
    char *part = strstr(host, "-head-");
    if (part)
        *part = '\0';
    printf("kubectl scale statefulset/%s-worker --replicas=%llu\n",
           part ? host : "RELEASE-coxswain", n);
    fprintf(stderr, "cox scale: on Kubernetes, run the printed command where kubectl works. An "
                    "autoscaler or the next helm upgrade can change the number again\n");
    return true;
}

static enum status scale(const struct local_cluster *c, unsigned long long n, struct error *err)
{
    char body[64];
    struct strbuf answer;
    strbuf_init(&answer, 0);
    snprintf(body, sizeof body, "{\"workers\":%llu}", n);
    enum status s = local_cluster_ask(c, "/scale", body, &answer, err);
    if (s == STATUS_OK) {
        json_t *j = json_loadb(answer.ptr, answer.len, 0, NULL);
        long long was = json_integer_value(json_object_get(j, "was"));
        long long is = json_integer_value(json_object_get(j, "workers"));
        long long whole = is / c->replica_ranks;
        long long n_replicas =
            c->max_replicas > 0 && whole > c->max_replicas ? c->max_replicas : whole;
        printf("%lld workers, %lld before: %lld replica%s of %lld and %lld spare; `cox status` "
               "shows them\n",
               is, was, n_replicas, n_replicas == 1 ? "" : "s", c->replica_ranks,
               is - n_replicas * c->replica_ranks);
        if (whole > n_replicas)
            printf("At most %lld replicas serve, because `cox up` was started with --dp %lld.\n",
                   c->max_replicas, c->max_replicas);
        json_decref(j);
    }
    strbuf_fini(&answer);
    return s;
}

int cmd_scale(int argc, char **argv)
{
    struct local_options o = {0};
    struct config_result res;
    struct local_cluster c;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox scale [NAME] N [OPTION...]",
                                      .specs = scale_specs,
                                      .n_specs = scale_n_specs,
                                      .max_positional = 2};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        size_t n_words = res.positional.n_items;
        const char *name = n_words > 1 ? res.positional.items[0] : NULL;
        uint64_t n = 0;
        if (n_words == 0 ||
            str_to_u64(str_from(res.positional.items[n_words - 1]), &n) != STATUS_OK || n > 1024) {
            fprintf(
                stderr,
                "cox scale: the number of workers is missing or not from 0 to 1024; usage: %s\n",
                line.usage);
            code = EXIT_USAGE;
        } else if (!print_kubectl(n)) {
            enum status s = local_cluster_find(name, o.address, &c, &err);
            if (s == STATUS_OK)
                s = scale(&c, n, &err);
            if (s != STATUS_OK)
                code = fail("scale", &err);
        }
    }
    config_fini(&res);
    return code;
}
