//! Computes the set of allowed tokens over a large vocabulary. llguidance walks a trie of all tokens byte by byte. Where
//! a string may contain any text, the walk visits 600,000 nodes.
//!
//! Here tokens are sorted into classes by the characters in them. Some lexemes continue in the same way after each
//! character of a class; the inside of a string is an example. There, the number of characters that may follow determines
//! which tokens of the class are allowed, and only the other tokens are walked. A few first characters may lead
//! elsewhere, such as the next character of a marker or of a property's name. Tokens that begin with one of these
//! characters are walked as well. The masks are equal to llguidance's own masks, bit for bit.

use llguidance::derivre::StateID;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::toktrie::{Recognizer, SimpleVob, TokEnv, TokTrie, TrieNode};
use std::ops::RangeInclusive;

/// Longest token of a class in characters. Longer tokens are few and are always walked.
const MAX_CHARS: usize = 16;

/// Matches the inside of a JSON string, as a pattern of llguidance. Where the complete pattern may follow, the lexer's
/// states need not be checked.
pub const INSIDE_STRING: &str = r#"[^"\\\x00-\x1F\x7F]{1,16}"#;

/// Describes a class: its ASCII bytes, and whether all other characters belong to it. The most useful rules are first.
struct ClassRule {
    ascii: fn(u8) -> bool,
    wide: bool,
}
const RULES: [ClassRule; 4] = [
    ClassRule { ascii: |b| b >= b' ' && !b"\"\\\x7f".contains(&b), wide: true }, // class of INSIDE_STRING
    ClassRule { ascii: |b| !b"</".contains(&b), wide: true }, // class of the text up to a marker, most often </think>
    ClassRule { ascii: |b| b.is_ascii_alphanumeric() || b" !#$%&'*+,-.:;?@^_~".contains(&b), wide: true },
    ClassRule { ascii: |b| b.is_ascii_alphanumeric(), wide: false },
];

struct Class {
    ascii: Vec<u8>,
    wide: bool,
    /// upto[n] has the class's tokens of at most n characters
    upto: Vec<SimpleVob>,
}

/// Holds the tokens that belong to the same classes; bit i of `classes` is class i.
struct Part {
    classes: u32,
    trie: TokTrie,
}

pub struct Masks {
    env: TokEnv,
    classes: Vec<Class>,
    parts: Vec<Part>,
    /// Special tokens, which are not text. A lexeme of arbitrary bytes (Lark's `~"x"`) would accept a special token's
    /// marker byte. A grammar allows the special tokens that it names by id ranges, after compute_bias.
    special: SimpleVob,
}

fn classes_of(word: &[u8]) -> (u32, usize) {
    let n = std::str::from_utf8(word).map_or(0, |s| s.chars().count());
    if n == 0 || n > MAX_CHARS {
        return (0, 0);
    }
    let has = |r: &ClassRule| word.iter().all(|&b| if b < 0x80 { (r.ascii)(b) } else { r.wide });
    let bits = RULES.iter().enumerate().filter(|(_, r)| has(r)).fold(0, |bits, (i, _)| bits | 1 << i);
    (bits, n)
}

