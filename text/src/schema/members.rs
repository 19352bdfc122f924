//! Rewrites keywords of objects and arrays that llguidance does not support, or applies only in part. The result contains
//! only supported keywords.

use super::walk::{also, is_anything};
use crate::base::error::{fail, invalid, Code, Result};
use llguidance::derivre::{Regex, RegexBuilder};
use serde_json::{json, Map, Value};
use std::cell::Cell;

type Members = Map<String, Value>;

/// Fuel for matching one property's name with a pattern.
const MATCH_FUEL: u64 = 10_000;
/// Most dependencies in one schema: each dependency doubles the number of schemas that llguidance joins.
const MOST_DEPENDENCIES: usize = 8;
/// Most patternProperties in one schema: llguidance compares each pattern with all others.
const MOST_PATTERNS: usize = 64;

/// Holds the number of values that may still be copied. A rule for many names is copied for each name.
pub struct Room(Cell<usize>);

impl Default for Room {
    fn default() -> Room {
        Room(Cell::new(200_000))
    }
}

fn weight(v: &Value) -> usize {
    match v {
        Value::Array(list) => 1 + list.iter().map(weight).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(weight).sum::<usize>(),
        _ => 1,
    }
}

impl Room {
    fn copy(&self, v: &Value) -> Result<Value> {
        match self.0.get().checked_sub(weight(v)) {
            None => fail(
                Code::Limit,
                "the patterns and names of the schema apply to too many properties. Use fewer \
                                       patterns or fewer properties",
            ),
            Some(left) => {
                self.0.set(left);
                Ok(v.clone())
            }
        }
    }
}

/// Rewrites one schema; its parts must have been rewritten before.
pub fn apply(s: &mut Members, is_old: bool, room: &Room) -> Result<()> {
    both_kinds_of_properties(s, room)?;
    names(s, room)?;
    dependencies(s, is_old);
    contains_anything(s);
    if s.contains_key("additionalItems") {
        applicators_last(s);
    }
    Ok(())
}

fn matcher(pattern: &str) -> Result<Regex> {
    let bad = |e: &dyn std::fmt::Display| {
        invalid(format!("the pattern {pattern} for property names is not supported: {e}"))
    };
    let mut builder = RegexBuilder::new();
    let rx = llguidance::regex_to_lark(pattern, "dw");
    let rx = builder.mk_regex_for_serach(rx.as_str()).map_err(|e| bad(&e))?;
    builder.to_regex_limited(rx, MATCH_FUEL).map_err(|e| bad(&e))
}

/// Joins the schemas of properties. A property whose name matches a pattern must satisfy its own schema and the pattern's
/// schema. llguidance applies only the property's own schema.
fn both_kinds_of_properties(s: &mut Members, room: &Room) -> Result<()> {
    let Some(Value::Object(patterns)) = s.get("patternProperties") else { return Ok(()) };
    if patterns.len() > MOST_PATTERNS {
        return fail(
            Code::Limit,
            format!(
                "the schema has {} patternProperties; at most {MOST_PATTERNS} are allowed",
                patterns.len()
            ),
        );
    }
    let names = s.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let names: Vec<String> = names.cloned().collect();
    let mut more: Vec<Vec<Value>> = vec![Vec::new(); names.len()];
    for (pattern, schema) in patterns {
        let mut rx = matcher(pattern)?;
        for (name, more) in names.iter().zip(&mut more) {
            if rx.is_match(name) {
                // llguidance allows two spellings of a control character in a name that a pattern matches
                if name.chars().any(|c| c < ' ' || c == '\u{7f}') {
                    return Err(invalid(format!(
                        "a property name with a control character also matches the pattern {pattern} of \
                         patternProperties, which is not supported. Name it in only one of the two"
                    )));
                }
                more.push(room.copy(schema)?);
            }
        }
    }
    let Some(Value::Object(properties)) = s.get_mut("properties") else { return Ok(()) };
    for (own, mut more) in properties.values_mut().zip(more) {
        if !more.is_empty() {
            more.insert(0, own.take());
            *own = json!({ "allOf": more });
        }
    }
    Ok(())
}

/// Returns the names that the schema of propertyNames allows, when it lists them.
fn listed(v: &Value) -> Option<Vec<&str>> {
    let s = v.as_object()?;
    let is_plain = |key: &String| ["enum", "const", "type", "title", "description"].contains(&key.as_str());
    let is_text = s.get("type").map_or(true, |t| t == "string");
    match (s.get("enum"), s.get("const")) {
        _ if !is_text || !s.keys().all(is_plain) => None,
        (Some(Value::Array(list)), None) => Some(list.iter().filter_map(Value::as_str).collect()),
        (None, Some(v)) => Some(v.as_str().into_iter().collect()),
        _ => None,
    }
}

