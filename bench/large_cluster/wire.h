#pragma once
/* Owns the sockets of all peers to the head. */
#include "bench/large_cluster/peers.h"

struct scale_wire *scale_wire_open(void);
void scale_wire_connect(struct scale_wire *w, const struct scale_options *o, uint32_t i_peer,
                        enum peer_role role);
void scale_wire_close(struct scale_wire *w);
int scale_wire_fd(const struct scale_wire *w);
bool scale_wire_has_input(const struct scale_wire *w);
/* Receives one frame, which is valid until the next call. STATUS_AGAIN: no frame has arrived. */
enum status scale_wire_receive(struct scale_wire *w, uint32_t *i_peer, struct str *frame);
void scale_wire_send(struct scale_wire *w, uint32_t i_peer, struct str frame);
