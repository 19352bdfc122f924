//! Compiles grammars over a tokenizer's vocabulary, with the crate llguidance. A source is compiled to a grammar, and a
//! matcher returns the tokens that are allowed next. Clients send the sources, so this file limits the cost of a grammar.
//! The limits are for bytes, nesting and size, and for the fuel of the compile and of each mask.

use super::mask_budget::Budget;
use super::masks::{Masks, INSIDE_STRING};
use super::matcher_memory::{self, Memory};
use super::recursion::{growth, Growth};
use super::source::top_level;
use crate::base::error::{fail, invalid, Code, Result, TextError};
use crate::base::heap;
use crate::schema::names;
use crate::schema::regex_ways;
use crate::schema::stand_ins::Numbers;
use crate::schema::text;
use crate::tokenizer::Tokenizer;
use crate::vocab::table::NONE;
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::earley::BiasComputer;
use llguidance::toktrie::{
    InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};
use llguidance::ParserFactory;
use std::sync::{Arc, Mutex, OnceLock};

/// Longest token in bytes that the trie can hold; longer tokens are never allowed.
const MAX_TOKEN_BYTES: usize = 1000;
const MAX_TOKENS: u32 = 1 << 22;
/// Stack of the compile thread in bytes. llguidance follows a schema's references recursively, a few calls for each.
/// Untouched pages use no memory.
const STACK_BYTES: usize = 512 << 20;

/// Limits of the parser's items in one mask (MOST_ITEMS) and at one position of the text (MOST_OF_ROW). Legitimate
/// grammars need at most 5,800 and 2,000 items. With 1,000 optional properties they need 12,000 and 4,000.
const MOST_ITEMS: usize = 25_000;
const MOST_OF_ROW: usize = 4_200;
/// Most tokens that are accepted without a mask in between. A mask is then computed, because llguidance gives its lexer
/// new fuel only with a mask. A replay, which needs no masks, would run out of fuel.
const MOST_WITHOUT_MASK: u32 = 16;

fn limits() -> ParserLimits {
    ParserLimits {
        max_grammar_size: 200_000,
        max_lexer_states: 20_000,
        max_items_in_row: MOST_OF_ROW,
        step_max_items: MOST_ITEMS,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Keeps only the first line of llguidance's error: clients must not see its internal state and backtraces.
fn crate_error(e: impl std::fmt::Display) -> TextError {
    let text = e.to_string();
    let text = match text.contains("coerce_one_of") {
        true => "this oneOf is not supported: its options must exclude each other, by their types or by a property \
                 with a different const in each. Use anyOf instead",
        false => text.split("\n<").next().unwrap_or_default().trim_end(),
    };
    if let Some(message) = text::plain_words(text) {
        return invalid(message);
    }
    if text.contains("grammar.symbols.len()") {
        let message =
            "the grammar needs more than 65,000 rules. Define repeated parts once and refer to them, or use \
                       a smaller grammar";
        return TextError { code: Code::Limit, message: message.to_owned() };
    }
    let spent = ["fuel", "too complex", "too large", "too many", "too big"];
    let code = if spent.iter().any(|s| text.contains(s)) { Code::Limit } else { Code::Invalid };
    TextError { code, message: text.to_owned() }
}

/// Refuses intersections of lexemes that cost too much, from Lark's `&` or from a schema's joined patterns.
fn check_intersections(spec: &LexerSpec) -> Result<()> {
    let own: Vec<_> = (0..spec.lexemes.len()).filter_map(|i| names::expression(spec, i)).collect();
    match regex_ways::is_beyond(&mut spec.regex_builder.exprset().clone(), &own) {
        true => fail(
            Code::Limit,
            "an intersection of patterns in the grammar costs too much. Intersect fewer patterns, or patterns with \
             fewer possible beginnings",
        ),
        false => Ok(()),
    }
}

/// Holds the vocabulary as llguidance sees it. The trie is empty while llguidance's factory is made, because the factory
/// would build its own tries from it. The masks of masks.rs replace those tries.
struct Env {
    empty: TokTrie,
    full: OnceLock<TokTrie>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        self.full.get().unwrap_or(&self.empty)
    }

    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.tok_trie().greedy_tokenize(s)
    }

    /// Returns false, so that llguidance forces no tokens: the model decides how it cuts a text into tokens.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// Holds a tokenizer's tokens by their bytes.
pub struct Vocabulary {
    factory: ParserFactory,
    masks: Arc<dyn BiasComputer>,
    eos: u32,
}

impl Vocabulary {
    pub fn new(t: &Tokenizer) -> Result<Vocabulary> {
        let n = t.vocab_size();
        if n > MAX_TOKENS {
            return fail(
                Code::Limit,
                format!("the vocabulary has {n} tokens, but grammars support at most {MAX_TOKENS}"),
            );
        }
        let word = |id: u32| {
            let bytes = t.token_bytes(id).unwrap_or_default();
            match (bytes.len() > MAX_TOKEN_BYTES, t.is_special(id)) {
                (true, _) => Vec::new(),
                // a special token is not text, so only a grammar that names the token allows it
                (_, true) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
                (_, false) => bytes.to_vec(),
            }
        };
        // NONE has the same value as the trie's INVALID_TOKEN
        let eos = if t.eos < n { t.eos } else { NONE };
        let empty = TokTrie::from(&TokRxInfo::new(1, NONE), &[Vec::new()]);
        let own = Arc::new(Env { empty, full: OnceLock::new() });
        let env: TokEnv = own.clone();
        let slices = [INSIDE_STRING.to_owned()];
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(crate_error)?;
        factory.quiet();
        *factory.limits_mut() = limits();
        let words: Vec<_> = (0..n).map(word).collect();
        own.full.get_or_init(|| TokTrie::from(&TokRxInfo::new(n, eos), &words));
        drop(words);
        let masks = Arc::new(Masks::new(&env));
        heap::trim();
        Ok(Vocabulary { factory, masks, eos })
    }
}

/// Holds a compiled grammar, before its first token.
pub struct Grammar {
    fresh: Mutex<llguidance::Matcher>,
    /// Size in bytes of a clone of `fresh`.
    first_bytes: u64,
    eos: u32,
    growth: Growth,
    cost: Cost,
}

/// Holds the cost of a compile, with the layout of text.h's struct text_compile_cost.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Cost {
    bytes: u64,
    peak_bytes: u64,
    fuel: u64,
    kept_bytes: u64,
    matcher_bytes: u64,
}

