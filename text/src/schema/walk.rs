//! The places of a schema: which of its members are schemas, and what several passes ask or do there.

use crate::base::error::Result;
use serde_json::{Map, Value};

/// Nothing in these is a schema.
pub const DATA: [&str; 7] =
    ["const", "enum", "default", "examples", "example", "dependentRequired", "x-guidance"];
/// Objects whose members are schemas, whatever they are called.
pub const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
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

pub fn inner_mut(
    schema: &mut Map<String, Value>,
    f: &mut impl FnMut(&mut Value) -> Result<()>,
) -> Result<()> {
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
pub fn is_anything(v: &Value) -> bool {
    v == &Value::Bool(true) || v.as_object().is_some_and(Map::is_empty)
}

pub fn has_type(s: &Map<String, Value>, name: &str) -> bool {
    match s.get("type") {
        Some(Value::String(t)) => t == name,
        Some(Value::Array(list)) => list.iter().any(|t| t == name),
        _ => false,
    }
}

/// What is valid by the part too.
pub fn also(s: &mut Map<String, Value>, part: Value) {
    match s.get_mut("allOf") {
        Some(Value::Array(list)) => list.push(part),
        _ => {
            s.insert("allOf".to_owned(), Value::Array(vec![part]));
        }
    }
}
