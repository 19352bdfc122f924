//! Counts the ways of a pattern. Its ways are the largest number of byte sets in the pattern that contain the same byte.
//! For an intersection of patterns, derivre's work grows with the product of their ways, within a single step that no
//! fuel interrupts.

use llguidance::derivre::raw::{DerivCache, ExprSet};
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use std::collections::{HashMap, HashSet};

/// Limit of the ways of one intersection, in the worst case that some byte has all the ways.
pub const MOST_WAYS: f64 = 200_000.0;
/// Ways of the pattern (?s:.{m,n}): the second byte of a character is in this many sets.
pub const WAYS_OF_LENGTH: f64 = 2.0;
/// Ways of the widest format (its letters, digits and the second byte of a character).
pub const WAYS_OF_FORMAT: f64 = 4.0;

/// Holds the byte sets (`sets`) and the inner intersections (`both`) of an expression, each of them once.
struct Parts {
    sets: Vec<ExprRef>,
    both: Vec<ExprRef>,
    has_texts: bool,
}

fn is(set: &ExprSet, e: ExprRef, tag: &str) -> bool {
    format!("{:?}", set.get_tag(e)) == tag // derivre does not export its tags, so their names are compared
}

/// Collects the parts of an expression down to the next intersections.
fn parts(set: &ExprSet, own: ExprRef) -> Parts {
    let mut found = Parts { sets: Vec::new(), both: Vec::new(), has_texts: false };
    let (mut waiting, mut seen) = (vec![own], HashSet::from([own]));
    while let Some(e) = waiting.pop() {
        if e != own && is(set, e, "And") {
            found.both.push(e);
            continue;
        }
        let args = set.get_args(e);
        found.has_texts |= is(set, e, "ByteConcat");
        if args.is_empty() {
            found.sets.push(e);
        }
        waiting.extend(args.iter().filter(|e| seen.insert(**e)));
    }
    found
}

/// Returns the largest number of these sets that contain the same byte.
fn overlap(set: &mut ExprSet, sets: &[ExprRef]) -> usize {
    let mut derived = DerivCache::new();
    let mut of =
        |b: u8| sets.iter().filter(|e| derived.derivative(set, **e, b) == ExprRef::EMPTY_STRING).count();
    (0..=u8::MAX).map(|b| of(b)).max().unwrap_or(0)
}

/// Returns the ways of one of derivre's expressions. `known` caches the ways of the expressions counted before.
pub fn ways_of(set: &mut ExprSet, own: ExprRef, known: &mut HashMap<ExprRef, f64>) -> f64 {
    if let Some(n) = known.get(&own) {
        return *n;
    }
    let n = if is(set, own, "And") {
        let args = set.get_args(own).to_vec();
        args.into_iter().map(|e| ways_of(set, e, known)).product()
    } else {
        let p = parts(set, own);
        let inside: f64 = p.both.iter().map(|e| ways_of(set, *e, known)).sum();
        (overlap(set, &p.sets) + p.has_texts as usize).max(1) as f64 + inside
    };
    known.insert(own, n);
    n
}

/// Returns true when an intersection in any of the lexemes has too many ways.
pub fn is_beyond(set: &mut ExprSet, lexemes: &[ExprRef]) -> bool {
    let mut known = HashMap::new();
    let (mut waiting, mut seen) = (lexemes.to_vec(), HashSet::new());
    while let Some(e) = waiting.pop() {
        if !seen.insert(e) {
            continue;
        }
        if is(set, e, "And") && ways_of(set, e, &mut known) > MOST_WAYS {
            return true;
        }
        waiting.extend_from_slice(set.get_args(e));
    }
    false
}

pub fn ways(pattern: &str) -> f64 {
    let mut builder = RegexBuilder::new();
    match builder.mk(&RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))) {
        Ok(own) => ways_of(&mut builder.into_exprset(), own, &mut HashMap::new()),
        Err(_) => 1.0, // 1.0 is within the limit, so llguidance reports the error
    }
}
