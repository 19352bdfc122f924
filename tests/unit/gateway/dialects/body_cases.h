#pragma once
/* Tests a dialect's bodies with tables: each row has the messages that the chat template gets,
 * or the refusal. The including file must include <cmocka.h> first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/fields/read.h"
#include "gateway/params/params.h"

#define USER(text)  "{\"role\": \"user\", \"content\": \"" text "\"}"
#define MODEL(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

struct body_dialect {
    enum api_kind kind;
    bool (*for_template)(struct params *p, struct api_error *e);
};

struct body_case {
    /* `fields`: the body without its braces; `want`: the expected messages as JSON */
    const char *fields, *want;
    bool goes_on; /* true = the answer continues the last assistant message */
};

struct body_refusal {
    const char *fields, *param, *says;
};

static inline bool body_read(const struct body_dialect *d, const char *body, struct params *p,
                             struct api_error *e)
{
    static const struct params_policy policy = {.max_logprobs = 20, .auto_tools = true};
    *e = (struct api_error){0};
    json_t *json = params_parse_json(str_from(body), e);
    assert_non_null(json);
    return params_init(p, d->kind, json, &policy, e) && d->for_template(p, e);
}

/* Checks every case. `common` holds fields that all bodies have, with a comma at the end. */
static inline void check_bodies(const struct body_dialect *d, const char *common,
                                const struct body_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char body[2048];
        struct params p;
        struct api_error e;
        snprintf(body, sizeof body, "{%s%s}", common, cases[i].fields);
        if (!body_read(d, body, &p, &e))
            fail_msg("case %zu: %s", i, e.message);
        char *got = json_dumps(p.messages, 0);
        assert_string_equal(got, cases[i].want);
        assert_int_equal(p.continue_final_message, cases[i].goes_on);
        assert_int_equal(p.add_generation_prompt, !cases[i].goes_on);
        free(got);
        params_fini(&p);
    }
}

static inline void check_refusals(const struct body_dialect *d, const struct body_refusal *cases,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char body[1024];
        struct params p;
        struct api_error e;
        snprintf(body, sizeof body, "{%s}", cases[i].fields);
        if (body_read(d, body, &p, &e) || e.http_status != 400 ||
            strcmp(e.param, cases[i].param) != 0 || !strstr(e.message, cases[i].says))
            fail_msg("%s: %d %s: %s", body, e.http_status, e.param, e.message);
        params_fini(&p);
    }
}
