//! Reads the small JSON files beside a tokenizer: tokenizer_config.json and special_tokens_map.json. These files name the
//! special tokens.

use crate::base::error::{invalid, Result};
use crate::files::json_limits::{check_values, MAX_JSON_VALUES};
use crate::files::open::read_small;
use serde_json::{Map, Value};
use std::path::Path;

#[derive(Clone, Debug, Default)]
pub struct Special {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub bos_id: Option<u32>,
    pub eos_id: Option<u32>,
}

pub const ADDITIONAL: &str = "additional_special_tokens";

/// Reads a small file that holds a JSON object. Returns None when the file does not exist.
pub fn read_json(path: &Path) -> Result<Option<Map<String, Value>>> {
    let Some(text) = read_small(path)? else { return Ok(None) };
    check_values(&text, MAX_JSON_VALUES, path.display())?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(_) => Err(invalid(format!("{} must be a JSON object", path.display()))),
        Err(e) => Err(invalid(format!("{} is not valid JSON: {e}", path.display()))),
    }
}

/// Merges tokenizer_config.json and special_tokens_map.json as transformers does. When the first file has no
/// added_tokens_decoder, the files are from before 2023 and the second file overrides the first. Otherwise, the second
/// file is ignored, unless `fill` is true. With `fill`, the second file adds the entries that the first file lacks.
/// (transformers takes these entries from the tokenizer's class, which this crate does not have.)
pub fn token_config(folder: &Path, fill: bool) -> Result<Value> {
    let mut config = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let listed = config.get("added_tokens_decoder").is_some_and(Value::is_object);
    let map = match listed && !fill {
        true => None,
        false => read_json(&folder.join("special_tokens_map.json"))?,
    };
    for (key, said) in map.into_iter().flatten() {
        match (config.get_mut(&key), said) {
            (Some(_), _) if listed => {}
            (Some(Value::Array(all)), Value::Array(more)) if key == ADDITIONAL => all.extend(more),
            (_, said) => {
                config.insert(key, said);
            }
        }
    }
    Ok(Value::Object(config))
}

/// Returns the text of a special token in tokenizer_config.json. The file has the token as a string or as an object with
/// "content".
pub fn token_text(v: &Value) -> Option<String> {
    v.as_str().or_else(|| v["content"].as_str()).map(str::to_owned)
}
