/* Tests handshakes and addresses of ranks, without sockets. The tests encode a hello, a
 * confirmation or a token, change bits or fields, and decode it again. Invariants: only a
 * message with the right id, epoch and ranks is accepted, and two ends share memory or CPUs only
 * when both name the same host. Addresses are parsed from text and printed again. All tests run
 * on one thread. */
#include "worker/comm/handshake.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "worker/comm/address.h"

static const uint8_t id[COMM_ID_BYTES] = "an id for these tests and no oth";
static const uint8_t other_id[COMM_ID_BYTES] = "an id for these tests and no otH";

static struct hello some_hello(void)
{
    struct hello h = {.term_epoch = 0x123456789abcdef0, .from = 3, .to = 1, .n_ranks = 4};
    handshake_end_fill(&h.end, true);
    return h;
}

static void test_round_trip(void **state)
{
    struct transcript t;
    struct hello h = some_hello(), got;
    struct handshake_end e, got_end;
    uint8_t confirm[CONFIRM_BYTES], token[TOKEN_BYTES];
    struct error err;
    hello_encode(&h, id, t.hello);
    assert_int_equal(hello_decode(t.hello, id, &got, &err), STATUS_OK);
    assert_true(got.term_epoch == h.term_epoch && got.from == 3 && got.to == 1 &&
                got.n_ranks == 4 && got.end.shares_memory);
    assert_memory_equal(got.end.nonce, h.end.nonce, NONCE_BYTES);
    assert_memory_equal(got.end.host_id, h.end.host_id, HOST_ID_BYTES);
    handshake_end_fill(&e, false);
    assert_memory_not_equal(e.nonce, h.end.nonce, NONCE_BYTES);
    reply_encode(&e, id, &t);
    assert_int_equal(reply_decode(&t, id, &got_end, &err), STATUS_OK);
    assert_false(got_end.shares_memory);
    assert_memory_equal(got_end.nonce, e.nonce, NONCE_BYTES);
    confirm_encode(&t, id, confirm);
    assert_int_equal(confirm_check(confirm, &t, id, &err), STATUS_OK);
    token_make(&t, id, token);
    assert_false(token_equal(token, confirm)); /* a token is not accepted as a confirmation */
    assert_int_equal(confirm_check(token, &t, id, &err), STATUS_DENIED);
}

static void test_another_id(void **state)
{
    struct transcript t;
    struct hello h = some_hello(), got;
    struct handshake_end e;
    uint8_t confirm[CONFIRM_BYTES];
    struct error err;
    hello_encode(&h, other_id, t.hello);
    assert_int_equal(hello_decode(t.hello, id, &got, &err), STATUS_DENIED);
    assert_non_null(strstr(err.text, "does not prove"));
    hello_encode(&h, id, t.hello);
    reply_encode(&h.end, other_id, &t);
    assert_int_equal(reply_decode(&t, id, &e, &err), STATUS_DENIED);
    reply_encode(&h.end, id, &t);
    confirm_encode(&t, other_id, confirm);
    assert_int_equal(confirm_check(confirm, &t, id, &err), STATUS_DENIED);
}

