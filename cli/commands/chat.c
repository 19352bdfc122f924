/* Implements `cox chat`, a conversation with a model at a gateway, with streamed answers. A
 * terminal has a line editor, a history and commands. From a pipe, each line is a message. With
 * --completion, each message is a separate prompt, which the model continues as text. `converse`
 * reads a message through cli/chat/line_input.h, runs a command or sends the conversation
 * through cli/chat/turn.h, and appends the answer to `messages`.
 * Invariants: a question whose answer failed is removed from `messages`, so roles alternate.
 * Ctrl-C ends an answer, not the program. The command runs in one thread. `struct chat` owns
 * everything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/chat/file.h"
#include "cli/chat/line_input.h"
#include "cli/chat/turn.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/local/find.h"
#include "common/base/mem.h"

#define S chat_options
const struct option_spec chat_specs[] = {
    GATEWAY_ACCESS_ROWS(S),
    {.name = "model",
     .aliases = "model-name",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, model),
     .help = "Name of the model. Default: the first model that the gateway serves."},
    {.name = "system",
     .aliases = "system-prompt",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, system),
     .help = "System message of the conversation."},
    {.name = "quick",
     .aliases = "q",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, quick),
     .help = "Send this one message, print the answer and exit."},
    OPT_BOOL(S, completion, "completion", NULL,
             "Continue text with a base model, without a chat template."),
    OPT_INT(S, max_tokens, "max-tokens", 0, 1 << 24, "0",
            "Maximum number of tokens in an answer. 0 = the gateway's default."),
    OPT_FLOAT(S, temperature, "temperature", -1, 10, "-1",
              "Sampling temperature. -1 = the gateway's default."),
    OPT_FLOAT(S, top_p, "top-p", -1, 1, "-1",
              "Probability mass of the tokens to sample from. -1 = the gateway's default."),
    OPT_INT(S, seed, "seed", -1, 9007199254740992.0, "-1",
            "Seed of the sampling. -1 = a new one each time."),
    OPT_STRING(S, history, "history", "auto",
               "File that keeps the lines typed on a terminal. off: no file. auto: "
               "coxswain/chat_history in XDG_STATE_HOME or ~/.local/state."),
};
#undef S
const size_t chat_n_specs = sizeof chat_specs / sizeof chat_specs[0];

#define FENCE "\"\"\""

struct chat {
    struct chat_options o;
    struct chat_turn turn;
    struct line_input in;
    json_t *messages;
    bool is_colored, ok;
    /* the model has no chat template, so each message is a prompt to continue */
    bool is_base_model;
    struct strbuf message;
};

static const char help_text[] =
    "/system [TEXT]  set the system message; without TEXT, remove it\n/clear          start a new "
    "conversation; the system message stays\n/retry          generate the last answer "
    "again\n/model [NAME]   use another model; without NAME, print the current one\n/save FILE     "
    " save the conversation to a file\n/load FILE      load a saved conversation\n/help, /quit    "
    "(Ctrl-D, too)\n\"\"\" begins and ends a text of several lines; so do Ctrl-J and Alt-Enter one "
    "line more; what is\npasted is one text. A message that begins with / is typed with //. Ctrl-C "
    "stops an answer.\n";

/* Prints a dim line that is not part of the conversation, on a terminal only. */
static void note(const struct chat *c, const char *text)
{
    if (c->in.is_terminal && text[0])
        fprintf(stderr, "%s%s%s\n", c->is_colored ? "\033[2m" : "", text,
                c->is_colored ? "\033[0m" : "");
}

/* ---- the conversation ---- */

static void add_message(struct chat *c, const char *role, const char *content)
{
    json_array_append_new(c->messages, json_pack("{s:s,s:s}", "role", role, "content", content));
}

