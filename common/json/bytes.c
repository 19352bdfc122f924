#include "common/json/bytes.h"

/* These are the sizes in bytes of jansson's structures (jansson.h, hashtable.h). A hash table
 * has at least eight buckets and at least as many as members. A list begins with eight entries
 * and doubles. */
enum {
    OBJECT = 72,
    ARRAY = 40,
    STRING = 32, /* a string's structure, without the text */
    NUMBER = 24,
    PAIR = 57, /* member of an object; counts the key's NUL but not the key */
    LEAST_PLACES = 8,
    BUCKET = 16,
    PLACE = 8,
};

/* Returns the bytes that malloc uses for n bytes. They are the n bytes and eight before them,
 * rounded up to a multiple of sixteen, and at least 32. */
static uint64_t block(uint64_t n)
{
    const uint64_t whole = (n + 8 + 15) / 16 * 16;
    return whole > 32 ? whole : 32;
}

static uint64_t places(uint64_t n)
{
    uint64_t have = LEAST_PLACES;
    while (have < n)
        have *= 2;
    return have;
}

static uint64_t object_bytes(const json_t *v)
{
    uint64_t n = block(OBJECT) + block(places(json_object_size(v)) * BUCKET);
    void *at = json_object_iter((json_t *)v);
    for (; at; at = json_object_iter_next((json_t *)v, at))
        n += block(PAIR + json_object_iter_key_len(at)) + json_bytes(json_object_iter_value(at));
    return n;
}

static uint64_t array_bytes(const json_t *v)
{
    uint64_t n = block(ARRAY) + block(places(json_array_size(v)) * PLACE);
    for (size_t i = 0; i < json_array_size(v); i++)
        n += json_bytes(json_array_get(v, i));
    return n;
}

uint64_t json_bytes(const json_t *v)
{
    if (!v)
        return 0;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return object_bytes(v);
    case JSON_ARRAY:
        return array_bytes(v);
    case JSON_STRING: /* a string takes two blocks: its structure and its text */
        return block(STRING) + block(json_string_length(v) + 1);
    case JSON_INTEGER:
    case JSON_REAL:
        return block(NUMBER);
    default: /* true, false and null exist only once in the program, so their size is 0 */
        return 0;
    }
}
