//! Checks schemas, as the entry of this folder. `rules.rs` rewrites a schema for llguidance, and this file refuses
//! schemas that llguidance must not get. It refuses large counts, because llguidance makes a rule for each unit of a
//! count before any of its limits applies. It also refuses patterns that llguidance reads wrongly (pattern_check.rs).

use super::joins;
use super::number_text::multiple;
use super::pattern_check;
use super::rules;
use super::stand_ins::Numbers;
use super::walk::inner;
use crate::base::error::{fail, Code, Result};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// MAX_ITEMS limits the sum of all minItems, maxItems, minProperties and maxProperties of a schema. MAX_LENGTH limits a
/// single minLength or maxLength.
const MAX_ITEMS: f64 = 20_000.0;
const MAX_LENGTH: f64 = 1_000_000.0;

/// Limit for a whole schema, because allOf may join all of its parts. llguidance's work for an object grows with the
/// square of the number of properties.
const MAX_PROPERTIES: usize = 2_000;

/// Longest run of optional properties. After each property, a mask visits all properties up to the next required one.
/// llguidance allows MOST_OF_ROW items (grammar.rs), and each property uses four items.
const MAX_OPTIONAL: usize = 1_000;

/// Refuses a run of optional properties that is too long, in an object and the parts of its allOf.
fn check_optional(members: &Map<String, Value>) -> Result<()> {
    let parts = members.get("allOf").and_then(Value::as_array).into_iter().flatten();
    let parts: Vec<_> = std::iter::once(members).chain(parts.filter_map(Value::as_object)).collect();
    let required = parts.iter().filter_map(|p| p.get("required")).filter_map(Value::as_array).flatten();
    let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
    let (mut run, mut seen) = (0, HashSet::new());
    let properties = parts.iter().filter_map(|p| p.get("properties")).filter_map(Value::as_object).flatten();
    for (name, _) in properties.filter(|(_, v)| *v != &Value::Bool(false)) {
        if !seen.insert(name.as_str()) {
            continue;
        }
        run = if required.contains(name.as_str()) { 0 } else { run + 1 };
        if run > MAX_OPTIONAL {
            return fail(
                Code::Limit,
                format!("the schema has more than {MAX_OPTIONAL} optional properties without a required one between \
                         them. Require some of them, or move some into a nested object"),
            );
        }
    }
    Ok(())
}

/// Counts the members of objects in constant data. llguidance makes properties of these members.
fn members_of(v: &Value) -> usize {
    match v {
        Value::Array(list) => list.iter().map(members_of).sum(),
        Value::Object(map) => map.len() + map.values().map(members_of).sum::<usize>(),
        _ => 0,
    }
}

/// Holds the sums over all parts of a schema. The limits apply to these sums.
#[derive(Default)]
struct Sums {
    items: f64,
    properties: usize,
}

fn check_properties(members: &Map<String, Value>, sums: &mut Sums) -> Result<()> {
    sums.properties += match members.get("properties") {
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    };
    sums.properties += members.get("required").and_then(Value::as_array).map_or(0, Vec::len) / 2;
    sums.properties +=
        ["const", "enum"].iter().filter_map(|k| members.get(*k)).map(members_of).sum::<usize>();
    match sums.properties > MAX_PROPERTIES {
        true => fail(Code::Limit, format!("the schema has more than {MAX_PROPERTIES} properties")),
        false => Ok(()),
    }
}

fn check_counts(members: &Map<String, Value>, sums: &mut Sums) -> Result<()> {
    check_properties(members, sums)?;
    let items = &mut sums.items;
    for (name, value) in members {
        let Some(n) = value.as_f64() else { continue };
        match name.as_str() {
            "minItems" | "maxItems" | "minProperties" | "maxProperties" => *items += n.max(0.0),
            "minLength" | "maxLength" if n > MAX_LENGTH => {
                return fail(
                    Code::Limit,
                    format!("{name} in the schema is {n}; at most {MAX_LENGTH} is allowed"),
                );
            }
            "multipleOf" => {
                multiple(&value.to_string())?;
            }
            _ => {}
        }
    }
    if *items > MAX_ITEMS {
        return fail(
            Code::Limit,
            format!("minItems, maxItems, minProperties and maxProperties of the schema add up to {items}; at most \
                     {MAX_ITEMS} is allowed"),
        );
    }
    Ok(())
}

fn check_part(schema: &Value, sums: &mut Sums) -> Result<()> {
    let Value::Object(members) = schema else { return Ok(()) };
    check_counts(members, sums)?;
    check_optional(members)?;
    if let Some(Value::String(p)) = members.get("pattern") {
        pattern_check::check(p)?;
    }
    if let Some(Value::Object(patterns)) = members.get("patternProperties") {
        patterns.keys().try_for_each(|p| pattern_check::check(p))?;
    }
    let mut answer = Ok(());
    inner(members, |part| {
        if answer.is_ok() {
            answer = check_part(part, sums);
        }
    });
    answer
}

/// Returns the schema in llguidance's form (rules.rs), with every part checked. The caller has limited the depth of the
/// value.
pub fn check_schema(schema: Value, numbers: &Numbers) -> Result<Value> {
    let schema = rules::apply(schema, numbers)?;
    check_part(&schema, &mut Sums::default())?;
    joins::check(&schema)?;
    Ok(schema)
}

/// Checks each schema inside a Lark grammar in the same way. llguidance itself reports a value that is not a schema.
pub fn check_lark(source: &str, numbers: &Numbers) -> Result<String> {
    const MARKER: &str = "%json";
    let (mut out, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(at) = rest.find(MARKER) {
        let (before, behind) = rest.split_at(at + MARKER.len());
        out.push_str(before);
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
        match values.next() {
            Some(Ok(schema)) => {
                out.push(' ');
                out.push_str(&check_schema(schema, numbers)?.to_string());
                rest = &behind[values.byte_offset()..];
            }
            _ => rest = behind,
        }
    }
    out.push_str(rest);
    Ok(out)
}
