/* Implements `cox status`, `events`, `drain`, `undrain` and `debug`. These commands query or
 * change the head through its admin API.
 * Each command parses its options, and follows a standby to the serving head (`admin_follow`,
 * cli/client/admin.h). Then it makes one or more calls and prints text or JSON. cli/view/
 * formats the status.
 * Invariants: an answer is untrusted JSON, owned by the function that asked for it. A head that
 * cannot be reached gives EXIT_UNREACHABLE. `--watch` repeats until a write to stdout fails. The
 * command runs in one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/base/plural.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/view/answer.h"
#include "cli/view/status_paint.h"
#include "cli/view/status_sort.h"
#include "cli/view/status_view.h"

enum { WATCH_MS = 1000 };

const struct option_spec status_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_BOOL(admin_access, json, "json", NULL, "Print the head's answer as JSON."),
    OPT_BOOL(admin_access, watch, "watch", NULL, "Repeat every second until Ctrl-C."),
};
const size_t status_n_specs = sizeof status_specs / sizeof status_specs[0];

const struct option_spec events_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_INT(admin_access, since, "since", 0, 9007199254740992.0, "0",
            "Number of the first event to print."),
    OPT_BOOL(admin_access, json, "json", NULL, "Print one JSON object per line."),
    OPT_BOOL(admin_access, watch, "watch", NULL, "Print new events until Ctrl-C."),
};
const size_t events_n_specs = sizeof events_specs / sizeof events_specs[0];

#define DRAIN_JSON_ROW                                                                             \
    OPT_BOOL(admin_access, json, "json", NULL, "Print the head's answer as JSON.")

const struct option_spec drain_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    DRAIN_JSON_ROW,
    OPT_BOOL(admin_access, undo, "undo", NULL,
             "Send work to the worker again, as `cox undrain` does."),
};
const size_t drain_n_specs = sizeof drain_specs / sizeof drain_specs[0];

const struct option_spec undrain_specs[] = {ADMIN_ROWS, ADMIN_FOLLOW_ROW, DRAIN_JSON_ROW};
const size_t undrain_n_specs = sizeof undrain_specs / sizeof undrain_specs[0];

const struct option_spec debug_specs[] = {ADMIN_ROWS, ADMIN_FOLLOW_ROW};
const size_t debug_n_specs = sizeof debug_specs / sizeof debug_specs[0];

static int show_status(struct admin_access *o)
{
    struct error err = {0};
    json_t *answer;
    if (!reach_head(o, "status", false))
        return EXIT_UNREACHABLE;
    enum status s = admin_call(o, "GET", "/api/status", NULL, &answer, &err);
    if (o->watch && isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    if (s != STATUS_OK) {
        char text[sizeof err.text];
        snprintf(text, sizeof text, "%s", err.text);
        if (!strstr(text, admin_address(o)))
            (void)error_set(&err, s, "cannot read the status from %s: %.400s", admin_address(o),
                            text);
        (void)reach_fail("status", s, &err);
        if (s == STATUS_INVALID || s == STATUS_NOT_FOUND || s == STATUS_PROTOCOL)
            fprintf(
                stderr,
                "cox status: check that --address is the head's admin port (its --admin-port)\n");
        return EXIT_UNREACHABLE; /* the answer does not come from a head of Coxswain */
    }
    if (o->json) {
        reach_print(answer, o->watch ? JSON_COMPACT : JSON_INDENT(2));
    } else {
        struct strbuf b, painted;
        strbuf_init(&b, 0);
        strbuf_init(&painted, 0);
        status_sort(answer, STATUS_BY_NAME, false);
        status_view_render(answer, &b);
        if (status_paint_wanted(STDOUT_FILENO, getenv("NO_COLOR"), getenv("TERM")))
            status_paint(strbuf_str(&b), &painted);
        const struct strbuf *out = painted.len > 0 ? &painted : &b;
        fwrite(out->ptr, 1, out->len, stdout);
        strbuf_fini(&painted);
        strbuf_fini(&b);
    }
    fflush(stdout);
    int code = status_view_is_fine(answer) ? EXIT_FINE : EXIT_FAILED;
    json_decref(answer);
    return code;
}

static int watch_status(const char *command, struct admin_access *o,
                        const struct option_list *words)
{
    int code = show_status(o);
    while (o->watch && !ferror(stdout)) {
        usleep(WATCH_MS * 1000);
        code = show_status(o);
    }
    return code;
}

int cmd_status(int argc, char **argv)
{
    const struct command_line line = {
        .usage = "cox status [OPTION...]", .specs = status_specs, .n_specs = status_n_specs};
    return reach_run(argc, argv, &line, watch_status);
}

