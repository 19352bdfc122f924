/* Tests the parsers that split a model's text into reasoning, content and calls. Every case is
 * fed to `answer_feed` three times: whole, cut in two at every byte, and byte by byte. The
 * resulting parts are joined in a `struct heard` and compared with the case. Invariant: the
 * parts do not depend on where the text is cut. */
#include "gateway/answer/answer.h"
#include "gateway/parsers/reasoning.h"
#include "gateway/parsers/tool_parsers.h"
#include "gateway/parsers/tool_raw.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* With the flag CONTINUED the answer continues `prompt`, from its second byte on. */
enum { ONE_CALL = 1, DROP_REASONING = 2, CONTINUED = 4 };
/* `want` holds the expected parts in order, as R(reasoning), C(content) and [name](arguments). */
struct answer_case {
    unsigned flags;
    const char *reasoning, *tools, *prompt, *text, *want;
};

#define CALL(name, args)                                                                           \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static const struct answer_case cases[] = {
    {0, NULL, NULL, "", "<think>a</think>", "C(<think>a</think>)"},
    {0, "qwen3", NULL, "", "<think>\na\n</think>\n\nb", "R(\na\n)C(\n\nb)"},
    {0, "qwen3", NULL, "", "\n <think>a</think>b", "R(a)C(b)"},
    {0, "qwen3", NULL, "", "b</think>c", "R(b)C(c)"},
    {0, "qwen3", NULL, "", "<thin", "R(<thin)"},
    {0, "qwen3", NULL, "", "  ", "R(  )"},
    {0, "qwen3", NULL, "x<think>\n", "a</think>b", "R(a)C(b)"},
    {0, "qwen3", NULL, "<think>\n\n</think>\n\n", "<think>b", "C(<think>b)"},
    {0, "qwen3", NULL, "", "<think>a<b></think", "R(a<b></think)"},
    {DROP_REASONING, "qwen3", NULL, "", "<think>a</think>b", "C(b)"},
    {0, "deepseek_r1", NULL, "", "a</think>b", "R(a)C(b)"},
    {0, "deepseek_r1", NULL, "", "<think>a</think>b<think>", "R(a)C(b<think>)"},
    {CONTINUED, "deepseek_r1", NULL, "x<think>a", "b</think>c", "R(b)C(c)"},
    {CONTINUED, "deepseek_r1", NULL, "x<think>a</think>b", "c", "C(c)"},
    {CONTINUED, "deepseek_r1", NULL, "xOnce", " upon", "C( upon)"},
    {0, "deepseek_r1", NULL, "", "no end", "R(no end)"},
    {0, NULL, "hermes", "", "plain <b> text", "C(plain <b> text)"},
    {0, NULL, "hermes", "", CALL("f", "{\"a\": 1}"), "[f]({\"a\": 1})"},
    {0, NULL, "hermes", "", "say\n" CALL("f", "{}"), "C(say\n)[f]({})"},
    {0, NULL, "hermes", "",
     " \n" CALL("f", "{\"s\": \"}</tool_call>\\\"\"}") "\n" CALL("g", "[1]") "\n",
     "[f]({\"s\": \"}</tool_call>\\\"\"})[g]([1])"},
    {0, NULL, "hermes", "", CALL("f", "{}") "\nthen", "[f]({})C(\nthen)"},
    {ONE_CALL, NULL, "hermes", "", CALL("f", "{}") CALL("g", "{}"), "[f]({})"},
    {0, NULL, "hermes", "",
     "<tool_call>{\"arguments\": {\"a\": [{}]}, \"name\": \"f\"}</tool_call>",
     "[f]({\"a\": [{}]})"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\", \"parameters\": 12.5}</tool_call>",
     "[f](12.5)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\"}</tool_call>", "[f]({})"},
    {0, NULL, "hermes", "", "<tool_call>not json</tool_call>",
     "C(<tool_call>not json</tool_call>)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": 3, \"x\": 1}</tool_call>",
     "C(<tool_call>{\"name\": 3, \"x\": 1}</tool_call>)"},
    {0, NULL, "hermes", "", "a<tool_call>{\"name\": \"f\", \"argum",
     "C(a<tool_call>{\"name\": \"f\", \"argum)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"unfin",
     "[f]({\"a\": \"unfin)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool_call>b",
     "[f]({\"a\": 1)C(b)"},
    {0, NULL, "hermes", "", "x <tool_", "C(x <tool_)"},
    {0, "mistral", NULL, "", "[THINK]a[/THINK]b", "R(a)C(b)"},
    {0, "mistral", NULL, "", "a[/THINK]b", "C(a[/THINK]b)"},
    {0, "seed_oss", NULL, "", "a</seed:think>b", "R(a)C(b)"},
    {0, "glm45", NULL, "", "<think>a</think>b", "R(a)C(b)"},
    {0, "deepseek_v3", NULL, "x</think>", "a", "C(a)"},
    {0, "granite", NULL, "", "Here's my thought process:a Here is my response:b", "R(a )C(b)"},
    {0, "granite", NULL, "", "Here is my thought process: Here's mine", "R( Here's mine)"},
    {0, "granite", NULL, "", "Here is my", "C(Here is my)"},
    {0, "granite", NULL, "", "Here I am", "C(Here I am)"},
    {0, NULL, "hermes", "",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}<tool_call>"
     "{\"name\": \"g\", \"arguments\": {}, \"id\": \"}\"} } </tool_call>",
     "[f]({})[g]({})"},
    {0, NULL, "jamba", "",
     "a<tool_calls>[\n{\"name\": \"f\", \"arguments\": {\"x\": [1]}, \"id\": {\"a\": 1}} , "
     "{\"name\": \"g\"}]\n</tool_calls>\nb",
     "C(a)[f]({\"x\": [1]})[g]({})C(\nb)"},
    {0, NULL, "internlm", "",
     "a<|action_start|><|plugin|>{\"name\": \"f\", \"parameters\": {}}<|action_end|>\n",
     "C(a)[f]({})"},
    {0, NULL, "longcat", "", "<longcat_tool_call>x</longcat_tool_call>",
     "C(<longcat_tool_call>x</longcat_tool_call>)"},
    {0, NULL, "granite", "", "<|tool_call|>[{\"arguments\": {}, \"name\": \"f\"}]", "[f]({})"},
    {0, NULL, "granite", "", "<tool_call>[{\"arguments\": {}, \"name\": \"f\"}]", "[f]({})"},
    {0, NULL, "granite", "", " [{\"arguments\": {}, \"name\": \"f\"}]", "[f]({})"},
    {0, NULL, "granite", "", " [1] is", "C( [1] is)"},
    {0, NULL, "granite", "", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, 7]",
     "[f]({})C( 7])"},
    {0, NULL, "granite-20b-fc", "",
     "<function_call> {\"name\": \"f\", \"arguments\": {}}\n<function_call> {\"name\": \"g\", "
     "\"arguments\": {\"a\": 1}}",
     "[f]({})[g]({\"a\": 1})"},
    {0, NULL, "phi4_mini_json", "", "functools[{\"name\": \"f\", \"arguments\": {}}]", "[f]({})"},
    {0, NULL, "phi4_mini_json", "", "import functools\n", "C(import functools\n)"},
    {0, NULL, "llama3_json", "", "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
     "[f]({\"a\": \"b\"})"},
    {0, NULL, "llama3_json", "",
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
     "[f]({})[g]({})"},
    {0, NULL, "llama3_json", "", "{\"name\": \"f\", \"parameters\": {}} then", "[f]({})C( then)"},
    {0, NULL, "llama4_json", "", " {\"a\": 1}", "C( {\"a\": 1})"},
    {0, NULL, "llama3_json", "", "a {\"name\": \"f\", \"parameters\": {}}", "C(a )[f]({})"},
    {0, NULL, "llama3_json", "", "<|python_tag|>search.call(q=1)",
     "C(<|python_tag|>search.call(q=1))"},
    {0, NULL, "llama3_json", "", "", ""},
    {0, NULL, "ernie45", "", "a\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n",
     "C(a)[f]({})"},
    {0, "ernie45", "ernie45", "x<think>", "a</think><response>\nb\n</response>", "R(a)C(\nb\n)"},
    {0, "ernie45", NULL, "", "a</think>b<resp", "R(a)C(b<resp)"},
    {0, "hunyuan_a13b", NULL, "", "<think>\na\n</think>\n<answer>\nb\n\n</answer>", "R(a)C(b\n)"},
    {0, "hunyuan_a13b", "hunyuan_a13b", "",
     "<think>\n\n</think>\n<answer>\nb<tool_calls>[{\"name\": \"f\", \"arguments\": "
     "{}}]</tool_calls>"
     "\n</answer>",
     "C(b)[f]({})"},
    {0, "hunyuan_a13b", NULL, "", "<think> b", "C(<think> b)"},
    {0, "gemma4", NULL, "", "<|channel>thought\na<channel|>b", "R(a)C(b)"},
    {0, "gemma4", NULL, "", "<|channel>final", "C(<|channel>final)"},
    {0, "minimax_m2_append_think", NULL, "<think>", "a</think>b", "C(<think>a</think>b)"},
    {0, "minimax_m2_append_think", NULL, "", "", ""},
    {0, NULL, "minimax", "",
     "a<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", "
     "\"arguments\": {}}\n"
     "</tool_calls>b",
     "C(a)[f]({\"a\": 1})[g]({})C(b)"},
    {0, NULL, "minimax", "", "<tool_calls>{\"name\": 1}</tool_calls>",
     "C(<tool_calls>{\"name\": 1}</tool_calls>)"},
    {0, NULL, "xlam", "",
     "[{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, {\"name\": \"g\", "
     "\"arguments\": {}}]",
     "[f]({\"a\": \"]\"})[g]({})"},
    {0, NULL, "xlam", "", "a<tool_call>[{\"name\": \"f\", \"arguments\": {}}]</tool_call>",
     "C(a)[f]({})"},
    {0, NULL, "xlam", "", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "[f]({})"},
    {0, NULL, "gigachat3", "",
     "function call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "[f]({\"a\": 1})"},
    {0, NULL, "gigachat3", "", "a function call<|role", "C(a function call<|role)"},
    {0, NULL, "lfm2", "", "<|tool_call_start|>[f(a=\"b\", c=2), g()]<|tool_call_end|>d",
     "[f]({\"a\": \"b\", \"c\": 2})[g]({})C(d)"},
    {0, NULL, "gemma4", "",
     "<|tool_call>call:f{a:<|\"|>x\"y<|\"|>,b:[1,true]}<tool_call|><|tool_call>call:g{}<tool_call|"
     ">",
     "[f]({\"a\": \"x\\\"y\", \"b\": [1, true]})[g]({})"},
    {0, NULL, "deepseek_v32", "",
     "a\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"true\">a\"b\n</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "C(a\n\n)[f]({\"x\": \"a\\\"b\\n\"})[g]({})"},
    {0, NULL, "deepseek_v32", "", "<｜DSML｜function_calls>no", "C(<｜DSML｜function_calls>no)"},
    {0, NULL, "mistral", "",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, "
     "{\"name\": \"g\", \"arguments\": {}}]",
     "[f]({\"a\": 1})[g]({})"},
    {0, NULL, "mistral", "", "a[TOOL_CALLS]f[ARGS]{\"a\": \"}\"}[TOOL_CALLS]g{\"b\": {}}",
     "C(a)[f]({\"a\": \"}\"})[g]({\"b\": {}})"},
    {0, NULL, "mistral", "", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}", "[f]({})"},
    {0, NULL, "mistral", "", "[TOOL_CALLS]no call {}", "C([TOOL_CALLS]no call {})"},
    {0, NULL, "mistral", "", "[TOOL_CALLS]f[ARGS]", "C([TOOL_CALLS]f[ARGS])"},
    {0, "mistral", "mistral", "", "[THINK]a[/THINK][TOOL_CALLS]f[ARGS]{}", "R(a)[f]({})"},
    {0, NULL, "deepseek_v3", "",
     "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C(a)[f]({\"a\": 1})[g]({})"},
    {0, NULL, "deepseek_v31", "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "[f]({\"a\": 1})[g]({})"},
    {0, NULL, "deepseek_v31", "", "<｜tool▁call▁begin｜>f<｜tool▁call▁end｜>{",
     "C(<｜tool▁call▁begin｜>f<｜tool▁call▁end｜>{)"},
    {0, NULL, "kimi_k2", "",
     "a<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_call_begin|>functions.a.b:1<|tool_call_argument_begin|>{\"a\": 1}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "C(a)[f]({})[a.b]({\"a\": 1})"},
    {0, NULL, "qwen3_coder", "",
     "a\n<tool_call>\n<function=f>\n<parameter=s>\n12\n\"q\"\n\n</parameter>\n<parameter=n>\n-3\n</"
     "parameter>\n"
     "<parameter=o>{'k': [True, "
     "\"</parameter>\"]}</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
     "<function=g>\n</function>\n</tool_call>\n",
     "C(a)[f]({\"s\": \"12\\n\\\"q\\\"\\n\", \"n\": -3, \"o\": {\"k\": [true, "
     "\"</parameter>\"]}})[g]({})"},
    {0, NULL, "qwen3_xml", "",
     "<function=f><parameter=n>no</parameter><parameter=b>False</parameter></function> b",
     "[f]({\"n\": \"no\", \"b\": false})C(b)"},
    {0, NULL, "qwen3_coder", "", "<function=x><parameter=n>1</parameter></tool_call>",
     "[x]({\"n\": \"1\"})"},
    {0, NULL, "qwen3_coder", "", "<function=f><parameter=s>ab\n</par", "[f]({\"s\": \"ab)"},
    {0, NULL, "qwen3_coder", "", "<tool_call>no<function= f>", "C(<tool_call>no)[f]({)"},
    {0, NULL, "seed_oss", "",
     "<seed:tool_call><function=f><parameter=s>x</parameter></function></seed:tool_call>",
     "[f]({\"s\": \"x\"})"},
    {0, NULL, "glm45", "",
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>\nx</arg_value>\n<arg_key>n</"
     "arg_key>\n<arg_value>4</arg_value>\n"
     "</tool_call>\n<tool_call>g</tool_call>",
     "[f]({\"s\": \"\\nx\", \"n\": 4})[g]({})"},
    {0, NULL, "glm45", "", "<tool_call>no name</tool_call>", "C(<tool_call>no name</tool_call>)"},
    {0, NULL, "minimax_m2", "",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"o\">[1]</parameter>\n</invoke>\n"
     "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "[f]({\"o\": [1]})[g]({})"},
    {0, NULL, "pythonic", "",
     "[f(a='x\"\\'\\n\\u00e9\\U0001F600\\q', b=[True, None, (1, -2.5e3,),], c={'k': {}, \"l\": "
     "False,}), "
     "g()]",
     "[f]({\"a\": \"x\\\"'\\n\\u00e9\\ud83d\\ude00\\\\q\", \"b\": [true, null, [1, -2.5e3]], "
     "\"c\": {\"k\": {}, \"l\": false}})[g]({})"},
    {0, NULL, "pythonic", "", " [f(a = 01, b=\"\\x41\n\")] b",
     "[f]({\"a\": 1, \"b\": \"A\\n\"})C( b)"},
    {0, NULL, "pythonic", "", "[1, 2]", "C([1, 2])"},
    {0, NULL, "pythonic", "", "[f(1)]", "C([f(1)])"},
    {0, NULL, "pythonic", "", "[f(a=1, 2)]", "[f]({\"a\": \"1, 2\"})"},
    {0, NULL, "pythonic", "", "[f(a='unfin", "[f]({\"a\": \"unfin)"},
    {0, NULL, "pythonic", "", "say [f(a=1)]", "C(say [f(a=1)])"},
    {0, NULL, "llama4_pythonic", "", "a<|python_start|>[f(a=1)]<|python_end|>",
     "C(a)[f]({\"a\": 1})"},
    {0, NULL, "functiongemma", "",
     "<start_function_call>call:f{a:<escape>x\"<b<escape>,b:[1,true],c:{d:<escape><escape>}}"
     "<end_function_call><start_function_call>call:g{}<end_function_call>",
     "[f]({\"a\": \"x\\\"<b\", \"b\": [1, true], \"c\": {\"d\": \"\"}})[g]({})"},
    {0, NULL, "olmo3", "", "a <function_calls>f(a='x', b=null)\ng()</function_calls>",
     "C(a )[f]({\"a\": \"x\", \"b\": null})[g]({})"},
    {0, NULL, "olmo3", "", "<function_calls>f() what</function_calls>b",
     "[f]({})C(what</function_calls>b)"},
    {0, "kimi_k2", "kimi_k2", "",
     "<think>a<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_"
     "begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "R(a)[f]({})"},
    {0, "kimi_k2", NULL, "", "<think>a</think>b", "R(a)C(b)"},
    {0, NULL, "functiongemma", "", "<start_function_call>f", "C(<start_function_call>f)"},
    {0, "openai_gptoss", "openai", "<|start|>assistant",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|"
     "end|>"
     "<|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"x\": 1}<|call|>",
     "R(a)C(b)[f]({\"x\": 1})"},
    {0, "openai_gptoss", "openai", "",
     " to=functions.f<|channel|>commentary json<|message|><|call|><|start|>assistant"
     "<|channel|>commentary to=functions.g<|message|>{",
     "[f]({})[g]({)"},
    {0, "openai_gptoss", NULL, "",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final "
     "<|constrain|>json<|message|>{\"b\": 1}<|return|>",
     "R(a)C({\"b\": 1})"},
    {0, "openai_gptoss", NULL, "", "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
     "C({})"},
    {0, NULL, "openai", "",
     "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|start|>assistant<|chan",
     "R(a)C(b)"},
    {DROP_REASONING, "openai_gptoss", "openai", "",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>fin", ""},
    {0, "openai_gptoss", NULL, "<|start|>assistant<|channel|>analysis<|message|>",
     "a<|end|><|start|>assistant<|channel|>final<|message|>b", "R(a)C(b)"},
    {0, "openai_gptoss", "openai", "<|start|>assistant<|channel|>final<|message|>", "a", "C(a)"},
    {CONTINUED, "openai_gptoss", NULL, "xabc", "d", "C(d)"},
    {0, "openai_gptoss", "hermes", "", "<|message|>a<|channel|>analysis<|message|>b", "C(a)R(b)"},
    {0, "openai_gptoss", "hermes", "", "no channel " CALL("f", "{}"), "C(no channel )[f]({})"},
    {0, "qwen3", "hermes", "", "<think>" CALL("no", "{}") "</think>\n\n" CALL("f", "{}"),
     "[no]({})[f]({})"},
    {0, "qwen3", "hermes", "", "<think>a</think>\n\nb" CALL("f", "{}"), "R(a)C(\n\nb)[f]({})"},
};

/* `heard` holds all parts so far, joined as a client would join them: neighbours of one kind are
 * one part. */
struct heard {
    char text[4096];
    size_t n;
    int kind; /* kind of the last part; -1 = no part yet */
    uint32_t i_call;
};

static void say(struct heard *h, const char *s, size_t n)
{
    assert_true(h->n + n + 4 < sizeof h->text);
    memcpy(h->text + h->n, s, n);
    h->n += n;
    h->text[h->n] = '\0';
}

static void hear(struct heard *h, const struct answer_delta *d)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i];
        bool same = h->kind == (int)p->kind && h->i_call == p->i_call;
        if (!same && h->kind >= 0 && h->kind != ANSWER_CALL)
            say(h, ")", 1);
        if (p->kind == ANSWER_CALL) {
            assert_true(p->id.len > 0 && p->text.len == 0);
            say(h, "[", 1);
            say(h, p->name.ptr, p->name.len);
            say(h, "]", 1);
        } else {
            assert_true(p->text.len > 0);
            if (!same)
                say(h,
                    p->kind == ANSWER_REASONING ? "R("
                    : p->kind == ANSWER_CONTENT ? "C("
                                                : "(",
                    p->kind == ANSWER_ARGUMENTS ? 1 : 2);
            say(h, p->text.ptr, p->text.len);
        }
        h->kind = (int)p->kind;
        h->i_call = p->i_call;
    }
}

/* parameters of the tool f: s string, n number, b boolean, o object or list */
static json_t *tool_list;

static int load_tools(void **state)
{
    tool_list =
        json_loads("[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {"
                   "\"s\": {\"type\": [\"null\", \"string\"]}, \"n\": {\"type\": \"number\"}, "
                   "\"b\": {\"anyOf\": [{\"type\": \"boolean\"}]}, "
                   "\"o\": {\"type\": \"object\"}}}}}]",
                   0, NULL);
    return tool_list ? 0 : 1;
}

static int drop_tools(void **state)
{
    json_decref(tool_list);
    return 0;
}

/* Feeds the text in two pieces, cut after `at` bytes. With `every`, each byte is its own piece. */
static void feed(const struct answer_case *c, size_t at, bool every, struct heard *h,
                 enum answer_finish *finish)
{
    struct answer_rules rules = {
        .reasoning = c->reasoning ? reasoning_parser_find(c->reasoning) : NULL,
        .tools = c->tools ? tool_parser_find(c->tools) : NULL,
        .one_call = (c->flags & ONE_CALL) != 0,
        .drop_reasoning = (c->flags & DROP_REASONING) != 0,
        .tool_list = tool_list,
        .call_prefix = "call-",
        .id_hi = 1,
        .id_lo = 2,
    };
    struct answer a;
    size_t n = strlen(c->text);
    *h = (struct heard){.kind = -1};
    struct prompt prompt = {.text = str_from(c->prompt)};
    if (c->flags & CONTINUED)
        prompt.n_continued = prompt.text.len - 1;
    answer_init(&a, &rules, 0, &prompt);
    for (size_t i = 0; i < n;) {
        size_t k = every ? 1 : i < at ? at - i : n - i;
        struct answer_delta d = {.finish = ANSWER_STOP};
        char piece[1024]; /* copy of the piece, so that a sanitizer detects a read past its end */
        memcpy(piece, c->text + i, k);
        answer_feed(&a, (struct str){piece, k}, false, &d);
        hear(h, &d);
        i += k;
    }
    struct answer_delta last = {.finish = ANSWER_STOP};
    answer_feed(&a, STR(""), true, &last);
    hear(h, &last);
    if (h->kind >= 0 && h->kind != ANSWER_CALL)
        say(h, ")", 1);
    *finish = last.finish;
    answer_fini(&a);
}

/* `marks` returns the markers that a grammar has to allow before the answer itself. */
static void test_marks(void **state)
{
    static const struct {
        const char *parser, *prompt;
        bool continued, reasons, begun;
        const char *open, *close;
    } rows[] = {
        {"qwen3", "x", false, true, true, "<think>", "</think>"},
        {"qwen3", "x<think>\n", false, true, true, "<think>", "</think>"},
        {"qwen3", "x<think>\n\n</think>\n\n", false, false, false, NULL, NULL},
        {"deepseek_r1", "x", false, true, true, "<think>", "</think>"},
        {"deepseek_r1", "x<think>a</think>b", true, false, false, NULL, NULL},
        {"deepseek_r1", "x<think>a", true, true, true, "<think>", "</think>"},
        {"kimi_k2", "x", false, true, true, "<think>", "</think>"},
        {"deepseek_v3", "x", false, true, false, "<think>", "</think>"},
        {"mistral", "x", false, true, false, "[THINK]", "[/THINK]"},
        {"hunyuan_a13b", "x", false, true, false, "<think>\n", "\n</think>\n<answer>\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct answer_parser *p = reasoning_parser_find(rows[i].parser);
        struct prompt prompt = {.text = str_from(rows[i].prompt)};
        struct reasoning_marks m = {0};
        if (rows[i].continued)
            prompt.n_continued = prompt.text.len - 1;
        bool reasons = p->marks(p, prompt.text, prompt_continued(&prompt), &m);
        if (reasons != rows[i].reasons || (reasons && m.begun != rows[i].begun))
            fail_msg("%s: %s: %d, begun %d", rows[i].parser, rows[i].prompt, reasons, m.begun);
        if (!reasons)
            continue;
        assert_string_equal(m.open[0], rows[i].open);
        assert_string_equal(m.close[0], rows[i].close);
        assert_null(m.close[1]);
    }
    assert_null(reasoning_parser_find("openai_gptoss")->marks);
}

static void test_parsers(void **state)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct answer_case *c = &cases[i];
        size_t n = strlen(c->text);
        for (size_t at = 0; at <= n + 1; at++) {
            struct heard h;
            enum answer_finish finish;
            feed(c, at, at == n + 1, &h, &finish);
            if (strcmp(h.text, c->want) != 0) {
                print_error("%s, cut at %zu: %s, want %s\n", c->text, at, h.text, c->want);
                n_wrong++;
                break;
            }
            assert_int_equal(finish, strchr(c->want, '[') && strstr(c->want, "](")
                                         ? ANSWER_TOOL_CALLS
                                         : ANSWER_STOP);
        }
    }
    assert_int_equal(n_wrong, 0);
}

/* An answer that reached its length limit reports that reason, also in the middle of a call. */
static void test_finish(void **state)
{
    struct answer_rules rules = {.tools = tool_parser_find("hermes"), .call_prefix = "call-"};
    struct answer a;
    struct answer_delta d = {.finish = ANSWER_LENGTH};
    answer_init(&a, &rules, 3, &(struct prompt){0});
    answer_feed(&a, STR("<tool_call>{\"name\":\"f\",\"arguments\":{"), true, &d);
    assert_int_equal(d.n_parts, 2);
    assert_int_equal(d.finish, ANSWER_LENGTH);
    assert_int_equal(d.parts[0].id.len, 5 + 32);
    assert_memory_equal(d.parts[0].id.ptr, "call-00000000000000000000000300000000", 37);
    answer_fini(&a);
}

/* With a raw call, the answer's text is the input of one custom tool. An answer that was cut
 * short may have no call yet. */
static void test_raw_call(void **state)
{
    static const struct {
        const char *text;
        enum answer_finish ends, finish;
        const char *input; /* input of the expected call; NULL = no call */
        const char *stop;  /* the client's stop string that ended the answer */
    } answers[] = {
        {"thinks", ANSWER_LENGTH, ANSWER_LENGTH, NULL, NULL},
        {"thinks</think>", ANSWER_LENGTH, ANSWER_LENGTH, NULL, NULL},
        {"thinks</think>a", ANSWER_LENGTH, ANSWER_LENGTH, "{\"input\": \"a\"}", NULL},
        {"thinks</think>a", ANSWER_STOP, ANSWER_TOOL_CALLS, "{\"input\": \"a\"}", NULL},
        {"thinks</think>", ANSWER_STOP, ANSWER_TOOL_CALLS, "{\"input\": \"\"}", NULL},
        {"thinks", ANSWER_STOP, ANSWER_STOP, NULL, "."},
    };
    const struct answer_rules rules = {.reasoning = reasoning_parser_find("deepseek_r1"),
                                       .tools = &tool_parser_raw,
                                       .raw_name = {"t", 1},
                                       .call_prefix = "call-"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct answer a;
        struct answer_delta d = {.finish = answers[i].ends, .stop_id = UINT32_MAX};
        if (answers[i].stop)
            d.stop_string = str_from(answers[i].stop);
        answer_init(&a, &rules, 0, &(struct prompt){0});
        answer_feed(&a, str_from(answers[i].text), true, &d);
        const struct answer_part *last = &d.parts[d.n_parts - 1];
        assert_int_equal(d.finish, answers[i].finish);
        assert_int_equal(a.n_calls, answers[i].input != NULL);
        assert_int_equal(last->kind, answers[i].input ? ANSWER_ARGUMENTS : ANSWER_REASONING);
        assert_true(str_eq_c(last->text, answers[i].input ? answers[i].input : "thinks"));
        answer_fini(&a);
    }
}

/* The gateway makes a call's id in the form that the model's template accepts, or keeps the id
 * that the model wrote. */
static void test_ids(void **state)
{
    static const char mistral[] = "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}",
                      kimi[] = "<|tool_call_begin|> functions.f:12<|tool_call_argument_begin|>{}";
    struct answer_rules rules = {.tools = tool_parser_find("mistral"),
                                 .n_call_id = tool_parser_find("mistral")->n_id,
                                 .call_prefix = "call-"};
    struct answer a;
    struct answer_delta d = {0};
    answer_init(&a, &rules, 0, &(struct prompt){0});
    answer_feed(&a, str_from(mistral), true, &d);
    assert_int_equal(d.n_parts, 4);
    assert_int_equal(d.parts[0].id.len, 9);
    for (size_t i = 0; i < 9; i++)
        assert_true(isalnum((unsigned char)d.parts[0].id.ptr[i]));
    assert_false(str_eq(d.parts[0].id, d.parts[2].id));
    answer_fini(&a);
    rules = (struct answer_rules){.tools = tool_parser_find("kimi_k2"), .call_prefix = "call-"};
    answer_init(&a, &rules, 0, &(struct prompt){0});
    answer_feed(&a, str_from(kimi), true, &d);
    assert_int_equal(d.n_parts, 2);
    assert_true(str_eq_c(d.parts[0].id, "functions.f:12"));
    answer_fini(&a);
    answer_init(&a, &rules, 0, &(struct prompt){0});
    answer_feed(&a, STR("<|tool_call_begin|>f:3<|tool_call_argument_begin|>{}"), true, &d);
    assert_true(str_eq_c(d.parts[0].id, "f:3"));
    answer_fini(&a);
}

/* The text that a parser holds back is bounded. A header or a name that never ends becomes
 * content. */
static void test_bounds(void **state)
{
    static const char *const begins[][2] = {{"openai", "<|channel|>"},
                                            {"qwen3_coder", "<tool_call><function="},
                                            {"glm45", "<tool_call>"},
                                            {"mistral", "[TOOL_CALLS]"},
                                            {"deepseek_v3", "<｜tool▁call▁begin｜>"}};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        char text[1024];
        struct answer_case c = {.tools = begins[i][0], .prompt = "", .text = text};
        struct heard whole, pieces;
        enum answer_finish finish;
        snprintf(text, sizeof text, "%s%0*d", begins[i][1], 800, 0);
        feed(&c, strlen(text), false, &whole, &finish);
        feed(&c, 0, true, &pieces, &finish);
        assert_string_equal(whole.text, pieces.text);
        assert_int_equal(whole.n, strlen(text) + 3); /* "C(" and ")" add 3 bytes */
    }
}

/* Returns a pseudo-random number below `n`. The tests at the end feed markers and pieces of JSON
 * in random order to every parser. The parts must be the same for the whole text and for single
 * bytes, and no text may be held back at the end. */
static uint32_t draw(uint32_t *seed, size_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((*seed >> 8) % n);
}

static void make_text(const struct answer_parser *p, uint32_t *seed, char *text, size_t size)
{
    static const char *const bits[] = {
        "{\"name\": \"f\", \"arguments\": ",
        "{\"parameters\": {}, \"name\": \"g\"}",
        "{",
        "}",
        "[",
        "]",
        "\"a",
        "\": ",
        "1",
        "f",
        "(",
        ")",
        "=",
        "'",
        "\\",
        ", ",
        ":",
        ";",
        " ",
        "\n",
        "<",
        "<|",
        "\xC3\xA9",
        "f(a=",
        "call:f{",
        "<function=f>",
        "<parameter=n>",
        "<parameter=s>",
        "</parameter>",
        "</function>",
        "f\n<arg_key>o</arg_key><arg_value>",
        "<invoke name=\"f\">",
        "\\u0",
        "\"",
    };
    size_t n_marks = 0, n = 0, k = 1 + draw(seed, 14);
    while (p->markers[n_marks])
        n_marks++;
    text[0] = '\0';
    for (size_t i = 0; i < k && n + ANSWER_MARKER_MAX < size; i++) {
        const char *bit = draw(seed, 3) == 0 ? p->markers[draw(seed, n_marks)]
                                             : bits[draw(seed, sizeof bits / sizeof *bits)];
        n += (size_t)snprintf(text + n, size - n, "%s", bit);
    }
}

static void test_any_order(void **state)
{
    struct strbuf lists[2];
    for (size_t kind = 0; kind < 2; kind++) {
        struct strbuf *b = &lists[kind];
        strbuf_init(b, 0);
        (kind ? tool_parser_names : reasoning_parser_names)(b);
        char *save = NULL;
        for (char *name = strtok_r(b->ptr, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
            const struct answer_parser *p =
                kind ? tool_parser_find(name) : reasoning_parser_find(name);
            for (uint32_t i = 0, seed = 1; i < 2000; i++) {
                char text[1024];
                struct answer_case c = {.prompt = "", .text = text};
                struct heard whole, pieces;
                enum answer_finish finish;
                *(kind ? &c.tools : &c.reasoning) = name;
                make_text(p, &seed, text, sizeof text);
                feed(&c, strlen(text), false, &whole, &finish);
                feed(&c, 0, true, &pieces, &finish);
                if (strcmp(whole.text, pieces.text) != 0)
                    fail_msg("%s of %s: %s, in pieces %s", name, text, whole.text, pieces.text);
            }
        }
        strbuf_fini(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsers),  cmocka_unit_test(test_marks),
        cmocka_unit_test(test_finish),   cmocka_unit_test(test_raw_call),
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_any_order)};
    return cmocka_run_group_tests(tests, load_tools, drop_tools);
}