/// Returns the pattern that is equal to the schema of propertyNames, when the schema has only keywords that a pattern can
/// express.
fn pattern_of_names(v: &Value) -> Option<String> {
    let s = v.as_object()?;
    let is_plain = |key: &String| {
        ["pattern", "type", "minLength", "maxLength", "title", "description"].contains(&key.as_str())
    };
    if !s.keys().all(is_plain) || s.get("type").is_some_and(|t| t != "string") {
        return None;
    }
    let length = |key: &str| s.get(key).and_then(Value::as_u64);
    let of_length = match (length("minLength"), length("maxLength")) {
        (None, None) => None,
        (least, Some(most)) => Some(format!("^(?s:.{{{},{most}}})$", least.unwrap_or(0))),
        (Some(least), None) => Some(format!("^(?s:.{{{least},}})$")),
    };
    match (s.get("pattern").and_then(Value::as_str), of_length) {
        (Some(pattern), None) => Some(pattern.to_owned()),
        (None, Some(pattern)) => Some(pattern),
        _ => None,
    }
}

/// Replaces propertyNames by a closed list of properties, or by a pattern that excludes all other names. Other forms
/// stay, and llguidance refuses them with the name of the keyword.
fn names(s: &mut Members, room: &Room) -> Result<()> {
    let Some(asked) = s.get("propertyNames").cloned() else { return Ok(()) };
    if s.contains_key("patternProperties") || s.contains_key("unevaluatedProperties") {
        return Ok(());
    }
    let others = s.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
    let mut own = match s.get("properties") {
        Some(Value::Object(own)) => own.clone(),
        _ => Members::new(),
    };
    let none = || Value::Bool(false);
    if asked == none() {
        own.values_mut().for_each(|v| *v = none());
    } else if let Some(names) = listed(&asked) {
        own.iter_mut().filter(|(name, _)| !names.contains(&name.as_str())).for_each(|(_, v)| *v = none());
        for name in names {
            if !own.contains_key(name) {
                own.insert(name.to_owned(), room.copy(&others)?);
            }
        }
    } else if let Some(pattern) = pattern_of_names(&asked) {
        let mut rx = matcher(&pattern)?;
        for (name, v) in own.iter_mut() {
            if !rx.is_match(name) {
                *v = none();
            }
        }
        s.insert("patternProperties".to_owned(), json!({ pattern: others }));
    } else {
        return Ok(());
    }
    s.shift_remove("propertyNames");
    if !own.is_empty() {
        s.insert("properties".to_owned(), Value::Object(own));
    }
    s.insert("additionalProperties".to_owned(), none());
    Ok(())
}

/// Rewrites a dependency as a choice. Either the name is absent, or the dependency is satisfied: the required names are
/// present, or the value satisfies the schema.
fn dependencies(s: &mut Members, is_old: bool) {
    let keys = ["dependencies", "dependentRequired", "dependentSchemas"];
    let n: usize = keys.iter().filter_map(|k| s.get(*k).and_then(Value::as_object)).map(Map::len).sum();
    if n > MOST_DEPENDENCIES || s.contains_key("unevaluatedProperties") {
        return;
    }
    for key in &keys[..if is_old { 1 } else { 3 }] {
        let Some(Value::Object(map)) = s.get(*key).cloned() else { continue };
        s.shift_remove(*key);
        for (name, asked) in map {
            let absent = json!({ "properties": { &name: false } });
            let there = match asked {
                Value::Array(mut names) => {
                    names.insert(0, name.into());
                    json!({ "required": names })
                }
                schema => json!({ "allOf": [schema], "required": [name] }),
            };
            also(s, json!({ "anyOf": [absent, there] }));
        }
    }
}

/// Rewrites `contains` without constraints: an array that contains an arbitrary item is an array with at least one item.
fn contains_anything(s: &mut Members) {
    let asks_more = ["minContains", "maxContains", "unevaluatedItems"].iter().any(|k| s.contains_key(*k));
    let is_any = s.get("contains").is_some_and(is_anything);
    let least = s.get("minItems").map_or(Some(0), Value::as_u64);
    if let (true, false, Some(least)) = (is_any, asks_more, least) {
        s.shift_remove("contains");
        s.insert("minItems".to_owned(), least.max(1).into());
    }
}

/// Moves applicators to the end. llguidance treats keywords before an applicator separately from keywords behind it, and
/// additionalItems must be read together with its items.
fn applicators_last(s: &mut Members) {
    for key in ["const", "enum", "allOf", "anyOf", "oneOf", "$ref"] {
        if let Some(v) = s.shift_remove(key) {
            s.insert(key.to_owned(), v);
        }
    }
}
