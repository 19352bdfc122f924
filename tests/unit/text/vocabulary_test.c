/* Tests that the vocabularies of one model are equal in all forms of its files, and differ from
 * another model's. */
#include "text/vocabulary.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDENS "build/goldens/"

static struct vocabulary vocabulary_of(const char *path)
{
    struct text_tokenizer *t = NULL;
    struct vocabulary v;
    char err[TEXT_ERR_MAX] = "";
    if (text_tokenizer_open(path, NULL, &t, err) != TEXT_OK)
        fail_msg("%s: %s", path, err);
    text_vocabulary(t, &v);
    text_tokenizer_free(t);
    return v;
}

/* Writes and reads a byte-level BPE of "a" to "h" with merges, and special tokens behind them. */
static struct vocabulary written(const char *merged, uint32_t n_added)
{
    char path[] = "/tmp/cox-vocabulary-XXXXXX.json";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fprintf(f, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (uint32_t i = 0; i < n_added; i++)
        fprintf(f,
                "%s{\"id\":%u,\"content\":\"<x%u>\",\"special\":true,\"single_word\":false,"
                "\"lstrip\":false,\"rstrip\":false,\"normalized\":false}",
                i ? "," : "", 8 + (uint32_t)strlen(merged) / 2 + i, i);
    fprintf(f, "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
               "\"trim_offsets\":true,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\","
               "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},"
               "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (uint32_t i = 0; i < 8; i++)
        fprintf(f, "%s\"%c\":%u", i ? "," : "", 'a' + (int)i, i);
    for (uint32_t i = 0; merged[i]; i += 2)
        fprintf(f, ",\"%.2s\":%u", merged + i, 8 + i / 2);
    fprintf(f, "},\"merges\":[");
    for (uint32_t i = 0; merged[i]; i += 2)
        fprintf(f, "%s\"%c %c\"", i ? "," : "", merged[i], merged[i + 1]);
    fprintf(f, "]}}");
    fclose(f);
    struct vocabulary v = vocabulary_of(path);
    unlink(path);
    return v;
}

static void special_tokens_do_not_count(void **state)
{
    struct vocabulary plain = written("abcdefghbaca", 0), added = written("abcdefghbaca", 40),
                      other = written("bacadabbbcbd", 0), bytes = vocabulary_of("builtin:bytes");
    assert_int_equal(plain.n_tokens, 14);
    assert_int_equal(added.n_tokens, 54);
    assert_memory_equal(plain.sketch, added.sketch, sizeof plain.sketch);
    assert_false(vocabulary_is_same(&plain, &other));
    assert_false(vocabulary_is_same(&plain, &bytes));
}

/* Models of scripts/make-goldens have the same vocabulary in every form: safetensors, GGUF of
 * all types, split files, PyTorch. */
static void every_form_of_a_model_is_the_same(void **state)
{
    static const char *const families[] = {"llama_tiny", "gemma3_tiny"};
    struct vocabulary of[2];
    /* the models are missing because scripts/make-goldens has not finished */
    if (access(GOLDENS "stamp", R_OK) != 0)
        skip();
    DIR *d = opendir(GOLDENS);
    assert_non_null(d);
    for (int i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, GOLDENS "%s", families[i]);
        of[i] = vocabulary_of(path);
    }
    assert_false(vocabulary_is_same(&of[0], &of[1]));
    int n[2] = {0};
    for (struct dirent *e; (e = readdir(d));) {
        for (int i = 0; i < 2; i++) {
            char path[400], gguf[440];
            if (strncmp(e->d_name, families[i], strlen(families[i])) != 0)
                continue;
            snprintf(path, sizeof path, GOLDENS "%s", e->d_name);
            snprintf(gguf, sizeof gguf, "%s/model.gguf", path);
            if (strstr(path, "_split"))
                continue; /* the files of this model have numbers in their names */
            struct vocabulary v = vocabulary_of(access(gguf, R_OK) == 0 ? gguf : path);
            if (!vocabulary_is_same(&v, &of[i]) || vocabulary_is_same(&v, &of[!i]))
                fail_msg("%s", e->d_name);
            n[i]++;
        }
    }
    closedir(d);
    assert_true(n[0] > 1 && n[1] > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_tokens_do_not_count),
        cmocka_unit_test(every_form_of_a_model_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
