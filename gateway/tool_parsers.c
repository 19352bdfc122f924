/* The tool parsers by name, as vLLM has them. Families that differ in their markers alone are rows
 * here; the others have files of their own. */
#include <string.h>

#include "gateway/answer_parser.h"
#include "gateway/harmony.h"
#include "gateway/tool_marked.h"
#include "gateway/tool_tagged.h"

#define MARKS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define MARKED(n, ...)                                                                             \
    {                                                                                              \
        .name = n, .feed = tool_marked_feed, __VA_ARGS__                                           \
    }
#define FAMILY(...)                                                                                \
    .family = &(const struct marked_family)                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#define QWEN_XML(n, open, shut)                                                                    \
    {                                                                                              \
        .name = n, .markers = MARKS(open, shut), .feed = tool_tagged_feed,                         \
        .family = &(const struct tagged_family)                                                    \
        {                                                                                          \
            .marks = MARKS(open, "<function="), .name_end = ">",                                   \
            .inner = MARKS("<parameter=", "</function>", shut), .key_end = ">",                    \
            .value_end = "</parameter>", .close = shut, .trim = true, .may_lack_end = true         \
        }                                                                                          \
    }
#define GLM(n)                                                                                     \
    {                                                                                              \
        .name = n,                                                                                 \
        .markers = MARKS("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",  \
                         "</arg_value>"),                                                          \
        .feed = tool_tagged_feed, .family = &(const struct tagged_family)                          \
        {                                                                                          \
            .marks = MARKS("<tool_call>"), .inner = MARKS("<arg_key>", "</tool_call>"),            \
            .key_end = "</arg_key>", .value = "<arg_value>", .value_end = "</arg_value>",          \
            .close = "</tool_call>"                                                                \
        }                                                                                          \
    }

#define DEEPSEEK_WRAPS "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
#define DEEPSEEK_OPEN  "<｜tool▁call▁begin｜>"
#define DEEPSEEK_SEP   "<｜tool▁sep｜>"
#define DEEPSEEK_CLOSE "<｜tool▁call▁end｜>"
#define DEEPSEEK_MARKS MARKS(DEEPSEEK_OPEN, DEEPSEEK_SEP, DEEPSEEK_CLOSE, DEEPSEEK_WRAPS)
#define KIMI_WRAPS     "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
#define KIMI_MARKS                                                                                 \
    MARKS("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", KIMI_WRAPS)
#define INTERNLM_OPEN "<|action_start|><|plugin|>"

static const char *const no_marks[] = {NULL};

