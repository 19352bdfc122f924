//! Translates structural tags, as in xgrammar and vLLM: a tree of formats, each for one piece of the answer. The older
//! form with structures and triggers is translated to triggered_tags. A piece of free text ends where the following text
//! begins. The piece and the following text are one lazy rule, which stops at the first possible end.

use super::gbnf;
use crate::base::error::{invalid, Result, TextError};
use crate::schema::check;
use crate::schema::stand_ins::Numbers;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::derivre::{RegexAst, RegexBuilder};
use serde_json::{json, Map, Value};

const TYPES: &str =
    "supported are const_string, json_schema, any_text, grammar, regex, sequence, or, optional, plus, star, repeat, \
     tag, triggered_tags and tags_with_separator";
/// Most repetitions in a `repeat` format: each repetition costs a rule.
const MOST_REPEATS: u64 = 10_000;

fn quote(s: &str) -> String {
    Value::from(s).to_string()
}

/// Holds the members of a format. A member that the format's type does not have is allowed only when it is null.
struct Format<'a> {
    name: &'a str,
    members: &'a Map<String, Value>,
}

impl<'a> Format<'a> {
    fn of(v: &'a Value) -> Result<Format<'a>> {
        Self::named(v, None)
    }

    /// Reads a format where only a tag is possible, so its type may be missing.
    fn tag(v: &'a Value) -> Result<Format<'a>> {
        Self::named(v, Some("tag"))
    }

    fn named(v: &'a Value, unsaid: Option<&'a str>) -> Result<Format<'a>> {
        let what = "structural_tag: each format must be an object with a type";
        let members = v.as_object().ok_or_else(|| invalid(what))?;
        let said = members.get("type").filter(|t| unsaid.is_none() || !t.is_null());
        let name = said.map_or(unsaid, Value::as_str).ok_or_else(|| invalid(what))?;
        let known: &[&str] = match name {
            "const_string" => &["value"],
            "json_schema" => &["json_schema", "style", "any_order"],
            "any_text" => &["excludes", "max_tokens"],
            "grammar" => &["grammar"],
            "regex" => &["pattern"],
            "sequence" | "or" => &["elements"],
            "optional" | "plus" | "star" => &["content"],
            "repeat" => &["content", "min", "max"],
            "tag" => &["begin", "content", "end"],
            "triggered_tags" => &["triggers", "tags", "at_least_one", "stop_after_first", "excludes"],
            "tags_with_separator" => &["tags", "separator", "at_least_one", "stop_after_first"],
            _ => {
                return Err(invalid(format!(
                    "structural_tag: the format type {} is not supported; {TYPES}",
                    quote(name)
                )))
            }
        };
        let is_odd = |(key, v): &(&String, &Value)| {
            !v.is_null() && key.as_str() != "type" && !known.contains(&key.as_str())
        };
        match members.iter().find(is_odd) {
            Some((key, _)) => {
                Err(invalid(format!("structural_tag: the key {} of {name} is not supported", quote(key))))
            }
            None => Ok(Format { name, members }),
        }
    }

    fn fail<T>(&self, key: &str, what: &str) -> Result<T> {
        Err(invalid(format!("structural_tag: {key} of {} {what}", self.name)))
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|v| !v.is_null())
    }

    fn need(&self, key: &str) -> Result<&'a Value> {
        self.get(key).map_or_else(|| self.fail(key, "is missing"), Ok)
    }

    fn text(&self, key: &str) -> Result<&'a str> {
        self.need(key)?.as_str().map_or_else(|| self.fail(key, "must be a string"), Ok)
    }

    fn list(&self, key: &str) -> Result<&'a [Value]> {
        match self.need(key)?.as_array() {
            Some(list) if !list.is_empty() => Ok(list),
            _ => self.fail(key, "must be a list that is not empty"),
        }
    }

    fn texts(&self, key: &str) -> Result<Vec<&'a str>> {
        let list = self.get(key).map_or(Some(&[][..]), |v| v.as_array().map(Vec::as_slice));
        let texts = list.map(|l| l.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        match texts.flatten() {
            Some(texts) if !texts.contains(&"") => Ok(texts),
            _ => self.fail(key, "must be a list of non-empty strings"),
        }
    }

    fn flag(&self, key: &str) -> Result<bool> {
        self.get(key)
            .map_or(Some(false), Value::as_bool)
            .map_or_else(|| self.fail(key, "must be a boolean"), Ok)
    }

    /// Returns the texts that may end a tag. An empty text ends the tag at once.
    fn ends(&self) -> Result<Vec<&'a str>> {
        match self.need("end")? {
            Value::String(end) => Ok(vec![end]),
            Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_string) => {
                Ok(list.iter().filter_map(Value::as_str).collect())
            }
            _ => self.fail("end", "must be a string or a list of strings; tokens are not supported"),
        }
    }

    /// Returns true when the piece continues until a following text ends it.
    fn is_unlimited(&self) -> Result<bool> {
        match self.name {
            "any_text" => Ok(true),
            "triggered_tags" => Ok(!self.flag("stop_after_first")?),
            "sequence" => {
                Format::of(&self.list("elements")?[self.list("elements")?.len() - 1])?.is_unlimited()
            }
            "or" => self
                .list("elements")?
                .iter()
                .try_fold(false, |any, v| Ok(any | Format::of(v)?.is_unlimited()?)),
            "tag" => Ok(self.ends()?.contains(&"") && Format::of(self.need("content")?)?.is_unlimited()?),
            _ => Ok(false),
        }
    }
}

