#pragma once
/* Charges a connection's memory to its server's budgets (`struct room`,
 * common/collections/room.h). Only memory beyond the amount that every connection may have is
 * charged. Only common/http uses this header. Only one thread at a time may use a connection. */
#include <stdbool.h>
#include <stdint.h>

struct conn;

void conn_charge_answer(struct conn *c); /* charges the bytes that wait for the client */
void conn_charge_kept(struct conn *c); /* charges the headers, a small body and bytes sent ahead */
/* Charges a large body in addition. Returns false when the body does not fit in the budget. */
bool conn_charge_body(struct conn *c);
void conn_release_rooms(struct conn *c); /* releases all charges except the answer's */
/* Returns the bytes of the connection's body: its announced length, or the bytes received so
 * far, plus the decoded bytes. */
uint64_t conn_body_bytes(const struct conn *c, uint64_t announced);
void conn_forget_decoded(struct conn *c);
