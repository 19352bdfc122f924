/* Tests the reader of the pickles in checkpoints, for every protocol. The input is a text of
 * opcodes. The output is a list of tensors or an error. Any other opcode and any other global
 * name must be refused, nothing is ever called, and the work is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/model/files/torch_pickle.h"
#include "tests/unit/common/model/torch_writer.c"

#define LIT(text)  text, sizeof(text) - 1
#define LIT2(a, b) a, b, sizeof(a) - 1, sizeof(b) - 1
#define WHOLE                                                                                      \
    P_TENSOR(P_STORAGE("FloatStorage", "0", "\6"), "\0", P_TUPLE2("\2", "\3"), P_TUPLE2("\3", "\1"))

static void test_reads(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
        enum dtype dtype;
        uint64_t n_tensors;
    } good[] = {
        {"protocol 2", LIT(P_BEGIN P_TEXT1("w") WHOLE P_END), DTYPE_F32, 1},
        {"protocol 5, a frame, names from the stack",
         LIT("\x80\5\x95\x8E\0\0\0\0\0\0\0}\x94(\x8C\1w\x94\x8C\14torch._utils\x94\x8C\22_rebuild_"
             "tensor_v2\x94\x93"
             "((\x8C\7storage\x94\x8C\5torch\x94\x8C\14FloatStorage\x94\x93\x8C\1"
             "0\x94\x8C\3cpu\x94K\6tQK\0K\2K\3\x86K\3K\1\x86\x89\x8C\13"
             "collections\x94\x8C\13OrderedDict\x94\x93)RtRu."),
         DTYPE_F32, 1},
        {"one dict, entry by entry", LIT("\x80\2}" P_TEXT1("w") WHOLE "s."), DTYPE_F32, 1},
        {"a parameter",
         LIT(P_BEGIN P_TEXT1("w") "ctorch._utils\n_rebuild_parameter\n" WHOLE P_HOOKS
                                  "\x87R" P_END),
         DTYPE_F32, 1},
        {"a dtype of its own",
         LIT(P_BEGIN P_TEXT1(
             "w") "ctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch."
                  "storage\nUntypedStorage\n" P_TEXT1("0") "X\3\0\0\0cpuK\6tQK\0" P_TUPLE2(
                      "\2", "\3") P_TUPLE2("\3", "\1") P_HOOKS "ctorch\nfloat8_e4m3fn\ntR" P_END),
         DTYPE_F8_E4M3, 1},
        {"metadata of None",
         LIT(P_BEGIN P_TEXT1("w") "ctorch._utils\n_rebuild_tensor_v2\n(" P_STORAGE(
             "HalfStorage", "0", "\6") "K\0" P_TUPLE2("\2", "\3") P_TUPLE2("\3", "\1") P_HOOKS
             "NtR" P_END),
         DTYPE_F16, 1},
        {"numbers of every length",
         LIT(P_BEGIN P_TEXT1("w") "ctorch._utils\n_rebuild_tensor_v2\n(("
                                  "X\7\0\0\0storagectorch\nBFloat16Storage\n" P_TEXT1(
                                      "0") "X\3\0\0\0cpu\x8A\5\0\0\0\0\1tQ\x8A\0M\2\0J\3\0\0\0\x86K"
                                           "\3\x8A\1\1\x86" P_HOOKS "tR" P_END),
         DTYPE_BF16, 1},
        {"two names, the memo", LIT(P_BEGIN P_TEXT1("w") WHOLE "q\0" P_TEXT1("v") "h\0" P_END),
         DTYPE_F32, 2},
        {"other values beside it",
         LIT(P_BEGIN P_TEXT1("a") "N" P_TEXT1("b") "\x88" P_TEXT1("c") "G\0\0\0\0\0\0\0\0" P_TEXT1(
             "d") "](K\1K\2e" P_TEXT1("e") "]K\1a" P_TEXT1("w") WHOLE P_END),
         DTYPE_F32, 1},
        {"versions of modules",
         LIT(P_BEGIN P_TEXT1("w") WHOLE
             "u}X\11\0\0\0_metadata}" P_TEXT1("x") "}X\7\0\0\0versionK\1sssb."),
         DTYPE_F32, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct torch_pickle p;
        struct error err = {0};
        if (torch_pickle_read(good[i].bytes, good[i].n, "x", &p, &err) != STATUS_OK)
            fail_msg("%s: %s", good[i].name, err.text);
        const struct torch_tensor *t = &p.tensors[0];
        const struct torch_storage *s = &p.storages[t->storage];
        assert_int_equal(p.n_tensors, good[i].n_tensors);
        assert_true(str_eq_c(t->name, "w") && str_eq_c(s->key, "0"));
        assert_int_equal(t->dtype, good[i].dtype);
        assert_true(t->n_dims == 2 && t->first == 0 && t->shape[0] == 2 && t->shape[1] == 3);
        assert_true(t->stride[0] == 3 && t->stride[1] == 1);
        assert_int_equal(s->n_elems, i == 6 ? 1ull << 32 : 6);
        torch_pickle_fini(&p);
        assert_null(p.tensors);
    }
}

#define ONE(value)               P_BEGIN P_TEXT1("w") value P_END
#define CALL(module, name, args) "c" module "\n" name "\n" args "R"
static const struct {
    const char *name, *bytes;
    size_t n;
    enum status want;
    const char *text;
} wrong[] = {
    {"os.system", LIT(ONE(CALL("os", "system", "X\2\0\0\0ls\x85"))), STATUS_UNSUPPORTED,
     "needs os.system,"},
    {"posix.system", LIT(ONE(CALL("posix", "system", "X\2\0\0\0ls\x85"))), STATUS_UNSUPPORTED,
     "needs posix.system,"},
    {"eval",
     LIT(ONE(CALL("builtins", "eval",
                  "X\1\0\0\0"
                  "1\x85"))),
     STATUS_UNSUPPORTED, "needs builtins.eval,"},
    {"exec", LIT(ONE(CALL("__builtin__", "exec", ")"))), STATUS_UNSUPPORTED,
     "needs __builtin__.exec,"},
    {"getattr", LIT(ONE(CALL("builtins", "getattr", ")"))), STATUS_UNSUPPORTED,
     "needs builtins.getattr,"},
    {"torch.hub", LIT(ONE(CALL("torch.hub", "load", ")"))), STATUS_UNSUPPORTED,
     "needs torch.hub.load,"},
    {"torch.load", LIT(ONE(CALL("torch", "load", ")"))), STATUS_UNSUPPORTED, "needs torch.load,"},
    {"from_file", LIT(ONE(CALL("torch", "FloatStorage.from_file", ")"))), STATUS_UNSUPPORTED,
     "needs torch.FloatStorage.from_file,"},
    {"numpy", LIT(ONE(CALL("numpy.core.multiarray", "_reconstruct", ")"))), STATUS_UNSUPPORTED,
     "needs numpy.core.multiarray._reconstruct,"},
    {"from the stack", LIT("\x80\4}\x8C\5posix\x8C\6system\x93\x8C\2ls\x85R."), STATUS_UNSUPPORTED,
     "needs posix.system,"},
    {"at byte", LIT("\x80\2" CALL("os", "system", ")") "."), STATUS_UNSUPPORTED,
     "at byte 2: it needs os.system"},
    {"a name that is none", LIT("\x80\2" CALL("o\33[2Js", "system", ")") "."), STATUS_INVALID,
     "an invalid name"},
    {"no name", LIT("\x80\2" CALL("", "system", ")") "."), STATUS_INVALID, "an invalid name"},
    {"a type is called", LIT(ONE(CALL("torch", "FloatStorage", ")"))), STATUS_UNSUPPORTED,
     "calls torch.FloatStorage"},
    {"a dtype is called", LIT(ONE(CALL("torch", "float16", ")"))), STATUS_UNSUPPORTED,
     "calls torch.float16"},
    {"a tensor is called", LIT(ONE(WHOLE ")R")), STATUS_INVALID,
     "the called function is a tensor, but must be a name"},
    {"a dict with entries", LIT("\x80\2" CALL("collections", "OrderedDict", "](\x85") "."),
     STATUS_INVALID, "stack"},
    {"a dict with arguments", LIT("\x80\2" CALL("collections", "OrderedDict", "]\x85") "."),
     STATUS_INVALID, "has arguments"},
    {"empty", LIT(""), STATUS_INVALID, "does not begin"},
    {"no protocol", LIT("}."), STATUS_INVALID, "does not begin"},
    {"protocol 1", LIT("\x80\1}."), STATUS_UNSUPPORTED, "protocol 1;"},
    {"protocol 6", LIT("\x80\6}."), STATUS_UNSUPPORTED, "protocol 6;"},
    {"no end", LIT(P_BEGIN), STATUS_INVALID, "ends in the middle"},
    {"cut in a name",
     LIT("\x80\2"
         "ccollections"),
     STATUS_INVALID, "middle of a name"},
    {"cut in a text", LIT("\x80\2X\5\0\0\0abc"), STATUS_INVALID, "ends in the middle"},
    {"a text of 4 GB",
     LIT("\x80\2X\xFF\xFF\xFF\xFF"
         "abc"),
     STATUS_INVALID, "ends in the middle"},
    {"a text of 2^60",
     LIT("\x80\4\x8D\0\0\0\0\0\0\0\x10"
         "abc"),
     STATUS_INVALID, "ends in the middle"},
    {"a frame of 2^60", LIT("\x80\4\x95\0\0\0\0\0\0\0\x10}."), STATUS_INVALID, "a frame is longer"},
    {"an integer of 9 bytes", LIT("\x80\2\x8A\x09\1\1\1\1\1\1\1\1\1."), STATUS_INVALID,
     "an integer has 9 bytes"},
    {"behind the end", LIT(ONE(WHOLE) "}"), STATUS_INVALID, "more bytes after its end"},
    {"nothing on the stack", LIT("\x80\2."), STATUS_INVALID, "but the stack is empty"},
    {"two values",
     LIT("\x80\2K\1"
         "}" P_TEXT1("w") WHOLE "s."),
     STATUS_INVALID, "describes more than one value"},
    {"no mark", LIT("\x80\2}u."), STATUS_INVALID, "needs a mark"},
    {"tuple of a mark", LIT("\x80\2(\x85."), STATUS_INVALID, "but the stack is empty"},
    {"memo of nothing", LIT("\x80\2q\0."), STATUS_INVALID, "in the memo, but the stack is empty"},
    {"memo of a mark", LIT("\x80\4(\x94."), STATUS_INVALID, "in the memo, but the stack is empty"},
    {"memo far away", LIT("\x80\2}r\xFF\xFF\xFF\x7F."), STATUS_INVALID,
     "a number that skips others"},
    {"memo that is not", LIT("\x80\2h\7."), STATUS_INVALID, "a memo entry that does not exist"},
    {"entries of a tuple", LIT("\x80\2)K\1K\2s."), STATUS_INVALID,
     "the target of a new entry is a tuple"},
    {"entries of nothing", LIT("\x80\2K\1K\2s."), STATUS_INVALID,
     "the target of a new entry is missing"},
    {"a key without a value", LIT("\x80\2}(K\1u."), STATUS_INVALID, "a key has no value"},
    {"appends to a dict", LIT("\x80\2}K\1a."), STATUS_INVALID, "the target of an append is a dict"},
    {"builds a tuple", LIT("\x80\2)}b."), STATUS_INVALID, "the built object is a tuple"},
    {"built from a tuple", LIT("\x80\2})b."), STATUS_INVALID, "the state of an object is a tuple"},
    {"a tensor alone", LIT("\x80\2" WHOLE "."), STATUS_INVALID, "is a tensor, but must be a dict"},
    {"a list", LIT("\x80\2]."), STATUS_INVALID, "is a list, but must be a dict"},
    {"an empty dict", LIT("\x80\2}."), STATUS_INVALID, "contains no tensors"},
    {"a state dict inside",
     LIT("\x80\2}(X\12\0\0\0state_dict}" P_TEXT1("w") WHOLE "sX\5\0\0\0epochK\1u."), STATUS_INVALID,
     "contains no tensors; for example, \"state_dict\" is a dict"},
    {"a key that is a number", LIT(P_BEGIN "K\1" WHOLE P_END), STATUS_INVALID,
     "a key of its dict is an integer"},
    {"a name with a NUL", LIT(P_BEGIN "X\2\0\0\0w\0" WHOLE P_END), STATUS_INVALID, "not UTF-8"},
    {"a name of no UTF-8", LIT(P_BEGIN "X\2\0\0\0w\xFF" WHOLE P_END), STATUS_INVALID, "not UTF-8"},
    {"id of another kind", LIT("\x80\2(X\6\0\0\0moduleK\1K\1K\1K\1tQ."), STATUS_INVALID,
     "does not describe a storage"},
    {"id of four", LIT("\x80\2(X\7\0\0\0storageK\1K\1K\1tQ."), STATUS_INVALID,
     "does not describe a storage"},
    {"id of a text", LIT("\x80\2X\7\0\0\0storageQ."), STATUS_INVALID,
     "the persistent id is a string"},
    {"storage of no type",
     LIT("\x80\2(X\7\0\0\0storageccollections\nOrderedDict\n" P_TEXT1("0") P_TEXT1("c") "K\6tQ."),
     STATUS_INVALID, "does not describe a storage"},
    {"storage of -1",
     LIT("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\n" P_TEXT1("0")
             P_TEXT1("c") "J\xFF\xFF\xFF\xFFtQ."),
     STATUS_INVALID, "does not describe a storage"},
    {"storage of another place", LIT("\x80\2" P_STORAGE("FloatStorage", "/", "\6") "."),
     STATUS_INVALID, "does not describe a storage"},
    {"complex", LIT("\x80\2" P_STORAGE("ComplexFloatStorage", "0", "\6") "."), STATUS_UNSUPPORTED,
     "needs torch.ComplexFloatStorage"},
    {"first is -1",
     LIT("\x80\2"
         "ctorch._utils\n_rebuild_tensor_v2\n(" P_STORAGE("FloatStorage", "0",
                                                          "\6") "J\xFF\xFF\xFF\xFF" P_TUPLE1("\6")
             P_TUPLE1("\1") P_HOOKS "tR."),
     STATUS_INVALID, "not described"},
    {"size of -1",
     LIT("\x80\2" P_TENSOR(P_STORAGE("FloatStorage", "0", "\6"), "\0", "J\xFF\xFF\xFF\xFF\x85",
                           P_TUPLE1("\1")) "."),
     STATUS_INVALID, "the shape of a tensor contains"},
    {"size is a text",
     LIT("\x80\2" P_TENSOR(P_STORAGE("FloatStorage", "0", "\6"), "\0", P_TEXT1("6") "\x85",
                           P_TUPLE1("\1")) "."),
     STATUS_INVALID, "the shape of a tensor contains"},
    {"stride of -1",
     LIT("\x80\2" P_TENSOR(P_STORAGE("FloatStorage", "0", "\6"), "\0", P_TUPLE1("\6"),
                           "J\xFF\xFF\xFF\xFF\x85") "."),
     STATUS_INVALID, "the stride of a tensor contains"},
    {"strides of another rank",
     LIT("\x80\2" P_TENSOR(P_STORAGE("FloatStorage", "0", "\6"), "\0", P_TUPLE1("\6"),
                           P_TUPLE2("\1", "\1")) "."),
     STATUS_INVALID, "not described"},
    {"nine dimensions",
     LIT("\x80\2" P_TENSOR(P_STORAGE("FloatStorage", "0", "\6"), "\0",
                           "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t") "."),
     STATUS_UNSUPPORTED, "9 dimensions"},
    {"a tensor of a tensor",
     LIT("\x80\2" P_TENSOR(WHOLE, "\0", P_TUPLE1("\6"), P_TUPLE1("\1")) "."), STATUS_INVALID,
     "not described"},
    {"a conjugate",
     LIT("\x80\2"
         "ctorch._utils\n_rebuild_tensor_v2\n(" P_STORAGE("FloatStorage", "0", "\6") "K\0" P_TUPLE1(
             "\6") P_TUPLE1("\1") P_HOOKS "}tR."),
     STATUS_UNSUPPORTED, "conjugate"},
    {"no dtype",
     LIT("\x80\2" P_TENSOR(P_STORAGE("UntypedStorage", "0", "\6"), "\0", P_TUPLE1("\6"),
                           P_TUPLE1("\1")) "."),
     STATUS_INVALID, "two dtypes or none"},
    {"two dtypes",
     LIT("\x80\2"
         "ctorch._utils\n_rebuild_tensor_v3\n(" P_STORAGE("FloatStorage", "0", "\6") "K\0" P_TUPLE1(
             "\6") P_TUPLE1("\1") P_HOOKS "ctorch\nfloat16\ntR."),
     STATUS_INVALID, "two dtypes"},
    {"a dtype that is none",
     LIT("\x80\2"
         "ctorch._utils\n_rebuild_tensor_v3\n(" P_STORAGE(
             "UntypedStorage", "0", "\6") "K\0" P_TUPLE1("\6") P_TUPLE1("\1") P_HOOKS "K\1tR."),
     STATUS_INVALID, "the dtype of a tensor is not"},
    {"a parameter of nothing",
     LIT("\x80\2"
         "ctorch._utils\n_rebuild_parameter\nNNN\x87R."),
     STATUS_INVALID, "a parameter is not a tensor"},
};

static void test_wrong(void **state)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct torch_pickle p;
        struct error err = {0};
        char *exact = malloc(wrong[i].n ? wrong[i].n : 1);
        memcpy(exact, wrong[i].bytes, wrong[i].n);
        enum status got = torch_pickle_read(exact, wrong[i].n, "the-file", &p, &err);
        if (got != wrong[i].want || !strstr(err.text, wrong[i].text) ||
            !strstr(err.text, "the-file: the pickle in this file cannot be read at byte ") ||
            p.tensors || p.storages)
            fail_msg("%s: %s: %s", wrong[i].name, status_name(got), err.text);
        free(exact);
    }
}

/* Tries every byte as an opcode. Known opcodes need values on the stack. All others are refused. */
static void test_every_opcode(void **state)
{
    static const char known[] =
        "(.JKMNQRXab}ch]jqrst)ueG\x80\x85\x86\x87\x88\x89\x8A\x8C\x8D\x93\x94\x95";
    int n_refused = 0;
    for (int op = 0; op < 256; op++) {
        const char bytes[] = {(char)0x80, 2, (char)op};
        struct torch_pickle p;
        struct error err = {0};
        char want[32];
        snprintf(want, sizeof want, "(0x%02X), which", (unsigned)op);
        enum status got = torch_pickle_read(bytes, sizeof bytes, "x", &p, &err);
        bool refused = strstr(err.text, want) != NULL;
        if (got == STATUS_OK || refused == (op != 0 && strchr(known, op) != NULL))
            fail_msg("0x%02X: %s", (unsigned)op, err.text);
        n_refused += refused;
    }
    assert_int_equal(n_refused, 256 - (int)sizeof known + 1);
    static const char inst[] = "\x80\2(ios\nsystem\n.";
    struct torch_pickle p;
    struct error err;
    assert_int_equal(torch_pickle_read(inst, sizeof inst - 1, "x", &p, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "at byte 3: it has the opcode INST (0x69)"));
}

