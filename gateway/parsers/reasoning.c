/* Parses reasoning between two markers, most often <think>…</think>. Templates of newer models
 * end the prompt with the opening marker, which begins the reasoning. A prompt that ends with
 * the closing marker has turned reasoning off. In a continued message the last of the two
 * markers decides. Otherwise the text decides: it is reasoning when it begins with the marker,
 * or when the model always reasons first.
 * `parser_run` calls the step function with all unconsumed text. Parts are emitted through
 * answer.h. All constants of a family are in `struct think_family`. The state of a choice is the
 * step alone. */
#include <string.h>

#include "gateway/answer/answer.h"
#include "gateway/parsers/harmony.h"
#include "gateway/parsers/inkling.h"
#include "gateway/parsers/muse.h"
#include "gateway/parsers/reasoning.h"

/* `STEP_THROUGH` is the step after the first marker of a call. */
enum { STEP_START, STEP_INSIDE, STEP_PAST, STEP_THROUGH };
/* `MAX_BLANKS` is the longest white space that is held back before a closing marker. `MAX_BLANK`
 * is the longest white space that is held back at the beginning. */
enum { MAX_BLANKS = 64, MAX_BLANK = 512 };

struct think_family {
    const char *const *open, *const *close; /* alternative markers, NULL-terminated */
    /* closing marker that begins a call, which ends the reasoning and is kept; or NULL */
    const char *call;
    /* marker that ends a call; NULL = nothing is dropped after a call begins */
    const char *call_end;
    const char *const *text_close; /* `close` without the marker `call`, when there is a `call` */
    const char *const *drop;       /* markers removed from the content; NULL = none */
    bool strips;                   /* true = drop white space before the closing marker */
    bool always; /* true = text without an opening marker is reasoning until the closing marker */
};

static bool ends_with(struct str s, const char *const *ends)
{
    for (; *ends; ends++) {
        size_t n = strlen(*ends);
        if (s.len >= n && memcmp(s.ptr + s.len - n, *ends, n) == 0)
            return true;
    }
    return false;
}

/* Returns the step after a text. The last marker in the text decides. Without a marker there is
 * no reasoning. */
static uint32_t step_after(const struct think_family *f, struct str text)
{
    for (; text.len > 0; text.len--) {
        if (ends_with(text, f->open))
            return STEP_INSIDE;
        if (ends_with(text, f->close))
            break;
    }
    return STEP_PAST;
}

static void think_init(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                       struct str continued)
{
    const struct think_family *f = p->family;
    if (continued.len > 0) {
        s->step = step_after(f, continued);
        return;
    }
    while (prompt.len > 0 && strchr(" \t\r\n", prompt.ptr[prompt.len - 1]))
        prompt.len--;
    if (ends_with(prompt, f->open))
        s->step = STEP_INSIDE;
    else if (ends_with(prompt, f->close))
        s->step = STEP_PAST;
}

static bool think_marks(const struct answer_parser *p, struct str prompt, struct str continued,
                        struct reasoning_marks *out)
{
    const struct think_family *f = p->family;
    struct parser_state s = {0};
    think_init(p, &s, prompt, continued);
    *out = (struct reasoning_marks){.open = f->open,
                                    .close = f->text_close ? f->text_close : f->close,
                                    .begun = s.step == STEP_INSIDE || f->always};
    return s.step != STEP_PAST;
}

/* Handles the start of an answer. White space before the opening marker is dropped. */
static size_t feed_start(const struct think_family *f, struct parser_state *s, struct str text,
                         bool end)
{
    size_t at = json_skip_space(text, 0), i_open = SIZE_MAX;
    struct str rest = {text.ptr + at, text.len - at};
    size_t n = at <= MAX_BLANK ? parser_find_first(rest, f->open, &i_open) : SIZE_MAX;
    if (rest.len == 0 && at <= MAX_BLANK && !end)
        return 0;
    if (n == 0 && i_open != SIZE_MAX) {
        s->step = STEP_INSIDE;
        return at + strlen(f->open[i_open]);
    }
    if (n == 0 && rest.len > 0 && !end)
        return 0;
    s->step = f->always ? STEP_INSIDE : STEP_PAST;
    return 0;
}

static size_t blanks_behind(struct str s)
{
    size_t n = 0;
    while (n < s.len && n < MAX_BLANKS &&
           json_skip_space((struct str){s.ptr + s.len - n - 1, 1}, 0) == 1)
        n++;
    return n;
}

static size_t feed_inside(const struct think_family *f, struct parser_state *s, struct str text,
                          bool end, struct answer *a)
{
    size_t i_close, n = parser_find_first(text, f->close, &i_close);
    const bool found = i_close != SIZE_MAX;
    if (end && !found)
        n = text.len;
    const size_t n_blank = f->strips ? blanks_behind((struct str){text.ptr, n}) : 0;
    answer_reasoning(a, (struct str){text.ptr, n - n_blank});
    if (!found)
        return end ? n : n - n_blank;
    s->step = STEP_PAST;
    return f->call && strcmp(f->close[i_close], f->call) == 0 ? n : n + strlen(f->close[i_close]);
}

