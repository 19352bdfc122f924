#pragma once
/* The types of tools that clients send besides functions and custom tools:
 *
 *   TOOL_KIND_SERVER   the provider's server runs them (web_search, mcp, …)
 *   TOOL_KIND_CLIENT   the client runs them, and the provider's model knows them by heart, so that
 *                      the request has no schema of theirs (bash_20250124, local_shell, …)
 *   TOOL_KIND_UNKNOWN  all others: a slip of the pen, or newer than this server
 *
 * A type is a word, or the word, an underscore and the date of its version. Pure. */
#include <jansson.h>

enum tool_kind { TOOL_KIND_UNKNOWN, TOOL_KIND_SERVER, TOOL_KIND_CLIENT };

enum tool_kind tool_kind_of(const char *type);
/* The function {"name", "description", "parameters"} that a tool of Anthropic's type is for a model
 * that does not know it; its calls have the members that Anthropic's packages read. A new
 * reference. NULL: no schema of this type is known. */
json_t *tool_kind_function(const char *type);
