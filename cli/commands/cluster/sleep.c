/* Implements `cox sleep` and `cox wake`: they give the head the order and wait until the model
 * sleeps or serves. The order itself is answered at once (wait=no), because a call has a shorter
 * timeout than the last open request may need. Then GET /is_sleeping is read until the state or
 * a counter says how it ended. The commands run in one thread. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/view/answer.h"

enum { LOOK_MS = 20 };

#define SLEEP_JSON_ROW                                                                             \
    OPT_BOOL(admin_access, json, "json", NULL, "Print the head's answer as JSON.")

/* The two names are long because each option is also a variable: COX_ABORT in the environment of
 * an operator would end requests that nobody meant. */
const struct option_spec sleep_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_INT(admin_access, level, "sleep-level", 1, 2, "1",
            "1 drops the KV cache and keeps the weights in host memory; 2 drops both."),
    OPT_BOOL(admin_access, abort, "sleep-abort", NULL,
             "End all requests with an error at once, instead of waiting for the running ones."),
    SLEEP_JSON_ROW,
};
const size_t sleep_n_specs = sizeof sleep_specs / sizeof sleep_specs[0];

const struct option_spec wake_specs[] = {ADMIN_ROWS, ADMIN_FOLLOW_ROW, SLEEP_JSON_ROW};
const size_t wake_n_specs = sizeof wake_specs / sizeof wake_specs[0];

static bool differs(const json_t *a, const json_t *b, const char *counter)
{
    return answer_integer(a, counter) != answer_integer(b, counter);
}

/* Returns the reason why a model that was ordered to wake does not serve; NULL = there is none. */
static const char *why_not_awake(const json_t *now)
{
    if (answer_state_is(now, "asleep"))
        return "the model was put to sleep again before it served";
    if (json_is_false(json_object_get(now, "healthy")))
        return "no replica serves yet: `cox status` shows which workers are missing";
    return NULL;
}

/* Returns true when the order that was answered with `first` has ended. */
static bool is_over(const json_t *first, const json_t *now, bool wakes)
{
    if (wakes)
        return answer_state_is(now, "awake") || why_not_awake(now);
    return answer_state_is(now, "asleep") || differs(first, now, "slept") ||
           differs(first, now, "called_off");
}

static int print_end(const struct admin_access *o, const json_t *first, const json_t *now,
                     bool wakes)
{
    if (wakes && why_not_awake(now)) {
        fprintf(stderr, "cox wake: %s\n", why_not_awake(now));
        return EXIT_FAILED;
    }
    if (!wakes && differs(first, now, "called_off") && !differs(first, now, "slept")) {
        fprintf(stderr, "cox sleep: the order was called off: requests still run, or the model was "
                        "woken. Try again later, or use --sleep-abort to end the requests\n");
        return EXIT_FAILED;
    }
    if (o->json) {
        reach_print(now, JSON_COMPACT);
    } else if (wakes) {
        printf("The model serves.\n");
    } else if (answer_state_is(now, "asleep")) {
        printf("The model sleeps at level %lld. The next request or `cox wake` wakes it.\n",
               answer_integer(now, "level"));
    } else {
        printf("The model slept, and a request has woken it.\n");
    }
    return EXIT_FINE;
}

static int order(const char *command, struct admin_access *o, bool wakes)
{
    struct error err = {0};
    char path[80] = "/wake_up?wait=no";
    json_t *first, *now;
    if (!reach_head(o, command, true))
        return EXIT_UNREACHABLE;
    if (!wakes)
        snprintf(path, sizeof path, "/sleep?level=%d&mode=%s&wait=no", (int)o->level,
                 o->abort ? "abort" : "wait");
    enum status s = admin_call(o, "POST", path, "{}", &first, &err);
    if (s != STATUS_OK)
        return reach_fail(command, s, &err);
    for (;;) {
        s = admin_call(o, "GET", "/is_sleeping", NULL, &now, &err);
        if (s != STATUS_OK || is_over(first, now, wakes))
            break;
        json_decref(now);
        usleep(LOOK_MS * 1000);
    }
    int code = s == STATUS_OK ? print_end(o, first, now, wakes) : reach_fail(command, s, &err);
    if (s == STATUS_OK)
        json_decref(now);
    json_decref(first);
    return code;
}

static int order_sleep(const char *command, struct admin_access *o, const struct option_list *words)
{
    return order(command, o, false);
}

static int order_wake(const char *command, struct admin_access *o, const struct option_list *words)
{
    return order(command, o, true);
}

int cmd_sleep(int argc, char **argv)
{
    const struct command_line line = {
        .usage = "cox sleep [OPTION...]", .specs = sleep_specs, .n_specs = sleep_n_specs};
    return reach_run(argc, argv, &line, order_sleep);
}

int cmd_wake(int argc, char **argv)
{
    const struct command_line line = {
        .usage = "cox wake [OPTION...]", .specs = wake_specs, .n_specs = wake_n_specs};
    return reach_run(argc, argv, &line, order_wake);
}
