// This program runs in the smallest useful test pod. It is a server that tells its user and group,
// and a client that finds a server by name.
//   probe serve PORT         answers each connection with one line, "uid=U gid=G", and closes it
//   probe ask HOST PORT      looks up HOST, prints the server's line; tries for one minute
//   probe keep FILE          writes FILE, reads it back and prints its text
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASK_TRIES 60

static int serve(const char *port)
{
    const struct sockaddr_in any = {.sin_family = AF_INET,
                                    .sin_port = htons((unsigned short)atoi(port))};
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener, (const struct sockaddr *)&any, sizeof any) != 0 ||
        listen(listener, 16) != 0) {
        perror("probe serve");
        return 1;
    }
    for (;;) {
        const int peer = accept(listener, NULL, NULL);
        if (peer >= 0) {
            dprintf(peer, "uid=%u gid=%u\n", (unsigned)getuid(), (unsigned)getgid());
            close(peer);
        }
    }
}

// Makes one try and prints the server's line. Returns 0 when the server sent something.
static int ask_once(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char line[256];
    ssize_t size = -1;
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", host, gai_strerror(error));
        return 1;
    }
    for (const struct addrinfo *a = found; a != NULL && size <= 0; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            fprintf(stderr, "%s: %s\n", host, strerror(errno));
        } else {
            size = read(fd, line, sizeof line - 1);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    freeaddrinfo(found);
    if (size <= 0) {
        return 1;
    }
    line[size] = '\0';
    printf("%s", line);
    return 0;
}

static int ask(const char *host, const char *port)
{
    for (int i = 0; i < ASK_TRIES; i++) {
        if (ask_once(host, port) == 0) {
            return 0;
        }
        sleep(1);
    }
    return 1;
}

static int keep(const char *path)
{
    char line[64] = "";
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "kept by %u\n", (unsigned)getuid()) < 0 ||
        fclose(file) != 0) {
        perror(path);
        return 1;
    }
    file = fopen(path, "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        perror(path);
        return 1;
    }
    fclose(file);
    printf("%s", line);
    return 0;
}

static void leave(int number)
{
    (void)number;
    _exit(0);
}

int main(int argc, char **argv)
{
    const struct sigaction go = {.sa_handler = leave};
    sigaction(SIGTERM, &go, NULL); // without a handler, PID 1 ignores SIGTERM
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        return serve(argv[2]);
    }
    if (argc == 4 && strcmp(argv[1], "ask") == 0) {
        return ask(argv[2], argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "keep") == 0) {
        return keep(argv[2]);
    }
    fprintf(stderr, "probe serve PORT | ask HOST PORT | keep FILE\n");
    return 2;
}
