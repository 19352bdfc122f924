/* Writes log lines for a process that crashes. crash_install lists the loaded objects and the
 * build id and sets the signal handler. The handler writes one `crash` line and a `crash_frame`
 * line for each frame to stderr, and lets the signal end the process.
 * Everything from put() to on_crash runs in the handler: no lock, no malloc, no stdio, only
 * bytes on the stack and write(2). `crash` is filled once, before other threads start, and only
 * read afterwards. A second crash in another thread waits one second and writes nothing. */
#include "common/host/crash.h"

#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/version.h"

enum { MAX_FRAMES = 64, STACK_BYTES = 64 << 10, MAX_OBJECTS = 128, ID_BYTES = 20, LINE_MAX = 512 };

/* `object` is one loaded object. crash_install lists the objects in advance, because
 * dl_iterate_phdr takes a lock and is not safe in a handler. */
struct object {
    uintptr_t start, end, base;
    char name[128];
};
static struct {
    struct object objects[MAX_OBJECTS];
    int n_objects;
    char build_id[2 * ID_BYTES + 1];
} crash;

/* ---- at start-up ---- */

static void note_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) * p)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        const ElfW(Nhdr) *n = (const void *)at;
        const uint8_t *desc = (const uint8_t *)at + sizeof *n + ((n->n_namesz + 3u) & ~3u);
        if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && n->n_descsz <= ID_BYTES) {
            for (size_t i = 0; i < n->n_descsz; i++) {
                crash.build_id[2 * i] = digits[desc[i] >> 4];
                crash.build_id[2 * i + 1] = digits[desc[i] & 15];
            }
            return;
        }
        at = (const char *)desc + ((n->n_descsz + 3u) & ~3u);
    }
}

static int note_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    bool is_program = crash.n_objects == 0; /* the program is the first object and has no name */
    (void)size;
    if (crash.n_objects == MAX_OBJECTS)
        return 1;
    struct object *o = &crash.objects[crash.n_objects++];
    *o = (struct object){.start = UINTPTR_MAX, .base = info->dlpi_addr};
    snprintf(o->name, sizeof o->name, "%s", is_program ? (const char *)ctx : name);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD) {
            o->start = at < o->start ? at : o->start;
            o->end = at + p->p_memsz > o->end ? at + p->p_memsz : o->end;
        } else if (p->p_type == PT_NOTE && is_program && !crash.build_id[0]) {
            note_build_id(info, p);
        }
    }
    return 0;
}

const char *crash_build_id(void)
{
    return crash.build_id;
}

/* ---- in the handler ---- */

struct line {
    size_t n;
    char text[LINE_MAX];
};

static void put(struct line *l, const char *s)
{
    while (*s && l->n < LINE_MAX - 1)
        l->text[l->n++] = *s++;
}

static void put_number(struct line *l, uint64_t v, unsigned base)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v && n < sizeof digits);
    while (n > 0 && l->n < LINE_MAX - 1)
        l->text[l->n++] = digits[--n];
}

static void put_two(struct line *l, uint64_t v, char after)
{
    const char text[] = {(char)('0' + v / 10 % 10), (char)('0' + v % 10), after, '\0'};
    put(l, text);
}

/* Writes the time in the format of log.c. gmtime_r is not safe in a handler. The date arithmetic
 * is Howard Hinnant's. */
static void put_time(struct line *l)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    uint64_t s = (uint64_t)t.tv_sec, z = s / 86400 + 719468, era = z / 146097, doe = z % 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    uint64_t month = mp < 10 ? mp + 3 : mp - 9;
    put_number(l, yoe + era * 400 + (month <= 2), 10);
    put(l, "-");
    put_two(l, month, '-');
    put_two(l, doy - (153 * mp + 2) / 5 + 1, 'T');
    put_two(l, s / 3600 % 24, ':');
    put_two(l, s / 60 % 60, ':');
    put_two(l, s % 60, '.');
    put_number(l, (uint64_t)t.tv_nsec / 100000000, 10);
    put_two(l, (uint64_t)t.tv_nsec / 1000000, 'Z');
}

