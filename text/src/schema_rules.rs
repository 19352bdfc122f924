//! What people's generators write into JSON schemas, as the crate (llguidance) takes it: keywords that
//! ask for nothing are left out, an unknown format is the annotation that it is, bounds that no answer
//! reaches are none, numbers are those that the crate can hold exactly, and what nothing satisfies is
//! refused by name. Every text that the result allows is valid by the schema that was given.

use crate::error::{fail, invalid, Code, Result};
use llguidance::derivre::RegexBuilder;
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// Nothing in these is a schema.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "example"];
/// Objects whose members are schemas, whatever they are called.
const MAPS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// The crate's formats (its json/formats.rs).
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Beside one of these a schema says of members or items elsewhere as well.
const APPLICATORS: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "then", "else", "dependentSchemas"];
/// No answer has so many items or characters: it would be longer than any context.
const BEYOND_ANSWERS: u64 = 1_000_000;
/// Integers up to here are doubles one by one.
const EXACT: i128 = 1 << 53;
/// The largest double below 2^63: the crate counts in i64.
const LARGEST: i128 = (1 << 63) - 1024;
/// Matching a property's name with a pattern.
const MATCH_FUEL: u64 = 10_000;
const MAX_DEPTH: usize = 128;

/// Each schema in a schema, itself not among them. Members that are data are passed over; what is
/// unknown may be led into by a $ref, and is looked at.
pub fn inner<'a>(schema: &'a Map<String, Value>, mut f: impl FnMut(&'a Value)) {
    for (key, v) in schema {
        match v {
            _ if DATA.contains(&key.as_str()) => {}
            Value::Object(map) if MAPS.contains(&key.as_str()) => map.values().for_each(&mut f),
            Value::Array(list) => list.iter().filter(|v| v.is_object()).for_each(&mut f),
            Value::Object(_) => f(v),
            _ => {}
        }
    }
}

fn inner_mut(schema: &mut Map<String, Value>, f: &mut impl FnMut(&mut Value) -> Result<()>) -> Result<()> {
    for (key, v) in schema {
        match v {
            _ if DATA.contains(&key.as_str()) => {}
            Value::Object(map) if MAPS.contains(&key.as_str()) => map.values_mut().try_for_each(&mut *f)?,
            Value::Array(list) => list.iter_mut().filter(|v| v.is_object()).try_for_each(&mut *f)?,
            Value::Object(_) => f(v)?,
            _ => {}
        }
    }
    Ok(())
}

/// true, {} and whatever says nothing.
fn is_anything(v: &Value) -> bool {
    v == &Value::Bool(true) || v.as_object().is_some_and(Map::is_empty)
}

fn is_nothing(v: &Value) -> bool {
    v == &Value::Bool(false)
}

/// A pass over all schemas.
pub fn apply(mut schema: Value) -> Result<Value> {
    walk(&mut schema, 0)?;
    check_productive(&schema)?;
    Ok(schema)
}

fn walk(schema: &mut Value, depth: usize) -> Result<()> {
    let Value::Object(s) = schema else { return Ok(()) };
    if depth > MAX_DEPTH {
        return fail(Code::Limit, format!("a schema nested more than {MAX_DEPTH} deep"));
    }
    dialect(s);
    drop_idle(s);
    counts(s);
    numbers(s)?;
    constants(s)?;
    inner_mut(s, &mut |v| walk(v, depth + 1))?;
    both_kinds_of_properties(s)
}

// ---- keywords that ask for nothing ----

/// What $schema calls drafts by other names; of dialects that are none of JSON Schema's the newest
/// draft is read.
fn dialect(s: &mut Map<String, Value>) {
    let Some(name) = s.get("$schema").and_then(Value::as_str) else { return };
    let bare = name.trim_end_matches('#').trim_start_matches("https://").trim_start_matches("http://");
    let known = match bare {
        "json-schema.org/draft-04/schema" => Some("http://json-schema.org/draft-04/schema#"),
        "json-schema.org/draft-06/schema" => Some("http://json-schema.org/draft-06/schema#"),
        "json-schema.org/draft-07/schema" => Some("http://json-schema.org/draft-07/schema#"),
        "json-schema.org/draft/2019-09/schema" => Some("https://json-schema.org/draft/2019-09/schema"),
        "json-schema.org/draft/2020-12/schema" => Some("https://json-schema.org/draft/2020-12/schema"),
        _ => None,
    };
    match known {
        Some(uri) => s.insert("$schema".to_owned(), uri.into()),
        None => s.remove("$schema"),
    };
}

