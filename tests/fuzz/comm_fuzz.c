/* Fuzzes the bytes that a rank reads from its port: hellos and replies, addresses from the head,
 * and bytes of a linked peer in the middle of a collective. Some hellos and replies get a valid
 * proof, so that the fields behind the proof are reached. The first byte selects the kind. */
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "worker/comm/address.h"
#include "worker/comm/exchange.h"
#include "worker/comm/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t id[COMM_ID_BYTES] = {1, 2, 3};

static void check(bool good)
{
    if (!good)
        abort();
}

static void read_hello(const uint8_t *data, size_t size)
{
    uint8_t in[HELLO_BYTES] = {0}, again[HELLO_BYTES];
    crypto_generichash_state s;
    struct hello h;
    struct error err;
    memcpy(in, data, size < sizeof in ? size : sizeof in);
    /* the hello must be refused, because no peer can guess a proof */
    check(hello_decode(in, id, &h, &err) != STATUS_OK);
    crypto_generichash_init(&s, id, sizeof id, PROOF_BYTES);
    crypto_generichash_update(&s, (const uint8_t *)"hello", 6);
    crypto_generichash_update(&s, in, HELLO_BYTES - PROOF_BYTES);
    crypto_generichash_final(&s, in + HELLO_BYTES - PROOF_BYTES, PROOF_BYTES);
    if (hello_decode(in, id, &h, &err) != STATUS_OK)
        return;
    hello_encode(&h, id, again);
    if (in[6] <= 1 && in[7] == 0) /* unknown flags are dropped, so they are not compared */
        check(memcmp(in, again, sizeof in) == 0);
}

static void read_reply(const uint8_t *data, size_t size)
{
    struct transcript t;
    struct handshake_end e;
    struct error err;
    memset(&t, 0, sizeof t);
    memcpy(&t, data, size < sizeof t ? size : sizeof t);
    check(reply_decode(&t, id, &e, &err) == STATUS_DENIED);
    check(confirm_check(t.reply, &t, id, &err) == STATUS_DENIED);
}

static void read_address(const uint8_t *data, size_t size)
{
    struct address a, b;
    struct error err;
    char text[COMM_ADDRESS_MAX];
    if (address_parse((struct str){(const char *)data, size}, &a, &err) != STATUS_OK)
        return;
    check(address_format(&a, text, &err) == STATUS_OK);
    check(address_parse(str_from(text), &b, &err) == STATUS_OK);
    check(a.n == b.n && memcmp(&a.sa, &b.sa, a.n) == 0);
}

/* ---- a peer with a valid proof that sends arbitrary bytes ---- */

struct hostile {
    struct comm_link link;
    const uint8_t *data;
    size_t n, piece;
};

static enum status hostile_send(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                                struct error *err)
{
    struct hostile *h = (struct hostile *)l;
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += v[i].iov_len;
    *moved = all < h->piece ? all : h->piece;
    return STATUS_OK;
}

static enum status hostile_recv(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                                struct error *err)
{
    struct hostile *h = (struct hostile *)l;
    size_t left = h->piece < h->n ? h->piece : h->n;
    *moved = 0;
    if (h->n == 0)
        return error_set(err, STATUS_IO, "gone");
    for (size_t i = 0; i < n && left > 0; i++) {
        size_t m = v[i].iov_len < left ? v[i].iov_len : left;
        memcpy(v[i].iov_base, h->data, m);
        h->data += m;
        h->n -= m;
        left -= m;
        *moved += m;
    }
    return STATUS_OK;
}

/* This is never called, because some bytes move on every turn. */
static short hostile_before_sleep(struct comm_link *l, bool wants_send, bool wants_recv)
{
    abort();
}

static const struct comm_link_ops hostile_ops = {.name = "fuzz",
                                                 .send = hostile_send,
                                                 .recv = hostile_recv,
                                                 .before_sleep = hostile_before_sleep};

static void meet_hostile(const uint8_t *data, size_t size)
{
    static struct exchange_peer peers[2];
    static uint8_t in[8192], out[8192];
    if (size < 3)
        return;
    struct waiter w = {.wake_fd = -1};
    struct hostile h = {
        .link = {&hostile_ops, -1}, .data = data + 3, .n = size - 3, .piece = 1 + data[2] * 17u};
    struct exchange x = {
        .waiter = &w, .n_ranks = 2, .counter = 1, .timeout_ns = UINT64_MAX / 2, .peers = peers};
    peers[1].link = &h.link;
    size_t n_recv = data[0] * 32u;
    struct exchange_part parts[2] = {{0},
                                     {.sends = data[1] & 1,
                                      .receives = true,
                                      .send = out,
                                      .recv = in,
                                      .n_send = sizeof out / 2,
                                      .n_recv = n_recv,
                                      .send_bytes = 1,
                                      .recv_bytes = n_recv}};
    struct exchange_what what = {(enum collective_kind)(data[1] / 2 % COLLECTIVE_COUNT), 0,
                                 data[1] & 0x80};
    struct error err = {0};
    size_t n_header = what.goes_on ? 0 : 16;
    enum status s = exchange_run(&x, what, parts, &err);
    if (s == STATUS_OK)
        check(memcmp(in, data + 3 + n_header, n_recv) == 0);
    else
        check(s == STATUS_INVALID || s == STATUS_IO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const uint8_t *, size_t) = {read_hello, read_reply, read_address,
                                                               meet_hostile};
    if (size == 0 || sodium_init() < 0)
        return 0;
    readers[data[0] % 4](data + 1, size - 1);
    return 0;
}
