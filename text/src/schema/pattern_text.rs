//! Handles a text with a pattern and a length: whether any such text exists, and its spelling in JSON.

use super::pattern::with_dots;
use crate::base::error::{fail, Code, Result};
use llguidance::derivre::{JsonQuoteOptions, RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

type Members = Map<String, Value>;

/// Most characters of a pattern that an error message shows.
pub const SHOWN: usize = 80;

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PatternText {
    pub pattern: String,
    pub least: u64,
    most: Option<u64>,
}

impl PatternText {
    pub fn read(s: &Members) -> Option<PatternText> {
        let count = |key: &str| match s.get(key) {
            None => Some(None),
            Some(v) => v.as_u64().map(Some),
        };
        let pattern = s.get("pattern")?.as_str()?.to_owned();
        let (least, most) = (count("minLength")?, count("maxLength")?);
        (least.is_some() || most.is_some()).then(|| PatternText { pattern, least: least.unwrap_or(0), most })
    }

    pub fn text(&self) -> RegexAst {
        let most = self.most.map_or_else(String::new, |n| n.to_string());
        RegexAst::And(vec![
            RegexAst::SearchRegex(regex_to_lark(&self.pattern, "dw")),
            RegexAst::Regex(format!("(?s:.{{{},{most}}})", self.least)),
        ])
    }

    /// Returns the text in JSON, with the escapes of llguidance (its json/compiler.rs).
    pub fn quoted(&self) -> RegexAst {
        let options = JsonQuoteOptions { allowed_escapes: "nrbtf\\\"u".to_owned(), raw_mode: false };
        RegexAst::JsonQuote(Box::new(self.text()), options)
    }

    /// Returns true when no text satisfies the pattern and the length. Returns None when the fuel is used up before the
    /// answer is known, or when llguidance has to report an error.
    pub fn look(&self, fuel: &mut u64) -> Option<bool> {
        if self.most.is_some_and(|most| most < self.least) {
            return Some(true);
        }
        let mut builder = RegexBuilder::new();
        let own = builder.mk(&self.text()).ok()?;
        if builder.exprset().is_positive(own) {
            return Some(false);
        }
        let mut rx = builder.to_regex_limited(own, *fuel).ok()?;
        *fuel = fuel.saturating_sub(rx.cost());
        Some(rx.always_empty())
    }

    pub fn is_empty(&self, fuel: &mut u64) -> Result<bool> {
        match self.look(fuel) {
            Some(answer) => Ok(answer),
            None => {
                *fuel = 0;
                let shown = shown(&self.pattern);
                fail(
                    Code::Limit,
                    format!(
                        "it costs too much to check whether any string matches the pattern {shown} and minLength or maxLength. \
                         Remove the length bound, or repeat less in the pattern"
                    ),
                )
            }
        }
    }
}

pub fn shown(pattern: &str) -> String {
    with_dots(pattern).chars().take(SHOWN).collect()
}