impl Masks {
    pub fn new(env: &TokEnv) -> Masks {
        let trie = env.tok_trie();
        let none = || trie.alloc_token_set();
        let mut classes: Vec<_> = RULES
            .iter()
            .map(|r| Class {
                ascii: (0..0x80).filter(|&b| (r.ascii)(b)).collect(),
                wide: r.wide,
                upto: vec![none(); MAX_CHARS + 1],
            })
            .collect();
        let mut parts: Vec<(u32, SimpleVob)> = Vec::new();
        let mut special = none();
        for id in 0..trie.vocab_size() as u32 {
            if trie.token(id).first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                special.allow_token(id);
            }
            let (bits, n) = classes_of(trie.token(id));
            for (i, c) in classes.iter_mut().enumerate() {
                if bits >> i & 1 == 1 {
                    c.upto[n].allow_token(id);
                }
            }
            match parts.iter_mut().find(|(b, _)| *b == bits) {
                Some((_, set)) => set.allow_token(id),
                None => {
                    let mut set = none();
                    set.allow_token(id);
                    parts.push((bits, set));
                }
            }
        }
        for c in &mut classes {
            for n in 1..=MAX_CHARS {
                let (shorter, longer) = c.upto.split_at_mut(n);
                longer[0].or(&shorter[n - 1]);
            }
        }
        let part = |(classes, set): &(u32, SimpleVob)| Part { classes: *classes, trie: trie.filter(set) };
        Masks { env: env.clone(), parts: parts.iter().map(part).collect(), classes, special }
    }

    /// Finds the first class whose tokens are allowed exactly up to some number of characters.
    fn reach(&self, rec: &mut ParserRecognizer<'_>, state: StateID) -> Option<Reach> {
        if rec.lexer_mut().subsume_possible(state)
            && rec.lexer_mut().check_subsume(state, 0, SUBSUME_BUDGET).unwrap_or(false)
        {
            return Some(Reach { class: 0, chars: MAX_CHARS, apart: Vec::new() });
        }
        let whole = self
            .classes
            .iter()
            .enumerate()
            .find_map(|(i, c)| Some(Reach { class: i, chars: c.reach(rec, state)?, apart: Vec::new() }));
        whole
            .or_else(|| self.classes.iter().enumerate().find_map(|(i, c)| self.reach_apart(rec, state, i, c)))
    }

    /// Works like `reach`, for all tokens except those that begin with one of a few bytes. Returns None when too many
    /// tokens begin with these bytes.
    fn reach_apart(
        &self,
        rec: &mut ParserRecognizer<'_>,
        state: StateID,
        class: usize,
        c: &Class,
    ) -> Option<Reach> {
        let (next, apart) = c.first_step(rec, state)?;
        let trie = self.env.tok_trie();
        let n_apart = |b: &u8| first_nodes(trie, *b).map(|n| n.subtree_size()).sum::<usize>();
        if apart.iter().map(n_apart).sum::<usize>() > trie.root().subtree_size() / 8 {
            return None;
        }
        let chars = (c.reach(rec, next)? + 1).min(MAX_CHARS);
        Some(Reach { class, chars, apart })
    }

    /// Checks the tokens that begin with `byte` against the grammar instead of their class.
    fn walk_apart(&self, rec: &mut ParserRecognizer<'_>, byte: u8, set: &mut SimpleVob) {
        let trie = self.env.tok_trie();
        for n in first_nodes(trie, byte) {
            disallow(trie, n, set);
            rec.trie_started("apart");
            let looked = walk(trie, n, rec, set);
            rec.save_stats(looked);
            rec.trie_finished();
        }
    }
}

/// Describes the tokens that may follow: those of `class` with up to `chars` characters. Tokens that begin with a byte of
/// `apart` must be walked.
struct Reach {
    class: usize,
    chars: usize,
    apart: Vec<u8>,
}

/// Returns the nodes below the root for tokens that begin with `byte`. There are several nodes when several tokens have
/// the same bytes, as in vocabularies with one token for each byte.
fn first_nodes(trie: &TokTrie, byte: u8) -> impl Iterator<Item = &TrieNode> {
    trie.node_children(trie.root()).filter(move |n| n.byte() == byte)
}

/// Removes the tokens below a node from the set. The recursion is one call for each byte of a token, and grammar.rs
/// limits these bytes (MAX_TOKEN_BYTES).
fn disallow(trie: &TokTrie, n: &TrieNode, set: &mut SimpleVob) {
    n.token_id().into_iter().for_each(|id| set.disallow_token(id));
    trie.node_children(n).for_each(|c| disallow(trie, c, set));
}

/// Allows the tokens below `n` that the grammar accepts, and returns the number of nodes visited.
fn walk(trie: &TokTrie, n: &TrieNode, rec: &mut ParserRecognizer<'_>, set: &mut SimpleVob) -> usize {
    let mut looked = 1;
    if rec.try_push_byte(n.byte()) {
        n.token_id().into_iter().for_each(|id| set.allow_token(id));
        looked += trie.node_children(n).map(|c| walk(trie, c, rec, set)).sum::<usize>();
        rec.pop_bytes(1);
    }
    looked
}

const SUBSUME_BUDGET: u64 = 1000;

/// Steps the lexer by one byte without the parser. No lexeme ends with the byte unless the next state is dead or belongs
/// to a lazy match.
fn step(rec: &mut ParserRecognizer<'_>, state: StateID, byte: u8) -> StateID {
    rec.lexer_mut().transition_start_state(state, Some(byte))
}

/// Returns the one state that all these bytes lead to; None when the states differ.
fn step_all(rec: &mut ParserRecognizer<'_>, state: StateID, bytes: RangeInclusive<u8>) -> Option<StateID> {
    let next = step(rec, state, *bytes.start());
    for b in bytes {
        if step(rec, state, b) != next {
            return None;
        }
    }
    Some(next)
}

