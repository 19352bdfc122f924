/* Measures the cost of a mask as the worker makes it. It calls grammars_mask before each token
 * of documents that their schemas allow, with the model's own tokenizer. A sequence is new in
 * each round, so its lexer has no states yet. Times are processor time of this thread, medians
 * of rounds. The bound applies to all tokens of all schemas together.
 * Usage: bench_grammar TOKENIZER [ROUNDS]; exit status 1: above the bound. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/count.h"
#include "bench/median.h"
#include "common/base/mem.h"
#include "text/text.h"
#include "worker/grammar/grammars.h"

enum { MAX_ROUNDS = 99, MAX_IDS = 4096, BOUND_US = 50 };

#define PERSON                                                                                     \
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"name\",\"age\","          \
    "\"colours\"],\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":2,"                  \
    "\"maxLength\":24},\"age\":{\"type\":\"integer\",\"minimum\":7,\"maximum\":77},\"colours\":{"  \
    "\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},\"maxItems\":3}}}"
#define ARTICLE                                                                                    \
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"title\",\"summary\","     \
    "\"tags\",\"rating\"],\"properties\":{\"title\":{\"type\":\"string\",\"maxLength\":80},"       \
    "\"summary\":{\"type\":\"string\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":"          \
    "\"string\",\"maxLength\":20},\"maxItems\":5},\"rating\":{\"type\":\"number\","                \
    "\"minimum\":0,\"maximum\":5}}}"
#define ORDER                                                                                      \
    "{\"$ref\":\"#/$defs/order\",\"$defs\":{\"item\":{\"type\":\"object\",\"required\":[\"sku\","  \
    "\"count\",\"price\"],\"properties\":{\"sku\":{\"type\":\"string\",\"pattern\":"               \
    "\"^[A-Z]{3}-[0-9]{4}$\"},\"count\":{\"type\":\"integer\",\"minimum\":1},\"price\":{\"type\":" \
    "\"number\"},\"note\":{\"type\":[\"string\",\"null\"]}}},\"order\":{\"type\":\"object\","      \
    "\"required\":[\"id\",\"when\",\"email\",\"items\"],\"properties\":{\"id\":{\"type\":"         \
    "\"string\",\"format\":\"uuid\"},\"when\":{\"type\":\"string\",\"format\":\"date-time\"},"     \
    "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"items\":{\"type\":\"array\","          \
    "\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/item\"}}}}}}"
#define CALL                                                                                       \
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\"" \
    ":{\"name\":{\"const\":\"search\"},\"arguments\":{\"type\":\"object\",\"properties\":{"        \
    "\"query\":{\"type\":\"string\"},\"limit\":{\"type\":\"integer\"}},\"required\":[\"query\"]}}" \
    ",\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false},{\"type\":\"object\"," \
    "\"properties\":{\"name\":{\"const\":\"weather\"},\"arguments\":{\"type\":\"object\","         \
    "\"properties\":{\"city\":{\"type\":\"string\"},\"unit\":{\"enum\":[\"c\",\"f\"]}}}},"         \
    "\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}]}}"
#define PROSE                                                                                      \
    "Nobody in the village remembered who had built the lighthouse, or why its lamp burned blue. " \
    "She counted 17 gulls, 4 nets and 1 very old anchor, and wrote all of it down."
#define REASONED                                                                                   \
    "{\"open\":[\"<think>\"],\"close\":[\"</think>\"],\"begun\":true,\"kind\":2,\"source\":"       \
    "\"yes|no\"}"

static const struct workload {
    const char *name;
    enum grammar_kind kind;
    const char *source, *text;
} workloads[] = {
    {"person", GRAMMAR_JSON_SCHEMA, PERSON,
     "{\"name\": \"Alice Montgomery\", \"age\": 42, \"colours\": [\"red\", \"blue\"]}"},
    {"article", GRAMMAR_JSON_SCHEMA, ARTICLE,
     "{\"title\": \"The lighthouse keeper's daughter\", \"summary\": \"" PROSE
     "\", \"tags\": [\"sea\", "
     "\"history\", \"north coast\"], \"rating\": 4.5}"},
    {"order", GRAMMAR_JSON_SCHEMA, ORDER,
     "{\"id\": \"123e4567-e89b-12d3-a456-426614174000\", \"when\": \"2026-11-23T04:05:06Z\", "
     "\"email\": "
     "\"alice.miller@example.com\", \"items\": [{\"sku\": \"ABC-1234\", \"count\": 3, \"price\": "
     "19.99, "
     "\"note\": \"gift wrap, please\"}, {\"sku\": \"XYZ-0007\", \"count\": 1, \"price\": 249, "
     "\"note\": "
     "null}]}"},
    {"tool calls", GRAMMAR_JSON_SCHEMA, CALL,
     "[{\"name\": \"search\", \"arguments\": {\"query\": \"who built the old lighthouse?\", "
     "\"limit\": "
     "5}}, {\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"unit\": \"c\"}}]"},
    {"any object", GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}",
     "{\"title\": \"A \\\"blue\\\" lamp\", \"body\": \"" PROSE
     "\\n\", \"n\": [1, 2.5, -3e2], \"ok\": true}"},
    {"regex", GRAMMAR_REGEX, "[A-F]{3}-[0-9]{4}( [A-F]{3}-[0-9]{4}){3}",
     "ABC-1234 DEF-5678 AAA-0000 BED-1999"},
    {"reasoning", GRAMMAR_AFTER_REASONING, REASONED, PROSE " So \"a < b\".\n</think>yes"},
};
enum { N_WORKLOADS = sizeof workloads / sizeof *workloads };

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double all_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double rss_mib(void)
{
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_grammar: %s: %s\n", what, why);
    exit(2);
}

struct document {
    uint32_t ids[MAX_IDS];
    uint32_t n;
    double us[MAX_ROUNDS], worst_us;
};

/* Runs one document; the masks must allow every token of the document. */
static double run_round(struct grammars *g, const struct workload *w, struct document *d,
                        uint32_t *words, uint64_t serial)
{
    struct sequence q = {.ids = d->ids, .serial = serial};
    q.sampling.grammar_kind = w->kind;
    q.sampling.grammar = str_from(w->source);
    double begin = cpu_us(), last = 0;
    grammars_enter(g, &q);
    for (; q.n_ids < d->n; q.n_ids++) {
        bool has;
        enum grammar_end end;
        uint32_t units;
        last = cpu_us();
        grammars_mask(g, &q,
                      (struct grammar_places){
                          .n = 1, .words = words, .has = &has, .ends = &end, .units = &units});
        last = cpu_us() - last;
        uint32_t id = d->ids[q.n_ids];
        if (!(words[id / 32] >> (id % 32) & 1))
            die(w->name, "a token of the document is not allowed");
        d->worst_us = last > d->worst_us ? last : d->worst_us;
    }
    return cpu_us() - begin;
}

