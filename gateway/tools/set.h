#pragma once
/* The tools of a request in the one form that templates, grammars and parsers read, OpenAI's
 * chat's:
 *
 *   [{"type": "function", "function": {"name": …, "description": …, "parameters": …}}, …]
 *
 * and what each was in the request, so that an answer says a call the client's way:
 *
 *   function     as it is
 *   custom       a function with one argument, the text `input`; its grammar, where it has one, is
 *                said in the description and held where the tool is forced
 *   namespace    its functions, called NAMESPACE__NAME
 *   bash, …      of Anthropic's types whose schema is known (kinds.h): functions
 *   others       tools that a server runs (web_search, mcp, …), which nobody does here, and tools
 *                of clients whose schema nobody knows here. They are left out, and the answer says
 *                so. A type that is in no list is refused
 *
 * All of it is owned by p->own, and by the body. Pure. */
#include "gateway/params/params.h"

#define TOOL_SET_MAX 4096u /* of a request, namespaces and what is in them counted */

enum tool_form { TOOL_IS_FUNCTION, TOOL_IS_CUSTOM, TOOL_IS_NAMESPACED };

struct tool_origin { /* views */
    enum tool_form form;
    struct str name, space; /* as the client said them; space: of a namespace, else empty */
};

/* A call of `name`, as the list of tools has it, in the client's words. */
struct tool_origin tool_origin_of(const struct params *p, struct str name);

/* ---- making the list, for parsers of fields ---- */

void tool_set_begin(struct params *p);
/* A tool in chat's form. */
void tool_set_add(struct params *p, json_t *tool);
/* description and parameters may be NULL or null. */
void tool_set_add_function(struct params *p, const json_t *name, json_t *description,
                           json_t *parameters);
/* format: NULL, {"type": "text"}, or {"type": "grammar", "syntax": "lark" or "regex", "definition":
 * …}. False: it is something else, and e says what. i: for e, the tool's place. */
bool tool_set_add_custom(struct params *p, const json_t *tool, size_t i, struct api_error *e);
bool tool_set_add_namespace(struct params *p, const json_t *tool, size_t i, struct api_error *e);
/* A tool of the type, which may have a name (else NULL), is left out. */
void tool_set_leave_out(struct params *p, const char *type, const json_t *name);
/* The same, of a tool that is neither a function nor a custom one. False: nobody knows its type,
 * and e says so. where: for e, "tools[2]"; takes: a sentence on how tools are said there. */
bool tool_set_pass_over(struct params *p, const char *where, const char *type, const json_t *name,
                        const char *takes, struct api_error *e);
/* Whether parameters are a tool's: an object, or none at all (NULL or null). False: e says what
 * they are. where: "tools[2].parameters". */
bool tool_set_check_schema(const json_t *parameters, const char *where, struct api_error *e);
/* Where the request has the tool that is called name here: "tools[3]", or "tools[3].tools[0]" of a
 * namespace. */
void tool_set_place(const struct params *p, struct str name, char *out, size_t cap);
/* p->tools is the list, NULL where nothing is in it. False: a name is there twice and means two
 * kinds of tool, and e says so. */
bool tool_set_end(struct params *p, struct api_error *e);

/* ---- choosing ---- */

/* The name that tools have for the client's `name`, of a namespace or of none (NULL); empty: there
 * is no such tool. */
struct str tool_set_name(const struct params *p, const json_t *name, const json_t *space);
/* Keeps those tools alone that the list names: {"type": "function" or "custom", "name": …}, or with
 * the name inside of `function` or `custom`. False: it names one that is not there, and e says so.
 */
bool tool_set_allow(struct params *p, const json_t *list, struct api_error *e);
/* The type of a tool that was left out, by its name; NULL: none was called so. */
const char *tool_set_left_type(const struct params *p, const json_t *name);
/* Tools whose names (as tools have them) are keys of names are no longer there. */
void tool_set_withdraw(struct params *p, const json_t *names);
/* The Lark grammar of the tool `name`, a custom one's; empty: it has none. */
struct str tool_set_grammar(const struct params *p, struct str name);
/* Types of tools that were left out, each once, with commas between, for a header: letters, digits
 * and underscores. Empty: none were. */
void tool_set_left_out(const struct params *p, struct strbuf *out);