/// Returns Some when every multi-byte character leads to `next`. All UTF-8 sequences are checked, and no lexeme may end
/// inside a character.
fn step_wide(rec: &mut ParserRecognizer<'_>, state: StateID, next: StateID) -> Option<()> {
    let last_one = step_all(rec, state, 0xC2..=0xDF)?;
    let last_two = step_all(rec, state, 0xE1..=0xEC)?;
    let last_three = step_all(rec, state, 0xF1..=0xF3)?;
    let leads: [(u8, RangeInclusive<u8>, StateID); 5] = [
        (0xE0, 0xA0..=0xBF, last_one),
        (0xED, 0x80..=0x9F, last_one),
        (0xEE, 0x80..=0xBF, last_one),
        (0xEF, 0x80..=0xBF, last_one),
        (0xF0, 0x90..=0xBF, last_two),
    ];
    let mut inside = vec![(last_one, 0x80..=0xBF, next), (last_two, 0x80..=0xBF, last_one)];
    inside.push((last_three, 0x80..=0xBF, last_two));
    inside.push((step(rec, state, 0xF4), 0x80..=0x8F, last_two));
    for (lead, range, to) in leads {
        inside.push((step(rec, state, lead), range, to));
    }
    for (s, range, to) in inside {
        if s.is_dead() || s.has_lowest_match() || step_all(rec, s, range)? != to {
            return None;
        }
    }
    Some(())
}

impl Class {
    /// Returns the one state that every character of the class leads to; None when the states differ. A dead state means
    /// that no character may follow.
    fn step(&self, rec: &mut ParserRecognizer<'_>, state: StateID) -> Option<StateID> {
        let next = step(rec, state, self.ascii[0]);
        if next.has_lowest_match() || self.ascii.iter().any(|&b| step(rec, state, b) != next) {
            return None;
        }
        if next.is_dead() {
            // true when a lexeme could end here and another lexeme could begin
            let ends = !rec.lexer_mut().try_lexeme_end(state).is_error();
            let wide = self.wide && !(0xC2..=0xF4).all(|b| step(rec, state, b).is_dead());
            return (!ends && !wide).then_some(next);
        }
        if self.wide {
            step_wide(rec, state, next)?;
        }
        Some(next)
    }

    /// Returns the live state that all but a few characters of the class lead to, and the first bytes of those few
    /// characters. Returns None when the state is dead or ends a lazy match.
    fn first_step(&self, rec: &mut ParserRecognizer<'_>, state: StateID) -> Option<(StateID, Vec<u8>)> {
        let nexts: Vec<_> = self.ascii.iter().map(|&b| step(rec, state, b)).collect();
        let mut next = nexts[0];
        let mut lead = 0; // lead of `next`, in votes, in the majority vote
        for &n in &nexts {
            match (n == next, lead) {
                (true, _) => lead += 1,
                (false, 0) => (next, lead) = (n, 1),
                (false, _) => lead -= 1,
            }
        }
        if next.is_dead() || next.has_lowest_match() {
            return None;
        }
        if self.wide {
            step_wide(rec, state, next)?;
        }
        let apart = self.ascii.iter().zip(&nexts).filter(|(_, n)| **n != next).map(|(b, _)| *b);
        Some((next, apart.collect()))
    }

    /// Returns the number of characters of the class that may follow, in any combination. Returns None when the
    /// characters do not all lead to the same state.
    fn reach(&self, rec: &mut ParserRecognizer<'_>, mut state: StateID) -> Option<usize> {
        for n in 0..MAX_CHARS {
            let next = self.step(rec, state)?;
            if next.is_dead() {
                return Some(n);
            }
            if next == state {
                break;
            }
            state = next;
        }
        Some(MAX_CHARS)
    }
}

impl BiasComputer for Masks {
    fn trie(&self) -> &TokTrie {
        self.env.tok_trie()
    }

    fn compute_bias(&self, rec: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut set = self.trie().alloc_token_set();
        let state = rec.lexer_state();
        let reach = if start.is_empty() { self.reach(rec, state) } else { None };
        match reach {
            None => self.trie().add_bias(rec, &mut set, start),
            Some(r) => {
                set.or(&self.classes[r.class].upto[r.chars]);
                r.apart.iter().for_each(|&b| self.walk_apart(rec, b, &mut set));
                for p in self.parts.iter().filter(|p| p.classes >> r.class & 1 == 0) {
                    p.trie.add_bias(rec, &mut set, start);
                }
            }
        }
        set.sub(&self.special);
        set
    }
}