impl Grammar {
    pub fn cost(&self) -> Cost {
        self.cost
    }

    fn clone_fresh(&self) -> llguidance::Matcher {
        self.fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner).deep_clone()
    }

    pub fn compile(v: &Vocabulary, kind: i32, source: &str) -> Result<Grammar> {
        let own = || {
            let special = |name: &str| v.factory.tok_env().tok_trie().get_special_token(name);
            let numbers = Numbers::default();
            let top = top_level(kind, source, &special, &numbers)?;
            let env = Some(v.factory.tok_env().clone());
            let init = GrammarInit::Serialized(top);
            let (rules, mut lexemes) = init.to_internal(env, limits()).map_err(crate_error)?;
            names::in_one_spelling(&mut lexemes)?;
            numbers.place(&mut lexemes)?;
            check_intersections(&lexemes)?;
            let growth = growth(&rules.optimize().compile(lexemes.clone(), &limits()).map_err(crate_error)?);
            let init = GrammarInit::Internal(rules, lexemes);
            let mut parser = v.factory.create_parser_from_init_default(init).map_err(crate_error)?;
            parser.bias_computer = v.masks.clone();
            let mut fresh = llguidance::Matcher::new(Ok(parser));
            // a grammar that allows no text at all fails in the first mask
            match fresh.compute_mask() {
                Ok(_) => {}
                Err(_) if fresh.is_accepting().unwrap_or(false) => {}
                Err(e) => return Err(crate_error(format!("the grammar allows no text: {e}"))),
            }
            let fuel = fresh.last_step_stats().map_or(0, |s| s.lexer_cost);
            Ok(Grammar {
                fresh: Mutex::new(fresh),
                first_bytes: 0,
                eos: v.eos,
                growth,
                cost: Cost { fuel, ..Cost::default() },
            })
        };
        let compile = || match heap::measure(own) {
            (taken, Some(made)) => (
                taken.peak,
                made.map(|g| {
                    let (first, clone) = heap::growth(|| g.clone_fresh());
                    drop(clone);
                    let first_bytes = first.max(0) as u64;
                    let cost = Cost {
                        bytes: taken.bytes,
                        peak_bytes: taken.peak,
                        kept_bytes: taken.kept,
                        matcher_bytes: first_bytes,
                        ..g.cost
                    };
                    Grammar { cost, first_bytes, ..g }
                }),
            ),
            (taken, None) => (taken.peak, fail(Code::Limit, TOO_MUCH)),
        };
        std::thread::scope(|s| {
            let thread = std::thread::Builder::new()
                .name("grammar".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(s, compile)
                .map_err(|e| TextError {
                    code: Code::Internal,
                    message: format!("cannot start a thread to compile the grammar: {e}"),
                })?;
            let panicked = || fail(Code::Internal, "the compiler of the grammar failed (a panic)");
            let (peak, made) = thread.join().unwrap_or_else(|_| (u64::MAX, panicked()));
            if peak > heap::WORTH_TRIMMING {
                heap::trim();
            }
            made
        })
    }
}

const TOO_MUCH: &str =
    "the grammar costs too much to compile. Use a smaller grammar, or combine fewer patterns (allOf) for one string";

