/* Runs a fuzz target over the files of a corpus folder, so that the fuzzers are tests in every
 * build.
 *   PROGRAM FOLDER [--mutated N [--seed N]]
 * --mutated also runs N inputs made from these files by changed bits and bytes, cuts, repeats
 * and pieces of each other. A seed always gives the same inputs. Unlike a fuzzer this program
 * does not follow coverage, and needs no clang. A long run reports its progress on stderr; the
 * last line is the total. */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_MAX = 1 << 20, INPUT_MAX = 4096, FILES_MAX = 4096, CHANGES_MAX = 6 };
/* SAID_EVERY is the number of inputs between two reports: some seconds of the fastest target. */
enum { SAID_EVERY = 5000000 };

struct input {
    uint8_t *ptr;
    size_t n;
};

static struct input files[FILES_MAX];
static uint32_t n_files;

/* Runs one input. Its copy has the exact size, so that a sanitizer sees a read past the end. */
static void run(const uint8_t *data, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact)
        abort();
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static bool run_file(const char *path)
{
    static uint8_t buf[FILE_MAX];
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    run(buf, n);
    if (n_files < FILES_MAX && n <= INPUT_MAX) {
        files[n_files].ptr = malloc(n ? n : 1);
        if (!files[n_files].ptr)
            abort();
        memcpy(files[n_files].ptr, buf, n);
        files[n_files++].n = n;
    }
    return true;
}

/* ---- inputs made from others ---- */

/* Draws a random number with xorshift64*: Vigna, "An experimental exploration of Marsaglia's
 * xorshift generators, scrambled" (2014). */
static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * UINT64_C(2685821657736338717) >> 32) % below;
}

static void change(struct input *in, uint64_t *state)
{
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, 0xfe, 8, 10, 0x12};
    size_t at = in->n ? draw(state, in->n) : 0, n = 0;
    const struct input *other = &files[draw(state, n_files)];
    switch (in->n ? draw(state, 6) : 5) {
    case 0:
        in->ptr[at] ^= (uint8_t)(1u << draw(state, 8));
        break;
    case 1:
        in->ptr[at] = (uint8_t)draw(state, 256);
        break;
    case 2:
        in->ptr[at] = odd[draw(state, sizeof odd)];
        break;
    case 3: /* removes a piece */
        n = 1 + draw(state, in->n - at);
        memmove(in->ptr + at, in->ptr + at + n, in->n - at - n);
        in->n -= n;
        break;
    case 4: /* repeats a piece */
        n = 1 + draw(state, in->n - at);
        n = n < INPUT_MAX - in->n ? n : INPUT_MAX - in->n;
        memmove(in->ptr + at + n, in->ptr + at, in->n - at);
        in->n += n;
        break;
    default: /* replaces the rest by that of another input */
        n = other->n > at ? other->n - at : 0;
        if (n > 0)
            memcpy(in->ptr + at, other->ptr + at, n);
        in->n = at + n;
    }
}

/* Returns the number of inputs that ran: n, or 0 when no file is short enough. */
static uint64_t run_mutated(uint64_t n, uint64_t seed)
{
    static uint8_t buf[INPUT_MAX];
    uint64_t state = seed * 2 + 1, i;
    for (i = 0; i < n && n_files > 0; i++) {
        const struct input *from = &files[draw(&state, n_files)];
        struct input in = {buf, from->n};
        memcpy(buf, from->ptr, from->n);
        for (uint64_t k = 1 + draw(&state, CHANGES_MAX); k > 0; k--)
            change(&in, &state);
        run(in.ptr, in.n);
        if ((i + 1) % SAID_EVERY == 0)
            fprintf(stderr, "%" PRIu64 " of %" PRIu64 " inputs\n", i + 1, n);
    }
    return i;
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t usual)
{
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return usual;
}

int main(int argc, char **argv)
{
    int n = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    /* the files are sorted, so that the order is the same on every machine */
    struct dirent **found = NULL;
    int n_found = argc > 1 ? scandir(argv[1], &found, NULL, alphasort) : 0;
    for (int i = 0; i < n_found; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], found[i]->d_name);
        n += found[i]->d_name[0] != '.' && run_file(path);
        free(found[i]);
    }
    free(found);
    uint64_t wanted = option(argc, argv, "--mutated", 0), seed = option(argc, argv, "--seed", 1);
    uint64_t mutated = run_mutated(wanted, seed);
    printf("%d corpus files, %" PRIu64 " inputs made of them, seed %" PRIu64 "\n", n, mutated,
           seed);
    for (uint32_t i = 0; i < n_files; i++)
        free(files[i].ptr);
    return n > 0 && mutated == wanted ? 0 : 1;
}