static const struct answer_parser rows[] = {
    /* a call, or a list of calls, between two markers */
    MARKED("hermes", .markers = MARKS("<tool_call>", "</tool_call>"),
           FAMILY(.marks = MARKS("<tool_call>"), .n_opens = 1, .close = "</tool_call>")),
    MARKED("ernie45", .markers = MARKS("<tool_call>", "</tool_call>"),
           FAMILY(.marks = MARKS("<tool_call>"), .n_opens = 1, .close = "</tool_call>")),
    MARKED("longcat", .markers = MARKS("<longcat_tool_call>", "</longcat_tool_call>"),
           FAMILY(.marks = MARKS("<longcat_tool_call>"), .n_opens = 1,
                  .close = "</longcat_tool_call>")),
    MARKED("jamba", .markers = MARKS("<tool_calls>", "</tool_calls>"),
           FAMILY(.marks = MARKS("<tool_calls>"), .n_opens = 1, .close = "</tool_calls>")),
    MARKED("minimax", .markers = MARKS("<tool_calls>", "</tool_calls>"),
           FAMILY(.marks = MARKS("<tool_calls>"), .n_opens = 1, .close = "</tool_calls>",
                  .follows = true)),
    MARKED("xlam", .markers = MARKS("[TOOL_CALLS]", "<tool_call>", "</tool_call>"),
           FAMILY(.marks = MARKS("[TOOL_CALLS]", "<tool_call>", "</tool_call>"), .n_opens = 2,
                  .bare = '[')),
    MARKED("hunyuan_a13b", .markers = MARKS("<tool_calls>", "</tool_calls>"),
           FAMILY(.marks = MARKS("<tool_calls>"), .n_opens = 1, .close = "</tool_calls>")),
    MARKED("internlm", .markers = MARKS("<|action_start|>", "<|plugin|>", "<|action_end|>"),
           FAMILY(.marks = MARKS(INTERNLM_OPEN), .n_opens = 1, .close = "<|action_end|>")),
    /* nothing behind it */
    MARKED("granite", .markers = MARKS("<|tool_call|>", "<tool_call>"),
           FAMILY(.marks = MARKS("<|tool_call|>", "<tool_call>"), .n_opens = 2, .bare = '[')),
    MARKED("granite-20b-fc", .markers = MARKS("<function_call>"),
           FAMILY(.marks = MARKS("<function_call>"), .n_opens = 1)),
    MARKED("gigachat3", .markers = MARKS("<|role_sep|>"),
           FAMILY(.marks = MARKS("function call<|role_sep|>"), .n_opens = 1)),
    MARKED("phi4_mini_json", .markers = MARKS("functools"),
           FAMILY(.marks = MARKS("functools"), .n_opens = 1)),
    MARKED("llama3_json", .markers = MARKS("<|python_tag|>"),
           FAMILY(.marks = MARKS("<|python_tag|>"), .n_opens = 1, .bare = '{', .between = ';')),
    MARKED("llama4_json", .markers = MARKS("<|python_tag|>"),
           FAMILY(.marks = MARKS("<|python_tag|>"), .n_opens = 1, .bare = '{', .between = ';')),
    /* the name before the arguments */
    MARKED("mistral", .n_id = 9, .markers = MARKS("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
           FAMILY(.marks = MARKS("[TOOL_CALLS]"), .n_opens = 1, .named = true, .sep = "[")),
    MARKED("deepseek_v3", .markers = DEEPSEEK_MARKS,
           FAMILY(.marks = MARKS(DEEPSEEK_OPEN, DEEPSEEK_WRAPS), .n_opens = 1,
                  .close = DEEPSEEK_CLOSE, .named = true, .prefix = "function" DEEPSEEK_SEP,
                  .sep = "```")),
    MARKED("deepseek_v31", .markers = DEEPSEEK_MARKS,
           FAMILY(.marks = MARKS(DEEPSEEK_OPEN, DEEPSEEK_WRAPS), .n_opens = 1,
                  .close = DEEPSEEK_CLOSE, .named = true, .sep = DEEPSEEK_SEP)),
    MARKED("kimi_k2", .markers = KIMI_MARKS,
           FAMILY(.marks = MARKS("<|tool_call_begin|>", KIMI_WRAPS), .n_opens = 1,
                  .close = "<|tool_call_end|>", .named = true, .prefix = "functions.", .sep = ":",
                  .own_id = true)),
    /* literals */
    MARKED("pythonic", .markers = MARKS("<|python_tag|>"),
           FAMILY(.marks = MARKS("<|python_tag|>"), .n_opens = 1, .bare = '[', .named = true,
                  .bracket = '(')),
    MARKED("llama4_pythonic", .markers = MARKS("<|python_start|>", "<|python_end|>"),
           FAMILY(.marks = MARKS("<|python_start|>", "<|python_end|>"), .n_opens = 1, .bare = '[',
                  .named = true, .bracket = '(')),
    MARKED("olmo3", .markers = MARKS("<function_calls>", "</function_calls>"),
           FAMILY(.marks = MARKS("<function_calls>"), .n_opens = 1, .close = "</function_calls>",
                  .follows = true, .named = true, .bracket = '(')),
    MARKED("lfm2", .markers = MARKS("<|tool_call_start|>", "<|tool_call_end|>"),
           FAMILY(.marks = MARKS("<|tool_call_start|>"), .n_opens = 1, .close = "<|tool_call_end|>",
                  .named = true, .bracket = '(')),
    MARKED("gemma4", .markers = MARKS("<|tool_call>", "<tool_call|>", "<|\"|>"),
           FAMILY(.marks = MARKS("<|tool_call>"), .n_opens = 1, .close = "<tool_call|>",
                  .named = true, .prefix = "call:", .bracket = '{', .quote = "<|\"|>")),
    MARKED("functiongemma",
           .markers = MARKS("<start_function_call>", "<end_function_call>", "<escape>"),
           FAMILY(.marks = MARKS("<start_function_call>"), .n_opens = 1,
                  .close = "<end_function_call>", .named = true, .prefix = "call:", .bracket = '{',
                  .quote = "<escape>")),
    /* arguments one by one */
    QWEN_XML("qwen3_coder", "<tool_call>", "</tool_call>"),
    QWEN_XML("qwen3_xml", "<tool_call>", "</tool_call>"),
    QWEN_XML("seed_oss", "<seed:tool_call>", "</seed:tool_call>"),
    QWEN_XML("step3p5", "<tool_call>", "</tool_call>"),
    GLM("glm45"),
    GLM("glm47"),
    {.name = "deepseek_v32",
     .markers = MARKS("｜DSML｜"),
     .feed = tool_tagged_feed,
     .family =
         &(const struct tagged_family){
             .marks = MARKS("<｜DSML｜function_calls>", "<｜DSML｜invoke name=\""),
             .name_end = "\">",
             .inner = MARKS("<｜DSML｜parameter name=\"", "</｜DSML｜invoke>",
                            "</｜DSML｜function_calls>"),
             .key_end = "\" string=\"",
             .value = "\">",
             .value_end = "</｜DSML｜parameter>",
             .close = "</｜DSML｜function_calls>",
             .says_string = true,
             .unwraps = true}},
    {.name = "minimax_m2",
     .markers = MARKS("<minimax:tool_call>", "</minimax:tool_call>"),
     .feed = tool_tagged_feed,
     .family =
         &(const struct tagged_family){
             .marks = MARKS("<minimax:tool_call>", "<invoke name=\""),
             .name_end = "\">",
             .inner = MARKS("<parameter name=\"", "</invoke>", "</minimax:tool_call>"),
             .key_end = "\">",
             .value_end = "</parameter>",
             .close = "</minimax:tool_call>",
             .trim = true}},
};

const struct answer_parser tool_parser_list =
    MARKED("list", .markers = no_marks, FAMILY(.marks = no_marks, .bare = '['));

static const struct answer_parser *const others[] = {&tool_parser_harmony};
enum { N_ROWS = sizeof rows / sizeof *rows, N_OTHERS = sizeof others / sizeof *others };

static const struct answer_parser *at(size_t i)
{
    return i < N_ROWS ? &rows[i] : others[i - N_ROWS];
}

const struct answer_parser *tool_parser_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS + N_OTHERS; i++)
        if (strcmp(at(i)->name, name) == 0)
            return at(i);
    return NULL;
}

void tool_parser_names(struct strbuf *out)
{
    for (size_t i = 0; i < N_ROWS + N_OTHERS; i++)
        strbuf_printf(out, i ? ", %s" : "%s", at(i)->name);
}
