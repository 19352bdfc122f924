//! Reads the arguments of filters as texts, flags and attribute paths.

use crate::jinja::budget;
use crate::jinja::eval::get_item;
use crate::jinja::fail::R;
use crate::jinja::format::str_of;
use crate::jinja::value::Value;

pub fn lowered(v: &Value) -> R<Value> {
    budget::scan(v.as_str().map_or(0, str::len))?;
    Ok(match v {
        Value::Str(t) if !t.0.s.bytes().all(|b| !b.is_ascii_uppercase() && b.is_ascii()) => {
            budget::room(3 * t.0.s.len())?;
            Value::from(t.0.s.to_lowercase())
        }
        v => v.clone(),
    })
}

/// Follows a path such as a.b.0 from a value, as the attribute arguments of filters do.
pub fn attribute(v: &Value, path: &Value, default: Option<&Value>) -> R<Value> {
    let step = |v: &Value, key: &Value| -> R<Value> {
        let found = get_item(v, key)?;
        Ok(match default {
            Some(d) if found.is_undefined() && !d.is_none() => d.clone(),
            _ => found,
        })
    };
    let Some(path) = path.as_str() else {
        return if path.is_none() { Ok(v.clone()) } else { step(v, path) };
    };
    let mut v = v.clone();
    budget::scan(path.len())?;
    for part in path.split('.') {
        budget::spend(3)?;
        v = step(
            &v,
            &match part.parse::<i128>() {
                Ok(i) if part.bytes().all(|b| b.is_ascii_digit()) => Value::Int(i),
                _ => Value::from(part),
            },
        )?;
    }
    Ok(v)
}

pub fn is_set(v: &Option<Value>) -> bool {
    v.as_ref().is_some_and(Value::truth)
}

pub fn text_arg(v: Option<Value>, default: &str) -> R<String> {
    v.as_ref().map_or_else(|| Ok(default.to_owned()), str_of)
}
