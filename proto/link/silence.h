#pragma once
/* Decides from silence whether the other end of a link is gone. It is a failure detector by
 * time-outs (Chandra and Toueg, 1996) that first checks its own clock. A process that was not
 * scheduled finds a long silence and only then the frames that end it, since an event loop runs
 * its timers before it reads. Two rules protect a peer that is alive:
 *  - After a late check, the time between two checks beyond SILENCE_STALL_NS is not counted.
 *  - The silence must be too long in two checks in a row, with the arrived frames read in
 * between.
 * The code does no I/O. Times are arguments in monotonic nanoseconds. The owner of the link owns
 * the struct, on its thread. */
#include <stdbool.h>
#include <stdint.h>

/* SILENCE_STALL_NS is the longest time between two checks. After a longer time this process
 * itself was not running. */
#define SILENCE_STALL_NS 500000000ull
#define SILENCE_USUAL_NS 1500000000ull
#define SILENCE_AGAIN_MS 25u /* delay until the second check, if the regular interval is longer */

struct silence {
    uint64_t heard_ns;  /* time of the last frame, plus the time that is not counted */
    uint64_t looked_ns; /* time of the last check */
    bool is_overdue;    /* the silence was too long at the last check */
};

/* Returns the silence that a worker or a gateway allows its head: one and a half times the
 * suspect_ms of the Welcome. The head itself counts a peer as lost after the same time
 * (--peer-timeout). Returns SILENCE_USUAL_NS for a value that no head sends. */
uint64_t silence_limit_ns(uint32_t suspect_ms);
/* Starts the silence again, because the link is open or a frame arrived. */
void silence_begin(struct silence *s, uint64_t now_ns);
void silence_heard(struct silence *s, uint64_t now_ns);
/* Checks the silence; call it at least four times in limit_ns. Returns true when the other end
 * is gone. Sets s->is_overdue when the silence is too long for the first time and a second check
 * should follow soon. */
bool silence_look(struct silence *s, uint64_t now_ns, uint64_t limit_ns);
/* Checks the silence for a caller that keeps the times itself: quiet_ns is the silence at this
 * check. */
bool silence_is_over(bool *is_overdue, uint64_t quiet_ns, uint64_t limit_ns);
