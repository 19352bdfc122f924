// Holds the namespaces of a pod: it waits for a signal to end, and reaps the orphans of a shared
// PID namespace.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int number)
{
    (void)number;
    _exit(0);
}

static void reap(int number)
{
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void)
{
    const struct sigaction go = {.sa_handler = leave};
    const struct sigaction collect = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &go, NULL) != 0 || sigaction(SIGTERM, &go, NULL) != 0 ||
        sigaction(SIGCHLD, &collect, NULL) != 0) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
