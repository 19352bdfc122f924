/* Lists the tool parsers by vLLM's names. Families that differ only in their markers are rows
 * here. All other families have files of their own.
 * `find_parsers` of model.c calls `tool_parser_find` at the start. Every table is constant, so
 * any thread may use a parser.
 * A row gives a name, the markers that detokenizing must keep, and its family's constants
 * (tool_marked.h, tool_tagged.h). */
#include <string.h>

#include "gateway/parsers/harmony.h"
#include "gateway/parsers/inkling.h"
#include "gateway/parsers/muse.h"
#include "gateway/parsers/tool_elements.h"
#include "gateway/parsers/tool_marked.h"
#include "gateway/parsers/tool_parsers.h"
#include "gateway/parsers/tool_tagged.h"

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

#define TEXT(...)     .text = {.marks = __VA_ARGS__}
#define STRIPPED(...) .text = {.marks = __VA_ARGS__, .strips = true}
#define LAST(...)     .text = {.marks = __VA_ARGS__, .last = true}

#define TAGGED(n, ...)                                                                             \
    {                                                                                              \
        .name = n, .feed = tool_tagged_feed, __VA_ARGS__                                           \
    }
#define TAGS(...)                                                                                  \
    .family = &(const struct tagged_family)                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#define QWEN_XML(n, open, shut, strip_it, trim_it)                                                 \
    TAGGED(n, .markers = MARKS(open, shut),                                                        \
           TAGS(.text = {.marks = MARKS(open, "<function="), .strips = strip_it},                  \
                .name_mark = "<function=", .name_end = ">",                                        \
                .inner = MARKS("<parameter=", "</function>", shut), .key_end = ">",                \
                .value_end = "</parameter>", .close = shut, .trim = trim_it,                       \
                .may_lack_end = true))
#define GLM(n, strip_it)                                                                           \
    TAGGED(n,                                                                                      \
           .markers = MARKS("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",              \
                            "<arg_value>", "</arg_value>"),                                        \
           TAGS(.text = {.marks = MARKS("<tool_call>"), .strips = strip_it},                       \
                .inner = MARKS("<arg_key>", "</tool_call>"), .key_end = "</arg_key>",              \
                .value = "<arg_value>", .value_end = "</arg_value>", .close = "</tool_call>"))
