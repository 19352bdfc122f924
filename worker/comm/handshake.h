#pragma once
/* The messages by which two ranks prove to each other that they know the communicator's id, before
 * anything else crosses the connection: hello by the one that connects, reply by the one that
 * accepts, confirm by the first. Every proof is a hash keyed with the id; hello's covers who meets
 * whom in which epoch, the other two cover both ends' fresh numbers. Pure; what is decoded came
 * from anybody. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/comm/group.h"

#define HANDSHAKE_VERSION 1u
#define NONCE_BYTES       16u
#define HOST_ID_BYTES     16u
#define HOST_CPUS_BYTES   4u /* of these, the last ones */
#define PROOF_BYTES       32u
#define HELLO_BYTES       (28u + NONCE_BYTES + HOST_ID_BYTES + PROOF_BYTES)
#define REPLY_BYTES       (4u + NONCE_BYTES + HOST_ID_BYTES + PROOF_BYTES)
#define CONFIRM_BYTES     PROOF_BYTES
#define TOKEN_BYTES       PROOF_BYTES

/* What an end says of itself. host_id: all zero is nobody's equal. Ends that are alike but for the
 * last HOST_CPUS_BYTES may share memory, and share their CPUs if those are alike too. An older
 * version's end has a hash over all of it and is alike to none of these. */
struct handshake_end {
    bool shares_memory;
    uint8_t nonce[NONCE_BYTES], host_id[HOST_ID_BYTES];
};
struct hello {
    uint64_t term_epoch;
    uint32_t from, to, n_ranks;
    struct handshake_end end;
};
/* Both messages as they crossed: what later proofs are over. */
struct transcript {
    uint8_t hello[HELLO_BYTES], reply[REPLY_BYTES];
};

void hello_encode(const struct hello *h, const uint8_t id[COMM_ID_BYTES], uint8_t out[HELLO_BYTES]);
/* STATUS_PROTOCOL: not a hello at all; STATUS_DENIED: one of somebody who does not know this id;
 * STATUS_VERSION: one of a peer that does and speaks another version. */
MUST_USE enum status hello_decode(const uint8_t in[HELLO_BYTES], const uint8_t id[COMM_ID_BYTES],
                                  struct hello *out, struct error *err);
/* Over t->hello; writes t->reply. */
void reply_encode(const struct handshake_end *e, const uint8_t id[COMM_ID_BYTES],
                  struct transcript *t);
/* STATUS_DENIED: t->reply does not answer t->hello. */
MUST_USE enum status reply_decode(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                                  struct handshake_end *out, struct error *err);
void confirm_encode(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                    uint8_t out[CONFIRM_BYTES]);
MUST_USE enum status confirm_check(const uint8_t in[CONFIRM_BYTES], const struct transcript *t,
                                   const uint8_t id[COMM_ID_BYTES], struct error *err);
/* What the connecting end sends first on the Unix socket, so that no other user's process is given
 * the memory. */
void token_make(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                uint8_t out[TOKEN_BYTES]);
bool token_equal(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES]);

/* Both are on one boot of one machine, in one network namespace, of one user. */
bool handshake_same_host(const struct handshake_end *a, const struct handshake_end *b);
/* And may use the same CPUs of it: the set is alike. */
bool handshake_same_cpus(const struct handshake_end *a, const struct handshake_end *b);
/* And neither was told not to. */
bool handshake_share_memory(const struct handshake_end *a, const struct handshake_end *b);
/* A fresh nonce, and this process's host_id. */
void handshake_end_fill(struct handshake_end *e, bool shares_memory);
