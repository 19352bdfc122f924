/* Tests the folder of CURVE keys: pairs for each role, the file of authorized keys, rotation,
 * PEM files of other tools, and join tokens. The tests work in a temporary folder and read the
 * files back. A secret file must have mode 0600, files that a user or another tool wrote are
 * never overwritten, and a failure leaves no half-written key. */
#include "common/keys/authorized.h"
#include "common/keys/join_token.h"
#include "common/keys/key_files.h"
#include "common/keys/key_folder.h"
#include "common/keys/rotation.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static int make_temp(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/keys_testXXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static const char *at(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int drop_temp(void **state)
{
    static const char *const names[] = {"k/head.key",     "k/head.pub",     "k/gateway.key",
                                        "k/gateway.pub",  "k/worker.key",   "k/worker.pub",
                                        "k/operator.key", "k/operator.pub", "k/authorized",
                                        "file",           "k/one.pub"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(at(names[i]));
    rmdir(at("k"));
    return rmdir(dir);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static unsigned mode_of(const char *name)
{
    struct stat st;
    assert_int_equal(stat(at(name), &st), 0);
    return st.st_mode & 0777;
}

static void test_folder_is_made_once(void **state)
{
    char folder[256];
    struct curve_keys worker, again, gateway;
    struct authorized a;
    struct error err;
    snprintf(folder, sizeof folder, "%s", at("k"));
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    assert_int_equal(mode_of("k"), 0700);
    assert_int_equal(mode_of("k/worker.key"), 0600);
    assert_int_equal(keys_load(folder, ROLE_WORKER, &worker, &err), STATUS_OK);
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    assert_int_equal(keys_load(folder, ROLE_WORKER, &again, &err), STATUS_OK);
    assert_memory_equal(&worker, &again, sizeof worker);
    assert_int_equal(keys_load(folder, ROLE_GATEWAY, &gateway, &err), STATUS_OK);
    assert_string_not_equal(worker.secret_key, gateway.secret_key);
    assert_int_equal(authorized_load(at("k/authorized"), &a, &err), STATUS_OK);
    assert_int_equal(a.n_entries, 3); /* the head's own key admits no peer */
    authorized_fini(&a);

    /* A lost pair is created again and admitted. The existing lines stay unchanged. */
    unlink(at("k/worker.key"));
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    assert_int_equal(keys_load(folder, ROLE_WORKER, &again, &err), STATUS_OK);
    assert_string_not_equal(worker.secret_key, again.secret_key);
    assert_int_equal(authorized_load(at("k/authorized"), &a, &err), STATUS_OK);
    assert_int_equal(a.n_entries, 4);
    assert_string_equal(a.entries[3].public_key, again.public_key);
    assert_int_equal(a.entries[3].role, ROLE_WORKER);
    authorized_fini(&a);
}

/* A failed write leaves no incomplete key file. */
static void test_a_full_disk_leaves_no_half_key(void **state)
{
    char folder[256];
    struct error err;
    struct rlimit usual, small;
    snprintf(folder, sizeof folder, "%s", at("k"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = (struct rlimit){10, usual.rlim_max};
    /* SIGXFSZ is ignored, so that write() returns an error */
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum status s = keys_make_dir(folder, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(s, STATUS_IO);
    assert_non_null(strstr(err.text, "head.key"));
    assert_int_equal(rmdir(folder), 0);
}

/* The old and the new key are valid until the old key is retired. Lines that a user added stay
 * unchanged. */
static void test_a_key_is_rotated_and_retired(void **state)
{
    static const enum peer_role roles[] = {ROLE_HEAD, ROLE_GATEWAY, ROLE_WORKER, ROLE_OPERATOR};
    char folder[256];
    struct error err = {0};
    snprintf(folder, sizeof folder, "%s", at("k"));
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    FILE *f = fopen(at("k/authorized"), "a");
    assert_non_null(f);
    fputs("# a comment\nworker rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", f);
    fclose(f);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        struct curve_keys old, new;
        struct public_keys publics;
        struct authorized a;
        bool is_head = roles[i] == ROLE_HEAD;
        assert_int_equal(keys_retire(folder, roles[i], &err), STATUS_NOT_FOUND);
        assert_int_equal(keys_load(folder, roles[i], &old, &err), STATUS_OK);
        assert_int_equal(keys_rotate(folder, roles[i], &err), STATUS_OK);
        assert_int_equal(keys_rotate(folder, roles[i], &err), STATUS_EXISTS);
        /* keys_make_dir leaves the rotated pair unchanged */
        assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
        assert_int_equal(keys_load(folder, roles[i], &new, &err), STATUS_OK);
        assert_string_not_equal(old.public_key, new.public_key);
        assert_int_equal(keys_load_publics(folder, roles[i], &publics, &err), STATUS_OK);
        assert_int_equal(publics.n, 2);
        assert_string_equal(publics.keys[0], new.public_key);
        assert_string_equal(publics.keys[1], old.public_key);
        assert_int_equal(authorized_load(at("k/authorized"), &a, &err), STATUS_OK);
        assert_int_equal(authorized_has(&a, roles[i], old.public_key), !is_head);
        assert_int_equal(authorized_has(&a, roles[i], new.public_key), !is_head);
        assert_false(authorized_has(&a, is_head ? ROLE_WORKER : ROLE_HEAD, new.public_key));
        assert_int_equal(a.n_entries, is_head ? 4 : 5);
        authorized_fini(&a);
        assert_int_equal(keys_retire(folder, roles[i], &err), STATUS_OK);
        assert_int_equal(keys_load_publics(folder, roles[i], &publics, &err), STATUS_OK);
        assert_int_equal(publics.n, 1);
        assert_int_equal(authorized_load(at("k/authorized"), &a, &err), STATUS_OK);
        assert_false(authorized_has(&a, roles[i], old.public_key));
        assert_int_equal(a.n_entries, 4);
        assert_true(authorized_has(&a, ROLE_WORKER, "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"));
        authorized_fini(&a);
    }
    assert_int_equal(mode_of("k/authorized"), 0600);
    /* the faulty file is kept, so that an operator can repair it */
    put("k/authorized", "worker nonsense\n");
    assert_int_equal(keys_rotate(folder, ROLE_WORKER, &err), STATUS_INVALID);
    struct curve_keys k;
    assert_int_equal(keys_load(folder, ROLE_WORKER, &k, &err), STATUS_OK);
}

static void test_wrong_files_are_named(void **state)
{
    char folder[256];
    struct curve_keys k;
    struct error err;
    snprintf(folder, sizeof folder, "%s", at("k"));
    assert_int_equal(keys_load(folder, ROLE_HEAD, &k, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "k/head.key"));
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    put("k/head.key", "short\n");
    assert_int_equal(keys_load(folder, ROLE_HEAD, &k, &err), STATUS_INVALID);
    /* a wrong file is never overwritten */
    assert_int_equal(keys_make_dir(folder, &err), STATUS_INVALID);
    assert_int_equal(keys_generate(&k, &err), STATUS_OK);
    put("k/head.key", k.secret_key);
    assert_int_equal(keys_load(folder, ROLE_HEAD, &k, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "does not match the .pub file"));
    put("file", "x");
    assert_int_equal(keys_make_dir(at("file"), &err), STATUS_IO);
    assert_int_equal(keys_make_dir("", &err), STATUS_INVALID);
}

/* Opening a FIFO would wait for a writer and block the head's loop, so a FIFO is refused. */
static void test_a_fifo_is_no_file(void **state)
{
    struct authorized a = {0};
    struct error err = {0};
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(authorized_load(at("fifo"), &a, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "not a regular file"));
    authorized_fini(&a);
    unlink(at("fifo"));
}

static void test_authorized_lines(void **state)
{
    static const char key[] = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    static const struct {
        const char *format; /* content of the file, where %s stands for a valid key */
        enum status want;
        uint32_t n;
    } cases[] = {
        {"worker %s\n", STATUS_OK, 1},
        {"  gateway\t%s  \r\n\n# comment\noperator %s", STATUS_OK, 2},
        {"", STATUS_OK, 0},
        {"head %s\n", STATUS_INVALID, 0},
        {"none %s\n", STATUS_INVALID, 0},
        {"worker\n", STATUS_INVALID, 0},
        {"worker %s x\n", STATUS_INVALID, 0},
        {"worker %sx\n", STATUS_INVALID, 0},
        {"worker 0123456789\n", STATUS_INVALID, 0},
        {"worker ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n", STATUS_INVALID, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct authorized a;
        struct error err = {0};
        FILE *f = fopen(at("file"), "w");
        assert_non_null(f);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
        fprintf(f, cases[i].format, key, key);
#pragma GCC diagnostic pop
        fclose(f);
        enum status s = authorized_load(at("file"), &a, &err);
        if (s != cases[i].want)
            print_error("case %zu: %s %s\n", i, status_name(s), err.text);
        assert_int_equal(s, cases[i].want);
        assert_int_equal(a.n_entries, cases[i].n);
        if (s != STATUS_OK)
            assert_non_null(strstr(err.text, "file:1: "));
        authorized_fini(&a);
    }
}

#define PEM_SECRET                                                                                 \
    "-----BEGIN PRIVATE KEY-----\n"                                                                \
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"                           \
    "-----END PRIVATE KEY-----\n"
#define PEM_PUBLIC                                                                                 \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"                               \
    "-----END PUBLIC KEY-----\n"
#define PEM_OTHER /* the key is from RFC 7748, 6.1 */                                              \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MCowBQYDK2VuAyEAhSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n"                               \
    "-----END PUBLIC KEY-----\n"

/* Files that another tool made are read or refused by name, and never overwritten. */
static void test_a_folder_of_pem_keys(void **state)
{
    char folder[256];
    struct curve_keys k;
    struct public_keys publics;
    struct authorized a;
    struct error err = {0};
    snprintf(folder, sizeof folder, "%s", at("k"));
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    put("k/worker.key", PEM_SECRET);
    assert_int_equal(keys_load(folder, ROLE_WORKER, &k, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "does not match the .pub file"));
    put("k/worker.pub", PEM_OTHER);
    /* keys_make_dir leaves the files unchanged */
    assert_int_equal(keys_make_dir(folder, &err), STATUS_INVALID);
    /* the new certificate was written before the new key */
    put("k/worker.pub", PEM_OTHER PEM_PUBLIC);
    put("k/authorized", "gateway @gateway.pub\n  worker\t@worker.pub \n");
    assert_int_equal(keys_load(folder, ROLE_WORKER, &k, &err), STATUS_OK);
    assert_int_equal(keys_load_publics(folder, ROLE_WORKER, &publics, &err), STATUS_OK);
    assert_int_equal(publics.n, 2);
    assert_string_equal(publics.keys[1], k.public_key);
    assert_int_equal(authorized_load(at("k/authorized"), &a, &err), STATUS_OK);
    assert_int_equal(a.n_entries, 3);
    assert_int_equal(a.n_files, 3);
    assert_string_equal(a.files[2].name, "worker.pub");
    assert_true(authorized_has(&a, ROLE_WORKER, publics.keys[0]) &&
                authorized_has(&a, ROLE_WORKER, publics.keys[1]));
    assert_false(authorized_has(&a, ROLE_GATEWAY, k.public_key));
    authorized_fini(&a);

    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    put("k/worker.pub", PEM_PUBLIC PEM_OTHER);
    assert_int_equal(keys_make_dir(folder, &err), STATUS_OK);
    assert_int_equal(keys_load_publics(folder, ROLE_WORKER, &publics, &err), STATUS_OK);
    assert_int_equal(publics.n, 2);
    assert_int_equal(keys_rotate(folder, ROLE_WORKER, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "worker.key: the authority that issued it"));
    assert_int_equal(keys_retire(folder, ROLE_WORKER, &err), STATUS_UNSUPPORTED);
    /* Our own code wrote the other files of the folder. Lines with "@" stay unchanged. */
    assert_int_equal(keys_rotate(folder, ROLE_GATEWAY, &err), STATUS_OK);
    assert_int_equal(keys_retire(folder, ROLE_GATEWAY, &err), STATUS_OK);
    assert_int_equal(authorized_load(at("k/authorized"), &a, &err), STATUS_OK);
    assert_int_equal(a.n_files, 3);
    authorized_fini(&a);
}

static void test_authorized_names_files(void **state)
{
    static const struct {
        const char *text, *says; /* content of the file, and words of the error; NULL = valid */
        uint32_t n_files;
    } cases[] = {
        {"worker @one.pub\noperator @one.pub\n", NULL, 3},
        {"worker @\n", "the name of a file in the same folder", 1},
        {"worker @../k/one.pub\n", "the name of a file in the same folder", 1},
        {"worker @/etc/passwd\n", "the name of a file in the same folder", 1},
        {"worker @.one\n", "the name of a file in the same folder", 1},
        /* the text after "@" is part of a key, not a file's name */
        {"worker @0000rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]y\n", NULL, 1},
        {"worker @one.pub x\n", "the name of a file in the same folder", 1},
        {"head @one.pub\n", "the line must be", 1},
        {"worker @two.pub\n", "two.pub does not exist", 2},
        {"worker @authorized\n", "authorized does not contain a key", 2},
        {"worker @one.pub\nworker @one.pub\nworker @one.pub\nworker @one.pub\nworker @one.pub\n"
         "worker @one.pub\nworker @one.pub\nworker @one.pub\nworker @one.pub\n",
         "more than 8 other files", 9},
    };
    assert_int_equal(mkdir(at("k"), 0700), 0);
    put("k/one.pub", PEM_PUBLIC);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct authorized a;
        struct error err = {0};
        put("k/authorized", cases[i].text);
        enum status s = authorized_load(at("k/authorized"), &a, &err);
        if ((s == STATUS_OK) != !cases[i].says ||
            (cases[i].says && (!strstr(err.text, cases[i].says) || a.n_entries)))
            fail_msg("case %zu: %s %s", i, status_name(s), err.text);
        assert_int_equal(a.n_files, cases[i].n_files);
        authorized_fini(&a);
    }
}

static struct join_token sample_token(void)
{
    struct join_token t = {.head = "head.example:7000"};
    struct curve_keys head;
    assert_int_equal(keys_generate(&head, NULL), STATUS_OK);
    assert_int_equal(keys_generate(&t.keys, NULL), STATUS_OK);
    memcpy(t.head_public_key, head.public_key, sizeof t.head_public_key);
    return t;
}

static void test_join_token_of_several_heads(void **state)
{
    static const struct {
        const char *head;
        enum status want;
    } cases[] = {
        {"a.example:7000,[::1]:7001,10.0.0.1:1", STATUS_OK},
        {"a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8", STATUS_OK},
        {"a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9", STATUS_INVALID},
        {"tcp://a:7000", STATUS_INVALID},
        {"a:7000,tcp://b:7000", STATUS_INVALID},
        {"a:7000,", STATUS_INVALID},
        {",a:7000", STATUS_INVALID},
        {"a:7000,b", STATUS_INVALID},
        {"a:7000,,b:7000", STATUS_INVALID},
        {"a:7000, b:7000", STATUS_INVALID},
        {"a:0,b:7000", STATUS_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct join_token t = sample_token(), back;
        struct error err = {0};
        char text[1024];
        snprintf(t.head, sizeof t.head, "%s", cases[i].head);
        enum status s = join_token_encode(&t, text, sizeof text, &err);
        if (s == STATUS_OK)
            s = join_token_decode(text, &back, &err);
        if (s != cases[i].want || (s == STATUS_OK && strcmp(back.head, t.head) != 0))
            fail_msg("%s: %s %s", cases[i].head, status_name(s), err.text);
    }
}

static void check_join_token(const char *other_head_key)
{
    struct join_token t = sample_token(), back;
    snprintf(t.other_head_key, sizeof t.other_head_key, "%s", other_head_key);
    char text[1024], damaged[1100];
    struct error err;
    assert_int_equal(join_token_encode(&t, text, sizeof text, &err), STATUS_OK);
    assert_int_equal(strncmp(text, "cox1.", 5), 0);
    assert_int_equal(join_token_decode(text, &back, &err), STATUS_OK);
    assert_string_equal(back.head, t.head);
    assert_string_equal(back.head_public_key, t.head_public_key);
    assert_string_equal(back.other_head_key, t.other_head_key);
    assert_memory_equal(&back.keys, &t.keys, sizeof t.keys);
    snprintf(damaged, sizeof damaged, "  %s\n", text);
    assert_int_equal(join_token_decode(damaged, &back, &err), STATUS_OK);
    assert_int_equal(join_token_encode(&t, text, 50, &err), STATUS_LIMIT);
    assert_int_equal(join_token_encode(&t, text, sizeof text, &err), STATUS_OK);
    for (size_t i = 0; i < strlen(text); i++) { /* no single wrong character is accepted */
        snprintf(damaged, sizeof damaged, "%s", text);
        damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
        assert_int_equal(join_token_decode(damaged, &back, &err), STATUS_INVALID);
        for (int byte = 0x80; byte <= 0xFF; byte++) { /* no byte outside the alphabet is accepted */
            damaged[i] = (char)byte;
            assert_int_equal(join_token_decode(damaged, &back, &err), STATUS_INVALID);
        }
        damaged[i] = '\0'; /* the token is cut here, and no truncated token is accepted */
        assert_int_equal(join_token_decode(damaged, &back, &err), STATUS_INVALID);
    }
}

static void test_join_token(void **state)
{
    struct curve_keys other;
    assert_int_equal(keys_generate(&other, NULL), STATUS_OK);
    check_join_token("");
    /* the token has a second key while the head's key is being changed */
    check_join_token(other.public_key);
}

static void test_join_token_refuses(void **state)
{
    static const char *const heads[] = {
        "", "host", ":7000", "host:", "host:0", "host:65536", "ho st:1", "host:7x"};
    char text[1024];
    struct error err;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct join_token t = sample_token();
        snprintf(t.head, sizeof t.head, "%s", heads[i]);
        assert_int_equal(join_token_encode(&t, text, sizeof text, &err), STATUS_INVALID);
    }
    struct join_token t = sample_token();
    memcpy(t.other_head_key, "short", 6);
    assert_int_equal(join_token_encode(&t, text, sizeof text, &err), STATUS_INVALID);
    t = sample_token();
    t.keys.secret_key[0] = '\0';
    assert_int_equal(join_token_encode(&t, text, sizeof text, &err), STATUS_INVALID);
    assert_int_equal(join_token_decode("", &t, &err), STATUS_INVALID);
    assert_int_equal(join_token_decode("cox1.", &t, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder_is_made_once, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_a_full_disk_leaves_no_half_key, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_a_key_is_rotated_and_retired, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_wrong_files_are_named, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_a_fifo_is_no_file, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_authorized_lines, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_a_folder_of_pem_keys, make_temp, drop_temp),
        cmocka_unit_test_setup_teardown(test_authorized_names_files, make_temp, drop_temp),
        cmocka_unit_test(test_join_token),
        cmocka_unit_test(test_join_token_of_several_heads),
        cmocka_unit_test(test_join_token_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
