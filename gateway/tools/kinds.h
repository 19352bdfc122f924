#pragma once
/* Lists the types of tools that clients send besides functions and custom tools:
 *   TOOL_KIND_SERVER   run by the provider's server (web_search, mcp, …)
 *   TOOL_KIND_CLIENT   run by the client; the provider's model was trained on them, so the request
 *                      has no schema of them (bash_20250124, local_shell, …)
 *   TOOL_KIND_UNKNOWN  all others: misspelt, or newer than this server
 * A type is a word, or the word, an underscore and the date of its version. The functions are
 * pure. */
#include <jansson.h>

enum tool_kind { TOOL_KIND_UNKNOWN, TOOL_KIND_SERVER, TOOL_KIND_CLIENT };

enum tool_kind tool_kind_of(const char *type);
/* Returns the function {"name", "description", "parameters"} for a tool of an Anthropic type,
 * for models that do not know the type. Its calls have the members that Anthropic's packages
 * read. The result is a new reference, or NULL when no schema of this type is known. */
json_t *tool_kind_function(const char *type);