const TOO_LARGE: &str =
    "the grammar must keep more of this text in memory than is allowed. Use fewer members or choices at a time, or \
     write repetition left-recursively (list: item | list item)";

const DEAD_END: &str = "the grammar requires more text, but no token of the vocabulary can continue it";

/// Converts an error of llguidance's mask. llguidance fails when no token is allowed, and when a mask exceeds its limits.
/// Only the text of the error distinguishes the two cases.
fn mask_error(e: impl std::fmt::Display) -> TextError {
    let e = e.to_string();
    match e.lines().next().unwrap_or_default().contains("NoExtensionBias") {
        true => invalid(DEAD_END),
        false => TextError { code: Code::Limit, ..crate_error(e) },
    }
}

pub struct Matcher {
    inner: llguidance::Matcher,
    /// Tokens that end an answer.
    eos: Vec<u32>,
    ended: bool,
    budget: Budget,
    memory: Memory,
    /// Error that ended this matcher's masks; None = masks are still possible.
    spent: Option<TextError>,
    /// Number of tokens accepted since the last mask.
    n_taken: u32,
}

fn set(words: &mut [u32], id: u32, on: bool) {
    if let Some(w) = words.get_mut(id as usize / 32) {
        *w = if on { *w | 1 << (id % 32) } else { *w & !(1 << (id % 32)) };
    }
}

impl Matcher {
    pub fn new(g: &Grammar, eos: &[u32]) -> Matcher {
        let mut eos = eos.to_vec();
        if g.eos != NONE {
            eos.push(g.eos);
        }
        let (taken, inner) = heap::growth(|| g.clone_fresh());
        Matcher {
            inner,
            eos,
            ended: false,
            budget: Budget::new(g.growth),
            memory: Memory::new(g.first_bytes, taken),
            spent: None,
            n_taken: 0,
        }
    }

    /// Returns a copy, which may accept tokens that this matcher has not accepted.
    pub fn copy(&self) -> Matcher {
        let (taken, (inner, eos, spent)) =
            heap::growth(|| (self.inner.clone(), self.eos.clone(), self.spent.clone()));
        Matcher { inner, eos, budget: self.budget.clone(), memory: self.memory.copy(taken), spent, ..*self }
    }

    /// Returns the cost of all masks, in the units of mask_budget.rs.
    pub fn cost(&self) -> u64 {
        self.budget.cost
    }

    /// Returns the matcher's memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub fn free(self) {
        matcher_memory::free(self, |m| &m.memory);
    }

    pub fn is_done(&self) -> bool {
        self.ended || self.inner.is_stopped()
    }

    fn next(&mut self) -> Result<Option<(SimpleVob, bool)>> {
        if let Some(e) = &self.spent {
            return Err(e.clone());
        }
        if self.is_done() {
            return Ok(None);
        }
        self.n_taken = 0;
        let mask = self.inner.compute_mask().map_err(mask_error);
        let mask = mask.and_then(|mask| {
            self.inner.last_step_stats().map_or(Ok(()), |s| self.budget.charge(s))?;
            Ok(mask)
        });
        let mask = match mask {
            Ok(mask) => mask,
            Err(e) => {
                self.ended = true;
                self.spent = Some(e.clone());
                return Err(e);
            }
        };
        let may_end = self.inner.is_accepting().unwrap_or(true);
        if !may_end && mask.is_zero() {
            self.ended = true;
            return Err(invalid(DEAD_END));
        }
        Ok(Some((mask, may_end)))
    }

    /// Sets bit i % 32 of word i / 32 when token i may be the next token. At the end of the grammar and on an error, only
    /// the tokens that end an answer are allowed.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        let (grown, masked) = heap::growth(|| self.fill(words));
        self.memory.grew(grown);
        masked?;
        if !self.memory.is_beyond() {
            return Ok(());
        }
        self.ended = true;
        self.spent = Some(TextError { code: Code::Limit, message: TOO_LARGE.to_owned() });
        self.fill(words)
    }

    fn fill(&mut self, words: &mut [u32]) -> Result<()> {
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

    /// Returns false when the grammar does not allow the token here; the matcher is then unchanged.
    pub fn accept(&mut self, id: u32) -> Result<bool> {
        if self.eos.contains(&id) {
            self.ended = true;
        }
        if self.ended {
            return Ok(true);
        }
        self.n_taken += 1;
        let look = self.n_taken % MOST_WITHOUT_MASK == 0 && !self.is_done();
        let (grown, taken) = heap::growth(|| {
            if look {
                let _ = self.inner.compute_mask(); // the error stays in the matcher, and the call below returns it
                let _ = self.inner.last_step_stats().map(|s| self.budget.report(s));
            }
            self.inner.try_consume_tokens(&[id])
        });
        self.memory.grew(grown);
        self.memory.took_token(self.n_taken);
        taken.map(|n| n == 1).map_err(crate_error)
    }
}