/* Handles text after the reasoning. Markers in `drop` are removed, but not within a call. From
 * the start marker of a call on, all text is emitted unchanged. */
static size_t feed_past(const struct think_family *f, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const char *const calls[] = {f->call, NULL};
    size_t i_drop = SIZE_MAX, i_call, n = parser_find_first(text, f->drop, &i_drop);
    const size_t at = parser_find_first(text, calls, &i_call);
    if (at < n) {
        i_drop = SIZE_MAX;
        n = at;
        s->step = i_call == 0 ? STEP_THROUGH : STEP_PAST;
    }
    if (end && i_drop == SIZE_MAX)
        n = text.len;
    answer_past_reasoning(a, (struct str){text.ptr, n});
    return i_drop == SIZE_MAX ? n : n + strlen(f->drop[i_drop]);
}

/* Emits the text of a call unchanged, up to the call's end. */
static size_t feed_through(const struct think_family *f, struct parser_state *s, struct str text,
                           bool end, struct answer *a)
{
    const char *const ends[] = {s->step == STEP_THROUGH ? f->call_end : NULL, NULL};
    size_t i_end, n = parser_find_first(text, ends, &i_end);
    if (i_end == 0) {
        n += strlen(f->call_end);
        s->step = STEP_PAST;
    }
    n = end && i_end != 0 ? text.len : n;
    answer_past_reasoning(a, (struct str){text.ptr, n});
    return n;
}

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const struct think_family *f = p->family;
    if (s->step == STEP_START)
        return feed_start(f, s, text, end);
    if (s->step == STEP_INSIDE)
        return feed_inside(f, s, text, end, a);
    if (s->step == STEP_PAST && f->drop)
        return feed_past(f, s, text, end, a);
    return feed_through(f, s, text, end, a);
}

static size_t think_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                         bool end, struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}

/* Keeps the reasoning in the content, and adds the opening marker that the template put into the
 * prompt. */
static size_t append_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                          bool end, struct answer *a)
{
    if (s->step == STEP_START && text.len > 0)
        answer_past_reasoning(a, STR("<think>"));
    if (text.len > 0)
        s->step = STEP_PAST;
    answer_past_reasoning(a, text);
    return text.len;
}

