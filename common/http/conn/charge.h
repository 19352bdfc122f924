#pragma once
/* A connection's memory for its client is charged to its server's rooms
 * (common/collections/room.h), where it is more than every connection may have. Private to
 * common/http. One thread. */
#include <stdbool.h>
#include <stdint.h>

struct conn;

void conn_charge_answer(struct conn *c); /* what waits for the client */
void conn_charge_kept(struct conn *c);   /* its head, a small body, and bytes sent ahead */
bool conn_charge_body(struct conn *c);   /* and a large body; false: there is no room */
void conn_release_rooms(struct conn *c); /* all of it, but the answer */
/* The bytes of its body: what it announces or, without that, what has come, and what that was
 * decoded to. */
uint64_t conn_body_bytes(const struct conn *c, uint64_t announced);
void conn_forget_decoded(struct conn *c);
