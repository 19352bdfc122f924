//! Lists the names of all methods, and whether the sandbox allows a template to call them.

use crate::jinja::value::Value;

const STR: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
/// Methods whose result is marked as escaped when their text is marked as escaped.
pub const KEEP_MARK: [&str; 21] = [
    "capitalize",
    "casefold",
    "center",
    "expandtabs",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
/// Methods that look up each character, in addition to the is…() methods.
pub const LOOKED_UP: [&str; 6] = ["capitalize", "casefold", "lower", "swapcase", "title", "upper"];
const DICT: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const DICT_CHANGES: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];
const LIST: [&str; 3] = ["copy", "count", "index"];
const LIST_CHANGES: [&str; 8] = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const INT: [&str; 7] =
    ["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes", "is_integer"];
const FLOAT: [&str; 5] = ["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];

/// Returns Some when Python has a method of this name; the bool tells whether the sandbox allows the call.
pub fn has(of: &Value, name: &str) -> Option<bool> {
    let (may, may_not): (&[&str], &[&str]) = match of {
        Value::Str(_) => (&STR, &[]),
        Value::Dict(_) => (&DICT, &DICT_CHANGES),
        Value::List(_) => (&LIST, &LIST_CHANGES),
        Value::Tuple(_) | Value::Range(..) => (&LIST[1..], &[]),
        Value::Int(_) | Value::Bool(_) | Value::Big(_) => (&INT[..6], &[]),
        Value::Float(_) => (&FLOAT, &[]),
        Value::Loop(_) => (&["cycle", "changed"], &[]),
        Value::Cycler(_) => (&["next", "reset"], &[]),
        _ => (&[], &[]),
    };
    match (may.contains(&name), may_not.contains(&name)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}
