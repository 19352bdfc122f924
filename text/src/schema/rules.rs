//! Rewrites JSON schemas, as generators write them, for llguidance. It drops keywords that require nothing, unknown
//! formats (they are annotations), and bounds that no answer reaches. Numbers become numbers that llguidance holds
//! exactly. An unsatisfiable schema is refused (graph.rs). Every text that the result allows is valid by the given
//! schema. Where llguidance cannot express something, the result allows less or is refused.

use super::far::{far, far_mark};
use super::graph::{check_patterns, check_shapes, keep_finite, percent_decoded};
use super::members;
use super::numbers::{self, double, integer_of, LARGEST};
use super::options;
use super::pattern;
use super::stand_ins::Numbers;
use super::text;
use super::walk::{also, inner, inner_mut, is_anything, MAPS};
use crate::base::error::{fail, invalid, Code, Result};
use serde_json::{Map, Value};

/// Keywords that constrain a value or contain schemas, and the annotations that llguidance accepts. All other keywords
/// are dropped.
#[rustfmt::skip]
const KEYWORDS: [&str; 56] = [
    "$schema", "$id", "id", "$anchor", "$ref", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$defs",
    "definitions", "type", "const", "enum", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "properties",
    "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties",
    "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "items", "prefixItems",
    "additionalItems", "unevaluatedItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems",
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "x-guidance", "default", "examples", "title", "description",
];
/// Formats that llguidance knows (its json/formats.rs).
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Keywords with schemas that may apply to members or items as well.
const APPLICATORS: [&str; 12] = [
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "$dynamicRef",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "not",
    "contains",
];
/// Number of items that no answer has: such an answer would exceed every context length.
const BEYOND_ANSWERS: u64 = 1_000_000;
/// Longest text in characters for which a rule is made (check.rs). A longer text is not generated even when the schema
/// allows it.
const MOST_CHARACTERS: u64 = 1_000_000;
const MAX_DEPTH: usize = 128;
/// Most references in a chain from propertyNames.
const MOST_REFERENCES: usize = 8;

fn is_nothing(v: &Value) -> bool {
    v == &Value::Bool(false)
}

/// Holds facts about the whole schema.
struct Document {
    /// All references of the schema, one per line.
    references: String,
    /// True when an inner schema has a name of its own. The target of a dynamic reference then depends on the path to it.
    has_names: bool,
    /// True for drafts up to 7. They ignore keywords beside $ref, and some keywords do not exist in them.
    is_old: bool,
    room: members::Room,
}

/// Runs all passes over a schema.
pub fn apply(mut schema: Value, numbers: &Numbers) -> Result<Value> {
    let mut d =
        Document { references: String::new(), has_names: false, is_old: false, room: Default::default() };
    let name = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    d.is_old = ["draft-04", "draft-06", "draft-07"].iter().any(|n| name.contains(n));
    survey(&schema, &mut d, 0)?;
    let root = schema.clone();
    if !d.has_names {
        referred_names(&mut schema, &root)?;
    }
    options::apply(&mut schema, &root, !d.has_names, d.is_old);
    walk(&mut schema, &d, 0)?;
    numbers::apply(&mut schema, numbers, d.has_names)?;
    if !d.has_names && schema.get("$defs").map_or(true, Value::is_object) {
        text::apply(&mut schema, numbers)?;
    }
    keep_finite(&mut schema)?;
    check_shapes(&schema)?;
    check_patterns(&schema)?;
    Ok(schema)
}

fn survey(schema: &Value, d: &mut Document, depth: usize) -> Result<()> {
    let Value::Object(s) = schema else { return Ok(()) };
    if depth > MAX_DEPTH {
        return fail(Code::Limit, format!("the schema is nested more than {MAX_DEPTH} levels deep"));
    }
    for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
        if let Some(r) = s.get(key).and_then(Value::as_str) {
            d.references += &percent_decoded(r).unwrap_or_default().replace("~1", "/").replace("~0", "~");
            d.references += "\n";
        }
    }
    d.has_names |= depth > 0 && ["$id", "id"].iter().any(|k| s.get(*k).is_some_and(Value::is_string));
    let mut answer = Ok(());
    inner(s, |v| {
        if answer.is_ok() {
            answer = survey(v, d, depth + 1);
        }
    });
    answer
}

