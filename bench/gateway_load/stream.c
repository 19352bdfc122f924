/* Handles one connection: a request, its answer as chunks of SSE events, and the next request.
 * main.c's loop calls this file when a socket is readable. The code is lean, because it runs on
 * the cores that are measured. One recv reads all bytes that have arrived, and bytes are copied
 * only when a chunk is incomplete. The text is expected at its offset in the previous event.
 * Every wrong byte ends the program. */
#include "bench/gateway_load/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/die.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { REQUEST_MAX = 1024, HEAD_MAX = 8192, BYTE_VOCABULARY = 256 };

#define TEXT_KEY "\"text\":\""

static const char *find(const char *at, const char *end, const char *what)
{
    return memmem(at, (size_t)(end - at), what, strlen(what));
}

/* Writes a different prompt for each answer, so that no two answers have the same tokens. */
static int write_prompt(struct load_stream *s, uint32_t i, char *out, size_t size)
{
    uint64_t number = (uint64_t)i << 32 | s->n_answers;
    int n = snprintf(out, size, "[");
    null_hash_init(&s->expected, 0, 0, 0, 0.0f);
    for (uint32_t k = 0; k < LOAD_PROMPT_IDS; k++) {
        uint32_t id = 'A' + (uint32_t)(number >> 4 * k & 15);
        null_hash_push(&s->expected, id);
        n += snprintf(out + n, size - (size_t)n, k ? ",%u" : "%u", id);
    }
    return n + snprintf(out + n, size - (size_t)n, "]");
}

static void ask(struct load *l, uint32_t i)
{
    struct load_stream *s = &l->streams[i];
    char prompt[LOAD_PROMPT_IDS * 4 + 8], model[256] = "", body[REQUEST_MAX], all[2 * REQUEST_MAX];
    write_prompt(s, i, prompt, sizeof prompt);
    if (l->o.model)
        snprintf(model, sizeof model, "\"model\":\"%s\",", l->o.model);
    int n = snprintf(body, sizeof body,
                     "{%s\"prompt\":%s,\"max_tokens\":%u,\"stream\":true,\"temperature\":0,"
                     "\"ignore_eos\":true}",
                     model, prompt, l->o.n_tokens);
    n = snprintf(all, sizeof all,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: %d\r\n\r\n%s",
                 l->o.path, n, body);
    s->has_head = s->done = false;
    s->n_text = s->n_tokens = 0;
    if (l->recording && l->o.step_log)
        s->answer = (struct load_answer){.text = mem_array(l->o.n_tokens, 1),
                                         .time_ns = mem_array(l->o.n_tokens, 8)};
    /* only a read shows whether the peer has closed the connection */
    bool may_be_closed = l->o.any && s->n_answers > s->n_answers_before;
    if (send(s->fd, all, (size_t)n, MSG_NOSIGNAL) != n && !may_be_closed)
        bench_die("stream %u: send: %s", i, strerror(errno));
}

void load_stream_open(struct load *l, uint32_t i)
{
    struct load_stream *s = &l->streams[i];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->o.port)};
    int one = 1;
    if (inet_pton(AF_INET, l->o.host, &a.sin_addr) != 1)
        bench_die("--host %s: an IPv4 address is wanted", l->o.host);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&a, sizeof a) != 0)
        bench_die("%s:%d: %s", l->o.host, l->o.port, strerror(errno));
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &e) != 0)
        bench_die("epoll: %s", strerror(errno));
    ask(l, i);
}

/* ---- events ---- */

/* Counts the tokens of an event up to the closing quote, one letter each. An event has several
 * tokens when further tokens arrived before the event was sent. */
static void on_letters(struct load *l, uint32_t i, const char *at, const char *end)
{
    struct load_stream *s = &l->streams[i];
    for (; at < end && *at != '"'; at++) {
        uint32_t id = null_hash_token(&s->expected, BYTE_VOCABULARY);
        if ((unsigned char)*at != id || s->n_tokens == l->o.n_tokens)
            bench_die("stream %u, answer %llu: token %u is '%c', not '%c'", i,
                      (unsigned long long)s->n_answers, s->n_tokens, *at, (char)id);
        null_hash_push(&s->expected, id);
        if (s->answer.text) {
            s->answer.text[s->n_tokens] = *at;
            s->answer.time_ns[s->n_tokens] = l->now_ns;
        }
        s->n_tokens++;
        l->n_tokens++;
    }
}

/* Handles the JSON between "data: " and the end of the line. */
static void on_event(struct load *l, uint32_t i, const char *at, const char *end)
{
    struct load_stream *s = &l->streams[i];
    size_t n = strlen(TEXT_KEY);
    if (end - at == 6 && memcmp(at, "[DONE]", 6) == 0) {
        s->done = true;
        return;
    }
    const char *text = at + s->text_at;
    if (end - text < (ptrdiff_t)n + 2 || memcmp(text, TEXT_KEY, n) != 0) {
        text = find(at, end, TEXT_KEY);
        if (!text)
            bench_die("stream %u: no text in %.*s", i, (int)(end - at), at);
        s->text_at = (uint32_t)(text - at);
    }
    text += n;
    if (*text == '"')
        return; /* this event is the end of a real model's answer, or half a character */
    if (!l->o.any)
        on_letters(l, i, text, end);
    if (s->n_text++ == 0 && s->n_answers == 0)
        l->n_begun++;
    l->n_events++;
}

