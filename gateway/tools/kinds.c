/* Lists the types of tools, and the schemas of the types that Anthropic's clients run. Both
 * lists are constant: a provider never changes a dated type, but publishes it with a new date. */
#include "gateway/tools/kinds.h"

#include <stdbool.h>
#include <string.h>

/* Returns true when `type` is `word`, or `word` with an underscore and a date (digits and
 * underscores). */
static bool is_version_of(const char *type, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(type, word, n) != 0)
        return false;
    const char *date = type + n;
    return !*date || (date[0] == '_' && date[1] && !date[strspn(date, "_0123456789")]);
}

static bool is_among(const char *type, const char *const *words)
{
    for (; *words; words++)
        if (is_version_of(type, *words))
            return true;
    return false;
}

enum tool_kind tool_kind_of(const char *type)
{
    static const char *const server[] = {"web_search",
                                         "web_search_preview",
                                         "web_fetch",
                                         "file_search",
                                         "code_interpreter",
                                         "code_execution",
                                         "image_generation",
                                         "mcp",
                                         "mcp_toolset",
                                         "tool_search",
                                         "tool_search_tool_bm25",
                                         "tool_search_tool_regex",
                                         "programmatic_tool_calling",
                                         "advisor",
                                         "container", /* vLLM's name of this type, for gpt-oss */
                                         "browser_search", /* Groq's name of this type */
                                         "x_search",       /* xAI's name of this type */
                                         NULL},
                             *const client[] = {"bash",
                                                "text_editor",
                                                "memory",
                                                "computer",
                                                "computer_use_preview",
                                                "computer_toolset",
                                                "browser_toolset",
                                                "local_shell",
                                                "shell",
                                                "apply_patch",
                                                NULL};
    if (is_among(type, server))
        return TOOL_KIND_SERVER;
    return is_among(type, client) ? TOOL_KIND_CLIENT : TOOL_KIND_UNKNOWN;
}

/* ---- functions ---- */

struct member {
    const char *name, *type, *says; /* `type`: a JSON type, or "lines" for two integers */
};

struct known_tool {
    const char *types[3]; /* names of the types; the list ends with NULL, or is full */
    const char *name, *says;
    const char *commands; /* values of the member `command`, separated by blanks; NULL = any text */
    const char *required; /* second required member, beside `command`; or NULL */
    const struct member *members;
};

static const struct member bash_members[] = {
    {"restart", "boolean", "Whether to start the shell anew."},
    {NULL, NULL, NULL},
};

#define EDITS                                                                                      \
    {"path", "string", "The file or folder."},                                                     \
        {"file_text", "string", "create: the text of the new file."},                              \
        {"old_str", "string", "str_replace: the text to replace, which the file holds once."},     \
        {"new_str", "string", "str_replace: the text that takes its place."},                      \
    {                                                                                              \
        "view_range", "lines", "view: the first and the last line to show, from 1; -1 is the end." \
    }

/* The command `insert` is not offered: some clients name its text new_str, others insert_text.
 * str_replace can do the same. */
static const struct member editor_members[] = {
    EDITS,
    {NULL, NULL, NULL},
};

static const struct member memory_members[] = {
    EDITS,
    {"insert_line", "integer", "insert: the line to insert behind; 0 is the beginning."},
    {"insert_text", "string", "insert: the text to insert."},
    {"old_path", "string", "rename: the path as it is."},
    {"new_path", "string", "rename: the path as it will be."},
    {NULL, NULL, NULL},
};

#define EDITOR_SAYS                                                                                \
    "Shows and changes text files: view shows a file or a folder, create writes a new file, "      \
    "str_replace replaces a piece of a file."

static const struct known_tool tools[] = {
    {{"bash_20241022", "bash_20250124"},
     "bash",
     "Runs a command in a bash shell that stays open from call to call.",
     NULL,
     NULL,
     bash_members},
    {{"text_editor_20241022", "text_editor_20250124"},
     "str_replace_editor",
     EDITOR_SAYS,
     "view create str_replace",
     "path",
     editor_members},
    {{"text_editor_20250429", "text_editor_20250728"},
     "str_replace_based_edit_tool",
     EDITOR_SAYS,
     "view create str_replace",
     "path",
     editor_members},
    {{"memory_20250818"},
     "memory",
     "Keeps notes between conversations as files in the folder /memories: look there before you "
     "begin, and write down what is worth keeping. view, create, str_replace, insert and delete "
     "take a path, rename an old_path and a new_path.",
     "view create str_replace insert delete rename",
     NULL,
     memory_members},
};

static json_t *schema_of_member(const struct member *m)
{
    if (strcmp(m->type, "lines") == 0)
        return json_pack("{s:s,s:s,s:{s:s},s:i,s:i}", "type", "array", "description", m->says,
                         "items", "type", "integer", "minItems", 2, "maxItems", 2);
    return json_pack("{s:s,s:s}", "type", m->type, "description", m->says);
}

static json_t *schema_of_command(const char *commands)
{
    json_t *list = json_array();
    for (size_t n; commands && *commands; commands += n + (commands[n] == ' ')) {
        n = strcspn(commands, " ");
        json_array_append_new(list, json_stringn(commands, n));
    }
    json_t *schema =
        json_array_size(list) > 0
            ? json_pack("{s:s,s:O}", "type", "string", "enum", list)
            : json_pack("{s:s,s:s}", "type", "string", "description", "The command to run.");
    json_decref(list);
    return schema;
}

static json_t *function_of(const struct known_tool *t)
{
    json_t *members = json_object(), *required = json_pack("[s]", "command");
    json_object_set_new(members, "command", schema_of_command(t->commands));
    for (const struct member *m = t->members; m->name; m++)
        json_object_set_new(members, m->name, schema_of_member(m));
    if (t->required)
        json_array_append_new(required, json_string(t->required));
    return json_pack("{s:s,s:s,s:{s:s,s:o,s:o,s:b}}", "name", t->name, "description", t->says,
                     "parameters", "type", "object", "properties", members, "required", required,
                     "additionalProperties", 0);
}

json_t *tool_kind_function(const char *type)
{
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        for (size_t k = 0; k < 3 && tools[i].types[k]; k++)
            if (strcmp(type, tools[i].types[k]) == 0)
                return function_of(&tools[i]);
    return NULL;
}
