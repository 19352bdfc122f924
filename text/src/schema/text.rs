//! Handles texts with a pattern and a length. llguidance refuses such a schema when a small check does not decide whether
//! any text satisfies both. The check in this file may use more fuel. A stand-in takes the place of the text until
//! llguidance has made its lexemes (stand_ins.rs).

use super::graph::joined;
use super::pattern_check;
use super::pattern_text::{shown, PatternText, SHOWN};
use super::stand_ins::{define, other_types, refer, Numbers, Text, SIMPLE};
use super::walk::{has_type, inner, inner_mut};
use crate::base::error::{Result, TextError};
use llguidance::derivre::RegexBuilder;
use serde_json::{Map, Value};

type Members = Map<String, Value>;

const SAYINGS: [&str; 3] = ["pattern", "minLength", "maxLength"];
/// Largest minLength in characters; check.rs refuses a larger one.
const MOST_LENGTH: u64 = 1_000_000;
/// Fuel that llguidance's own check uses.
const CRATE_FUEL: u64 = 10_000;

/// Returns the property that has this pattern, directly or in its items or options.
fn property_with<'a>(v: &'a Value, pattern: &str, name: &'a str) -> Option<&'a str> {
    let s = v.as_object()?;
    if s.get("pattern").is_some_and(|p| p == pattern) {
        return Some(name);
    }
    let mut found = None;
    let named = s.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, v) in named {
        found = found.or_else(|| property_with(v, pattern, name));
    }
    if found.is_none() {
        inner(s, |v| found = found.or_else(|| property_with(v, pattern, name)));
    }
    found
}

/// Rewrites the keywords for texts in all schemas, after those for numbers. When several schemas apply to one text,
/// llguidance joins them.
pub fn apply(root: &mut Value, numbers: &Numbers) -> Result<()> {
    let joined = joined(root);
    let (mut made, mut refused) = (Members::new(), None);
    let answer = each(root, &joined, &mut 0, &mut |s| exact(s, numbers, &mut made, &mut refused));
    define(root, made);
    let place = refused.as_deref().and_then(|pattern| property_with(root, pattern, ""));
    answer.map_err(|e| match place {
        None | Some("") => e,
        Some(name) => {
            let name: String = name.chars().take(SHOWN).collect();
            TextError { message: format!("the property {name}: {}", e.message), ..e }
        }
    })
}

fn each(
    v: &mut Value,
    joined: &[bool],
    next: &mut usize,
    f: &mut impl FnMut(&mut Members) -> Result<()>,
) -> Result<()> {
    let Value::Object(s) = v else { return Ok(()) };
    let own = *next;
    *next += 1;
    inner_mut(s, &mut |part| each(part, joined, next, f))?;
    if joined[own] {
        return Ok(());
    }
    f(s)
}

/// Replaces a pattern and a length by a reference to a stand-in, when llguidance would not accept the pattern and the
/// length. Keywords for other types stay.
fn exact(s: &mut Members, numbers: &Numbers, made: &mut Members, refused: &mut Option<String>) -> Result<()> {
    let may_be = !s.contains_key("type") || has_type(s, "string");
    if !may_be || !s.keys().all(|key| SIMPLE.contains(&key.as_str())) {
        return Ok(());
    }
    let Some(own) = PatternText::read(s) else { return Ok(()) };
    let mut small = CRATE_FUEL;
    let is_no_pattern = || RegexBuilder::new().mk(&own.text()).is_err();
    if own.look(&mut small) == Some(false) || own.least > MOST_LENGTH || is_no_pattern() {
        return Ok(());
    }
    pattern_check::check(&own.pattern)?;
    let text = Text::Pattern(own.clone());
    let is_empty = numbers.is_empty(&text, |fuel| own.is_empty(fuel)).inspect_err(|_| {
        *refused = Some(own.pattern.clone());
    })?;
    let name = if is_empty { None } else { Some(numbers.add(text)?) };
    refer(s, &SAYINGS, other_types(s, &["string"]), name, made);
    Ok(())
}

/// Replaces llguidance's error for a text to which several schemas apply by a clearer one.
pub fn plain_words(text: &str) -> Option<String> {
    let is_unknown = text.contains("determine if regex is empty");
    if !is_unknown && !text.contains("Regex is empty") {
        return None;
    }
    let from = text.split_once("Regex /").map_or("", |(_, rest)| rest);
    let shown = shown(from.split("/)").next().unwrap_or_default());
    Some(match is_unknown {
        true => format!(
            "the pattern {shown} and the other patterns or length bounds of the same string (by allOf, anyOf or $ref) \
             are too complex to check whether any string matches all of them. Remove some of them, or put the pattern and \
             the length into one schema"
        ),
        false => format!("no string matches the pattern {shown} and the other rules of the schema for it"),
    })
}