static void drop_last(struct chat *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static bool last_is(const struct chat *c, const char *role)
{
    const json_t *m = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const char *is = json_string_value(json_object_get(m, "role"));
    return is && strcmp(is, role) == 0;
}

static void set_system(struct chat *c, const char *text)
{
    const json_t *first = json_array_get(c->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (role && strcmp(role, "system") == 0)
        json_array_remove(c->messages, 0);
    if (text && text[0])
        json_array_insert_new(c->messages, 0,
                              json_pack("{s:s,s:s}", "role", "system", "content", text));
}

static bool answer(struct chat *c, const char *prompt);

/* Switches to completion of prompts when the gateway reports that the model has no chat
 * template. */
static bool continue_text(struct chat *c)
{
    const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    char *text = mem_strdup(json_string_value(json_object_get(last, "content")));
    drop_last(c);
    fprintf(stderr,
            "cox chat: %s is a base model: it has no chat template. It continues your text "
            "instead, as with --completion%s.\n",
            c->turn.model,
            json_array_size(c->messages) > 0 ? "; it sees no system message or earlier text" : "");
    c->o.completion = c->is_base_model = true;
    bool ok = answer(c, text);
    mem_free(text);
    return ok;
}

/* Requests and prints an answer. With `prompt` NULL, the conversation is sent. When the request
 * fails, the question is removed from the conversation. */
static bool answer(struct chat *c, const char *prompt)
{
    char text[160];
    bool ok = chat_turn_run(&c->turn, c->messages, prompt);
    if (c->turn.is_base_model && last_is(c, "user"))
        return continue_text(c);
    putchar('\n');
    fflush(stdout);
    if (!prompt && ok)
        add_message(c, "assistant", strbuf_str(&c->turn.answer).ptr);
    else if (!prompt)
        drop_last(c);
    chat_turn_describe(&c->turn, text, sizeof text);
    note(c, text);
    return ok;
}

static bool say(struct chat *c, const char *text)
{
    if (c->o.completion)
        return answer(c, text);
    add_message(c, "user", text);
    return answer(c, NULL);
}

/* ---- commands ---- */

static void do_system(struct chat *c, const char *text)
{
    set_system(c, text);
    note(c, text[0] ? "the system message is set" : "the system message is removed");
}

static void do_clear(struct chat *c, const char *text)
{
    const json_t *first = json_array_get(c->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    size_t keep = role && strcmp(role, "system") == 0 ? 1 : 0;
    while (json_array_size(c->messages) > keep)
        drop_last(c);
    note(c, "a new conversation has started");
}

static void do_retry(struct chat *c, const char *text)
{
    if (last_is(c, "assistant"))
        drop_last(c);
    if (c->o.completion || !last_is(c, "user"))
        fputs("cox chat: /retry: there is no message to answer yet. Type one first\n", stderr);
    else
        (void)answer(c, NULL);
}

static void do_model(struct chat *c, const char *text)
{
    struct error err = {0};
    if (text[0] && chat_turn_check_model(&c->turn, text, &err) != STATUS_OK) {
        fprintf(stderr, "cox chat: /model: %s\n", err.text);
    } else if (strlen(text) >= sizeof c->turn.model) {
        fputs("cox chat: /model: the model's name is too long\n", stderr);
    } else if (text[0]) {
        snprintf(c->turn.model, sizeof c->turn.model, "%s", text);
        c->o.completion = c->o.completion && !c->is_base_model;
        c->is_base_model = false; /* the new model may have a chat template */
    }
    note(c, c->turn.model);
}

static void do_save(struct chat *c, const char *text)
{
    struct error err = {0};
    if (!text[0])
        fputs("cox chat: /save: the file name is missing. Type /save FILE\n", stderr);
    else if (chat_file_save(text, c->turn.model, c->messages, &err) != STATUS_OK)
        fprintf(stderr, "cox chat: /save: %s\n", err.text);
    else
        note(c, "saved");
}

static void do_load(struct chat *c, const char *text)
{
    struct error err = {0};
    json_t *messages = NULL;
    char said[64];
    if (!text[0]) {
        fputs("cox chat: /load: the file name is missing. Type /load FILE\n", stderr);
    } else if (chat_file_load(text, &messages, &err) != STATUS_OK) {
        fprintf(stderr, "cox chat: /load: %s\n", err.text);
    } else {
        json_decref(c->messages);
        c->messages = messages;
        snprintf(said, sizeof said, "%zu messages", json_array_size(messages));
        note(c, said);
    }
}

static void do_help(struct chat *c, const char *text)
{
    fputs(help_text, stderr);
}

static const struct {
    const char *name;
    void (*run)(struct chat *c, const char *text);
} chat_commands[] = {{"system", do_system}, {"clear", do_clear}, {"retry", do_retry},
                     {"model", do_model},   {"save", do_save},   {"load", do_load},
                     {"help", do_help}};

/* Runs a chat command, such as /save. Returns false for /quit and /exit. */
static bool command(struct chat *c, const char *line)
{
    size_t n = strcspn(line, " \t\n");
    const char *rest = line + n + strspn(line + n, " \t\n");
    if ((n == 4 && strncmp(line, "quit", n) == 0) || (n == 4 && strncmp(line, "exit", n) == 0))
        return false;
    for (size_t i = 0; i < sizeof chat_commands / sizeof *chat_commands; i++)
        if (strlen(chat_commands[i].name) == n && strncmp(line, chat_commands[i].name, n) == 0) {
            chat_commands[i].run(c, rest);
            return true;
        }
    fprintf(stderr,
            "cox chat: unknown command /%.*s. /help lists the commands; to begin a message with /, "
            "type //\n",
            (int)(n < 40 ? n : 40), line);
    return true;
}

/* ---- messages ---- */

/* Reads the rest of a message that begins with """, up to the next """. */
static enum line_got read_block(struct chat *c, struct str line)
{
    const char *end;
    strbuf_append(&c->message, line.ptr + 3, line.len - 3);
    while (!(end = strstr(strbuf_str(&c->message).ptr, FENCE))) {
        enum line_got got = line_input_read(&c->in, "... ", &line);
        if (got == LINE_GOT_ABORT)
            return got;
        if (got == LINE_GOT_END)
            return LINE_GOT_TEXT; /* the input has ended, so the text so far is the message */
        if (memchr(line.ptr, '\0', line.len))
            line.len = strlen(line.ptr);
        strbuf_append_c(&c->message, "\n");
        strbuf_append_str(&c->message, line);
    }
    size_t n = (size_t)(end - c->message.ptr);
    while (n > 0 && c->message.ptr[n - 1] == '\n')
        n--;
    c->message.len = n;
    c->message.ptr[n] = '\0';
    strbuf_consume(&c->message, strspn(c->message.ptr, "\n"));
    return LINE_GOT_TEXT;
}

static enum line_got read_message(struct chat *c)
{
    struct str line = {"", 0};
    strbuf_reset(&c->message);
    enum line_got got = line_input_read(&c->in, "> ", &line);
    if (got != LINE_GOT_TEXT)
        return got;
    if (str_starts(line, STR(FENCE)) && !memchr(line.ptr, '\0', line.len))
        return read_block(c, line);
    strbuf_append_str(&c->message, line);
    return got;
}

/* Handles one message. Returns false at the end of the input. */
static bool take_message(struct chat *c)
{
    enum line_got got = read_message(c);
    struct str text = strbuf_str(&c->message);
    if (got == LINE_GOT_ABORT || (got == LINE_GOT_TEXT && text.len == 0))
        return true;
    if (got == LINE_GOT_END)
        return false;
    if (str_utf8_valid(text) != text.len || memchr(text.ptr, '\0', text.len)) {
        fputs("cox chat: the line was not sent: it is not UTF-8 text\n", stderr);
        c->ok = c->ok && c->in.is_terminal;
        return true;
    }
    if (c->in.is_terminal) {
        line_input_remember(&c->in, text);
        if (text.ptr[0] == '/' && text.ptr[1] != '/')
            return command(c, text.ptr + 1);
        if (text.ptr[0] == '/')
            text.ptr++;
    }
    c->ok = (say(c, text.ptr) || c->in.is_terminal) && c->ok;
    return true;
}

static int converse(struct chat *c)
{
    struct error err = {0};
    if (chat_turn_find(&c->turn, &err) != STATUS_OK) {
        fprintf(stderr, "cox chat: %s\n", err.text);
        if (err.status == STATUS_IO)
            local_cluster_hint("chat", "url", c->o.gateway.url);
        return EXIT_FAILED;
    }
    if (c->turn.demo && c->turn.demo->is_base && !c->o.completion)
        fprintf(
            stderr,
            "cox chat: %s is a base model: it continues text and was not trained to answer. Use "
            "--completion, or serve a model that was trained to answer: `cox up demo`.\n",
            c->turn.demo->name);
    chat_turn_catch_interrupts();
    if (!c->o.completion)
        set_system(c, c->o.system);
    if (c->o.quick)
        return say(c, c->o.quick) ? EXIT_FINE : EXIT_FAILED;
    line_input_open(&c->in, c->o.history, getenv("XDG_STATE_HOME"), getenv("HOME"));
    const char *no_color = getenv("NO_COLOR");
    c->is_colored = c->in.is_terminal && !(no_color && no_color[0]);
    c->turn.is_dim = c->is_colored && isatty(STDOUT_FILENO) == 1;
    if (c->in.is_terminal)
        fprintf(stderr, "%s at %s. Ctrl-C stops an answer, Ctrl-D ends, /help.\n", c->turn.model,
                c->turn.url);
    c->ok = true;
    while (take_message(c))
        ;
    line_input_close(&c->in);
    return c->ok ? EXIT_FINE : EXIT_FAILED;
}

int cmd_chat(int argc, char **argv)
{
    struct chat c = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox chat [OPTION...]", .specs = chat_specs, .n_specs = chat_n_specs};
    if (command_parse(&line, argc, argv, &c.o, &res, &code)) {
        c.messages = json_array();
        strbuf_init(&c.message, 0);
        chat_turn_init(&c.turn, &c.o, "chat");
        code = converse(&c);
        chat_turn_fini(&c.turn);
        strbuf_fini(&c.message);
        json_decref(c.messages);
    }
    config_fini(&res);
    return code;
}