/* Prints one event; the event's fields follow as key=value, in the order of the answer. */
static void print_event(const json_t *e)
{
    /* time of the event in Unix seconds */
    double seconds = json_number_value(json_object_get(e, "time"));
    time_t whole = seconds > 0 && seconds < 1e11 ? (time_t)seconds : 0;
    char time[64] = "-", when[32];
    struct tm tm;
    if (whole > 0 && gmtime_r(&whole, &tm) &&
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm) > 0)
        snprintf(time, sizeof time, "%s.%03dZ", when, (int)((seconds - (double)whole) * 1000));
    const char *event = json_string_value(json_object_get(e, "event"));
    const char *key;
    json_t *value;
    printf("%-26s %-24s", time, event ? event : "-");
    json_object_foreach(json_object_get(e, "fields"), key, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        printf(" %s=%s", key, text ? text : "-");
        free(text);
    }
    putchar('\n');
}

static int show_events(const struct admin_access *o, long long *since)
{
    struct error err = {0};
    json_t *answer, *e;
    char path[64];
    size_t i;
    snprintf(path, sizeof path, "/api/events?since=%lld", *since);
    enum status s = admin_call(o, "GET", path, NULL, &answer, &err);
    if (s != STATUS_OK)
        return reach_fail("events", s, &err);
    json_array_foreach(json_object_get(answer, "events"), i, e)
    {
        if (o->json)
            reach_print(e, JSON_COMPACT);
        else
            print_event(e);
    }
    fflush(stdout);
    const json_t *next = json_object_get(answer, "next");
    if (json_is_integer(next))
        *since = json_integer_value(next);
    json_decref(answer);
    return EXIT_FINE;
}

static int watch_events(const char *command, struct admin_access *o,
                        const struct option_list *words)
{
    long long since = o->since;
    int code = reach_head(o, command, true) ? show_events(o, &since) : EXIT_UNREACHABLE;
    while (o->watch && !ferror(stdout)) {
        usleep(WATCH_MS * 1000);
        code = show_events(o, &since);
    }
    return code;
}

int cmd_events(int argc, char **argv)
{
    const struct command_line line = {
        .usage = "cox events [OPTION...]", .specs = events_specs, .n_specs = events_n_specs};
    return reach_run(argc, argv, &line, watch_events);
}

/* Returns the worker's row in the status that was read before the drain; NULL = the status has
 * no such row. */
static const json_t *worker_of(const json_t *status, const char *instance)
{
    size_t i;
    const json_t *w;
    json_array_foreach(json_object_get(status, "workers"), i,
                       w) if (strcmp(answer_text(w, "instance"), instance) == 0) return w;
    return NULL;
}

/* Prints what happens to the requests of the worker's replica: other replicas run them, or a
 * spare replaces the worker. */
static void say_of_group(const json_t *status, const json_t *worker)
{
    const json_t *replica = json_object_get(worker, "group"), *o;
    long long n = 0, n_other = 0, n_spare = 0;
    size_t i;
    json_array_foreach(json_object_get(status, "groups"), i, o)
    {
        bool is_its =
            json_is_integer(replica) && answer_integer(o, "id") == json_integer_value(replica);
        n = is_its ? answer_integer(o, "running") + answer_integer(o, "waiting") : n;
        n_other += !is_its && answer_state_is(o, "ready");
    }
    json_array_foreach(json_object_get(status, "workers"), i, o) n_spare +=
        answer_state_is(o, "free") && o != worker;
    if (!json_is_integer(replica))
        printf("The worker was in no replica, so no request moves.\n");
    else if (n == 0 && (n_other > 0 || n_spare > 0))
        printf("No request runs in its replica %lld; other workers take new requests.\n",
               (long long)json_integer_value(replica));
    else if (n_other > 0 || n_spare > 0)
        printf("%lld request%s of its replica %lld move%s to other workers.\n", n, plural(n),
               (long long)json_integer_value(replica), n == 1 ? "s" : "");
    else
        printf("No other replica serves and no worker is spare: %lld request%s wait%s until a "
               "replica serves again.\n",
               n, plural(n), n == 1 ? "s" : "");
}