#define HUNYUAN(n, sep)                                                                            \
    TAGGED(n,                                                                                      \
           .markers =                                                                              \
               MARKS("<tool_calls>", "</tool_calls>", "<tool_call>", "</tool_call>", "<tool_sep>", \
                     "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),                    \
           TAGS(LAST(MARKS("<tool_calls>")), .name_mark = "<tool_call>", .name_end = sep,          \
                .inner = MARKS("<arg_key>", "</tool_call>", "</tool_calls>"),                      \
                .key_end = "</arg_key>", .value = "<arg_value>", .value_end = "</arg_value>",      \
                .close = "</tool_calls>"))
#define DSML(n, tag, calls, ...)                                                                   \
    TAGGED(                                                                                        \
        n, .markers = MARKS("｜DSML｜"),                                                           \
        TAGS(LAST(MARKS("<" tag calls ">", "<" tag "invoke name=\"", __VA_ARGS__)),                \
             .name_mark = "<" tag "invoke name=\"", .name_end = "\">",                             \
             .inner = MARKS("<" tag "parameter name=\"", "</" tag "invoke>", "</" tag calls ">"),  \
             .key_end = "\"", .value = ">", .value_end = "</" tag "parameter>",                    \
             .close = "</" tag calls ">", .may_lack_end = true, .says = "\"true\"",                \
             .unwraps = true))
#define INVOKES(n, open, shut, ...)                                                                \
    TAGGED(n, .markers = MARKS(open, shut),                                                        \
           TAGS(.text = {.marks = MARKS(open, "<invoke name=\""), .strips = true},                 \
                .name_mark = "<invoke name=\"", .name_end = "\">",                                 \
                .inner = MARKS("<parameter name=\"", "</invoke>", shut), .key_end = "\">",         \
                .value_end = "</parameter>", .close = shut, __VA_ARGS__))

#define DEEPSEEK_WRAPS "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
#define DEEPSEEK_OPEN  "<｜tool▁call▁begin｜>"
#define DEEPSEEK_SEP   "<｜tool▁sep｜>"
#define DEEPSEEK_CLOSE "<｜tool▁call▁end｜>"
#define DEEPSEEK_MARKS MARKS(DEEPSEEK_OPEN, DEEPSEEK_SEP, DEEPSEEK_CLOSE, DEEPSEEK_WRAPS)
#define KIMI_WRAPS     "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
#define KIMI_MARKS                                                                                 \
    MARKS("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", KIMI_WRAPS)
#define COHERE_MARKS                                                                               \
    MARKS("<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",          \
          "<|START_TEXT|>", "<|END_TEXT|>")
#define COHERE_TEXT                                                                                \
    .text = {                                                                                      \
        .marks = MARKS("<|START_ACTION|>"),                                                        \
        .drop = MARKS("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"), \
        .last = true}
#define PLAMO_MARKS                                                                                \
    MARKS(PLAMO("begin_tool_requests"), PLAMO("end_tool_requests"), PLAMO("begin_tool_request"),   \
          PLAMO("end_tool_request"), PLAMO("begin_tool_name"), PLAMO("end_tool_name"),             \
          PLAMO("begin_tool_arguments"), PLAMO("end_tool_arguments"), "<|plamo:constrain|>",       \
          "<|plamo:msg|>", "<|plamo:begin_", "<|plamo:end_", ":plamo|>", "<|plamo:tag|>")
#define STEP3_MARKS                                                                                \
    MARKS("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>",               \
          "<｜tool_call_end｜>", "<｜tool_sep｜>")
#define IFM_MARKS                                                                                  \
    MARKS(IFM("tool_calls"), IFM_("tool_calls"), IFM("tool_call"), IFM_("tool_call"),              \
          IFM("arg_key"), IFM_("arg_key"), IFM("arg_type"), IFM_("arg_type"), IFM("arg_value"),    \
          IFM_("arg_value"))
#define INTERNLM_OPEN "<|action_start|><|plugin|>"

#define PLAMO(x) "<|plamo:" x ":plamo|>"
#define XTML(x)  "<|open|>" x "<|sep|>"
#define XTML_(x) "<|close|>" x "<|sep|>"
#define IFM(x)   "<ifm|" x ">"
#define IFM_(x)  "</ifm|" x ">"

static const char *const no_marks[] = {NULL};

/* The families of `between` write a call, or a list of calls, between two markers. */
static const struct answer_parser between[] = {
    MARKED(
        "hermes", .markers = MARKS("<tool_call>", "</tool_call>"),
        FAMILY(TEXT(MARKS("<tool_call>")), .n_opens = 1, .close = "</tool_call>", .follows = true)),
    MARKED(
        "qwen3_json", .markers = MARKS("<tool_call>", "</tool_call>"),
        FAMILY(TEXT(MARKS("<tool_call>")), .n_opens = 1, .close = "</tool_call>", .follows = true)),
    MARKED(
        "granite4", .markers = MARKS("<tool_call>", "</tool_call>"),
        FAMILY(TEXT(MARKS("<tool_call>")), .n_opens = 1, .close = "</tool_call>", .follows = true)),
    MARKED("ernie45", .markers = MARKS("<tool_call>", "</tool_call>"),
           FAMILY(STRIPPED(MARKS("<tool_call>")), .n_opens = 1, .close = "</tool_call>",
                  .follows = true)),
    MARKED("longcat", .markers = MARKS("<longcat_tool_call>", "</longcat_tool_call>"),
           FAMILY(TEXT(MARKS("<longcat_tool_call>")), .n_opens = 1, .close = "</longcat_tool_call>",
                  .follows = true)),
    MARKED("jamba", .markers = MARKS("<tool_calls>", "</tool_calls>"),
           FAMILY(TEXT(MARKS("<tool_calls>")), .n_opens = 1, .close = "</tool_calls>",
                  .follows = true)),
    MARKED("minimax", .markers = MARKS("<tool_calls>", "</tool_calls>"),
           FAMILY(TEXT(MARKS("<tool_calls>")), .n_opens = 1, .close = "</tool_calls>",
                  .follows = true)),
    MARKED("hunyuan_a13b", .markers = MARKS("<tool_calls>", "</tool_calls>"),
           FAMILY(TEXT(MARKS("<tool_calls>")), .n_opens = 1, .close = "</tool_calls>",
                  .follows = true)),
    MARKED("internlm", .markers = MARKS("<|action_start|>", "<|plugin|>", "<|action_end|>"),
           FAMILY(TEXT(MARKS(INTERNLM_OPEN)), .n_opens = 1, .close = "<|action_end|>",
                  .follows = true)),
    MARKED("apertus", .markers = MARKS("<|tools_prefix|>", "<|tools_suffix|>"),
           FAMILY(STRIPPED(MARKS("<|tools_prefix|>")), .n_opens = 1, .close = "<|tools_suffix|>",
                  .follows = true, .keyed = true)),
    MARKED("cohere_command3", .markers = COHERE_MARKS,
           FAMILY(COHERE_TEXT, .n_opens = 1, .close = "<|END_ACTION|>", .follows = true,
                  .name_key = "tool_name")),
    MARKED("cohere_command4", .markers = COHERE_MARKS,
           FAMILY(COHERE_TEXT, .n_opens = 1, .close = "<|END_ACTION|>", .follows = true,
                  .name_key = "tool_name")),
    MARKED("xlam", .markers = MARKS("[TOOL_CALLS]", "<tool_call>", "</tool_call>"),
           FAMILY(STRIPPED(MARKS("[TOOL_CALLS]", "<tool_call>", "```", "</think>")), .n_opens = 4,
                  .closes = MARKS("</tool_call>", "```"), .kept = "</think>", .word = "json",
                  .bare = '[')),
};

/* The families of `open_ended` write a marker before the call and no marker after it. */
static const struct answer_parser open_ended[] = {
    MARKED("granite", .markers = MARKS("<|tool_call|>", "<tool_call>"),
           FAMILY(STRIPPED(MARKS("<|tool_call|>", "<tool_call>")), .n_opens = 2, .bare = '[')),
    MARKED("granite-20b-fc", .markers = MARKS("<function_call>"),
           FAMILY(TEXT(MARKS("<function_call>")), .n_opens = 1)),
    MARKED("gigachat3", .markers = MARKS("<|role_sep|>", "<|function_call|>", "<|message_sep|>"),
           FAMILY(TEXT(MARKS("function call<|role_sep|>", "<|function_call|>", "<|message_sep|>")),
                  .n_opens = 2)),
    MARKED("phi4_mini_json", .markers = MARKS("functools"),
           FAMILY(TEXT(MARKS("functools")), .n_opens = 1)),
    MARKED("llama3_json", .markers = MARKS("<|python_tag|>"),
           FAMILY(TEXT(MARKS("<|python_tag|>")), .n_opens = 1, .bare = '{', .anywhere = true,
                  .between = ';')),
    MARKED("llama4_json", .markers = MARKS("<|python_tag|>"),
           FAMILY(TEXT(MARKS("<|python_tag|>")), .n_opens = 1, .bare = '{', .anywhere = true,
                  .between = ';')),
};

/* The families of `named` write the name before the arguments. */
static const struct answer_parser named[] = {
    MARKED("mistral", .n_id = 9, .markers = MARKS("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
           FAMILY(TEXT(MARKS("[TOOL_CALLS]")), .n_opens = 1, .named = true, .sep = "[")),
    MARKED("deepseek_v3", .markers = DEEPSEEK_MARKS,
           FAMILY(TEXT(MARKS(DEEPSEEK_OPEN, DEEPSEEK_WRAPS)), .n_opens = 1, .close = DEEPSEEK_CLOSE,
                  .named = true, .prefix = "function" DEEPSEEK_SEP, .sep = "```")),
    MARKED("deepseek_v31", .markers = DEEPSEEK_MARKS,
           FAMILY(LAST(MARKS(DEEPSEEK_OPEN, DEEPSEEK_WRAPS)), .n_opens = 1, .close = DEEPSEEK_CLOSE,
                  .named = true, .sep = DEEPSEEK_SEP)),
    MARKED("kimi_k2", .markers = KIMI_MARKS,
           FAMILY(LAST(MARKS("<|tool_call_begin|>", KIMI_WRAPS)), .n_opens = 1,
                  .close = "<|tool_call_end|>", .named = true, .prefix = "functions.", .sep = ":",
                  .own_id = true)),
    MARKED("plamo3", .markers = PLAMO_MARKS,
           FAMILY(LAST(MARKS(PLAMO("begin_tool_name"), PLAMO("begin_tool_requests"),
                             PLAMO("begin_tool_request"), PLAMO("end_tool_requests"),
                             "<|plamo:tag|>")),
                  .n_opens = 1, .close = PLAMO("end_tool_request"), .named = true,
                  .sep = PLAMO("end_tool_name"))),
};

/* The families of `literals` write arguments in literal syntax. */
static const struct answer_parser literals[] = {
    MARKED("pythonic", .markers = MARKS("<|python_tag|>"),
           FAMILY(TEXT(MARKS("<|python_tag|>")), .n_opens = 1, .bare = '[', .named = true,
                  .bracket = '(')),
    MARKED("llama4_pythonic", .markers = MARKS("<|python_start|>", "<|python_end|>"),
           FAMILY(TEXT(MARKS("<|python_start|>", "<|python_end|>")), .n_opens = 1, .bare = '[',
                  .named = true, .bracket = '(')),
    MARKED("olmo3", .markers = MARKS("<function_calls>", "</function_calls>"),
           FAMILY(TEXT(MARKS("<function_calls>")), .n_opens = 1, .close = "</function_calls>",
                  .follows = true, .named = true, .bracket = '(')),
    MARKED("lfm2", .markers = MARKS("<|tool_call_start|>", "<|tool_call_end|>"),
           FAMILY(STRIPPED(MARKS("<|tool_call_start|>")), .n_opens = 1,
                  .close = "<|tool_call_end|>", .named = true, .bracket = '(')),
    MARKED("gemma4", .markers = MARKS("<|tool_call>", "<tool_call|>", "<|\"|>"),
           FAMILY(STRIPPED(MARKS("<|tool_call>")), .n_opens = 1, .close = "<tool_call|>",
                  .named = true, .prefix = "call:", .bracket = '{', .quote = "<|\"|>")),
    MARKED("functiongemma",
           .markers = MARKS("<start_function_call>", "<end_function_call>", "<escape>"),
           FAMILY(STRIPPED(MARKS("<start_function_call>")), .n_opens = 1,
                  .close = "<end_function_call>", .named = true, .prefix = "call:", .bracket = '{',
                  .quote = "<escape>")),
};

/* The families of `tagged` write each argument in tags of its own. */
static const struct answer_parser tagged[] = {
    QWEN_XML("qwen3_coder", "<tool_call>", "</tool_call>", true, true),
    QWEN_XML("qwen3_xml", "<tool_call>", "</tool_call>", true, true),
    QWEN_XML("seed_oss", "<seed:tool_call>", "</seed:tool_call>", true, true),
    QWEN_XML("step3p5", "<tool_call>", "</tool_call>", true, true),
    QWEN_XML("step5", "<tool_call>", "</tool_call>", false, true),
    QWEN_XML("mimo", "<tool_call>", "</tool_call>", true, false),
    GLM("glm45", true),
    GLM("glm47", true),
    GLM("ling3", true),
    GLM("poolside_v1", false),
    HUNYUAN("hy_v3", "<tool_sep>"),
    HUNYUAN("hy_v4", NULL),
    DSML("deepseek_v32", "｜DSML｜", "function_calls", NULL),
    DSML("deepseek_v4", "｜DSML｜", "tool_calls", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"),
    DSML("deepseek_v41", "｜DSML｜ ", "calls", NULL),
    INVOKES("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>", .trim = true,
            .may_lack_end = true),
    INVOKES("dots", "<dots_function_call>", "</dots_function_call>", .strips = true),
    TAGGED("minicpm5", .markers = MARKS("<function", "</function>", "<param", "</param>"),
           TAGS(STRIPPED(MARKS("<function name=\"")), .name_end = "\">",
                .inner = MARKS("<param name=\"", "</function>"), .key_end = "\">",
                .value_end = "</param>", .close = "</function>", .cdata = true)),
    TAGGED("step3", .markers = STEP3_MARKS,
           TAGS(STRIPPED(MARKS("<｜tool_calls_begin｜>", "<steptml:invoke name=\"")),
                .name_mark = "<steptml:invoke name=\"", .seeks = true, .name_end = "\">",
                .inner = MARKS("<steptml:parameter name=\"", "</steptml:invoke>"), .key_end = "\">",
                .value_end = "</steptml:parameter>", .close = "<｜tool_calls_end｜>",
                .strips = true)),
    TAGGED("kimi_k3", .markers = MARKS("<|open|>", "<|close|>", "<|sep|>"),
           TAGS(.text = {.marks = MARKS(XTML("tools"), "<|open|>call tool=\""),
                         .drop = MARKS(XTML("response"), XTML_("response"), XTML_("message")),
                         .last = true},
                .name_mark = "<|open|>call tool=\"", .name_close = "\"", .name_end = "<|sep|>",
                .inner = MARKS("<|open|>argument key=\"", XTML_("call"), XTML_("tools")),
                .key_end = "\"", .value = "<|sep|>", .value_end = XTML_("argument"),
                .close = XTML_("tools"), .says = "\"string\"", .says_always = true,
                .says_else = true)),
    TAGGED("k2_horizon", .markers = IFM_MARKS,
           TAGS(TEXT(MARKS(IFM("tool_calls"))), .name_mark = IFM("tool_call"),
                .inner = MARKS(IFM("arg_key"), IFM_("tool_call"), IFM_("tool_calls")),
                .key_end = IFM_("arg_key"), .value = IFM("arg_value"),
                .value_end = IFM_("arg_value"), .close = IFM_("tool_calls"),
                .says = IFM("arg_type") "string" IFM_("arg_type"), .says_always = true,
                .says_else = true)),
};

const struct answer_parser tool_parser_list =
    MARKED("list", .markers = no_marks, FAMILY(TEXT(no_marks), .bare = '[', .is_ours = true));

static const struct answer_parser *const others[] = {
    &tool_parser_harmony, &tool_parser_minimax_m3, &tool_parser_inkling,
    &tool_parser_muse,    &tool_parser_muse_spark, &tool_parser_muse_glimmer};

#define LIST(x)                                                                                    \
    {                                                                                              \
        x, sizeof(x) / sizeof *(x)                                                                 \
    }
static const struct {
    const struct answer_parser *rows;
    size_t n;
} lists[] = {LIST(between), LIST(open_ended), LIST(named), LIST(literals), LIST(tagged)};
enum { N_LISTS = sizeof lists / sizeof *lists, N_OTHERS = sizeof others / sizeof *others };

static const struct answer_parser *at(size_t i)
{
    for (size_t k = 0; k < N_LISTS; k++) {
        if (i < lists[k].n)
            return &lists[k].rows[i];
        i -= lists[k].n;
    }
    return i < N_OTHERS ? others[i] : NULL;
}

const struct answer_parser *tool_parser_find(const char *name)
{
    const struct answer_parser *p;
    for (size_t i = 0; (p = at(i)); i++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

void tool_parser_names(struct strbuf *out)
{
    const struct answer_parser *p;
    for (size_t i = 0; (p = at(i)); i++)
        strbuf_printf(out, i ? ", %s" : "%s", p->name);
}
