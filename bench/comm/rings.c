/* Implements `bench_comm rings`. Two processes exchange messages in both directions over links
 * with rings of several sizes, and spin while they wait. */
#include "bench/comm/rings.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/median.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/spin.h"
#include "worker/comm/links/shm.h"

enum { MAX_ROUNDS = 31, N_SAMPLES = 60, MAX_BYTES = 1310720 };
static const uint64_t ring_bytes[] = {64 << 10, 128 << 10, 256 << 10, 512 << 10,
                                      1 << 20,  2 << 20,   4 << 20};
static const uint64_t message_bytes[] = {2560, 40960, 262144, 524288, MAX_BYTES};
enum {
    N_RINGS = sizeof ring_bytes / sizeof *ring_bytes,
    N_MESSAGES = sizeof message_bytes / sizeof *message_bytes
};

static bool exchange(struct comm_link *l, const uint8_t *out, uint8_t *in, uint64_t n)
{
    for (uint64_t sent = 0, received = 0; sent < n || received < n;) {
        size_t a = 0, b = 0;
        if (sent < n && link_send(l, out + sent, n - sent, &a, NULL) != STATUS_OK)
            return false;
        if (received < n && link_recv(l, in + received, n - received, &b, NULL) != STATUS_OK)
            return false;
        sent += a;
        received += b;
        if (a + b == 0)
            spin_pause();
    }
    return true;
}

/* Runs one of the two processes. us: NULL, or medians in microseconds,
 * [N_RINGS][N_MESSAGES][MAX_ROUNDS] */
static bool run_side(struct comm_link **links, uint32_t n_rounds,
                     double us[N_RINGS][N_MESSAGES][MAX_ROUNDS])
{
    uint8_t *out = mem_array(1, MAX_BYTES), *in = mem_array(1, MAX_BYTES);
    bool good = true;
    memset(in, 0, MAX_BYTES);
    for (uint32_t i_round = 0; i_round < n_rounds; i_round++) {
        for (int i = 0; i < N_RINGS * N_MESSAGES && good; i++) {
            double samples[N_SAMPLES];
            for (int j = 0; j < N_SAMPLES && good; j++) {
                uint64_t start = clock_mono_ns();
                good = exchange(links[i % N_RINGS], out, in, message_bytes[i / N_RINGS]);
                samples[j] = (double)(clock_mono_ns() - start) / (double)NS_PER_US;
            }
            if (us)
                us[i % N_RINGS][i / N_RINGS][i_round] = bench_median(samples, N_SAMPLES);
        }
    }
    mem_free(out);
    mem_free(in);
    return good;
}

static bool open_links(struct comm_link **ours, struct comm_link **theirs)
{
    struct error err = {0};
    for (int i = 0; i < N_RINGS; i++) {
        int bells[2], memory_fd;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) != 0) {
            perror("socketpair");
            return false;
        }
        if (link_shm_offer_sized(bells[0], ring_bytes[i], &memory_fd, &ours[i], &err) !=
                STATUS_OK ||
            link_shm_take(bells[1], memory_fd, &theirs[i], &err) != STATUS_OK) {
            fprintf(stderr, "%s\n", err.text);
            return false;
        }
        close(memory_fd);
    }
    return true;
}

bool bench_rings(uint32_t n_rounds)
{
    static double us[N_RINGS][N_MESSAGES][MAX_ROUNDS];
    struct comm_link *ours[N_RINGS], *theirs[N_RINGS];
    if (!open_links(ours, theirs))
        return false;
    pid_t pid = fork();
    bool child = pid == 0;
    for (int i = 0; i < N_RINGS; i++) {
        struct comm_link *other = child ? ours[i] : theirs[i];
        other->ops->close(other);
    }
    bool good = run_side(child ? theirs : ours, n_rounds, child ? NULL : us);
    if (child)
        _exit(good ? 0 : 1);
    int status;
    waitpid(pid, &status, 0);
    if (!good || status != 0)
        return false;
    printf("%u rounds, us of an exchange: median of the rounds' medians (least … most)\n\n| |",
           n_rounds);
    for (int i = 0; i < N_RINGS; i++)
        printf(" %llu KiB |", (unsigned long long)ring_bytes[i] >> 10);
    for (int j = 0; j < N_MESSAGES; j++) {
        printf("\n| %g KiB |", (double)message_bytes[j] / 1024);
        for (int i = 0; i < N_RINGS; i++) {
            double median = bench_median(us[i][j], n_rounds);
            printf(" %.1f (%.1f … %.1f) |", median, us[i][j][0], us[i][j][n_rounds - 1]);
        }
    }
    printf("\n");
    return true;
}

void bench_remove_folder(const char *path)
{
    DIR *d = opendir(path);
    char file[512];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            unlink(file);
    }
    if (d)
        closedir(d);
    rmdir(path);
}