static void say_drained(const json_t *status, const json_t *answer, const char *word, bool undo)
{
    const char *instance = answer_text(answer, "worker");
    const json_t *w = worker_of(status, instance), *requests = json_object_get(status, "requests");
    char name[64];
    if (strcmp(instance, "all") == 0) {
        long long n = answer_integer(requests, "running") + answer_integer(requests, "waiting");
        if (undo)
            printf("The cluster takes new requests again.\n");
        else
            printf("The cluster is draining: it rejects new requests and finishes the %lld that it "
                   "has.\n`cox undrain all` undoes it.\n",
                   n);
        return;
    }
    if (w && json_is_integer(json_object_get(w, "ordinal")))
        snprintf(name, sizeof name, "worker-%lld", answer_integer(w, "ordinal"));
    else
        snprintf(name, sizeof name, "%.40s", instance);
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "%s on %.120s", name, answer_text(w, "node"));
    answer_hide_controls(&b, 0);
    if (undo) {
        printf(STR_FMT " takes work again.\n", STR_ARG(strbuf_str(&b)));
    } else {
        printf(STR_FMT " is draining: it takes no more work. ", STR_ARG(strbuf_str(&b)));
        say_of_group(status, w);
        printf("`cox undrain %s` undoes it.\n", word);
    }
    strbuf_fini(&b);
}

/* Drains or undrains a worker. Returns the exit code, which is 2 when the name matches several
 * workers or has an invalid form. */
static int drain(const char *command, struct admin_access *o, const char *worker)
{
    struct error err = {0};
    json_t *answer = NULL;
    if (!worker || !worker[0]) {
        fprintf(stderr,
                "cox %s: the worker is missing. Give its 16 hex digits, its node (in Kubernetes: "
                "the pod's name) or its ordinal, as `cox status` shows them, or `all`\n",
                command);
        return EXIT_USAGE;
    }
    /* the answer of a standby says only that the standby waits */
    if (!reach_head(o, command, false))
        return EXIT_UNREACHABLE;
    /* status before the drain, for the printed sentence; NULL = a shorter sentence is printed */
    json_t *before = NULL;
    if (!o->json && admin_call(o, "GET", "/api/status", NULL, &before, &err) != STATUS_OK)
        before = NULL;
    json_t *ask = json_pack("{s:s,s:b}", "worker", worker, "on", o->undo ? 0 : 1);
    char *body = ask ? json_dumps(ask, JSON_COMPACT) : NULL;
    enum status s =
        body ? admin_call(o, "POST", "/api/drain", body, &answer, &err)
             : error_set(&err, STATUS_INVALID,
                         "the worker's name is not UTF-8. Give a name that `cox status` shows");
    free(body);
    json_decref(ask);
    if (s != STATUS_OK) {
        int code = reach_fail(command, s, &err);
        json_decref(before);
        return s == STATUS_INVALID ? EXIT_USAGE : code;
    }
    if (o->json)
        reach_print(answer, JSON_COMPACT);
    else
        say_drained(before, answer, worker, o->undo);
    json_decref(before);
    json_decref(answer);
    return EXIT_FINE;
}

static int run_drain(const char *command, struct admin_access *o, const struct option_list *words)
{
    return drain(command, o, words->n_items > 0 ? words->items[0] : NULL);
}

/* `cox undrain` equals `cox drain --undo`. */
static int run_undrain(const char *command, struct admin_access *o, const struct option_list *words)
{
    o->undo = true;
    return run_drain(command, o, words);
}

int cmd_drain(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox drain WORKER|all [OPTION...]",
                                      .specs = drain_specs,
                                      .n_specs = drain_n_specs,
                                      .max_positional = 1};
    return reach_run(argc, argv, &line, run_drain);
}

int cmd_undrain(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox undrain WORKER|all [OPTION...]",
                                      .specs = undrain_specs,
                                      .n_specs = undrain_n_specs,
                                      .max_positional = 1};
    return reach_run(argc, argv, &line, run_undrain);
}

static int dump(const char *command, struct admin_access *o, const struct option_list *words)
{
    json_t *answer = NULL;
    struct error err = {0};
    if (words->n_items == 0 || strcmp(words->items[0], "dump") != 0) {
        fprintf(stderr, "cox debug: usage: cox debug dump [OPTION...]\n");
        return EXIT_USAGE;
    }
    if (!reach_head(o, command, true))
        return EXIT_UNREACHABLE;
    enum status s = admin_call(o, "GET", "/api/debug", NULL, &answer, &err);
    if (s != STATUS_OK)
        return reach_fail(command, s, &err);
    reach_print(answer, JSON_INDENT(2));
    json_decref(answer);
    return EXIT_FINE;
}

int cmd_debug(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox debug dump [OPTION...]",
                                      .specs = debug_specs,
                                      .n_specs = debug_n_specs,
                                      .max_positional = 1};
    return reach_run(argc, argv, &line, dump);
}
