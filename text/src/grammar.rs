//! Grammars over a tokenizer's vocabulary (crate llguidance): a source becomes a compiled grammar, and
//! a matcher says which tokens may come next. Sources are a client's: what a grammar may cost is
//! bounded here, in bytes, nesting, size, and fuel of compiling and of each mask.

use crate::error::{fail, invalid, Code, Result, TextError};
use crate::tokenizer::Tokenizer;
use crate::vocab::NONE;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::ParserFactory;
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// text.h: enum text_grammar_kind
pub const JSON_SCHEMA: i32 = 1;
pub const REGEX: i32 = 2;
pub const LARK: i32 = 3;
pub const STRUCTURAL_TAG: i32 = 4;

const MAX_SOURCE: usize = 256 << 10;
const MAX_DEPTH: usize = 64;
/// The trie has no room for longer tokens: they are never allowed.
const MAX_TOKEN_BYTES: usize = 1000;
const MAX_TOKENS: u32 = 1 << 22;
/// References of a schema lead from one to the next, each a few calls deeper; untouched pages cost
/// nothing.
const STACK_BYTES: usize = 512 << 20;

fn limits() -> ParserLimits {
    ParserLimits {
        max_grammar_size: 200_000,
        max_lexer_states: 20_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// The first line of what the crate says; its state and backtraces are not for clients.
fn crate_error(e: impl std::fmt::Display) -> TextError {
    let text = e.to_string();
    let text = text.split("\n<").next().unwrap_or_default().trim_end();
    let spent = ["fuel", "too complex", "too large", "too many", "too big"];
    let code = if spent.iter().any(|s| text.contains(s)) { Code::Limit } else { Code::Invalid };
    TextError { code, message: text.to_owned() }
}

/// A tokenizer's tokens by their bytes.
pub struct Vocabulary {
    factory: ParserFactory,
    eos: u32,
}

impl Vocabulary {
    pub fn new(t: &Tokenizer) -> Result<Vocabulary> {
        let n = t.vocab_size();
        if n > MAX_TOKENS {
            return fail(Code::Limit, format!("a vocabulary of {n} tokens, grammars take {MAX_TOKENS}"));
        }
        let word = |id: u32| {
            let bytes = t.token_bytes(id).unwrap_or_default();
            match (bytes.len() > MAX_TOKEN_BYTES, t.is_special(id)) {
                (true, _) => Vec::new(),
                // no text of an answer: only a grammar that names it has it
                (_, true) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
                (_, false) => bytes.to_vec(),
            }
        };
        let words: Vec<_> = (0..n).map(word).collect();
        // NONE is the trie's INVALID_TOKEN
        let eos = if t.eos < n { t.eos } else { NONE };
        let trie = TokTrie::from(&TokRxInfo::new(n, eos), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(crate_error)?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Vocabulary { factory, eos })
    }
}

/// How deep brackets of the source lie in each other. Quoted ones do not count.
fn depth(source: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for b in source.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Text with tagged parts: what stands between a structure's begin and end follows its schema, and
/// from a trigger on a structure has to follow that begins so.
fn structural_tag(source: &str) -> Result<String> {
    #[derive(serde::Deserialize)]
    struct Structure {
        begin: String,
        schema: Value,
        end: String,
    }
    #[derive(serde::Deserialize)]
    struct Tags {
        structures: Vec<Structure>,
        triggers: Vec<String>,
    }
    let tags: Tags =
        serde_json::from_str(source).map_err(|e| invalid(format!("structures and triggers: {e}")))?;
    if tags.structures.is_empty() || tags.triggers.iter().any(String::is_empty) {
        return Err(invalid("structural_tag needs structures, and triggers that are not empty"));
    }
    let quote = |s: &str| Value::from(s).to_string();
    let names: Vec<_> = (0..tags.structures.len()).map(|i| format!("tag_{i}")).collect();
    let mut lark =
        format!("start: ({})* tag_end\ntag_end: TAG_TEXT\nTAG_TEXT: /(\\n|.)*/\n", names.join(" | "));
    for (i, s) in tags.structures.iter().enumerate() {
        let Some((t, trigger)) = tags.triggers.iter().enumerate().find(|(_, t)| s.begin.starts_with(*t))
        else {
            return Err(invalid(format!("no trigger begins {}", quote(&s.begin))));
        };
        let rest = quote(&s.begin[trigger.len()..]);
        lark += &format!("tag_{i}: trigger_{t} {rest} %json {} {}\n", s.schema, quote(&s.end));
    }
    for (t, trigger) in tags.triggers.iter().enumerate() {
        lark += &format!("trigger_{t}[lazy]: TAG_TEXT {}\n", quote(trigger));
    }
    Ok(lark)
}

fn top_level(kind: i32, source: &str) -> Result<TopLevelGrammar> {
    match kind {
        JSON_SCHEMA => serde_json::from_str(source)
            .map(TopLevelGrammar::from_json_schema)
            .map_err(|e| invalid(format!("the schema is not JSON: {e}"))),
        REGEX => Ok(TopLevelGrammar::from_regex(source)),
        LARK => Ok(TopLevelGrammar::from_lark(source.to_owned())),
        STRUCTURAL_TAG => structural_tag(source).map(TopLevelGrammar::from_lark),
        _ => Err(invalid(format!("grammar kind {kind}"))),
    }
}

/// Compiled, before its first token.
pub struct Grammar {
    fresh: Mutex<llguidance::Matcher>,
    eos: u32,
}

impl Grammar {
    pub fn compile(v: &Vocabulary, kind: i32, source: &str) -> Result<Grammar> {
        if source.len() > MAX_SOURCE {
            return fail(
                Code::Limit,
                format!("a grammar of {} bytes, at most {MAX_SOURCE} are taken", source.len()),
            );
        }
        if depth(source) > MAX_DEPTH {
            return fail(
                Code::Limit,
                format!("a grammar nested {} deep, at most {MAX_DEPTH}", depth(source)),
            );
        }
        let compile = || {
            let parser = v.factory.create_parser(top_level(kind, source)?).map_err(crate_error)?;
            let mut fresh = llguidance::Matcher::new(Ok(parser));
            // what can be no text at all shows in the first mask
            match fresh.compute_mask() {
                Ok(_) => {}
                Err(_) if fresh.is_accepting().unwrap_or(false) => {}
                Err(e) => return Err(crate_error(format!("it allows no text: {e}"))),
            }
            Ok(Grammar { fresh: Mutex::new(fresh), eos: v.eos })
        };
        std::thread::scope(|s| {
            let thread = std::thread::Builder::new()
                .name("grammar".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(s, compile)
                .map_err(|e| TextError {
                    code: Code::Limit,
                    message: format!("no thread to compile it: {e}"),
                })?;
            thread.join().unwrap_or_else(|_| fail(Code::Internal, "the grammar's compiler panicked"))
        })
    }
}

pub struct Matcher {
    inner: llguidance::Matcher,
    /// which end an answer; nothing follows them
    eos: Vec<u32>,
    ended: bool,
}

fn set(words: &mut [u32], id: u32, on: bool) {
    if let Some(w) = words.get_mut(id as usize / 32) {
        *w = if on { *w | 1 << (id % 32) } else { *w & !(1 << (id % 32)) };
    }
}

impl Matcher {
    pub fn new(g: &Grammar, eos: &[u32]) -> Matcher {
        let fresh = g.fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut eos = eos.to_vec();
        if g.eos != NONE {
            eos.push(g.eos);
        }
        Matcher { inner: fresh.deep_clone(), eos, ended: false }
    }

    /// For a look ahead.
    pub fn copy(&self) -> Matcher {
        Matcher { inner: self.inner.clone(), eos: self.eos.clone(), ended: self.ended }
    }

    pub fn is_done(&self) -> bool {
        self.ended || self.inner.is_stopped()
    }

    fn next(&mut self) -> Result<Option<(SimpleVob, bool)>> {
        if self.is_done() {
            return Ok(None);
        }
        let mask = match self.inner.compute_mask() {
            Ok(mask) => mask,
            Err(e) => {
                self.ended = true;
                return Err(TextError { code: Code::Limit, ..crate_error(e) });
            }
        };
        let may_end = self.inner.is_accepting().unwrap_or(true);
        Ok(Some((mask, may_end)))
    }

    /// Bit i % 32 of word i / 32: token i may be next. Where the grammar has come to its end, or on an
    /// error, only the end may.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        words.fill(0);
        let next = self.next();
        let may_end = match &next {
            Ok(Some((mask, may_end))) => {
                let n = words.len().min(mask.as_slice().len());
                words[..n].copy_from_slice(&mask.as_slice()[..n]);
                *may_end
            }
            Ok(None) | Err(_) => true,
        };
        for &id in &self.eos {
            set(words, id, may_end);
        }
        next.map(|_| ())
    }

    /// False: the grammar does not allow it here, and nothing has changed.
    pub fn accept(&mut self, id: u32) -> Result<bool> {
        if self.eos.contains(&id) {
            self.ended = true;
        }
        if self.ended {
            return Ok(true);
        }
        self.inner.try_consume_tokens(&[id]).map(|n| n == 1).map_err(crate_error)
    }
}