static void on_lines(struct load *l, uint32_t i, const char *at, const char *end)
{
    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        if (!eol)
            bench_die("stream %u: a chunk ends inside a line: %.*s", i, (int)(end - at), at);
        const char *last = eol > at && eol[-1] == '\r' ? eol - 1 : eol;
        if (last - at > 6 && memcmp(at, "data: ", 6) == 0)
            on_event(l, i, at + 6, last);
        else if (last > at && *at != ':')
            bench_die("stream %u: not a line of SSE: %.*s", i, (int)(last - at), at);
        at = eol + 1;
    }
}

/* ---- HTTP ---- */

static void on_answer_end(struct load *l, uint32_t i)
{
    struct load_stream *s = &l->streams[i];
    if (!s->done || s->n_text == 0 || (!l->o.any && s->n_tokens != l->o.n_tokens))
        bench_die("stream %u: the answer ended after %u tokens of %u, %u events, %s [DONE]", i,
                  s->n_tokens, l->o.n_tokens, s->n_text, s->done ? "with" : "without");
    s->n_answers++;
    l->n_answers++;
    l->n_ended_events += s->n_text;
    if (s->answer.text) {
        if (l->n_recorded == l->cap_recorded) {
            l->cap_recorded = l->cap_recorded ? 2 * l->cap_recorded : 256;
            l->answers = mem_realloc(l->answers, l->cap_recorded * sizeof *l->answers);
        }
        l->answers[l->n_recorded++] = s->answer;
        s->answer = (struct load_answer){0};
    }
    ask(l, i);
}

/* Returns the position behind the HTTP headers; NULL while they are incomplete. */
static const char *skip_head(struct load *l, uint32_t i, const char *at, const char *end)
{
    const char *body = find(at, end, "\r\n\r\n");
    if (!body) {
        if (end - at > HEAD_MAX)
            bench_die("stream %u: a head of more than %d bytes", i, HEAD_MAX);
        return NULL;
    }
    if (memcmp(at, "HTTP/1.1 200", 12) != 0)
        bench_die("stream %u: %.*s", i, (int)(end - at), at);
    if (!find(at, body + 2, "hunked\r\n"))
        bench_die("stream %u: an answer that is not chunked: %.*s", i, (int)(body - at), at);
    l->streams[i].has_head = true;
    return body + 4;
}

/* Returns the beginning of the next chunk, or NULL while this chunk is incomplete. */
static const char *take_chunk(struct load *l, uint32_t i, const char *at, const char *end)
{
    size_t n = 0;
    const char *p = at;
    for (; p < end && *p != '\r'; p++) {
        int c = *p | 32;
        if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
            bench_die("stream %u: not a chunk: %.*s", i, (int)(end - at), at);
        n = n * 16 + (size_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (n > LOAD_READ_BYTES)
        bench_die("stream %u: a chunk of %zu bytes", i, n);
    if (end - p < (ptrdiff_t)n + 4)
        return NULL;
    p += 2;
    if (n == 0)
        on_answer_end(l, i);
    else
        on_lines(l, i, p, p + n);
    return p + n + 2;
}

static void keep_rest(struct load_stream *s, const char *at, const char *end)
{
    s->n_rest = (size_t)(end - at);
    if (s->n_rest == 0)
        return;
    s->rest = mem_realloc(s->rest, s->n_rest);
    memcpy(s->rest, at, s->n_rest);
}

/* Opens a new connection and repeats the request. A peer may limit the number of requests on a
 * connection. */
static bool open_again(struct load *l, uint32_t i)
{
    struct load_stream *s = &l->streams[i];
    if (!l->o.any || s->has_head || s->n_rest > 0 || s->n_answers == s->n_answers_before)
        return false;
    close(s->fd);
    s->n_answers_before = s->n_answers;
    load_stream_open(l, i);
    return true;
}

void load_stream_read(struct load *l, uint32_t i)
{
    struct load_stream *s = &l->streams[i];
    size_t n_rest = s->n_rest;
    if (n_rest > 0)
        memcpy(l->buffer, s->rest, n_rest);
    ssize_t n = recv(s->fd, l->buffer + n_rest, 2 * LOAD_READ_BYTES - n_rest, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 && open_again(l, i))
        return;
    if (n <= 0)
        bench_die("stream %u: the connection ended: %s", i, n < 0 ? strerror(errno) : "closed");
    if (l->recording)
        l->now_ns = clock_mono_ns();
    l->n_reads++;
    l->n_bytes += (uint64_t)n;
    const char *at = l->buffer, *end = l->buffer + n_rest + (size_t)n, *next = at;
    while (next && at < end) {
        next = s->has_head ? take_chunk(l, i, at, end) : skip_head(l, i, at, end);
        if (next)
            at = next;
    }
    keep_rest(s, at, end);
}