/// Replaces a propertyNames that refers to a list of names by that list.
fn referred_names(schema: &mut Value, root: &Value) -> Result<()> {
    let Value::Object(s) = schema else { return Ok(()) };
    for _ in 0..MOST_REFERENCES {
        let Some(Value::Object(names)) = s.get("propertyNames") else { break };
        let pointer = names.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
        let is_alone = names.keys().all(|key| ["$ref", "title", "description"].contains(&key.as_str()));
        let place = pointer.filter(|p| is_alone && p.starts_with('/')).and_then(percent_decoded);
        let Some(found) = place.and_then(|p| root.pointer(&p)) else { break };
        let is_list = |v: &Value| match v.as_object() {
            Some(s) => !MAPS.iter().chain(&APPLICATORS).any(|k| *k != "$ref" && s.contains_key(*k)),
            None => v.is_boolean(),
        };
        if !is_list(found) {
            break;
        }
        s.insert("propertyNames".to_owned(), found.clone());
    }
    inner_mut(s, &mut |v| referred_names(v, root))
}

fn walk(schema: &mut Value, d: &Document, depth: usize) -> Result<()> {
    let Value::Object(s) = schema else { return Ok(()) };
    s.retain(|key, _| KEYWORDS.contains(&key.as_str()) || d.references.contains(key.as_str()));
    dialect(s);
    if d.is_old && s.contains_key("$ref") {
        beside_reference(s);
    }
    if !d.has_names {
        dynamic(s);
    }
    drop_idle(s, d.is_old);
    counts(s);
    constants(s)?;
    patterns(s)?;
    inner_mut(s, &mut |v| walk(v, d, depth + 1))?;
    members::apply(s, d.is_old, &d.room)
}

/// Drops the keywords beside a $ref, which old drafts ignore. Members that a reference may lead into are kept, and they
/// still apply.
fn beside_reference(s: &mut Map<String, Value>) {
    s.retain(|key, v| key.starts_with('$') || key == "x-guidance" || v.is_object() || v.is_array());
    ["type", "enum", "const", "required"].iter().for_each(|key| {
        s.shift_remove(*key);
    });
}

/// Replaces dynamic references by ordinary ones. In a schema without inner names, both kinds have the same target.
fn dynamic(s: &mut Map<String, Value>) {
    let pairs = [("$dynamicRef", "$ref"), ("$recursiveRef", "$ref"), ("$dynamicAnchor", "$anchor")];
    for (key, plain) in pairs {
        if !s.contains_key(plain) {
            if let Some(v) = s.shift_remove(key) {
                s.insert(plain.to_owned(), v);
            }
        }
    }
    if s.get("$recursiveAnchor").is_some_and(Value::is_boolean) {
        s.shift_remove("$recursiveAnchor");
    }
}

// ---- keywords that demand nothing ----

/// Normalizes the name of the draft in $schema. For a dialect that is not JSON Schema's own, the keyword is dropped, and
/// the newest draft applies.
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
        None => s.shift_remove("$schema"),
    };
}