/* A few opcodes are repeated as often as they fit. A limit must stop them early. */
static void test_bombs(void **state)
{
    static const struct {
        const char *begin, *again;
        size_t n_begin, n_again, n;
        const char *text;
    } bombs[] = {
        {LIT2("\x80\2", "("), 1 << 20, "more than 65536 values"},
        {LIT2("\x80\2", "}"), 1 << 20, "more than 65536 values"},
        {LIT2("\x80\2)", "\x85"), 8 << 20, "more than 4194304 values"},
        {LIT2("\x80\4}", "\x94"), 8 << 20, "more than 4194304 values"},
        {LIT2("\x80\2(", "}K\1s"), 1 << 20, "the target of a new entry is a mark"},
        {LIT2("\x80\2}q\0", "h\0h\0s"), 8 << 20, "more than 1048576 values"},
        {LIT2("\x80\2]", "}a"), 8 << 20, "more than 1048576 dicts"},
        {LIT2("\x80\2" P_STORAGE("FloatStorage", "0", "\6") "q\0N(", "h\0"), 1 << 20,
         "more than 65536 values"},
        {LIT2("\x80\2]", "]a"), 17 << 20, "Coxswain reads at most 16777216"},
    };
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        struct torch_pickle p;
        struct error err = {0};
        char *bytes = malloc(bombs[i].n);
        memcpy(bytes, bombs[i].begin, bombs[i].n_begin);
        for (size_t k = bombs[i].n_begin; k < bombs[i].n; k++)
            bytes[k] = bombs[i].again[(k - bombs[i].n_begin) % bombs[i].n_again];
        enum status got = torch_pickle_read(bytes, bombs[i].n, "bomb", &p, &err);
        if (got == STATUS_OK || !strstr(err.text, bombs[i].text))
            fail_msg("%zu: %s", i, err.text);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_every_opcode),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
