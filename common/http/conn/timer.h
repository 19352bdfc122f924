#pragma once
/* Sets the one timer of a connection, which waits for one event at a time. server/deadline.c
 * acts when the timer fires. Only common/http includes this header. */
#include <stdbool.h>
#include <stdint.h>

struct conn;
struct progress_rules;
/* CONN_LOOKS is the number of checks of a transfer in each stall time. */
enum { CONN_LOOKS = 4 };

void conn_arm(struct conn *c, uint64_t ms);
void conn_abort_soon(struct conn *c); /* aborts the connection on the next turn */
void conn_arm_reading(struct conn *c);
/* Records received bytes of a body as progress. */
void conn_body_moved(struct conn *c, uint64_t bytes);
/* Starts the time limit of an answer when its first bytes wait. */
void conn_arm_writing(struct conn *c);
/* Returns true when the peer has acknowledged bytes since the last call. */
bool conn_answer_moved(struct conn *c);
/* Arms the timer for the earliest time at which the verdict on the transfer may change, at most
 * `most` ns from now. */
void conn_arm_look(struct conn *c, const struct progress_rules *r, uint64_t most);
uint64_t conn_now_ns(const struct conn *c); /* returns the time of the connection's loop in ns */