static void encode(const struct text_tokenizer *t, const struct workload *w, struct document *d)
{
    char why[TEXT_ERR_MAX];
    uint32_t *ids;
    size_t n;
    if (text_encode(t, w->text, strlen(w->text), false, MAX_IDS, &ids, &n, why) != TEXT_OK)
        die(w->name, why);
    memcpy(d->ids, ids, n * sizeof *ids);
    d->n = (uint32_t)n;
    text_free(ids);
}

static double measure(struct grammars *g, struct document *docs, uint32_t vocab_size, int rounds)
{
    uint32_t *words = mem_array((vocab_size + 31) / 32, sizeof *words);
    double all[MAX_ROUNDS] = {0};
    uint64_t serial = 0;
    uint32_t n_ids = 0;
    for (size_t i = 0; i < N_WORKLOADS; i++) { /* the grammars are compiled here */
        run_round(g, &workloads[i], &docs[i], words, ++serial);
        docs[i].worst_us = 0;
        n_ids += docs[i].n;
    }
    for (int r = 0; r < rounds; r++)
        for (size_t i = 0; i < N_WORKLOADS; i++)
            all[r] += docs[i].us[r] = run_round(g, &workloads[i], &docs[i], words, ++serial);
    for (size_t i = 0; i < N_WORKLOADS; i++)
        printf("%-12s %4u tokens  %6.1f us each, the worst %.0f us\n", workloads[i].name, docs[i].n,
               bench_median(docs[i].us, (uint32_t)rounds) / docs[i].n, docs[i].worst_us);
    mem_free(words);
    return bench_median(all, (uint32_t)rounds) / n_ids;
}

int main(int argc, char **argv)
{
    char why[TEXT_ERR_MAX];
    int rounds = argc > 2 ? (int)count_argument(argv, 2, "ROUNDS", 1, MAX_ROUNDS) : 7;
    struct text_tokenizer *t;
    _Atomic uint64_t progress = 0;
    if (argc < 2)
        die("usage", "bench_grammar TOKENIZER [ROUNDS]");
    if (text_tokenizer_open(argv[1], NULL, &t, why) != TEXT_OK)
        die(argv[1], why);
    struct document *docs = mem_array(N_WORKLOADS, sizeof *docs);
    memset(docs, 0, N_WORKLOADS * sizeof *docs);
    for (size_t i = 0; i < N_WORKLOADS; i++)
        encode(t, &workloads[i], &docs[i]);
    uint32_t vocab_size = text_vocab_size(t);
    double before_s = all_cpu_s(), before_mib = rss_mib();
    struct text_vocabulary *v;
    if (text_vocabulary_new(t, &v, why) != TEXT_OK)
        die(argv[1], why);
    printf("vocabulary   %u tokens, made once: %.2f s of a processor, %.0f MiB kept\n", vocab_size,
           all_cpu_s() - before_s, rss_mib() - before_mib);
    text_vocabulary_free(v);
    text_tokenizer_free(t);
    struct grammar_compiler *compiler = grammar_compiler_new(argv[1], NULL, GRAMMAR_ROOM_MOST);
    struct grammars *g = grammars_new(compiler, vocab_size, &progress);
    double us = measure(g, docs, vocab_size, rounds);
    printf("all          %6.1f us of a processor per token (at most %d us)\n", us, BOUND_US);
    grammars_free(g);
    grammar_compiler_free(compiler);
    mem_free(docs);
    return us > BOUND_US;
}