struct Builder<'n> {
    numbers: &'n Numbers,
    fuel: u64,
    lark: String,
    n_rules: usize,
    grammars: Vec<GrammarWithLexer>,
}

/// The text that follows a piece, in Lark's spelling; None = the end of the answer.
type End<'a> = Option<&'a str>;

fn then(piece: &str, end: End<'_>) -> String {
    end.map_or_else(|| piece.to_owned(), |end| format!("{piece} {end}"))
}

fn one_of(options: &[String]) -> String {
    format!("({})", options.join(" | "))
}

/// Returns the piece, repeated as its format says.
fn repeated(f: &Format<'_>, piece: &str) -> Result<String> {
    let times = match f.name {
        "optional" => return Ok(format!("({piece})?")),
        "plus" => return Ok(format!("({piece})+")),
        "star" => return Ok(format!("({piece})*")),
        _ => (f.need("min")?.as_u64(), f.need("max")?.as_i64()),
    };
    match times {
        (Some(0), Some(0)) => Ok("\"\"".to_owned()),
        (Some(min), Some(-1)) if min <= MOST_REPEATS => Ok(format!("({piece}){{{min},}}")),
        (Some(min), Some(max)) if max >= 0 && min <= max as u64 && max as u64 <= MOST_REPEATS => {
            Ok(format!("({piece}){{{min},{max}}}"))
        }
        _ => f.fail(
            "min and max",
            "must be counts of at most 10000, with min not greater than max (max -1 = no maximum)",
        ),
    }
}

/// Returns true when the format consists of patterns and constants alone. A grammar without recursive rules counts as a
/// pattern.
fn is_regular(v: &Value) -> Result<bool> {
    let f = Format::of(v)?;
    match f.name {
        "const_string" | "regex" => Ok(true),
        "grammar" => Ok(f.get("grammar").and_then(Value::as_str).is_some_and(gbnf::is_regular)),
        "sequence" | "or" => f.list("elements")?.iter().try_fold(true, |all, v| Ok(all && is_regular(v)?)),
        "optional" | "plus" | "star" | "repeat" => is_regular(f.need("content")?),
        _ => Ok(false),
    }
}

fn has_regex(v: &Value) -> Result<bool> {
    let f = Format::of(v)?;
    match f.name {
        "regex" | "grammar" => Ok(true),
        "sequence" | "or" => f.list("elements")?.iter().try_fold(false, |any, v| Ok(any || has_regex(v)?)),
        "optional" | "plus" | "star" | "repeat" => has_regex(f.need("content")?),
        _ => Ok(false),
    }
}

/// Fuel for all checks of `goes_on` in one source.
const SWALLOW_FUEL: u64 = 2_000_000;

/// Returns true when the pattern can continue with each of these first characters. Returns false when the check costs
/// more than the fuel, or when the pattern is invalid.
fn goes_on(pattern: &str, firsts: &str, fuel: &mut u64) -> bool {
    let mut builder = RegexBuilder::new();
    let Ok(own) = builder.mk(&RegexAst::Regex(pattern.to_owned())) else { return false };
    firsts.chars().all(|first| {
        let any = RegexAst::Regex("(?s:.*)".to_owned());
        let over = vec![RegexAst::ExprRef(own), RegexAst::Literal(first.to_string()), any];
        let both = RegexAst::And(vec![RegexAst::ExprRef(own), RegexAst::Concat(over)]);
        match builder.mk(&both).and_then(|e| builder.to_regex_limited(e, *fuel)) {
            Ok(mut rx) => {
                *fuel = fuel.saturating_sub(rx.cost());
                !rx.always_empty()
            }
            Err(_) => {
                *fuel = 0;
                false
            }
        }
    })
}

