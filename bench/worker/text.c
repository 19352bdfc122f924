/* Measures the text library: opening a tokenizer, encoding, decoding, chat templates and masks. It
 * decides which optimisation the crates need (text/Cargo.toml), so it uses only text/text.h and
 * can be linked with two builds of the library (bench/text). Times are processor time of the
 * process, the least of the rounds. A hash of all results is printed too: two libraries must give
 * the same one.
 * Usage: bench_text MODEL FILE [ROUNDS]. FILE is a text to encode, at most 1 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/count.h"
#include "bench/seconds.h"
#include "text/text.h"

enum { MAX_TEXT = 1 << 20, MAX_ROUNDS = 999, N_CONTEXT = 1 << 14 };

static const char schema[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"name\",\"age\",\"tags\"],"
    "\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},\"age\":{\"type\":\"integer\","
    "\"minimum\":7,\"maximum\":77},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\","
    "\"green\",\"blue\"]},\"maxItems\":4}}}";
static const char document[] = "{\"name\": \"Ada Lovelace of London\", \"age\": 36, \"tags\": "
                               "[\"red\", \"blue\", \"green\"]}";
static const char template[] =
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}{% if not loop.last %}\n{% "
    "endif %}{% endfor %}{{ messages | length }}{{ messages[0] | tojson }}";

static struct text_tokenizer *tokenizer;
static struct text_vocabulary *vocabulary;
static struct text_grammar *grammar;
static struct text_template *chat;
static const char *model;
static char text[MAX_TEXT], context[N_CONTEXT];
static size_t n_text;
static uint64_t results = 14695981039346656037ull; /* FNV-1a of all results */

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_text: %s: %s\n", what, why);
    exit(2);
}

static void check(int status, const char *what, const char *why)
{
    if (status != TEXT_OK)
        die(what, why);
}

static void add(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        results = (results ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
}

static void open_model(void)
{
    char why[TEXT_ERR_MAX];
    struct text_tokenizer *t;
    check(text_tokenizer_open(model, NULL, &t, why), model, why);
    text_tokenizer_free(t);
}

static void encode_with(bool pipeline, size_t n)
{
    char why[TEXT_ERR_MAX];
    uint32_t *ids;
    size_t n_ids;
    check((pipeline ? text_encode_by_pipeline : text_encode)(tokenizer, text, n, false, MAX_TEXT,
                                                             &ids, &n_ids, why),
          "encode", why);
    add(ids, n_ids * sizeof *ids);
    text_free(ids);
}

static void encode(void)
{
    encode_with(false, n_text);
}

static void encode_by_pipeline(void)
{
    encode_with(true, n_text / 8);
}

static void decode(void)
{
    char why[TEXT_ERR_MAX];
    uint32_t *ids;
    size_t n_ids, n;
    const char *delta;
    check(text_encode(tokenizer, text, n_text / 8, false, MAX_TEXT, &ids, &n_ids, why), "encode",
          why);
    struct text_decoder *d = text_decoder_new(tokenizer, true, NULL, 0);
    for (size_t i = 0; i < n_ids; i++) {
        check(text_decoder_push(d, ids[i], &delta, &n, why), "decode", why);
        add(delta, n);
    }
    text_decoder_free(d);
    text_free(ids);
}

static void render(void)
{
    char why[TEXT_ERR_MAX];
    char *out;
    size_t n;
    for (int i = 0; i < 20; i++) {
        check(text_template_render(chat, context, strlen(context), 0, 0, &out, &n, why), "template",
              why);
        add(out, n);
        text_free(out);
    }
}

static void compile(void)
{
    char why[TEXT_ERR_MAX];
    struct text_grammar *g;
    check(
        text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &g, why),
        "schema", why);
    text_grammar_free(g);
}

static void masks(void)
{
    char why[TEXT_ERR_MAX];
    uint32_t *ids;
    size_t n_ids, n_words = (text_vocab_size(tokenizer) + 31) / 32;
    uint32_t *words = calloc(n_words, sizeof *words);
    struct text_matcher *m;
    if (!words)
        die("masks", "no memory");
    check(text_encode(tokenizer, document, strlen(document), false, MAX_TEXT, &ids, &n_ids, why),
          "encode", why);
    check(text_matcher_new(grammar, NULL, 0, &m, why), "matcher", why);
    for (size_t i = 0; i < n_ids; i++) {
        check(text_matcher_mask(m, words, n_words, why), "mask", why);
        add(words, n_words * sizeof *words);
        check(text_matcher_accept(m, ids[i], why), "accept", why);
    }
    text_matcher_free(m);
    text_free(ids);
    free(words);
}

static void measure(const char *name, void (*run)(void), uint32_t rounds)
{
    double least = 1e9;
    run();
    for (uint32_t i = 0; i < rounds; i++) {
        double begin = bench_seconds(CLOCK_PROCESS_CPUTIME_ID);
        run();
        double took = bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
        least = took < least ? took : least;
    }
    printf("%-20s %10.3f ms\n", name, least * 1e3);
}

static void prepare(const char *file)
{
    char why[TEXT_ERR_MAX];
    FILE *f = fopen(file, "rb");
    if (!f || (n_text = fread(text, 1, sizeof text, f)) == 0)
        die(file, "cannot be read");
    fclose(f);
    check(text_tokenizer_open(model, NULL, &tokenizer, why), model, why);
    check(text_vocabulary_new(tokenizer, &vocabulary, why), "vocabulary", why);
    check(text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, schema, strlen(schema),
                               &grammar, why),
          "schema", why);
    check(text_template_new(template, strlen(template), &chat, why), "template", why);
    size_t n = (size_t)snprintf(context, sizeof context, "{\"messages\":[");
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(
            context + n, sizeof context - n,
            "%s{\"role\":\"%s\",\"content\":\" Message %d of a talk with \\\"quotes\\\" "
            "and a few more words, for the length. \"}",
            i ? "," : "", i % 2 ? "assistant" : "user", i);
    snprintf(context + n, sizeof context - n, "]}");
}

int main(int argc, char **argv)
{
    if (argc < 3)
        die("usage", "bench_text MODEL FILE [ROUNDS]");
    uint32_t rounds = argc > 3 ? count_argument(argv, 3, "ROUNDS", 1, MAX_ROUNDS) : 7;
    model = argv[1];
    prepare(argv[2]);
    measure("open", open_model, rounds > 3 ? 3 : rounds);
    measure("encode", encode, rounds);
    measure("encode by pipeline", encode_by_pipeline, rounds);
    measure("decode", decode, rounds);
    measure("template", render, rounds);
    measure("compile a schema", compile, rounds);
    measure("masks", masks, rounds);
    printf("%-20s %016llx\n", "hash of the results", (unsigned long long)results);
    text_template_free(chat);
    text_grammar_free(grammar);
    text_vocabulary_free(vocabulary);
    text_tokenizer_free(tokenizer);
    return 0;
}
