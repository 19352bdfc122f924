#pragma once
/* Decides when a model that was removed from a set ends. The function is pure. */
#include "cli/up/set/watch.h"

/* SET_LEAVE_MAX_S bounds the time that a removed model may take for its open requests, because a
 * client that reads nothing more would keep its memory for ever. */
enum { SET_LEAVE_MAX_S = 1800 };

enum set_leave {
    SET_LEAVE_WAIT, /* a request may be open */
    SET_LEAVE_SLOW, /* the same for a minute now */
    SET_LEAVE_END,  /* no request is open */
    SET_LEAVE_LATE  /* SET_LEAVE_MAX_S have passed */
};

/* `h` is the head's last answer, and `left_ns` the time of the removal. */
enum set_leave set_leave_decide(const struct set_heard *h, uint64_t left_ns, uint64_t now_ns);
