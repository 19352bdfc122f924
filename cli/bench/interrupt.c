#include "cli/bench/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t n_interrupts;

static void on_interrupt(int signum)
{
    (void)signum;
    if (++n_interrupts > 1)
        _exit(1);
}

bool bench_is_interrupted(void)
{
    return n_interrupts > 0;
}

void bench_catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
}
