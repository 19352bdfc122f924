#include "common/model/files/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* LINE_BYTES is enough for a path and the columns before it */
enum { LINE_BYTES = 4608, CHUNK_BYTES = 1024 };

static struct sigaction before; /* earlier handler, which gets any other SIGBUS */

/* Everything below runs in a signal handler, so it uses only system calls and its own memory. */

static const char *read_hex(const char *p, uintptr_t *out)
{
    *out = 0;
    for (;; p++) {
        int digit = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;
        if (digit < 0)
            return p;
        *out = *out << 4 | (uintptr_t)digit;
    }
}

/* Returns the path in a line of /proc/self/maps if the line's range contains the address,
 * otherwise NULL. */
static const char *path_of(const char *line, uintptr_t address)
{
    uintptr_t begin, end;
    const char *p = read_hex(line, &begin);
    if (*p != '-')
        return NULL;
    (void)read_hex(p + 1, &end);
    return address >= begin && address < end ? strchr(line, '/') : NULL;
}

static const char *find_path(uintptr_t address, char line[LINE_BYTES])
{
    char chunk[CHUNK_BYTES];
    size_t used = 0;
    const char *path = NULL;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && !path && (n = read(fd, chunk, sizeof chunk)) > 0;) {
        for (ssize_t i = 0; i < n && !path; i++) {
            if (chunk[i] != '\n' && used < LINE_BYTES - 1) {
                line[used++] = chunk[i];
                continue;
            }
            line[used] = '\0';
            used = 0;
            path = path_of(line, address);
        }
    }
    if (fd >= 0)
        close(fd);
    return path;
}

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void on_sigbus(int signum, siginfo_t *info, void *context)
{
    static char line[LINE_BYTES]; /* the buffer is static, because a thread's stack may be small */
    const char *path =
        info->si_code == BUS_ADRERR ? find_path((uintptr_t)info->si_addr, line) : NULL;
    if (!path && (before.sa_flags & SA_SIGINFO)) {
        before.sa_sigaction(signum, info, context);
        return;
    }
    if (!path) {
        (void)signal(signum, SIG_DFL);
        (void)raise(signum);
        return;
    }
    say(path);
    say(": this file became shorter or unreadable while it was in use. Copy the whole file there "
        "under another name, rename it, then start again\n");
    _exit(1);
}

void file_guard_install(void)
{
    struct sigaction a = {.sa_flags = SA_SIGINFO};
    a.sa_sigaction = on_sigbus;
    sigemptyset(&a.sa_mask);
    (void)sigaction(SIGBUS, &a, &before);
}