fn drop_idle(s: &mut Map<String, Value>) {
    let at_most_one = s.get("maxItems").and_then(Value::as_u64).is_some_and(|n| n <= 1);
    let has_applicator = APPLICATORS.iter().any(|k| s.contains_key(*k));
    let has = |s: &Map<String, Value>, key: &str| s.contains_key(key);
    let (has_contains, has_if) = (has(s, "contains"), has(s, "if"));
    let (has_then, has_else) = (has(s, "then"), has(s, "else"));
    s.retain(|key, v| match key.as_str() {
        "uniqueItems" => v == &Value::Bool(true) && !at_most_one,
        "propertyNames" => !(is_anything(v) || is_any_text(v)),
        "unevaluatedProperties" | "unevaluatedItems" => !is_anything(v),
        "minContains" | "maxContains" => has_contains,
        "then" | "else" => has_if,
        "if" => has_then || has_else,
        "dependentRequired" | "dependencies" | "dependentSchemas" => {
            !v.as_object().is_some_and(|map| map.values().all(|v| is_anything(v) || v == &Value::Array(vec![])))
        }
        "not" => !is_nothing(v),
        "format" => v.as_str().map_or(true, |f| FORMATS.contains(&f)),
        _ => true,
    });
    for (key, plain) in [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")] {
        // with nothing beside it that evaluates, it is the plain one
        if !has_applicator && s.get(key).is_some_and(is_nothing) && !s.contains_key(plain) {
            s.remove(key);
            s.insert(plain.to_owned(), Value::Bool(false));
        } else if !has_applicator && s.contains_key(key) && s.contains_key(plain) {
            s.remove(key); // all are evaluated
        }
    }
}

/// A schema that every text satisfies: names are texts.
fn is_any_text(v: &Value) -> bool {
    v.as_object().is_some_and(|s| s.len() == 1 && s.get("type").is_some_and(|t| t == "string"))
}

/// 5.0 is 5; what no answer reaches is no bound, and neither is a least of 0.
fn counts(s: &mut Map<String, Value>) {
    for key in ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"] {
        let Some(n) = s.get(key).and_then(Value::as_f64) else { continue };
        if n >= 0.0 && n.fract() == 0.0 && s[key].as_u64().is_none() && n < 1e15 {
            s.insert(key.to_owned(), Value::from(n as u64));
        }
        let is_idle = if key.starts_with("max") { n >= BEYOND_ANSWERS as f64 } else { n == 0.0 };
        if is_idle {
            s.remove(key);
        }
    }
}

// ---- numbers ----

fn integer_of(n: &Number) -> Option<i128> {
    n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from)).or_else(|| {
        let f = n.as_f64()?;
        (f.fract() == 0.0 && f.abs() < 1e36).then_some(f as i128)
    })
}

fn has_type(s: &Map<String, Value>, name: &str) -> bool {
    match s.get("type") {
        Some(Value::String(t)) => t == name,
        Some(Value::Array(list)) => list.iter().any(|t| t == name),
        _ => false,
    }
}

/// A double on the side of v that is asked for: v itself where it is one.
fn double(v: i128, down: bool) -> f64 {
    let f = v as f64;
    let beyond = if down { f as i128 > v } else { (f as i128) < v };
    match (beyond, f > 0.0) {
        (false, _) => f,
        // one step towards the side: doubles are ordered as their bits are
        (true, positive) => f64::from_bits(if positive == down { f.to_bits() - 1 } else { f.to_bits() + 1 }),
    }
}

