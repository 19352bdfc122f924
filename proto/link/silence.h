#pragma once
/* Whether the other end of a link is gone, by how long nothing has come from it: a failure detector
 * by time-outs (Chandra and Toueg, 1996) that looks at its own clock first. A process that was not
 * scheduled finds a long silence and the frames that end it, in this order, since an event loop
 * runs its timers before it reads. So nobody is blamed for
 *  - a look that came late: what passed between two looks beyond SILENCE_STALL_NS is not counted;
 *  - one look: the silence has to be found too long twice, and what had come was read in between.
 * Pure; times are monotonic nanoseconds and arguments. Whoever owns the link owns it, on its
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>

#define SILENCE_STALL_NS 500000000ull /* between two looks: the looker itself stood still */
#define SILENCE_USUAL_NS 1500000000ull
#define SILENCE_AGAIN_MS 25u /* until the second look, where looks are rarer than that */

struct silence {
    uint64_t heard_ns;  /* the last frame, or later by what nobody is blamed for */
    uint64_t looked_ns; /* the last look */
    bool is_overdue;    /* at the last look it was too long */
};

/* The silence that a worker or gateway allows its head, from suspect_ms of the Welcome: the head
 * counts a peer as lost after one and a half times that (--peer-timeout). SILENCE_USUAL_NS for a
 * number that no head sends. */
uint64_t silence_limit_ns(uint32_t suspect_ms);
/* The link is open, or something came. */
void silence_begin(struct silence *s, uint64_t now_ns);
void silence_heard(struct silence *s, uint64_t now_ns);
/* A look, to be made four times in limit_ns at least. True: the other end is gone. s->is_overdue:
 * it would be, and wants a second look soon. */
bool silence_look(struct silence *s, uint64_t now_ns, uint64_t limit_ns);
/* The same for who keeps the rest himself: quiet_ns of silence at this look. */
bool silence_is_over(bool *is_overdue, uint64_t quiet_ns, uint64_t limit_ns);
