#pragma once
/* A connection waits for one thing at a time, on its one timer; server/deadline.c says what happens
 * when that ends. Private to common/http. */
#include <stdbool.h>
#include <stdint.h>

struct conn;
struct progress_rules;
/* A transfer is looked at so many times in each stall time. */
enum { CONN_LOOKS = 4 };

void conn_arm(struct conn *c, uint64_t ms);
void conn_abort_soon(struct conn *c); /* on the next turn */
void conn_arm_reading(struct conn *c);
/* Bytes of a body have come. */
void conn_body_moved(struct conn *c, uint64_t bytes);
/* An answer has bytes waiting that had none. */
void conn_arm_writing(struct conn *c);
/* Whether its peer has acknowledged bytes since it was last asked. */
bool conn_answer_moved(struct conn *c);
/* As soon as the verdict may be another one, at the latest in `most` nanoseconds. */
void conn_arm_look(struct conn *c, const struct progress_rules *r, uint64_t most);
uint64_t conn_now_ns(const struct conn *c); /* of its loop */
