#include "cli/pull/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* set by a signal handler, or by another thread than that of the fetch; it is lock-free */
static atomic_bool is_stopped;

static void on_signal(int signum)
{
    (void)signum;
    is_stopped = true;
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof signals / sizeof signals[0] };
static struct sigaction before[N_SIGNALS];
static bool is_ours;

void pull_stop_on_signals(void)
{
    const struct sigaction sa = {.sa_handler = on_signal};
    for (size_t i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i], &sa, is_ours ? NULL : &before[i]);
    is_ours = true;
}

void pull_stop_end(void)
{
    for (size_t i = 0; is_ours && i < N_SIGNALS; i++)
        (void)sigaction(signals[i], &before[i], NULL);
    is_ours = false;
}

void pull_stop(void)
{
    is_stopped = true;
}

bool pull_is_stopped(void)
{
    return is_stopped;
}