/// Bounds become doubles inside of what they allow, and inside of 64 bits.
fn numbers(s: &mut Map<String, Value>) -> Result<()> {
    let only_integers = has_type(s, "integer") && !has_type(s, "number");
    for (inclusive, exclusive, upper) in
        [("maximum", "exclusiveMaximum", true), ("minimum", "exclusiveMinimum", false)]
    {
        // of integers an exclusive bound is the next inclusive one
        let strict = s.get(exclusive).and_then(Value::as_number).and_then(integer_of);
        if let (true, Some(v), true) = (only_integers, strict, strict.is_some_and(|v| v.abs() >= EXACT)) {
            let bound = if upper { v - 1 } else { v + 1 };
            let own = s.get(inclusive).and_then(Value::as_number).and_then(integer_of);
            let both = own.map_or(bound, |o| if upper { o.min(bound) } else { o.max(bound) });
            s.remove(exclusive);
            set_bound(s, inclusive, both, upper)?;
        }
        for key in [inclusive, exclusive] {
            let Some(n) = s.get(key).and_then(Value::as_number).cloned() else { continue };
            match integer_of(&n) {
                Some(v) if v.abs() > EXACT => set_bound(s, key, v, upper)?,
                None if n.as_f64().is_some_and(|f| f.abs() > LARGEST as f64) => {
                    let f = n.as_f64().unwrap_or_default();
                    set_bound(s, key, if f > 0.0 { i128::MAX >> 1 } else { -(i128::MAX >> 1) }, upper)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn set_bound(s: &mut Map<String, Value>, key: &str, v: i128, upper: bool) -> Result<()> {
    let is_out = if upper { v < -LARGEST } else { v > LARGEST };
    if is_out {
        return fail(Code::Invalid, format!("{key} {v} in a schema: bounds lie within 64 bits here"));
    }
    let f = double(v.clamp(-LARGEST, LARGEST), upper);
    let n = Number::from_f64(f).ok_or_else(|| invalid(format!("{key} in a schema is no number")))?;
    s.insert(key.to_owned(), Value::Number(n));
    Ok(())
}

/// The crate writes numbers of const and enum as doubles.
fn constants(s: &Map<String, Value>) -> Result<()> {
    fn check(v: &Value) -> Result<()> {
        match v {
            Value::Number(n) => match integer_of(n) {
                Some(i) if i.abs() > LARGEST || double(i, true) as i128 != i => {
                    Err(invalid(format!("{n} in const or enum of a schema: it has too many digits to be exact")))
                }
                _ => Ok(()),
            },
            Value::Array(list) => list.iter().try_for_each(check),
            Value::Object(map) => map.values().try_for_each(check),
            _ => Ok(()),
        }
    }
    s.get("const").map_or(Ok(()), check)?;
    s.get("enum").map_or(Ok(()), check)
}

// ---- properties beside patternProperties ----

fn matches(pattern: &str, name: &str) -> Result<bool> {
    let bad = |e: &dyn std::fmt::Display| invalid(format!("the pattern {pattern} of patternProperties: {e}"));
    let mut builder = RegexBuilder::new();
    let rx = llguidance::regex_to_lark(pattern, "dw");
    let rx = builder.mk_regex_for_serach(rx.as_str()).map_err(|e| bad(&e))?;
    let mut rx = builder.to_regex_limited(rx, MATCH_FUEL).map_err(|e| bad(&e))?;
    Ok(rx.is_match(name))
}

/// A property whose name a pattern matches is what both say: the crate takes the property's word alone.
fn both_kinds_of_properties(s: &mut Map<String, Value>) -> Result<()> {
    let Some(Value::Object(patterns)) = s.get("patternProperties").cloned() else { return Ok(()) };
    let Some(Value::Object(properties)) = s.get_mut("properties") else { return Ok(()) };
    for (name, own) in properties.iter_mut() {
        let mut all = vec![own.clone()];
        for (pattern, schema) in &patterns {
            if matches(pattern, name)? {
                all.push(schema.clone());
            }
        }
        if all.len() > 1 {
            *own = Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(all))]));
        }
    }
    Ok(())
}

// ---- what nothing satisfies ----

/// Whether a finite text satisfies a schema, as far as references go: one that leads back to itself
/// before any text, or whose required members do, is satisfied by nothing. Schemas by their place.
struct Productive<'a> {
    root: &'a Value,
    known: HashMap<*const Value, bool>,
    changed: bool,
    steps: usize,
}

const MAX_STEPS: usize = 2_000_000;

impl<'a> Productive<'a> {
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        let pointer = percent_decoded(pointer)?;
        self.root.pointer(&pointer)
    }

    /// The least solution: what is being asked is not, until it is shown.
    fn ask(&mut self, v: &'a Value, depth: usize) -> bool {
        let Value::Object(s) = v else { return !is_nothing(v) };
        let place = v as *const Value;
        self.steps += 1;
        if let Some(&is) = self.known.get(&place) {
            if is || depth > 0 && self.steps > MAX_STEPS {
                return is;
            }
        }
        if depth > MAX_DEPTH || self.steps > MAX_STEPS {
            return true; // the crate's to judge
        }
        if self.known.insert(place, false).is_some() && depth > 0 {
            return false;
        }
        let is = self.look(s, depth);
        self.changed |= is;
        self.known.insert(place, is);
        is
    }

    fn look(&mut self, s: &'a Map<String, Value>, depth: usize) -> bool {
        let mut all = |key: &str, this: &mut Self| {
            s.get(key).and_then(Value::as_array).map_or(true, |l| l.iter().all(|v| this.ask(v, depth + 1)))
        };
        if !all("allOf", self) {
            return false;
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(list)) = s.get(key) {
                if !list.iter().any(|v| self.ask(v, depth + 1)) {
                    return false;
                }
            }
        }
        if let Some(target) = s.get("$ref").and_then(Value::as_str).and_then(|r| self.target(r)) {
            if !self.ask(target, depth + 1) {
                return false;
            }
        }
        let is_object = s.get("type").is_some_and(|t| t == "object");
        let required = s.get("required").and_then(Value::as_array).filter(|_| is_object);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if let Some(v) = s.get("properties").and_then(|p| p.get(name)) {
                if !self.ask(v, depth + 1) {
                    return false;
                }
            }
        }
        true
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b => out.push(b),
        }
    }
    String::from_utf8(out).ok()
}

fn check_productive(root: &Value) -> Result<()> {
    let mut p = Productive { root, known: HashMap::new(), changed: true, steps: 0 };
    let mut is = false;
    // what was asked within its own answer may have been told too early that it is not
    for _ in 0..32 {
        if is || !p.changed {
            break;
        }
        p.changed = false;
        p.known.retain(|_, is| *is);
        is = p.ask(root, 0);
    }
    match is {
        true => Ok(()),
        false => Err(invalid("the schema allows no text: a $ref that it needs leads back to itself, or a part is false")),
    }
}
