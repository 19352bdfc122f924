//! Describes the structure of a schema: which of its members are schemas. It also has small functions that several passes
//! share.

use crate::base::error::Result;
use serde_json::{Map, Value};

/// Keywords with constant data, which contains no schema.
pub const DATA: [&str; 7] =
    ["const", "enum", "default", "examples", "example", "dependentRequired", "x-guidance"];
/// Keywords whose value is an object of schemas under arbitrary names.
pub const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Calls `f` for each schema directly inside a schema. Members with constant data are skipped. Unknown members are
/// visited, because a $ref may lead into them.
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

/// Returns true for `true` and `{}`, which allow everything.
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

/// Adds a part to the schema's allOf, so that a value must satisfy the part too.
pub fn also(s: &mut Map<String, Value>, part: Value) {
    match s.get_mut("allOf") {
        Some(Value::Array(list)) => list.push(part),
        _ => {
            s.insert("allOf".to_owned(), Value::Array(vec![part]));
        }
    }
}
