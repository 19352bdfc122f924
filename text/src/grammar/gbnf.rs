//! Translates GBNF to Lark. GBNF is the EBNF that llama.cpp, vLLM and XGrammar read (`root ::= "yes" | "no"`). A rule
//! that does not refer to itself, directly or through others, describes a regular language. Such a rule becomes a
//! terminal, which matches exactly the same texts. Recursive rules stay rules, and the terminals in them are made as long
//! as possible.

use crate::base::error::{invalid, Result, TextError};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

const MAX_DEPTH: usize = 64;
const MAX_REPEATS: u32 = 4096;

enum Node {
    Literal(String),
    /// one character, in Lark's spelling
    Pattern(String),
    Rule(String),
    Group(Alternatives),
}

type Alternatives = Vec<Vec<(Node, String)>>;

struct Rule {
    name: String,
    body: Alternatives,
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns true when the source begins with a GBNF rule (`name ::=`). Lark writes `name:` there.
pub fn is_gbnf(source: &str) -> bool {
    let mut r = Reader { rest: source, line: 1 };
    r.skip_blanks();
    r.begins_rule()
}

impl Reader<'_> {
    fn error(&self, what: &str) -> TextError {
        invalid(format!("line {} of the grammar: {what}", self.line))
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.next();
        }
        found
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' || self.rest.starts_with("//") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else if !c.is_whitespace() {
                return;
            } else {
                self.next();
            }
        }
    }

    fn name(&mut self) -> String {
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name.to_owned()
    }

    fn begins_rule(&self) -> bool {
        let behind = self.rest.trim_start_matches(is_name);
        behind.len() < self.rest.len() && behind.trim_start().starts_with("::=")
    }

    /// Reads an escape. The backslash has been read.
    fn escaped(&mut self) -> Result<char> {
        let n_digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c) if c.is_ascii_punctuation() => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(self.error("\\ must be followed by n, r, t, x, u, U or a punctuation character")),
        };
        let code = self.rest.get(..n_digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let Some(c) = code.and_then(char::from_u32) else {
            return Err(self.error("the digits of this escape are not the number of a character"));
        };
        self.rest = &self.rest[n_digits..];
        Ok(c)
    }

    /// Reads one character of a literal or of a class.
    fn character(&mut self) -> Result<char> {
        match self.next() {
            Some('\\') => self.escaped(),
            Some(c) if c != '\n' => Ok(c),
            _ => Err(self.error("a string or a character class does not end in its line")),
        }
    }

    fn literal(&mut self) -> Result<Node> {
        let mut text = String::new();
        while !self.eat('"') {
            text.push(self.character()?);
        }
        Ok(Node::Literal(text))
    }

    fn class(&mut self) -> Result<Node> {
        let spell = |c: char| match c {
            c if c.is_ascii_alphanumeric() => c.to_string(),
            c => format!("\\x{{{:x}}}", c as u32),
        };
        let mut class = String::from(if self.eat('^') { "[^" } else { "[" });
        let begin = class.len();
        while !self.eat(']') {
            let first = self.character()?;
            class += &spell(first);
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                let last = self.character()?;
                if last < first {
                    return Err(self.error("a range in a character class ends before it begins"));
                }
                class += "-";
                class += &spell(last);
            }
        }
        match class.len() == begin {
            true => Err(self.error("a character class is empty")),
            false => Ok(Node::Pattern(format!("/{class}]/"))),
        }
    }

    fn number(&mut self) -> Result<Option<u32>> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        match digits.parse::<u32>() {
            _ if digits.is_empty() => Ok(None),
            Ok(n) if n <= MAX_REPEATS => Ok(Some(n)),
            _ => Err(self.error(&format!("a repetition is larger than {MAX_REPEATS}"))),
        }
    }

    /// Reads the counts of a repetition, M}, M,} or M,N}. The `{` has been read.
    fn bounds(&mut self) -> Result<String> {
        let least = self.number()?;
        let is_range = self.eat(',');
        let most = if is_range { self.number()? } else { least };
        if !self.eat('}') || (least.is_none() && most.is_none()) {
            return Err(self.error("a repetition must be {M}, {M,}, {,N} or {M,N}"));
        }
        let least = least.unwrap_or(0);
        match most {
            Some(n) if n < least => {
                Err(self.error("a repetition has a maximum that is less than its minimum"))
            }
            Some(n) => Ok(format!("{{{least},{n}}}")),
            None => Ok(format!("{{{least},}}")),
        }
    }

    fn repeat(&mut self) -> Result<String> {
        let before = (self.rest, self.line);
        self.skip_blanks();
        match self.peek() {
            Some(c @ ('*' | '+' | '?')) => {
                self.next();
                Ok(c.to_string())
            }
            Some('{') => {
                self.next();
                self.bounds()
            }
            _ => {
                (self.rest, self.line) = before;
                Ok(String::new())
            }
        }
    }

    fn element(&mut self, depth: usize) -> Result<Node> {
        match self.peek() {
            Some(c) if is_name(c) => return Ok(Node::Rule(self.name())),
            Some('.') => {
                self.next();
                return Ok(Node::Pattern("/(\\n|.)/".to_owned()));
            }
            _ => {}
        }
        match self.next() {
            Some('"') => self.literal(),
            Some('[') => self.class(),
            Some('(') if depth == MAX_DEPTH => {
                Err(self.error(&format!("groups are nested deeper than {MAX_DEPTH} levels")))
            }
            Some('(') => {
                let inner = self.alternatives(depth + 1)?;
                match self.eat(')') {
                    true => Ok(Node::Group(inner)),
                    false => Err(self.error("a ( has no matching )")),
                }
            }
            Some(c) => Err(self
                .error(&format!("{c:?} cannot begin a string, a character class, a rule name or a group"))),
            None => Err(self.error("the grammar ends in the middle of a rule")),
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Alternatives> {
        let mut all = vec![vec![]];
        loop {
            self.skip_blanks();
            match self.peek() {
                Some('|') => {
                    self.next();
                    all.push(vec![]);
                }
                None | Some(')') => return Ok(all),
                _ if self.begins_rule() => return Ok(all),
                _ => {
                    let mut node = self.element(depth)?;
                    let mut repeat = self.repeat()?;
                    let again = self.repeat()?;
                    if !again.is_empty() {
                        node = Node::Group(vec![vec![(node, repeat)]]);
                        repeat = again;
                    }
                    if let Some(last) = all.last_mut() {
                        last.push((node, repeat));
                    }
                }
            }
        }
    }

    fn rules(&mut self) -> Result<Vec<Rule>> {
        let mut rules = Vec::new();
        self.skip_blanks();
        while self.peek().is_some() {
            if !self.begins_rule() {
                return Err(self.error("a rule must have the form NAME ::= …"));
            }
            let name = self.name();
            while !self.rest.starts_with("::=") {
                self.next();
            }
            self.rest = &self.rest[3..];
            let body = self.alternatives(0)?;
            rules.push(Rule { name, body });
        }
        Ok(rules)
    }
}

fn each_use<'a>(body: &'a Alternatives, f: &mut dyn FnMut(&'a str)) {
    for (node, _) in body.iter().flatten() {
        match node {
            Node::Rule(name) => f(name),
            Node::Group(inner) => each_use(inner, f),
            _ => {}
        }
    }
}

/// Returns for each rule whether it leads to a recursive rule. The algorithm removes a rule when none of its references
/// can lead to a recursive rule. When no more rules can be removed, the remaining rules lead to a recursive rule.
fn recursive(rules: &[Rule], places: &HashMap<&str, usize>) -> Result<Vec<bool>> {
    let mut left = vec![0usize; rules.len()];
    let mut users = vec![Vec::new(); rules.len()];
    for (i, rule) in rules.iter().enumerate() {
        let mut unknown = None;
        each_use(&rule.body, &mut |name| match places.get(name) {
            Some(&used) => {
                left[i] += 1;
                users[used].push(i);
            }
            None => unknown = Some(name),
        });
        if let Some(name) = unknown {
            return Err(invalid(format!(
                "the rule {} of the grammar uses the rule {name}, which is not defined",
                rule.name
            )));
        }
    }
    let mut done: Vec<usize> = (0..rules.len()).filter(|&i| left[i] == 0).collect();
    while let Some(i) = done.pop() {
        for &user in &users[i] {
            left[user] -= 1;
            if left[user] == 0 {
                done.push(user);
            }
        }
    }
    Ok(left.iter().map(|&n| n > 0).collect())
}

fn write_body(out: &mut String, body: &Alternatives, name_of: &dyn Fn(&str) -> String) {
    for (i, sequence) in body.iter().enumerate() {
        if i > 0 {
            out.push_str(" | ");
        }
        if sequence.is_empty() {
            out.push_str("\"\"");
        }
        for (k, (node, repeat)) in sequence.iter().enumerate() {
            out.push_str(if k > 0 { " " } else { "" });
            match node {
                Node::Literal(text) => out.push_str(&Value::from(text.as_str()).to_string()),
                Node::Pattern(pattern) => out.push_str(pattern),
                Node::Rule(name) => out.push_str(&name_of(name)),
                Node::Group(inner) => {
                    out.push('(');
                    write_body(out, inner, name_of);
                    out.push(')');
                }
            }
            out.push_str(repeat);
        }
    }
}

/// Holds a parsed grammar: its rules, and whether each rule leads to a recursive rule.
struct Rules {
    rules: Vec<Rule>,
    recursive: Vec<bool>,
    root: usize,
}

fn read(source: &str) -> Result<Rules> {
    let rules = Reader { rest: source, line: 1 }.rules()?;
    let mut places = HashMap::new();
    for (i, rule) in rules.iter().enumerate() {
        if places.insert(rule.name.as_str(), i).is_some() {
            return Err(invalid(format!("the grammar defines the rule {} twice", rule.name)));
        }
    }
    let Some(&root) = places.get("root") else {
        return Err(invalid("the grammar has no rule root, with which a GBNF grammar begins"));
    };
    let recursive = recursive(&rules, &places)?;
    Ok(Rules { rules, recursive, root })
}

impl Rules {
    /// Returns Lark's name of each rule. Lark recognises terminals by capitals and allows no `-` in a name. The rule's
    /// index keeps the names distinct.
    fn names(&self, prefix: &str) -> HashMap<&str, String> {
        let name = |(i, rule): (usize, &Rule)| -> String {
            let plain = format!("{prefix}r_{}_{i}", rule.name.replace('-', "_"));
            match self.recursive[i] {
                true => plain.to_ascii_lowercase(),
                false => plain.to_ascii_uppercase(),
            }
        };
        self.rules.iter().enumerate().map(|(i, r)| (r.name.as_str(), name((i, r)))).collect()
    }

    fn write(&self, names: &HashMap<&str, String>, takes: &dyn Fn(usize) -> bool) -> String {
        let mut lark = String::new();
        for (_, rule) in self.rules.iter().enumerate().filter(|(i, _)| takes(*i)) {
            let _ = write!(lark, "{}: ", names[rule.name.as_str()]);
            write_body(&mut lark, &rule.body, &|name| names[name].clone());
            lark.push('\n');
        }
        lark
    }
}

pub fn to_lark(source: &str) -> Result<String> {
    let all = read(source)?;
    let names = all.names("");
    Ok(format!("start: {}\n{}", names["root"], all.write(&names, &|_| true)))
}

/// Returns true when the grammar is regular, so that one terminal can match all its texts.
pub fn is_regular(source: &str) -> bool {
    is_gbnf(source) && read(source).is_ok_and(|all| !all.recursive[all.root])
}

/// Returns the terminals of a regular grammar, and the name of the terminal for its root rule.
pub fn terminals(source: &str, prefix: &str) -> Result<(String, String)> {
    let all = read(source)?;
    let names = all.names(prefix);
    Ok((all.write(&names, &|i| !all.recursive[i]), names["root"].clone()))
}
