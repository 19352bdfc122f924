//! Converts the sources of grammars to llguidance's form: JSON schemas, patterns, Lark or GBNF, structural tags, and any
//! of these after a model's reasoning.

use super::gbnf;
use super::structural_tag;
use crate::base::error::{fail, invalid, Code, Result};
use crate::schema::check;
use crate::schema::far;
use crate::schema::stand_ins::Numbers;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::Value;

/// The constants have the values of text.h's enum text_grammar_kind.
pub const JSON_SCHEMA: i32 = 1;
pub const REGEX: i32 = 2;
pub const LARK: i32 = 3;
pub const STRUCTURAL_TAG: i32 = 4;
pub const AFTER_REASONING: i32 = 5;

const MAX_SOURCE: usize = 256 << 10;
const MAX_DEPTH: usize = 64;

fn quote(s: &str) -> String {
    Value::from(s).to_string()
}

/// Returns the deepest nesting of brackets in the source. Brackets inside quotes do not count.
fn depth(source: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for b in source.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn check_size(source: &str) -> Result<()> {
    if source.len() > MAX_SOURCE {
        let n = source.len();
        return fail(Code::Limit, format!("the grammar has {n} bytes; at most {MAX_SOURCE} are allowed"));
    }
    match depth(source) {
        n if n > MAX_DEPTH => fail(
            Code::Limit,
            format!("the grammar is nested {n} levels deep; at most {MAX_DEPTH} are allowed"),
        ),
        _ => Ok(()),
    }
}

/// Describes a grammar after reasoning: any text up to a closing marker, then the grammar. When the reasoning has not
/// begun (`begun` is false), the answer may leave it out. Reasoning starts with an opening marker, without white space
/// before it. If white space were allowed, an answer that starts with a space could only continue with reasoning.
#[derive(serde::Deserialize)]
struct Reasoning {
    open: Vec<String>,
    close: Vec<String>,
    begun: bool,
    kind: i32,
    source: String,
}

/// A function that returns the id of the special token with a name, if there is one. A marker may be a special token or
/// plain text.
type Special<'a> = dyn Fn(&str) -> Option<u32> + 'a;

fn reasoning(r: &Reasoning, special: &Special<'_>) -> Result<String> {
    if r.close.is_empty() || r.open.iter().chain(&r.close).any(String::is_empty) {
        return Err(invalid("reasoning needs at least one end marker, and no marker can be empty"));
    }
    let mut lark = String::from("answer: @answer\nREASONED: /(\\n|.)*/\n");
    let mut rules = |name: &str, markers: &[String]| -> String {
        let rule = |(i, m): (usize, &String)| {
            match (special(m), name) {
                (Some(id), "open") => lark += &format!("open_{i}: <[{id}]>\n"),
                (None, "open") => lark += &format!("open_{i}: {}\n", quote(m)),
                (Some(id), _) => lark += &format!("{name}_{i}: REASONED <[{id}]>\n"),
                (None, _) => lark += &format!("{name}_{i}[lazy]: REASONED {}\n", quote(m)),
            }
            format!("{name}_{i}")
        };
        markers.iter().enumerate().map(rule).collect::<Vec<_>>().join(" | ")
    };
    let closes = rules("close", &r.close);
    let opens = rules("open", &r.open);
    lark += &match (r.begun, r.open.is_empty()) {
        (false, false) => format!("start: answer | ({opens}) ({closes}) answer\n"),
        (false, true) => "start: answer\n".to_owned(),
        (true, _) => format!("start: ({closes}) answer\n"),
    };
    Ok(lark)
}

fn after_reasoning(source: &str, special: &Special<'_>, numbers: &Numbers) -> Result<TopLevelGrammar> {
    let r: Reasoning = serde_json::from_str(source)
        .map_err(|e| invalid(format!("the reasoning description is not valid JSON: {e}")))?;
    if r.kind == AFTER_REASONING {
        return Err(invalid("reasoning cannot be followed by other reasoning"));
    }
    let mut top = TopLevelGrammar::from_lark(reasoning(&r, special)?);
    let mut grammars = top_level(r.kind, &r.source, special, numbers)?.grammars.into_iter();
    top.grammars.extend(grammars.next().map(|g| GrammarWithLexer { name: Some("answer".to_owned()), ..g }));
    top.grammars.extend(grammars); // the first grammar refers to these grammars by name
    Ok(top)
}

/// Translates a source of kind `kind` to an llguidance grammar. `numbers` collects stand-ins for the schemas' numbers.
/// The caller replaces the stand-ins by the numbers' texts after llguidance has made its lexemes.
pub fn top_level(
    kind: i32,
    source: &str,
    special: &Special<'_>,
    numbers: &Numbers,
) -> Result<TopLevelGrammar> {
    if kind != AFTER_REASONING {
        check_size(source)?;
    }
    match kind {
        JSON_SCHEMA => {
            let schema = far::read(source).map_err(|e| invalid(format!("the schema is not JSON: {e}")))?;
            Ok(TopLevelGrammar::from_json_schema(check::check_schema(schema, numbers)?))
        }
        REGEX => Ok(TopLevelGrammar::from_regex(source)),
        LARK if gbnf::is_gbnf(source) => Ok(TopLevelGrammar::from_lark(gbnf::to_lark(source)?)),
        LARK => Ok(TopLevelGrammar::from_lark(check::check_lark(source, numbers)?)),
        STRUCTURAL_TAG => {
            let tag =
                far::read(source).map_err(|e| invalid(format!("the structural tag is not JSON: {e}")))?;
            structural_tag::top_level(&tag, numbers)
        }
        AFTER_REASONING => after_reasoning(source, special, numbers),
        _ => Err(invalid(format!("the grammar kind {kind} is unknown"))),
    }
}