fn drop_idle(s: &mut Map<String, Value>, is_old: bool) {
    let at_most_one = s.get("maxItems").and_then(Value::as_f64).is_some_and(|n| n < 2.0);
    let has = |s: &Map<String, Value>, key: &str| s.contains_key(key);
    let least = s.get("minContains").and_then(Value::as_f64);
    if least == Some(0.0) && !is_old && !has(s, "maxContains") && !has(s, "unevaluatedItems") {
        s.shift_remove("contains");
    }
    let has_applicator = APPLICATORS.iter().any(|k| s.contains_key(*k));
    let (has_contains, has_if) = (has(s, "contains"), has(s, "if"));
    let (has_then, has_else) = (has(s, "then"), has(s, "else"));
    let says_nothing = |v: &Value| is_anything(v) || v == &Value::Array(vec![]);
    s.retain(|key, v| match key.as_str() {
        "uniqueItems" => v == &Value::Bool(true) && !at_most_one,
        "propertyNames" => !(is_anything(v) || is_any_text(v)),
        "unevaluatedProperties" | "unevaluatedItems" => !is_old && !is_anything(v),
        "minContains" | "maxContains" => has_contains && !is_old,
        "then" | "else" => has_if,
        "if" => has_then || has_else,
        "dependentRequired" | "dependentSchemas" if is_old => false,
        "dependentRequired" | "dependencies" | "dependentSchemas" => {
            !v.as_object().is_some_and(|map| map.values().all(says_nothing))
        }
        "not" => !is_nothing(v),
        "format" => !v.is_string() || v.as_str().is_some_and(|f| FORMATS.contains(&f)),
        _ => true,
    });
    if s.get("not").is_some_and(is_anything) {
        s.shift_remove("not");
        s.insert("enum".to_owned(), Value::Array(vec![])); // an empty enum allows nothing
    }
    for (key, plain) in [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")] {
        if has_applicator || !s.contains_key(key) {
            continue;
        }
        // When no keyword applies further schemas, `unevaluated…` means the same as its plain keyword. When the plain
        // keyword is present as well, nothing is left unevaluated, so `unevaluated…` is dropped.
        if let (Some(v), false) = (s.shift_remove(key), s.contains_key(plain)) {
            s.insert(plain.to_owned(), v);
        }
    }
}

/// Returns true for a schema that every text satisfies; a member's name is a text.
fn is_any_text(v: &Value) -> bool {
    v.as_object().is_some_and(|s| s.len() == 1 && s.get("type").is_some_and(|t| t == "string"))
}

/// Writes 5.0 as 5. Drops a maximum that no answer reaches and a minimum of 0.
fn counts(s: &mut Map<String, Value>) {
    for key in ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"] {
        let n = match s.get(key) {
            Some(v) if far(v) == Some(true) => f64::INFINITY,
            Some(v) => v.as_f64().unwrap_or(-1.0),
            None => continue,
        };
        if n >= 0.0 && n.fract() == 0.0 && s[key].as_u64().is_none() && n < 1e15 {
            s.insert(key.to_owned(), Value::from(n as u64));
        }
        let is_idle = if key.starts_with("max") { n >= BEYOND_ANSWERS as f64 } else { n == 0.0 };
        if is_idle && key == "maxLength" {
            s.insert(key.to_owned(), Value::from(MOST_CHARACTERS));
        } else if is_idle {
            s.shift_remove(key);
        }
    }
}

// ---- numbers ----

/// Checks the numbers in const and enum, which llguidance writes as doubles.
fn constants(s: &Map<String, Value>) -> Result<()> {
    fn check(v: &Value) -> Result<()> {
        match v {
            Value::String(text) if far(v).is_some() => {
                let digits: String = text.trim_start_matches(far_mark()).chars().take(40).collect();
                Err(invalid(format!("{digits} in const or enum of the schema is too large for a double")))
            }
            Value::Number(n) => match integer_of(n) {
                Some(i) if i.abs() > LARGEST || double(i, true) as i128 != i => Err(invalid(format!(
                    "{n} in const or enum of the schema has too many digits to be exact"
                ))),
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

// ---- patterns ----

fn patterns(s: &mut Map<String, Value>) -> Result<()> {
    if let Some(Value::String(p)) = s.get_mut("pattern") {
        *p = pattern::of_ecma(p)?;
    }
    if let Some(Value::Object(map)) = s.get_mut("patternProperties") {
        let n = map.len();
        for (pattern, v) in std::mem::take(map) {
            map.insert(pattern::of_ecma(&pattern)?, v);
        }
        if map.len() != n {
            return Err(invalid("patternProperties has the same pattern twice"));
        }
    }
    let Some(format) = s.get("format").and_then(Value::as_str).and_then(pattern::of_format) else {
        return Ok(());
    };
    s.shift_remove("format");
    if !s.contains_key("pattern") {
        s.insert("pattern".to_owned(), format.into());
        return Ok(());
    }
    let part = Value::Object(Map::from_iter([("pattern".to_owned(), format.into())]));
    also(s, part);
    Ok(())
}
