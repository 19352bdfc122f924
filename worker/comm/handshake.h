#pragma once
/* Declares the messages by which two ranks prove to each other that they know the communicator's
 * id, before any other data is sent on the connection. The connecting rank sends hello, the
 * accepting rank answers with reply, and the connecting rank sends confirm. Every proof is a
 * hash keyed with the id. The proof of hello covers both ranks and the epoch. The other two
 * cover both ends' fresh nonces. No function here does I/O on the connection, and decoded bytes
 * may come from an unauthenticated peer. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/comm/group.h"

#define HANDSHAKE_VERSION 1u
#define NONCE_BYTES       16u
#define HOST_ID_BYTES     16u
#define HOST_CPUS_BYTES   4u /* last bytes of host_id: the set of CPUs */
#define PROOF_BYTES       32u
#define HELLO_BYTES       (28u + NONCE_BYTES + HOST_ID_BYTES + PROOF_BYTES)
#define REPLY_BYTES       (4u + NONCE_BYTES + HOST_ID_BYTES + PROOF_BYTES)
#define CONFIRM_BYTES     PROOF_BYTES
#define TOKEN_BYTES       PROOF_BYTES

/* `handshake_end` is one end's description of itself. A host_id of zeros matches no other
 * host_id. Ends whose host_id is equal, except for the last HOST_CPUS_BYTES, may share memory.
 * If those bytes are equal too, the ends share their CPUs. In older versions the whole host_id
 * is one hash, which matches no newer host_id. */
struct handshake_end {
    bool shares_memory;
    uint8_t nonce[NONCE_BYTES], host_id[HOST_ID_BYTES];
};
struct hello {
    uint64_t term_epoch;
    uint32_t from, to, n_ranks;
    struct handshake_end end;
};
/* `transcript` keeps hello and reply as they were sent, because later proofs cover both. */
struct transcript {
    uint8_t hello[HELLO_BYTES], reply[REPLY_BYTES];
};

void hello_encode(const struct hello *h, const uint8_t id[COMM_ID_BYTES], uint8_t out[HELLO_BYTES]);
/* Decodes and checks a hello. STATUS_PROTOCOL: the bytes are no hello. STATUS_DENIED: the sender
 * does not know this id. STATUS_VERSION: the sender knows the id and has another version. */
MUST_USE enum status hello_decode(const uint8_t in[HELLO_BYTES], const uint8_t id[COMM_ID_BYTES],
                                  struct hello *out, struct error *err);
/* Writes the answer to t->hello to t->reply. */
void reply_encode(const struct handshake_end *e, const uint8_t id[COMM_ID_BYTES],
                  struct transcript *t);
/* Returns STATUS_DENIED when t->reply does not answer t->hello. */
MUST_USE enum status reply_decode(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                                  struct handshake_end *out, struct error *err);
void confirm_encode(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                    uint8_t out[CONFIRM_BYTES]);
MUST_USE enum status confirm_check(const uint8_t in[CONFIRM_BYTES], const struct transcript *t,
                                   const uint8_t id[COMM_ID_BYTES], struct error *err);
/* Makes the token that the connecting end sends first on the Unix socket, so that no other
 * user's process receives the shared memory. */
void token_make(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                uint8_t out[TOKEN_BYTES]);
bool token_equal(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES]);

/* Returns true when both ends run on the same boot of the same machine, in the same network
 * namespace, as the same user. */
bool handshake_same_host(const struct handshake_end *a, const struct handshake_end *b);
/* Returns true when the ends are on the same host and may use the same set of CPUs. */
bool handshake_same_cpus(const struct handshake_end *a, const struct handshake_end *b);
/* Returns true when the ends are on the same host and both allow shared memory. */
bool handshake_share_memory(const struct handshake_end *a, const struct handshake_end *b);
/* Fills `e` with a fresh nonce and this process's host_id. */
void handshake_end_fill(struct handshake_end *e, bool shares_memory);