/* A changed bit is detected in each message, and also in messages that a later proof covers. */
static void test_every_bit(void **state)
{
    struct transcript t, changed;
    struct hello h = some_hello(), got;
    struct handshake_end e;
    uint8_t confirm[CONFIRM_BYTES], bad[CONFIRM_BYTES];
    struct error err;
    hello_encode(&h, id, t.hello);
    handshake_end_fill(&e, true);
    reply_encode(&e, id, &t);
    confirm_encode(&t, id, confirm);
    for (size_t bit = 0; bit < 8 * sizeof t; bit++) {
        changed = t;
        ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (bit / 8 < HELLO_BYTES)
            assert_int_not_equal(hello_decode(changed.hello, id, &got, &err), STATUS_OK);
        assert_int_equal(reply_decode(&changed, id, &e, &err), STATUS_DENIED);
        assert_int_equal(confirm_check(confirm, &changed, id, &err), STATUS_DENIED);
    }
    for (size_t bit = 0; bit < 8 * sizeof confirm; bit++) {
        memcpy(bad, confirm, sizeof bad);
        bad[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(confirm_check(bad, &t, id, &err), STATUS_DENIED);
    }
}

static void test_not_a_hello(void **state)
{
    uint8_t in[HELLO_BYTES] = "GET / HTTP/1.1\r\n";
    struct hello got;
    struct error err;
    assert_int_equal(hello_decode(in, id, &got, &err), STATUS_PROTOCOL);
    memset(in, 0, sizeof in);
    assert_int_equal(hello_decode(in, id, &got, &err), STATUS_PROTOCOL);
}

/* A peer of the same formation with another release gets another error than an unknown peer. */
static void test_another_version(void **state)
{
    uint8_t in[HELLO_BYTES];
    crypto_generichash_state s;
    struct hello h = some_hello(), got;
    struct error err;
    hello_encode(&h, id, in);
    in[4]++;
    crypto_generichash_init(&s, id, sizeof id, PROOF_BYTES);
    crypto_generichash_update(&s, (const uint8_t *)"hello", 6);
    crypto_generichash_update(&s, in, HELLO_BYTES - PROOF_BYTES);
    crypto_generichash_final(&s, in + HELLO_BYTES - PROOF_BYTES, PROOF_BYTES);
    assert_int_equal(hello_decode(in, id, &got, &err), STATUS_VERSION);
    assert_non_null(strstr(err.text, "version 2"));
}

static void test_hosts(void **state)
{
    struct handshake_end a, b;
    handshake_end_fill(&a, true);
    handshake_end_fill(&b, true);
    assert_memory_equal(a.host_id, b.host_id, HOST_ID_BYTES);
    assert_true(handshake_same_host(&a, &b) && handshake_share_memory(&a, &b));
    b.shares_memory = false;
    assert_true(handshake_same_host(&a, &b));
    assert_false(handshake_share_memory(&a, &b) || handshake_share_memory(&b, &a));
    b.shares_memory = true;
    b.host_id[HOST_ID_BYTES - 1] ^= 1; /* the ends have the same host but other CPUs */
    assert_true(handshake_same_host(&a, &b) && handshake_share_memory(&a, &b));
    assert_false(handshake_same_cpus(&a, &b));
    b.host_id[HOST_ID_BYTES - 1] ^= 1;
    assert_true(handshake_same_cpus(&a, &b));
    b.host_id[0] ^= 1;
    assert_false(handshake_same_cpus(&a, &b));
    assert_false(handshake_same_host(&a, &b) || handshake_share_memory(&a, &b));
    memset(a.host_id, 0, sizeof a.host_id); /* two unknown hosts are not equal */
    memset(b.host_id, 0, sizeof b.host_id);
    assert_false(handshake_same_host(&a, &b) || handshake_same_cpus(&a, &b));
}

/* An end reports the CPUs that its process is bound to. */
static void test_cpus_of_a_host(void **state)
{
    cpu_set_t all, one;
    struct handshake_end a, b;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    handshake_end_fill(&a, true);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    handshake_end_fill(&b, true);
    assert_true(handshake_share_memory(&a, &b));
    assert_int_equal(handshake_same_cpus(&a, &b), CPU_COUNT(&all) == 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    handshake_end_fill(&b, true);
    assert_true(handshake_same_cpus(&a, &b));
}

static void test_addresses(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {{"127.0.0.1:4123", true},
                 {"10.0.0.1:1", true},
                 {"255.255.255.255:65535", true},
                 {"[::1]:4123", true},
                 {"[2001:db8:1:2:3:4:5:6]:65535", true},
                 {"", false},
                 {":", false},
                 {"127.0.0.1", false},
                 {"127.0.0.1:", false},
                 {"127.0.0.1:0", false},
                 {"127.0.0.1:65536", false},
                 {"127.0.0.1:-1", false},
                 {"127.0.0.1: 1", false},
                 {"127.0.0.1:4123 ", false},
                 {"127.0.0.1:http", false},
                 {"localhost:4123", false},
                 {"[127.0.0.1]:4123", false},
                 {"::1:4123", false},
                 {"[::1]", false},
                 {"[]:1", false},
                 {"[::1:4123", false},
                 {"[::1]]:4123", false},
                 {"10.0.0.1%s%n:4123", false},
                 {"/tmp/socket:1", false},
                 {"[2001:0db8:0001:0002:0003:0004:0005:0006:0007:0008:0009:000a:000b]:1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct address a;
        struct error err;
        char again[COMM_ADDRESS_MAX];
        enum status s = address_parse(str_from(cases[i].text), &a, &err);
        if ((s == STATUS_OK) != cases[i].good)
            fail_msg("%s: %s", cases[i].text, status_name(s));
        if (s == STATUS_OK) {
            assert_int_equal(address_format(&a, again, &err), STATUS_OK);
            assert_string_equal(again, cases[i].text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_another_id),
        cmocka_unit_test(test_every_bit),       cmocka_unit_test(test_not_a_hello),
        cmocka_unit_test(test_another_version), cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_cpus_of_a_host),  cmocka_unit_test(test_addresses)};
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