/* Writes one field of a log line. The values are our own and need no escaping. */
static void put_field(struct line *l, const char *name, const char *value)
{
    put(l, log_is_json() ? ",\"" : " ");
    put(l, name);
    put(l, log_is_json() ? "\":\"" : "=");
    put(l, value);
    put(l, log_is_json() ? "\"" : "");
}

static void begin(struct line *l, const char *event)
{
    l->n = 0;
    put(l, log_is_json() ? "{\"ts\":\"" : "");
    put_time(l);
    put(l, log_is_json() ? "\",\"level\":\"error\",\"process\":\"" : " error ");
    put(l, log_process());
    put(l, log_is_json() ? "\",\"event\":\"" : " ");
    put(l, event);
    put(l, log_is_json() ? "\"" : "");
}

static void end(struct line *l)
{
    put(l, log_is_json() ? "}" : "");
    l->text[l->n++] = '\n';
    (void)!write(STDERR_FILENO, l->text, l->n);
}

static void put_address(struct line *l, uintptr_t at)
{
    struct line value = {0};
    const struct object *o = NULL;
    for (int i = 0; i < crash.n_objects && !o; i++)
        if (at >= crash.objects[i].start && at < crash.objects[i].end)
            o = &crash.objects[i];
    put(&value, o ? o->name : "?");
    put(&value, "+0x");
    put_number(&value, at - (o ? o->base : 0), 16);
    value.text[value.n] = '\0';
    put_field(l, "at", value.text);
}

static const char *signal_word(int signum)
{
    switch (signum) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    default:
        return "SIGABRT";
    }
}

static __attribute__((noinline)) void write_crash(int signum, const siginfo_t *info)
{
    struct line l, number = {0};
    void *frames[MAX_FRAMES];
    begin(&l, "crash");
    put_field(&l, "signal", signal_word(signum));
    put_number(&number, (uint64_t)getpid(), 10);
    number.text[number.n] = '\0';
    put_field(&l, "pid", number.text);
    put_field(&l, "version", COX_VERSION);
    put_field(&l, "build_id", crash.build_id[0] ? crash.build_id : "none");
    bool sent = info->si_code <= 0; /* a signal that kill or abort sent has no address */
    number.n = 0;
    put(&number, "0x");
    put_number(&number, sent ? 0 : (uint64_t)(uintptr_t)info->si_addr, 16);
    number.text[number.n] = '\0';
    put_field(&l, "address", sent ? "none" : number.text);
    end(&l);
    int n = backtrace(frames, MAX_FRAMES);
    for (int i = 2; i < n; i++) { /* frames 0 and 1 are this function and the signal handler */
        begin(&l, "crash_frame");
        put_address(&l, (uintptr_t)frames[i]);
        end(&l);
    }
}

static void on_crash(int signum, siginfo_t *info, void *context)
{
    static volatile sig_atomic_t said;
    (void)context;
    if (!said) {
        said = 1;
        write_crash(signum, info);
    } else {
        sleep(1); /* another thread crashed first and needs time to finish its lines */
    }
    (void)signal(signum, SIG_DFL); /* after this call the signal ends the process as usual */
    (void)raise(signum);
}

/* A sanitizer's own handlers report more, so they stay in place. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

void crash_install(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    void *one[1];
    if (HAS_SANITIZER)
        return;
    char path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    crash.n_objects = 0;
    dl_iterate_phdr(note_object, slash ? slash + 1 : path);
    /* only the first call loads a library, so it is made here and not in the handler */
    (void)backtrace(one, 1);
    void *stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternative = {.ss_sp = stack, .ss_size = STACK_BYTES};
    if (stack != MAP_FAILED)
        /* the stack serves this thread only; with it the handler also runs after a stack overflow
         */
        (void)sigaltstack(&alternative, NULL);
    struct sigaction a = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)sigaction(signals[i], &a, NULL);
}
