/* Hides secrets in argv. `ps` shows a command line to every user of a machine as long as the
 * process lives. So secrets are overwritten in argv as soon as argv was parsed. This is safe
 * because every string of a configuration is a copy. */
#include "common/config/hide.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/userinfo.h"
#include "common/config/lookup.h"

static void overwrite(char *text)
{
    memset(text, '*', strlen(text));
}

/* Returns true when the option's value is a secret. An ignored vLLM flag may still carry a
 * secret: --hf-token. */
static bool is_secret(const struct option_spec *s)
{
    static const char *const ends[] = {"-token", "-password", "-secret", "-api-key"};
    if (s->secret || !config_is_foreign(s))
        return s->secret;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (str_ends(str_from(s->name), str_from(ends[i])))
            return true;
    return false;
}

/* Overwrites a worker's join token at any position in the text. The first bytes of a token
 * identify it (common/keys/join_token.h). */
static void hide_token(char *text)
{
    char *token = strstr(text, "cox1.");
    if (token && (token == text || token[-1] == '='))
        overwrite(token);
}

static const struct option_spec *flag_of(const struct option_spec *specs, size_t n_specs,
                                         const char *word)
{
    size_t dashes = strspn(word, "-");
    struct str name = {word + dashes, strcspn(word + dashes, "=")};
    if (dashes == 0 || dashes > 2 || name.len == 0)
        return NULL;
    size_t i = config_find(specs, n_specs, name);
    return i < n_specs ? &specs[i] : NULL;
}

void config_hide(const struct option_spec *specs, size_t n_specs, int argc, char **argv)
{
    /* secret option that takes the next words as its values; or NULL */
    const struct option_spec *of = NULL;
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        bool is_flag = argv[i][0] == '-' && argv[i][1] != '\0';
        if (is_flag) {
            of = flag_of(specs, n_specs, argv[i]);
            of = of && is_secret(of) ? of : NULL;
            if (of && equals)
                overwrite(equals + 1);
        } else if (of) {
            overwrite(argv[i]);
        }
        if (of && !is_flag && of->type != OPTION_LIST)
            of = NULL;
        hide_token(argv[i]);
        userinfo_hide(argv[i]);
    }
}

void config_append_url(struct strbuf *b, struct str text)
{
    char *shown = mem_strndup(text.ptr, text.len);
    userinfo_hide(shown);
    strbuf_append_c(b, shown);
    mem_free(shown);
}
