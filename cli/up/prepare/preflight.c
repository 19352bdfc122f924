#include "cli/up/prepare/preflight.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OPEN_FILES_WANTED 65536u
#define OPEN_FILES_LEAST  4096u
#define SHM_PER_WORKER    (64ull << 20)

void preflight_read(struct machine_limits *out)
{
    struct rlimit r = {0};
    *out = (struct machine_limits){0};
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        out->open_files_hard = r.rlim_max == RLIM_INFINITY ? UINT64_MAX : (uint64_t)r.rlim_max;
        rlim_t want = r.rlim_max == RLIM_INFINITY || r.rlim_max > OPEN_FILES_WANTED
                          ? OPEN_FILES_WANTED
                          : r.rlim_max;
        if (r.rlim_cur < want) {
            r.rlim_cur = want;
            (void)setrlimit(RLIMIT_NOFILE, &r);
        }
    }
    struct statvfs v;
    if (statvfs("/dev/shm", &v) == 0)
        out->shm_bytes = (uint64_t)v.f_blocks * v.f_frsize;
}

void preflight_warnings(const struct machine_limits *l, uint32_t n_workers, bool on_gpus,
                        struct strbuf *out)
{
    if (l->open_files_hard < OPEN_FILES_LEAST)
        strbuf_printf(out,
                      "the limit of open files is only %llu, and every client connection uses one. "
                      "Raise it with `ulimit -Hn 65536`, LimitNOFILE= or --ulimit nofile\n",
                      (unsigned long long)l->open_files_hard);
    if (on_gpus && n_workers > 1 && l->shm_bytes < SHM_PER_WORKER * n_workers)
        strbuf_printf(out,
                      "/dev/shm has only %llu MiB, but the collectives of %u workers need %llu "
                      "MiB. Raise it with --shm-size or `mount -o remount,size=...`\n",
                      (unsigned long long)(l->shm_bytes >> 20), n_workers,
                      (unsigned long long)(SHM_PER_WORKER * n_workers >> 20));
}

/* Copies the host without the brackets of an IPv6 address: "[::1]" becomes "::1". */
static void bare_host(const char *host, char *out, size_t size)
{
    size_t n = strlen(host);
    bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(out, size, "%.*s", (int)(brackets ? n - 2 : n), brackets ? host + 1 : host);
}

enum status preflight_port(const char *host, uint16_t port, const char *what, const char *flag,
                           struct error *err)
{
    char name[256], service[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    bare_host(host, name, sizeof name);
    snprintf(service, sizeof service, "%u", port);
    int rc = getaddrinfo(name, service, &hints, &list);
    if (rc != 0)
        return error_set(err, STATUS_INVALID, "cannot resolve the address \"%s\" of %s: %s", host,
                         what, gai_strerror(rc));
    enum status s = STATUS_OK;
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, list->ai_addr, list->ai_addrlen) != 0)
            s = errno == EADDRINUSE
                    ? error_set(err, STATUS_EXISTS,
                                "port %u of %s is in use on %s. Stop the process that listens "
                                "there (find it with `ss -ltnp`), or choose another port with %s",
                                port, what, host, flag)
                    : error_set(err, STATUS_INVALID, "%s cannot listen on %s port %u: %s", what,
                                host, port, strerror(errno));
        close(fd);
    }
    freeaddrinfo(list);
    return s;
}
