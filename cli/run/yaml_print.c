#include "cli/run/yaml_print.h"

#include <string.h>

enum { STEP = 2 };

static void print(const json_t *j, int depth, bool in_list, struct strbuf *out);

static void indent(int depth, struct strbuf *out)
{
    for (int i = 0; i < depth * STEP; i++)
        strbuf_append_c(out, " ");
}

/* Returns true for a text that a literal block keeps unchanged: it ends in exactly one newline
 * and does not begin with a space. */
static bool is_block(const char *s)
{
    size_t n = strlen(s);
    if (n < 2 || s[n - 1] != '\n' || s[n - 2] == '\n' || s[0] == ' ' || s[0] == '\n')
        return false;
    for (; *s; s++)
        if (((unsigned char)*s < ' ' && *s != '\n') || (unsigned char)*s >= 0x7F)
            return false;
    return true;
}

static void print_block(const char *s, int depth, struct strbuf *out)
{
    strbuf_append_c(out, "|");
    while (*s) {
        size_t n = strcspn(s, "\n");
        strbuf_append_c(out, "\n");
        if (n > 0)
            indent(depth, out);
        strbuf_append(out, s, n);
        s += n + 1;
    }
}

/* Returns true for a key that every YAML reader reads as text. */
static bool is_plain(const char *s)
{
    static const char *const words[] = {"true", "false", "null", "yes", "no",
                                        "on",   "off",   "y",    "n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0)
            return false;
    return *s >= 'a' && *s <= 'z' &&
           s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._/-0123456789")] ==
               '\0';
}

static void print_scalar(const json_t *j, int depth, struct strbuf *out)
{
    if (json_is_string(j) && is_block(json_string_value(j)))
        print_block(json_string_value(j), depth, out);
    else if (json_is_string(j))
        strbuf_append_json(out, str_from(json_string_value(j)));
    else if (json_is_integer(j))
        strbuf_printf(out, "%lld", (long long)json_integer_value(j));
    else
        strbuf_append_c(out, json_is_true(j) ? "true" : json_is_false(j) ? "false" : "null");
}

/* Prints the value that follows "key:" or "-". */
static void print_value(const json_t *j, int depth, struct strbuf *out)
{
    bool is_empty = json_is_object(j) ? json_object_size(j) == 0 : json_array_size(j) == 0;
    if (!json_is_object(j) && !json_is_array(j)) {
        strbuf_append_c(out, " ");
        print_scalar(j, depth, out);
        strbuf_append_c(out, "\n");
    } else if (is_empty) {
        strbuf_append_c(out, json_is_object(j) ? " {}\n" : " []\n");
    } else {
        strbuf_append_c(out, "\n");
        print(j, depth, false, out);
    }
}

static void print(const json_t *j, int depth, bool in_list, struct strbuf *out)
{
    const char *key;
    json_t *v;
    size_t i;
    json_object_foreach((json_t *)j, key, v)
    {
        if (!in_list)
            indent(depth, out);
        in_list = false; /* the first key is on the line of the dash */
        if (is_plain(key))
            strbuf_append_c(out, key);
        else
            strbuf_append_json(out, str_from(key));
        strbuf_append_c(out, ":");
        print_value(v, depth + 1, out);
    }
    json_array_foreach(j, i, v)
    {
        indent(depth, out);
        strbuf_append_c(out, "-");
        if (json_is_object(v) && json_object_size(v) > 0) {
            strbuf_append_c(out, " ");
            print(v, depth + 1, true, out);
        } else {
            print_value(v, depth + 1, out);
        }
    }
}

void yaml_print(const json_t *j, struct strbuf *out)
{
    print(j, 0, false, out);
}
