/* Encodes and checks the messages of a handshake between two ranks (see handshake.h). join.c
 * calls these functions for both ends of each connection. No function does I/O except host_id,
 * which reads facts about this host from the kernel. All integers are little-endian, and all
 * messages have a fixed size. A proof is a hash with the communicator's id as key and the name
 * of the message as prefix. A proof of one message is therefore not valid for another. Proofs
 * are compared in constant time. */
#include "worker/comm/handshake.h"

#include <fcntl.h>
#include <sched.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/random.h"

_Static_assert(PROOF_BYTES <= crypto_generichash_BYTES_MAX, "one hash is a proof");
_Static_assert(COMM_ID_BYTES <= crypto_generichash_KEYBYTES_MAX, "the id is a key");

static const uint8_t magic[4] = {'C', 'O', 'X', 'R'};
enum { FLAG_SHARES_MEMORY = 1 };
enum { BOOT_ID_MAX = 64 };

static void put(uint8_t **p, uint64_t v, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        *(*p)++ = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t **p, unsigned n_bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        v |= (uint64_t) * (*p)++ << (8 * i);
    return v;
}

/* Hashes the parts with the id as key. `what` differs per message, so the proof of one message
 * cannot be sent back as the proof of another message. */
static void prove(const char *what, const uint8_t id[COMM_ID_BYTES], const struct bytes parts[2],
                  uint8_t out[PROOF_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, id, COMM_ID_BYTES, PROOF_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)what, strlen(what) + 1);
    for (int i = 0; i < 2; i++)
        if (parts[i].n > 0)
            crypto_generichash_update(&state, parts[i].ptr, parts[i].n);
    crypto_generichash_final(&state, out, PROOF_BYTES);
    sodium_memzero(&state, sizeof state);
}

static void put_end(uint8_t **p, const struct handshake_end *e)
{
    memcpy(*p, e->nonce, NONCE_BYTES);
    memcpy(*p + NONCE_BYTES, e->host_id, HOST_ID_BYTES);
    *p += NONCE_BYTES + HOST_ID_BYTES;
}

static void get_end(const uint8_t **p, struct handshake_end *e)
{
    memcpy(e->nonce, *p, NONCE_BYTES);
    memcpy(e->host_id, *p + NONCE_BYTES, HOST_ID_BYTES);
    *p += NONCE_BYTES + HOST_ID_BYTES;
}

static void prove_hello(const uint8_t *hello, const uint8_t *id, uint8_t out[PROOF_BYTES])
{
    prove("hello", id, (const struct bytes[2]){{hello, HELLO_BYTES - PROOF_BYTES}, {NULL, 0}}, out);
}

void hello_encode(const struct hello *h, const uint8_t id[COMM_ID_BYTES], uint8_t out[HELLO_BYTES])
{
    uint8_t *p = out;
    memcpy(p, magic, sizeof magic);
    p += sizeof magic;
    put(&p, HANDSHAKE_VERSION, 2);
    put(&p, h->end.shares_memory ? FLAG_SHARES_MEMORY : 0, 2);
    put(&p, h->term_epoch, 8);
    put(&p, h->from, 4);
    put(&p, h->to, 4);
    put(&p, h->n_ranks, 4);
    put_end(&p, &h->end);
    prove_hello(out, id, p);
}

enum status hello_decode(const uint8_t in[HELLO_BYTES], const uint8_t id[COMM_ID_BYTES],
                         struct hello *out, struct error *err)
{
    uint8_t proof[PROOF_BYTES];
    const uint8_t *p = in + sizeof magic;
    memset(out, 0, sizeof *out);
    if (memcmp(in, magic, sizeof magic) != 0)
        return error_set(err, STATUS_PROTOCOL,
                         "the connection is refused: its first message is not the hello of a rank. "
                         "Only workers may use this port");
    prove_hello(in, id, proof);
    if (sodium_memcmp(proof, in + HELLO_BYTES - PROOF_BYTES, PROOF_BYTES) != 0)
        return error_set(err, STATUS_DENIED,
                         "the connection is refused: the peer's hello does not prove that it knows "
                         "the id of this replica");
    unsigned version = (unsigned)get(&p, 2);
    if (version != HANDSHAKE_VERSION)
        return error_set(err, STATUS_VERSION,
                         "the peer speaks version %u of the protocol between ranks, but this rank "
                         "speaks %u: run the same release on all workers",
                         version, HANDSHAKE_VERSION);
    out->end.shares_memory = get(&p, 2) & FLAG_SHARES_MEMORY;
    out->term_epoch = get(&p, 8);
    out->from = (uint32_t)get(&p, 4);
    out->to = (uint32_t)get(&p, 4);
    out->n_ranks = (uint32_t)get(&p, 4);
    get_end(&p, &out->end);
    return STATUS_OK;
}