/// Refuses a pattern that can continue with every first character of the JSON that follows it. The answer would never
/// reach the JSON.
fn swallows(pattern: &Value, next: &Value, fuel: &mut u64) -> Result<()> {
    let (f, next) = (Format::of(pattern)?, Format::of(next)?);
    if f.name != "regex" || next.name != "json_schema" {
        return Ok(());
    }
    let firsts = match next.need("json_schema")?.get("type").and_then(Value::as_str) {
        Some("object") => "{",
        Some("array") => "[",
        Some("string") => "\"",
        Some("integer" | "number") => "-0123456789",
        _ => "{[\"-0123456789tfn",
    };
    match *fuel > 0 && goes_on(f.text("pattern")?, firsts, fuel) {
        false => Ok(()),
        true => f.fail(
            "pattern",
            "also matches the first character of the json_schema after it, so the json_schema would never begin. \
             Exclude that character, as [^{]* does",
        ),
    }
}

impl Builder<'_> {
    fn rule(&mut self, lazy: &str, body: &str) -> String {
        self.n_rules += 1;
        let name = format!("piece_{}", self.n_rules);
        self.lark += &format!("{name}{lazy}: {body}\n");
        name
    }

    fn terminal(&mut self, body: &str) -> String {
        self.n_rules += 1;
        let name = format!("TEXT_{}", self.n_rules);
        self.lark += &format!("{name}: {body}\n");
        name
    }

    /// Returns a terminal for any text that contains none of `excludes`.
    fn text_without(&mut self, excludes: &[&str]) -> String {
        let any = "/(\\n|.)*/";
        if excludes.is_empty() {
            return self.terminal(any);
        }
        let quoted: Vec<_> = excludes.iter().map(|e| quote(e)).collect();
        let has = self.terminal(&format!("{any} ({}) {any}", quoted.join(" | ")));
        self.terminal(&format!("{any} & ~{has}"))
    }

    /// Returns Lark source for a format and the end that follows it.
    fn build(&mut self, v: &Value, end: End<'_>) -> Result<String> {
        let f = Format::of(v)?;
        if is_regular(v)? && has_regex(v)? {
            let text = self.regular(v)?;
            let text = self.terminal(&text);
            return Ok(end.map_or(text.clone(), |end| self.rule("[lazy]", &format!("{text} {end}"))));
        }
        let piece = match f.name {
            "any_text" => return self.any_text(&f, end),
            "triggered_tags" => return self.triggered_tags(&f, end),
            "tag" => return self.tag(&f, "", end),
            "sequence" => return self.sequence(&f, end),
            "or" => {
                let options: Result<Vec<_>> =
                    f.list("elements")?.iter().map(|v| self.build(v, end)).collect();
                return Ok(one_of(&options?));
            }
            "const_string" => quote(f.text("value")?),
            "json_schema" => self.schema(&f)?,
            "grammar" => self.grammar(f.text("grammar")?)?,
            "tags_with_separator" => self.separated(&f)?,
            _ => self.repeated(&f)?,
        };
        Ok(then(&piece, end))
    }

    fn any_text(&mut self, f: &Format<'_>, end: End<'_>) -> Result<String> {
        if f.get("max_tokens").is_some() {
            return f.fail("max_tokens", "is not supported");
        }
        let text = self.text_without(&f.texts("excludes")?);
        Ok(end.map_or(text.clone(), |end| self.rule("[lazy]", &format!("{text} {end}"))))
    }

    /// Returns the body of a terminal for a format for which is_regular is true.
    fn regular(&mut self, v: &Value) -> Result<String> {
        let f = Format::of(v)?;
        match f.name {
            "const_string" => Ok(quote(f.text("value")?)),
            "regex" => {
                let pattern = llguidance::regex_to_lark(f.text("pattern")?, "");
                Ok(self.terminal(&format!("/{pattern}/")))
            }
            "grammar" => {
                self.n_rules += 1;
                let (terminals, root) = gbnf::terminals(f.text("grammar")?, &format!("g{}_", self.n_rules))?;
                self.lark += &terminals;
                Ok(root)
            }
            "sequence" | "or" => {
                let parts: Result<Vec<_>> = f.list("elements")?.iter().map(|v| self.regular(v)).collect();
                Ok(format!("({})", parts?.join(if f.name == "or" { " | " } else { " " })))
            }
            _ => Ok(repeated(&f, &self.regular(f.need("content")?)?)?),
        }
    }

    /// Builds a run of regular formats. A regex continues as long as it matches. The run and the fixed text after it
    /// therefore become one lazy rule, which stops at the first end.
    fn run(&mut self, run: &[Value], next: Option<&Value>, end: End<'_>) -> Result<(String, bool)> {
        let mut parts = Vec::new();
        for v in run {
            parts.push(self.regular(v)?);
        }
        let is_open = has_regex(&run[run.len() - 1])?;
        let text = self.terminal(&parts.join(" "));
        let tag = next.map(Format::of).transpose()?.filter(|f| f.name == "tag");
        let begin = tag.as_ref().and_then(|t| t.need("begin").ok()?.as_str()).filter(|b| !b.is_empty());
        match (next, tag, begin) {
            (Some(_), Some(tag), Some(begin)) if is_open => {
                let text = self.rule("[lazy]", &format!("{text} {}", quote(begin)));
                Ok((format!("{text} {}", self.tag(&tag, begin, end)?), true))
            }
            (Some(v), _, _) if is_open => {
                swallows(&run[run.len() - 1], v, &mut self.fuel)?;
                Ok((text, false))
            }
            (Some(_), _, _) => Ok((self.rule("[lazy]", &text), false)),
            (None, _, _) => {
                Ok((end.map_or(text.clone(), |end| self.rule("[lazy]", &format!("{text} {end}"))), false))
            }
        }
    }

    fn sequence(&mut self, f: &Format<'_>, end: End<'_>) -> Result<String> {
        let elements = f.list("elements")?;
        let (mut pieces, mut i) = (Vec::new(), 0);
        while i < elements.len() {
            let mut n = 0;
            while i + n < elements.len() && is_regular(&elements[i + n])? {
                n += 1;
            }
            let run = &elements[i..i + n];
            if run.iter().try_fold(false, |any, v| Ok::<_, TextError>(any | has_regex(v)?))? {
                let next = elements.get(i + n);
                let is_end = i + n + 1 >= elements.len();
                let (piece, took) = self.run(run, next, if is_end { end } else { None })?;
                pieces.push(piece);
                i += n + took as usize;
                continue;
            }
            let is_last = i + 1 == elements.len();
            if !is_last && Format::of(&elements[i])?.is_unlimited()? {
                return f.fail(
                    "elements",
                    "has text without an end before another element; only the last element can have no end",
                );
            }
            pieces.push(self.build(&elements[i], if is_last { end } else { None })?);
            i += 1;
        }
        Ok(format!("({})", pieces.join(" ")))
    }

    fn schema(&mut self, f: &Format<'_>) -> Result<String> {
        if f.get("style").is_some_and(|s| s != "json") {
            return f.fail("style", "must be json; other styles are not supported");
        }
        if f.flag("any_order")? {
            return f.fail("any_order", "is not supported; members are written in the order of properties");
        }
        let schema = check::check_schema(f.need("json_schema")?.clone(), self.numbers)?;
        Ok(self.rule("", &format!("%json {schema}")))
    }

    fn grammar(&mut self, source: &str) -> Result<String> {
        if !gbnf::is_gbnf(source) {
            return Err(invalid("structural_tag: the grammar must be EBNF, whose first rule has ::="));
        }
        let name = format!("grammar_{}", self.grammars.len());
        let top = TopLevelGrammar::from_lark(gbnf::to_lark(source)?);
        self.grammars
            .extend(top.grammars.into_iter().map(|g| GrammarWithLexer { name: Some(name.clone()), ..g }));
        Ok(format!("@{name}"))
    }

    fn limited(&mut self, f: &Format<'_>, v: &Value) -> Result<String> {
        if Format::of(v)?.is_unlimited()? {
            return f.fail("content", "is text without an end, which cannot be repeated or optional");
        }
        self.build(v, None)
    }

    fn repeated(&mut self, f: &Format<'_>) -> Result<String> {
        let piece = self.limited(f, f.need("content")?)?;
        let piece = self.rule("", &piece);
        repeated(f, &piece)
    }

    /// Builds a tag. `said` is the part of its `begin` that a trigger has already matched.
    fn tag(&mut self, f: &Format<'_>, said: &str, end: End<'_>) -> Result<String> {
        let begin = match f.need("begin")?.as_str() {
            Some(begin) => quote(&begin[said.len()..]),
            None => return f.fail("begin", "must be a string; tokens are not supported"),
        };
        let content = f.need("content")?;
        let ends = f.ends()?;
        if ends.contains(&"") && ends.len() > 1 {
            return f.fail("end", "must not contain an empty string together with others");
        }
        if ends == [""] {
            return Ok(format!("({begin} {})", self.build(content, end)?));
        }
        let own = one_of(&ends.iter().map(|e| quote(e)).collect::<Vec<_>>());
        let content = self.build(content, Some(&own))?;
        Ok(then(&format!("({begin} {content})"), end))
    }

    fn tags<'a>(&self, f: &Format<'a>) -> Result<Vec<Format<'a>>> {
        let tags: Result<Vec<_>> = f.list("tags")?.iter().map(Format::tag).collect();
        let tags = tags?;
        match tags.iter().all(|t| t.name == "tag") {
            true => Ok(tags),
            false => f.fail("tags", "must contain only formats of type tag"),
        }
    }

    /// Builds free text in which each trigger starts a tag whose `begin` starts with the trigger.
    fn triggered_tags(&mut self, f: &Format<'_>, end: End<'_>) -> Result<String> {
        let (triggers, tags, excludes) = (f.texts("triggers")?, self.tags(f)?, f.texts("excludes")?);
        let (at_least_one, stops) = (f.flag("at_least_one")?, f.flag("stop_after_first")?);
        if triggers.is_empty() {
            return f.fail("triggers", "must not be empty");
        }
        let text = self.text_without(&excludes);
        let begun: Vec<_> =
            triggers.iter().map(|t| self.rule("[lazy]", &format!("{text} {}", quote(t)))).collect();
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for tag in &tags {
            let begin = tag.need("begin")?.as_str().unwrap_or_default();
            let Some(t) = triggers.iter().position(|t| begin.starts_with(t)) else {
                return Err(invalid(format!(
                    "structural_tag: the tag {} begins with none of the triggers",
                    quote(begin)
                )));
            };
            if at_least_one {
                first.push(self.tag(tag, "", None)?);
            }
            let rest = self.tag(tag, triggers[t], None)?;
            later.push(format!("{} {rest}", begun[t]));
        }
        let tail = end.map_or(text.clone(), |end| self.rule("[lazy]", &format!("{text} {end}")));
        let later = self.rule("", &later.join(" | "));
        Ok(match (at_least_one, stops) {
            (false, false) => format!("({later}* {tail})"),
            (true, false) => format!("({} {later}* {tail})", one_of(&first)),
            (true, true) => then(&one_of(&first), end),
            (false, true) => format!("({} | {tail})", then(&later, end)),
        })
    }

    fn separated(&mut self, f: &Format<'_>) -> Result<String> {
        let tags: Result<Vec<_>> = self.tags(f)?.iter().map(|t| self.tag(t, "", None)).collect();
        let tag = self.rule("", &tags?.join(" | "));
        let all = match f.flag("stop_after_first")? {
            true => tag,
            false => format!("{tag} ({} {tag})*", quote(f.text("separator")?)),
        };
        Ok(if f.flag("at_least_one")? { format!("({all})") } else { format!("({all})?") })
    }
}

