/* Tests messages whose role a chat template shows, hides or refuses, and the prompts that
 * result. */
#include "gateway/dialects/chat_roles.h"
#include "gateway/fields/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define EACH         "{% for m in messages %}"
#define SHOW         "<{{ m.role }}>{{ m.content }}"
#define ALL          EACH SHOW "{% endfor %}"
#define KNOWN(roles) EACH "{% if m.role in " roles " %}" SHOW "{% endif %}{% endfor %}"
#define STRICT(roles)                                                                              \
    EACH "{% if m.role not in " roles " %}{{ raise_exception('no ' + m.role) }}{% endif %}" SHOW   \
         "{% endfor %}"
#define LEADING                                                                                    \
    EACH "{% if m.role == 'user' or (loop.first and m.role == 'system') %}" SHOW                   \
         "{% endif %}{% endfor %}"

#define MESSAGE(role, content) "{\"role\":\"" role "\",\"content\":" content "}"
#define DEVELOPER              MESSAGE("developer", "\" be kind \"")
#define USER                   MESSAGE("user", "\"hi\"")
#define SYSTEM                 MESSAGE("system", "\"rules\"")

static const struct {
    /* `want` is the prompt, or a part of the error when the request is refused. */
    const char *source, *messages, *want;
    bool refused;
} cases[] = {
    {ALL, DEVELOPER "," USER, "<developer> be kind <user>hi", false},
    {KNOWN("['system', 'user']"), DEVELOPER "," USER, "<system> be kind <user>hi", false},
    {STRICT("['system', 'user']"), DEVELOPER "," USER, "<system> be kind <user>hi", false},
    {KNOWN("['system', 'user']"), SYSTEM "," DEVELOPER "," USER,
     "<system>rules<system> be kind <user>hi", false},
    /* The template shows a system message only at the start, so the text of a second system
     * message joins the user's message. */
    {LEADING, DEVELOPER "," USER, "<system> be kind <user>hi", false},
    {LEADING, SYSTEM "," DEVELOPER "," USER, "<system>rules<user> be kind \n\nhi", false},
    {LEADING, USER "," SYSTEM, "<user>hi\n\nrules", false},
    {LEADING, USER "," MESSAGE("system", "[{\"type\":\"text\",\"text\":\"a\"},\"b\"]"),
     "<user>hi\n\na\nb", false},
    /* Both system messages have the same text, and the template shows one of them. */
    {LEADING, SYSTEM "," USER "," SYSTEM, "<system>rules<user>hi\n\nrules", false},
    {STRICT("['user']"), DEVELOPER "," USER, "no developer", true},
    {STRICT("['user']"), SYSTEM "," USER, "no system", true},
    /* the template alone decides about a leading system message */
    {KNOWN("['user']"), SYSTEM "," USER, "<user>hi", false},
};

static void prompts_show_every_role(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_template *tmpl = NULL;
        char err[TEXT_ERR_MAX], body[512];
        struct params p;
        struct prompt_list l = {0};
        struct api_error e = {0};
        assert_int_equal(text_template_new(cases[i].source, strlen(cases[i].source), &tmpl, err),
                         TEXT_OK);
        const struct prepare_model m = {.chat_template = tmpl, .policy = {.max_logprobs = 20}};
        snprintf(body, sizeof body, "{\"messages\":[%s]}", cases[i].messages);
        assert_true(
            params_init(&p, API_CHAT, params_parse_json(str_from(body), &e), &m.policy, &e));
        const bool ok = chat_roles_prompt(&p, &m, &l, &e);
        const char *got = ok ? l.items[0].text.ptr : e.message;
        if (ok == cases[i].refused || !strstr(got, cases[i].want) ||
            (ok && strlen(got) != strlen(cases[i].want)))
            fail_msg("%s\n%s: %s", cases[i].source, cases[i].messages, got);
        prompt_list_fini(&l);
        params_fini(&p);
        text_template_free(tmpl);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prompts_show_every_role)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
