#include "cli/pull/pull_stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t is_stopped;

static void on_signal(int signum)
{
    (void)signum;
    is_stopped = 1;
}

void pull_stop_on_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = on_signal};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)sigaction(signals[i], &sa, NULL);
}

bool pull_is_stopped(void)
{
    return is_stopped;
}