/// Translates the older form (structures and triggers) to the present one.
fn of_structures(source: &Value) -> Result<Value> {
    let bad = || invalid("structural_tag needs a format, or non-empty structures and triggers");
    let list =
        |key: &str| source.get(key).and_then(Value::as_array).filter(|l| !l.is_empty()).ok_or_else(bad);
    let tag = |s: &Value| -> Result<Value> {
        match (s.get("begin"), s.get("schema"), s.get("end")) {
            (Some(begin), Some(schema), Some(end)) => Ok(json!({"type": "tag", "begin": begin, "end": end,
                "content": {"type": "json_schema", "json_schema": schema}})),
            _ => Err(invalid("structural_tag: each structure must have begin, schema and end")),
        }
    };
    let tags: Result<Vec<_>> = list("structures")?.iter().map(tag).collect();
    Ok(json!({"type": "triggered_tags", "triggers": list("triggers")?, "tags": tags?}))
}

pub fn top_level(source: &Value, numbers: &Numbers) -> Result<TopLevelGrammar> {
    let format = match source.get("format") {
        Some(format) => format.clone(),
        None => of_structures(source)?,
    };
    let mut b =
        Builder { numbers, fuel: SWALLOW_FUEL, lark: String::new(), n_rules: 0, grammars: Vec::new() };
    let start = b.build(&format, None)?;
    let mut top = TopLevelGrammar::from_lark(format!("start: {start}\n{}", b.lark));
    top.grammars.extend(b.grammars);
    Ok(top)
}
