#pragma once
/* Keeps the tools of a request in the single form that templates, grammars and parsers read,
 * which is the form of OpenAI's chat:
 *   [{"type": "function", "function": {"name": …, "description": …, "parameters": …}}, …]
 * The set also keeps the original kind of each tool in the request, so that an answer uses the
 * client's form:
 *   function   unchanged
 *   custom     a function with one argument, the text `input`. The description states the grammar,
 *              if there is one, and a forced call enforces it
 *   namespace  its functions, named NAMESPACE__NAME
 *   bash, …    Anthropic's types with a known schema (kinds.h): functions
 *   others     tools that a provider's server runs (web_search, mcp, …), and client tools without a
 *              known schema. They are left out, and the answer says so. Unknown types are refused
 * `p->own` and the body own all of the set. The functions are pure. */
#include "gateway/params/params.h"

#define TOOL_SET_MAX 4096u /* most tools of a request, with namespaces and their members */

enum tool_form { TOOL_IS_FUNCTION, TOOL_IS_CUSTOM, TOOL_IS_NAMESPACED };

struct tool_origin { /* origin of a tool; the texts are views */
    enum tool_form form;
    struct str name, space; /* names as the client wrote them; `space` is the namespace or empty */
};

/* Returns the client's form of a call of `name`, which is a name in the list of tools. */
struct tool_origin tool_origin_of(const struct params *p, struct str name);

/* ---- making the list, for parsers of fields ---- */

void tool_set_begin(struct params *p);
/* Adds a tool that already has chat's form. */
void tool_set_add(struct params *p, json_t *tool);
/* Adds a function. `description` and `parameters` may be NULL or null. */
void tool_set_add_function(struct params *p, const json_t *name, json_t *description,
                           json_t *parameters);
/* Adds a custom tool. Its format is NULL, {"type": "text"}, or {"type": "grammar", "syntax":
 * "lark" or "regex", "definition": …}. Returns false with an error for any other format. `i` is
 * the tool's position, for the error. */
bool tool_set_add_custom(struct params *p, const json_t *tool, size_t i, struct api_error *e);
bool tool_set_add_namespace(struct params *p, const json_t *tool, size_t i, struct api_error *e);
/* Leaves out a tool of this type. `name` may be NULL. */
void tool_set_leave_out(struct params *p, const char *type, const json_t *name);
/* Leaves out a tool that is neither a function nor a custom tool. Returns false with an error
 * when the type is unknown. `where` is the position for the error, such as "tools[2]". `takes`
 * is a sentence about the accepted form. */
bool tool_set_pass_over(struct params *p, const char *where, const char *type, const json_t *name,
                        const char *takes, struct api_error *e);
/* Returns true when the parameters are an object or missing (NULL or null), else false with an
 * error. `where` is their position, such as "tools[2].parameters". */
bool tool_set_check_schema(const json_t *parameters, const char *where, struct api_error *e);
/* Writes the position of the tool `name` in the request: "tools[3]", or "tools[3].tools[0]" in a
 * namespace. */
void tool_set_place(const struct params *p, struct str name, char *out, size_t cap);
/* Sets `p->tools` to the list, or to NULL when it is empty. Returns false with an error when two
 * kinds of tools have the same name. */
bool tool_set_end(struct params *p, struct api_error *e);

/* ---- choosing ---- */

/* Returns the name in the list for the client's `name`, in the namespace `space` or without a
 * namespace (NULL). Returns an empty text when there is no such tool. */
struct str tool_set_name(const struct params *p, const json_t *name, const json_t *space);
/* Keeps only the tools that `list` names: {"type": "function" or "custom", "name": …}, or with
 * the name within `function` or `custom`. Returns false with an error when a tool is missing. */
bool tool_set_allow(struct params *p, const json_t *list, struct api_error *e);
/* Returns the type of a tool that was left out, by its name, or NULL when no such tool was left
 * out. */
const char *tool_set_left_type(const struct params *p, const json_t *name);
/* Removes the tools with names (as in the list) that are keys of `names`. */
void tool_set_withdraw(struct params *p, const json_t *names);
/* Returns the Lark grammar of the custom tool `name`, or an empty text when it has none. */
struct str tool_set_grammar(const struct params *p, struct str name);
/* Appends the types of the tools that were left out, each once, separated by commas, for a
 * header. The text has only letters, digits and underscores. Appends nothing when no tools were
 * left out. */
void tool_set_left_out(const struct params *p, struct strbuf *out);