#define MARKS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BETWEEN(n, all_markers, ...)                                                               \
    {                                                                                              \
        .name = n, .markers = all_markers, .init = think_init, .marks = think_marks,               \
        .feed = think_feed, .family = &(const struct think_family)                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define THINK(n, o, c, ...) BETWEEN(n, MARKS(o, c), .open = MARKS(o), __VA_ARGS__)
/* `UNTIL_CALL` defines the parser of a model that always reasons, until the closing marker or a
 * call. A second closing marker is dropped. */
#define UNTIL_CALL(n, o, c, calls, calls_end, ...)                                                 \
    BETWEEN(n, MARKS(o, c, calls), .open = MARKS(o), .close = MARKS(c, calls),                     \
            .text_close = MARKS(c), .call = calls, .call_end = calls_end, .drop = MARKS(c),        \
            .always = true, __VA_ARGS__)
#define CLOSE(c) .close = MARKS(c)

#define COHERE_MARKS                                                                               \
    MARKS("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",      \
          "<|START_TEXT|>", "<|END_TEXT|>")
#define COHERE_THINK                                                                               \
    .open = MARKS("<|START_THINKING|>"), .close = MARKS("<|END_THINKING|>", "<|START_ACTION|>"),   \
    .text_close = MARKS("<|END_THINKING|>"), .call = "<|START_ACTION|>", .strips = true,           \
    .drop = MARKS("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",      \
                  "<|END_THINKING|>")
#define KIMI_CALLS "<|tool_calls_section_begin|>"

/* `parsers` has rows with vLLM's names. When a template states in the prompt whether the model
 * reasons, the prompt decides. `always` is for prompts that do not state it. */
static const struct answer_parser parsers[] = {
    THINK("deepseek_r1", "<think>", "</think>", CLOSE("</think>"), .always = true),
    THINK("deepseek_v3", "<think>", "</think>", CLOSE("</think>")),
    THINK("holo2", "<think>", "</think>", CLOSE("</think>")),
    THINK("poolside_v1", "<think>", "</think>", CLOSE("</think>")),
    THINK("hy_v3", "<think>", "</think>", CLOSE("</think>")),
    THINK("hy_v4", "<think>", "</think>", CLOSE("</think>"), .always = true),
    THINK("mistral", "[THINK]", "[/THINK]", CLOSE("[/THINK]")),
    THINK("minimax_m3", "<mm:think>", "</mm:think>", CLOSE("</mm:think>")),
    THINK("olmo3", "<think>", "</think>", CLOSE("</think>"), .always = true),
    THINK("step3", "<think>", "</think>", CLOSE("</think>"), .always = true),
    THINK("step5", "<think>", "</think>", CLOSE("</think>"), .always = true),
    UNTIL_CALL("deepseek_v4", "<think>", "</think>", "<｜DSML｜tool_calls>",
               "</｜DSML｜tool_calls>", .strips = true),
    UNTIL_CALL("deepseek_v41", "<think>", "</think>", "<｜DSML｜ calls>", "</｜DSML｜ calls>",
               .strips = true),
    UNTIL_CALL("glm45", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = true),
    UNTIL_CALL("glm47", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = true),
    UNTIL_CALL("granite_thinking_parser", "<think>", "</think>", "<tool_call>", "</tool_call>",
               .strips = true),
    UNTIL_CALL("kimi_k2", "<think>", "</think>", KIMI_CALLS, "<|tool_calls_section_end|>",
               .strips = true),
    UNTIL_CALL("ling3", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = true),
    UNTIL_CALL("mimo", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = false),
    UNTIL_CALL("minicpmv", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = false),
    UNTIL_CALL("minimax_m2", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>",
               .strips = true),
    UNTIL_CALL("nemotron_v3", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = true),
    UNTIL_CALL("plamo3", "<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>",
               "<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>",
               .strips = false),
    UNTIL_CALL("qwen3", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = false),
    UNTIL_CALL("seed_oss", "<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>",
               .strips = false),
    UNTIL_CALL("step3p5", "<think>", "</think>", "<tool_call>", "</tool_call>", .strips = true),
    {.name = "k2_horizon",
     .markers = MARKS("<ifm|think>", "</ifm|think>", "<ifm|think_fast>", "</ifm|think_fast>",
                      "<ifm|think_faster>", "</ifm|think_faster>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family =
         &(const struct think_family){
             .open = MARKS("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
             .close = MARKS("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>",
                            "<ifm|tool_calls>"),
             .text_close = MARKS("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
             .call = "<ifm|tool_calls>",
             .always = true}},
    {.name = "kimi_k3",
     .markers = MARKS("<|open|>", "<|close|>", "<|sep|>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family =
         &(const struct think_family){
             .open = MARKS("<|open|>think<|sep|>"),
             .close = MARKS("<|close|>think<|sep|>", "<|open|>tools<|sep|>"),
             .text_close = MARKS("<|close|>think<|sep|>"),
             .call = "<|open|>tools<|sep|>",
             .drop = MARKS("<|open|>response<|sep|>", "<|close|>response<|sep|>",
                           "<|close|>message<|sep|>"),
             .always = true}},
    {.name = "cohere_command3",
     .markers = COHERE_MARKS,
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){COHERE_THINK, .always = false}},
    {.name = "cohere_command4",
     .markers = COHERE_MARKS,
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){COHERE_THINK, .always = true}},
    {.name = "ernie45",
     .markers = MARKS("<think>", "</think>", "<response>", "</response>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<think>"),
                                            .close = MARKS("</think>"),
                                            .drop = MARKS("<response>", "</response>"),
                                            .always = true}},
    {.name = "hunyuan_a13b",
     .markers = MARKS("<think>", "</think>", "<answer>", "</answer>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<think>\n"),
                                            .close = MARKS("\n</think>\n<answer>\n"),
                                            .drop = MARKS("\n</answer>")}},
    {.name = "gemma4",
     .markers = MARKS("<|channel>", "<channel|>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<|channel>thought\n"),
                                            .close = MARKS("<channel|>")}},
    {.name = "minimax_m2_append_think",
     .markers = MARKS("<think>", "</think>"),
     .feed = append_feed},
    {.name = "granite", /* the markers of granite are plain words, in two spellings */
     .markers = MARKS("Here is my thought process:"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family =
         &(const struct think_family){
             .open = MARKS("Here is my thought process:", "Here's my thought process:"),
             .close = MARKS("Here is my response:", "Here's my response:")}},
};

static const struct answer_parser *const others[] = {
    &reasoning_parser_inkling, &reasoning_parser_harmony, &reasoning_parser_muse,
    &reasoning_parser_muse_spark, &reasoning_parser_muse_glimmer};
enum { N_ROWS = sizeof parsers / sizeof *parsers, N_OTHERS = sizeof others / sizeof *others };

static const struct answer_parser *at_row(size_t i)
{
    return i < N_ROWS ? &parsers[i] : others[i - N_ROWS];
}

const struct answer_parser *reasoning_parser_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS + N_OTHERS; i++)
        if (strcmp(at_row(i)->name, name) == 0)
            return at_row(i);
    return NULL;
}

void reasoning_parser_names(struct strbuf *out)
{
    for (size_t i = 0; i < N_ROWS + N_OTHERS; i++)
        strbuf_printf(out, i ? ", %s" : "%s", at_row(i)->name);
}
