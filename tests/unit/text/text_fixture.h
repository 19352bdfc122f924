#pragma once
/* Makes small files for the text tests: a folder for each test program, and a tokenizer.json
 * with a vocabulary in the style of SentencePiece. It also compares ids. Include it once in a
 * program. */
#include "text/text.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char fixture_dir[64];

static inline const char *fixture_path(const char *name)
{
    static char path[4][256];
    static int i_next;
    char *out = path[i_next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", fixture_dir, name);
    return out;
}

static inline void fixture_write(const char *name, const void *bytes, size_t len)
{
    FILE *f = fopen(fixture_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline size_t fixture_read(const char *path, char **out)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t len = (size_t)ftell(f);
    rewind(f);
    *out = malloc(len + 1);
    assert_int_equal(fread(*out, 1, len, f), len);
    (*out)[len] = 0;
    fclose(f);
    return len;
}

static inline int fixture_setup(void **state)
{
    snprintf(fixture_dir, sizeof fixture_dir, "/tmp/cox_text_XXXXXX");
    return mkdtemp(fixture_dir) ? 0 : -1;
}

static int fixture_remove(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return remove(path);
}

static inline int fixture_teardown(void **state)
{
    return nftw(fixture_dir, fixture_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Returns a tokenizer.json. Ids: 0 <unk>, 1 <s>, 2 </s>, 3..258 bytes, 259 ▁, 260 h, 261 e, 262
 * l, 263 o, 264 he, 265 ll, 266 hell, 267 hello, 268 ▁hello, 269 <tool>. Order of the merges:
 * he, ll, hell, hello, ▁hello. */
static inline char *fixture_spm_json(void)
{
    static const char *const pieces[] = {"\u2581", "h",  "e",    "l",     "o",
                                         "he",     "ll", "hell", "hello", "\u2581hello"};
    char *json = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&json, &len);
    fputs("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[", f);
    const char *sep = "";
    static const struct {
        int id;
        const char *text, *special;
    } added[] = {
        {0, "<unk>", "true"}, {1, "<s>", "true"}, {2, "</s>", "true"}, {269, "<tool>", "false"}};
    for (size_t i = 0; i < 4; i++, sep = ",")
        fprintf(f,
                "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                "\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                sep, added[i].id, added[i].text, added[i].special);
    fputs("],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
          "\"prepend\":"
          "\"\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
          "\"},\"content\":\"\u2581\"}]},"
          "\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
          "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_"
          "id\":0}}],"
          "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\","
          "\"type_id\":1}}],"
          "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}},"
          "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
          "\"String\":"
          "\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
          "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
          "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
          "\"byte_fallback\":true,\"ignore_merges\":false,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</"
          "s>\":2",
          f);
    for (int b = 0; b < 256; b++)
        fprintf(f, ",\"<0x%02X>\":%d", b, 3 + b);
    for (int i = 0; i < 10; i++)
        fprintf(f, ",\"%s\":%d", pieces[i], 259 + i);
    fputs("},\"merges\":[\"h e\",[\"l\",\"l\"],\"he ll\",\"hell o\",\"\u2581 hello\"]}}", f);
    fclose(f);
    return json;
}

/* NO_IDS is an empty list of ids: a valid address, and 0. */
#define NO_IDS (const uint32_t[]){0}, 0
#define IDS(...)                                                                                   \
    ((const uint32_t[]){__VA_ARGS__}), sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

static inline void assert_encodes(const struct text_tokenizer *t, const char *text, bool special,
                                  const uint32_t *want, size_t n_want)
{
    char err[TEXT_ERR_MAX] = "";
    uint32_t *ids = NULL;
    size_t n = 0;
    if (text_encode(t, text, strlen(text), special, 1 << 20, &ids, &n, err) != TEXT_OK)
        fail_msg("'%s': %s", text, err);
    bool same = n == n_want && (n == 0 || memcmp(ids, want, n * sizeof *ids) == 0);
    if (!same) {
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, "%u ", ids[i]);
        fail_msg("'%s': other ids", text);
    }
    text_free(ids);
}

static inline void assert_decodes(const struct text_tokenizer *t, const uint32_t *ids, size_t n,
                                  bool skip, const char *want)
{
    char err[TEXT_ERR_MAX] = "", *text = NULL;
    size_t len = 0;
    assert_int_equal(text_decode(t, ids, n, skip, &text, &len, err), TEXT_OK);
    assert_int_equal(len, strlen(text));
    assert_string_equal(text, want);
    text_free(text);
}
