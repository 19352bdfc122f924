"""Computes the null worker's answers from docs/develop/null-worker.md alone."""

MASK = (1 << 64) - 1


def _fnv(h, word, n_bytes):
    for byte in word.to_bytes(n_bytes, "little"):
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def _finalise(h):
    z = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def token_ids(prompt, n, seed=0, i_prompt=0, i_choice=0, temperature=1.0, vocab_size=259):
    """Returns the n token ids that follow the prompt's ids."""
    if temperature == 0:
        seed = i_prompt = i_choice = 0
    h = _fnv(_fnv(_fnv(0xCBF29CE484222325, seed & MASK, 8), i_prompt, 4), i_choice, 4)
    for token in prompt:
        h = _fnv(h, token, 4)
    out = []
    for _ in range(n):
        z = _finalise(h)
        token = 97 + z % 26 if vocab_size < 16384 else 1000 + z % 10000
        out.append(token)
        h = _fnv(h, token, 4)
    return out


def text(prompt, n, **kwargs):
    """Returns the n tokens as text, for the byte tokenizer. The prompt is a text."""
    ids = prompt.encode() if isinstance(prompt, str) else prompt
    return bytes(token_ids(ids, n, **kwargs)).decode()


def cut(answer, stops):
    """Returns (text, number of tokens, stop) of an answer that ends before its first stop string. The first stop string is the one
    completed first. Among stop strings completed at the same character, it is the longest."""
    best = None
    for stop in stops:
        at = answer.find(stop)
        if at >= 0:
            best = min(best or (len(answer) + 1, 0, ""), (at + len(stop), -len(stop), stop))
    if best is None:
        return answer, len(answer), None
    return answer[:best[0] + best[1]], best[0], best[2]


def scores(prompt, k, vocab_size=259):
    """Returns the rows of a prompt's log-probabilities: None, then [id, value, rank] with the k best as {id: value}."""
    ids = list(prompt.encode() if isinstance(prompt, str) else prompt)
    h = _fnv(_fnv(_fnv(0xCBF29CE484222325, 0, 8), 0, 4), 0, 4)
    out = [None]
    for p, token in enumerate(ids):
        h = _fnv(h, token, 4)
        if p == 0:
            continue
        rank = 1 + _finalise(h) % 26
        out.append((token, -rank / 8, rank, {(token + i - rank) % vocab_size: -i / 8 for i in range(1, k + 1)}))
    return out
