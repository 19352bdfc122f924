//! Gives each member's name one spelling. llguidance distinguishes listed names from other names by their text, but
//! accepts any escape in the other names. The name "\u0061" would be an "a" to which `properties` does not apply. After
//! this rewrite, such a name has exactly the escapes that serde_json writes.

use crate::base::error::{fail, invalid, Code, Result};
use llguidance::derivre::{ExprRef, RegexAst};
use llguidance::earley::lexerspec::LexerSpec;

/// Pattern of the names that are not listed, as in llguidance's json/compiler.rs.
const ANY_SPELLING: &str = r#""((\\([\"\\\/bfnrt]|u[a-fA-F0-9]{4})|[^\"\\\x00-\x1F\x7F]))*""#;
const ONE_SPELLING: &str = r#""(\\([\"\\bfnrt]|u00(0[0-7bef]|1[0-9a-f]))|[^\"\\\x00-\x1F\x7F])*""#;

/// Returns the expression that llguidance made for a lexeme. Returns None when the lexeme stands for special tokens.
pub fn expression(spec: &LexerSpec, i: usize) -> Option<ExprRef> {
    let lexeme = &spec.lexemes[i];
    // llguidance returns a lexeme's expression only as a number in the lexeme's text
    let text = lexeme.to_string(1 << 20, None);
    let number: u32 = text.rsplit_once(" (ExprRef ")?.1.strip_suffix(')')?.trim().parse().ok()?;
    Some(ExprRef::new(number))
}

/// Patterns that each match all texts of a name lexeme and more. llguidance merges lexemes with equal expressions. An
/// intersection with one of these patterns is a different expression for the same texts.
const ROOMS: [&str; 3] = ["(?s:.*)", "[^\\x00]*", "[^\\x01]*"];

/// Replaces lexeme i by a lexeme with another expression.
pub fn replace(spec: &mut LexerSpec, i: usize, rx: RegexAst) -> Result<()> {
    let bad = |e: &dyn std::fmt::Display| invalid(format!("a string of the schema is not supported: {e}"));
    let class = spec.current_class;
    let behind = spec.lexemes.split_off(i);
    spec.current_class = behind[0].class();
    let most = behind[0].max_tokens();
    let mut made =
        spec.add_greedy_lexeme(String::new(), rx.clone(), false, None, most).map_err(|e| bad(&e))?;
    for room in ROOMS {
        if made.as_usize() != i {
            let both = RegexAst::And(vec![rx.clone(), RegexAst::Regex(room.to_owned())]);
            made = spec.add_greedy_lexeme(String::new(), both, false, None, most).map_err(|e| bad(&e))?;
        }
    }
    if made.as_usize() != i {
        return fail(Code::Internal, "two strings of the schema became the same");
    }
    spec.lexemes.extend(behind.into_iter().skip(1));
    spec.current_class = class;
    Ok(())
}

/// Rewrites the name lexemes of a grammar that has not been compiled yet. Each lexeme keeps its index.
pub fn in_one_spelling(spec: &mut LexerSpec) -> Result<()> {
    let bad = |e: &dyn std::fmt::Display| invalid(format!("the names of members are not supported: {e}"));
    let any = spec.regex_builder.mk_regex(ANY_SPELLING).map_err(|e| bad(&e))?;
    for i in 0..spec.lexemes.len() {
        let Some(own) = expression(spec, i) else { continue };
        let both = RegexAst::And(vec![RegexAst::ExprRef(any), RegexAst::ExprRef(own)]);
        if spec.regex_builder.mk(&both).map_err(|e| bad(&e))? != own {
            continue; // this lexeme is not for arbitrary names
        }
        let one = RegexAst::And(vec![RegexAst::Regex(ONE_SPELLING.to_owned()), RegexAst::ExprRef(own)]);
        replace(spec, i, one)?;
    }
    Ok(())
}
