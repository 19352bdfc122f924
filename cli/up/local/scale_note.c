/* Sends to the head the reports about changes of the number of workers. Data flow:
 * scale_note_tell → a ring of NOTES_MAX notes → the thread → POST /api/scaled. When notes are
 * added faster than they are sent, the oldest notes are dropped, because the newest note has the
 * current number of workers. */
#include "cli/up/local/scale_note.h"

#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/client/admin.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

enum { NOTES_MAX = 16, TRIES = 10, TRY_MS = 500, NAME_BYTES = 65 };

struct note {
    uint32_t was, workers, uid;
};

struct scale_note {
    struct admin_access access;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    /* ring of notes; `first` counts the notes taken, `end` the notes added */
    struct note notes[NOTES_MAX];
    uint64_t first, end;
    bool ends;
};

static void name_user(uint32_t uid, char out[NAME_BYTES])
{
    char text[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, text, sizeof text, &found) == 0 && found)
        snprintf(out, NAME_BYTES, "%.64s", found->pw_name);
    else
        snprintf(out, NAME_BYTES, "uid %u", uid);
}

static enum status post(const struct scale_note *n, const struct note *x, struct error *err)
{
    char by[NAME_BYTES];
    json_t *answer = NULL;
    name_user(x->uid, by);
    json_t *j =
        json_pack("{s:i,s:i,s:s}", "was", (int)x->was, "workers", (int)x->workers, "by", by);
    char *body = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!body) /* json_pack returned NULL because the name is not UTF-8 */
        return error_set(
            err, STATUS_INVALID,
            "cannot report the new number of workers to the head: the name of user %u is not UTF-8",
            x->uid);
    enum status s = admin_call(&n->access, "POST", "/api/scaled", body, &answer, err);
    free(body);
    json_decref(answer);
    return s;
}

/* Waits before the next attempt. Returns true when the thread should end. */
static bool wait_some(struct scale_note *n)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TRY_MS * (long)NS_PER_MS;
    until.tv_sec += until.tv_nsec / (long)NS_PER_S;
    until.tv_nsec %= (long)NS_PER_S;
    (void)pthread_mutex_lock(&n->lock);
    if (!n->ends)
        (void)pthread_cond_timedwait(&n->changed, &n->lock, &until);
    bool ends = n->ends;
    (void)pthread_mutex_unlock(&n->lock);
    return ends;
}

static void tell(struct scale_note *n, const struct note *x)
{
    struct error err = {0};
    enum status s = STATUS_IO;
    for (int i = 0; i < TRIES; i++) {
        s = post(n, x, &err);
        bool again = s == STATUS_IO || s == STATUS_TIMEOUT;
        if (!again || wait_some(n))
            break;
    }
    if (s != STATUS_OK)
        log_info("scaled_untold", "was=%u workers=%u why=%s", x->was, x->workers,
                 log_quote(err.text));
}

static void *run(void *arg)
{
    struct scale_note *n = arg;
    (void)pthread_mutex_lock(&n->lock);
    while (!n->ends) {
        if (n->first == n->end) {
            (void)pthread_cond_wait(&n->changed, &n->lock);
            continue;
        }
        struct note x = n->notes[n->first++ % NOTES_MAX];
        (void)pthread_mutex_unlock(&n->lock);
        tell(n, &x);
        (void)pthread_mutex_lock(&n->lock);
    }
    (void)pthread_mutex_unlock(&n->lock);
    return NULL;
}

struct scale_note *scale_note_new(const char *admin, const char *key_file)
{
    struct scale_note *n = mem_zalloc(sizeof *n);
    n->access = (struct admin_access){.address = admin, .admin_key_file = key_file};
    (void)pthread_mutex_init(&n->lock, NULL);
    (void)pthread_cond_init(&n->changed, NULL);
    n->runs = pthread_create(&n->thread, NULL, run, n) == 0;
    return n;
}

void scale_note_tell(struct scale_note *n, uint32_t was, uint32_t workers, uint32_t uid)
{
    (void)pthread_mutex_lock(&n->lock);
    if (n->end - n->first == NOTES_MAX)
        n->first++;
    n->notes[n->end++ % NOTES_MAX] = (struct note){was, workers, uid};
    (void)pthread_cond_signal(&n->changed);
    (void)pthread_mutex_unlock(&n->lock);
}

void scale_note_free(struct scale_note *n)
{
    if (!n)
        return;
    (void)pthread_mutex_lock(&n->lock);
    n->ends = true;
    (void)pthread_cond_signal(&n->changed);
    (void)pthread_mutex_unlock(&n->lock);
    if (n->runs)
        pthread_join(n->thread, NULL);
    (void)pthread_cond_destroy(&n->changed);
    (void)pthread_mutex_destroy(&n->lock);
    mem_free(n);
}