static void prove_reply(const struct transcript *t, const uint8_t *id, uint8_t out[PROOF_BYTES])
{
    prove("reply", id,
          (const struct bytes[2]){{t->hello, HELLO_BYTES}, {t->reply, REPLY_BYTES - PROOF_BYTES}},
          out);
}

void reply_encode(const struct handshake_end *e, const uint8_t id[COMM_ID_BYTES],
                  struct transcript *t)
{
    uint8_t *p = t->reply;
    put(&p, e->shares_memory ? FLAG_SHARES_MEMORY : 0, 4);
    put_end(&p, e);
    prove_reply(t, id, p);
}

enum status reply_decode(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                         struct handshake_end *out, struct error *err)
{
    uint8_t proof[PROOF_BYTES];
    const uint8_t *p = t->reply;
    memset(out, 0, sizeof *out);
    prove_reply(t, id, proof);
    if (sodium_memcmp(proof, t->reply + REPLY_BYTES - PROOF_BYTES, PROOF_BYTES) != 0)
        return error_set(err, STATUS_DENIED,
                         "the connection is closed: the peer's answer does not prove that it knows "
                         "the id of this replica. Another program may listen at this address");
    out->shares_memory = get(&p, 4) & FLAG_SHARES_MEMORY;
    get_end(&p, out);
    return STATUS_OK;
}

static void prove_both(const char *what, const struct transcript *t, const uint8_t *id,
                       uint8_t out[PROOF_BYTES])
{
    prove(what, id, (const struct bytes[2]){{t->hello, HELLO_BYTES}, {t->reply, REPLY_BYTES}}, out);
}

void confirm_encode(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                    uint8_t out[CONFIRM_BYTES])
{
    prove_both("confirm", t, id, out);
}

enum status confirm_check(const uint8_t in[CONFIRM_BYTES], const struct transcript *t,
                          const uint8_t id[COMM_ID_BYTES], struct error *err)
{
    uint8_t proof[PROOF_BYTES];
    prove_both("confirm", t, id, proof);
    if (sodium_memcmp(proof, in, PROOF_BYTES) != 0)
        return error_set(err, STATUS_DENIED,
                         "the connection is refused: the peer's confirmation is wrong. The peer "
                         "may have replayed an old hello");
    return STATUS_OK;
}

void token_make(const struct transcript *t, const uint8_t id[COMM_ID_BYTES],
                uint8_t out[TOKEN_BYTES])
{
    prove_both("shared memory", t, id, out);
}

bool token_equal(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES])
{
    return sodium_memcmp(a, b, TOKEN_BYTES) == 0;
}

bool handshake_same_host(const struct handshake_end *a, const struct handshake_end *b)
{
    static const uint8_t unknown[HOST_ID_BYTES];
    return memcmp(a->host_id, unknown, HOST_ID_BYTES) != 0 &&
           memcmp(a->host_id, b->host_id, HOST_ID_BYTES - HOST_CPUS_BYTES) == 0;
}

bool handshake_same_cpus(const struct handshake_end *a, const struct handshake_end *b)
{
    return handshake_same_host(a, b) && memcmp(a->host_id, b->host_id, HOST_ID_BYTES) == 0;
}

bool handshake_share_memory(const struct handshake_end *a, const struct handshake_end *b)
{
    return a->shares_memory && b->shares_memory && handshake_same_host(a, b);
}

static void hash_short(const void *data, size_t n, uint8_t *out, size_t n_out)
{
    uint8_t hash[crypto_generichash_BYTES];
    crypto_generichash(hash, sizeof hash, data, n, NULL, 0);
    memcpy(out, hash, n_out);
}

/* Writes an id of boot, network namespace and user. A container has its own network namespace
 * and usually its machine's boot id. Abstract Unix sockets can be reached only within a
 * namespace. */
static void host_id(uint8_t out[HOST_ID_BYTES])
{
    struct {
        char boot[BOOT_ID_MAX];
        uint64_t dev, ino, uid;
    } who;
    struct stat st;
    cpu_set_t cpus;
    memset(&who, 0, sizeof who);
    memset(out, 0, HOST_ID_BYTES);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, who.boot, sizeof who.boot - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0 || stat("/proc/self/ns/net", &st) != 0)
        return;
    who.dev = st.st_dev;
    who.ino = st.st_ino;
    who.uid = geteuid();
    hash_short(&who, sizeof who, out, HOST_ID_BYTES - HOST_CPUS_BYTES);
    if (sched_getaffinity(getpid(), sizeof cpus, &cpus) !=
        0) /* the main thread's CPUs, since a pool's thread has fewer */
        CPU_ZERO(&cpus);
    hash_short(&cpus, sizeof cpus, out + HOST_ID_BYTES - HOST_CPUS_BYTES, HOST_CPUS_BYTES);
}

void handshake_end_fill(struct handshake_end *e, bool shares_memory)
{
    e->shares_memory = shares_memory;
    random_secure(e->nonce, NONCE_BYTES);
    host_id(e->host_id);
}
