#pragma once
/* A connection's memory for its client is charged to its server's rooms
 * (common/collections/room.h), where it is more than every connection may have. Private to
 * common/net. One thread. */
#include <stdbool.h>

struct conn;

void conn_charge_answer(struct conn *c); /* what waits for the client */
void conn_charge_kept(struct conn *c);   /* its head, a small body, and bytes sent ahead */
bool conn_charge_body(struct conn *c);   /* and a large body; false: there is no room */
/* Answers 503 or, where it would never have room, 413. */
void conn_refuse_for_room(struct conn *c);
void conn_release_rooms(struct conn *c); /* all of it, but the answer */
