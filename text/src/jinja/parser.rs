//! Parses tokens into a tree, as jinja2's parser does, with the extensions that transformers adds: loop controls and {%
//! generation %}.

mod expressions;

use super::ast::*;
use super::fail::{wrong, Fail, R};
use super::lexer::{lex, Token};
use std::collections::HashMap;
use std::sync::Arc;

/// Deepest nesting of an expression's tree and of statements, in the levels that `deeper` counts.
const MAX_DEPTH: usize = 400;
/// Levels that a bracket or a statement counts as, because it uses more nested calls than an operator in a chain.
const NESTED: usize = 4;

pub struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    depth: usize,
    names: Vec<String>,
    by_name: HashMap<String, Sym>,
    /// variables that were read or set, in order; the variables of a body are a part of this list
    seen: Vec<Sym>,
    in_loop: bool,
}

pub fn parse(source: &str) -> R<Tree> {
    let mut p = Parser {
        tokens: lex(source)?,
        at: 0,
        depth: 0,
        names: vec![],
        by_name: HashMap::new(),
        seen: vec![],
        in_loop: false,
    };
    let (body, _) = p.body(&[])?;
    Ok(Tree { names: p.names, body })
}

fn is_op(token: &Token, op: &str) -> bool {
    matches!(token, Token::Op(o) if *o == op)
}

fn is_name(token: &Token, name: &str) -> bool {
    matches!(token, Token::Name(n) if n == name)
}

impl Parser {
    fn now(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |t| &t.0)
    }

    fn ahead(&self) -> &Token {
        self.tokens.get(self.at + 1).map_or(&Token::End, |t| &t.0)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.1)
    }

    fn fail<T>(&self, what: impl AsRef<str>) -> R<T> {
        wrong(format!("line {}: {}", self.line(), what.as_ref()))
    }

    fn unexpected<T>(&self, wanted: &str) -> R<T> {
        let found = match self.now() {
            Token::Name(n) => format!("'{n}'"),
            Token::Op(o) => format!("'{o}'"),
            Token::End => "the end of the template".to_owned(),
            Token::BlockEnd => "'%}'".to_owned(),
            Token::VariableEnd => "'}}'".to_owned(),
            other => format!("{other:?}"),
        };
        self.fail(format!("expected {wanted}, got {found}"))
    }

    fn skip_op(&mut self, op: &str) -> bool {
        let found = is_op(self.now(), op);
        self.at += usize::from(found);
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = is_name(self.now(), name);
        self.at += usize::from(found);
        found
    }

    fn op(&mut self, op: &str) -> R<()> {
        if self.skip_op(op) {
            Ok(())
        } else {
            self.unexpected(&format!("'{op}'"))
        }
    }

    fn word(&mut self) -> R<String> {
        match self.now() {
            Token::Name(n) => {
                let n = n.clone();
                self.at += 1;
                Ok(n)
            }
            _ => self.unexpected("a name"),
        }
    }

    fn sym(&mut self, name: &str) -> Sym {
        let n = self.names.len() as Sym;
        let sym = *self.by_name.entry(name.to_owned()).or_insert(n);
        if sym == n {
            self.names.push(name.to_owned());
        }
        self.seen.push(sym);
        sym
    }

    fn uses(&self, from: usize, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|sym| self.seen[from..].contains(sym))
    }

    fn deeper(&mut self, by: usize) -> R<()> {
        self.depth += by;
        if self.depth > MAX_DEPTH {
            return Err(Fail::Limit(format!("line {}: the template is nested too deep", self.line())));
        }
        Ok(())
    }

    // ---- statements ----

    /// Parses statements up to a tag with one of the names in `ends`. Returns the statements and that name; the tokens
    /// behind the name are not read. When `ends` is empty, it parses up to the end of the template.
    fn body(&mut self, ends: &[&str]) -> R<(Vec<Stmt>, String)> {
        self.deeper(NESTED)?;
        let mut out = Vec::new();
        loop {
            match self.now() {
                Token::End if ends.is_empty() => break,
                Token::End => return self.unexpected(&format!("a tag of {}", ends.join(", "))),
                Token::Data(text) => {
                    out.push(Stmt::Text(text.clone()));
                    self.at += 1;
                }
                Token::VariableBegin => {
                    self.at += 1;
                    let line = self.line();
                    out.push(Stmt::Out(self.tuple(true, None)?, line));
                    if *self.now() != Token::VariableEnd {
                        return self.unexpected("'}}'");
                    }
                    self.at += 1;
                }
                Token::BlockBegin => {
                    self.at += 1;
                    let name = self.word()?;
                    if ends.contains(&name.as_str()) {
                        self.depth -= NESTED;
                        return Ok((out, name));
                    }
                    self.statement(&name, &mut out)?;
                }
                _ => return self.unexpected("a statement"),
            }
        }
        self.depth -= NESTED;
        Ok((out, String::new()))
    }

    /// Parses the end of a tag, and the statements behind it up to one of these tags.
    fn block(&mut self, ends: &[&str]) -> R<(Vec<Stmt>, String)> {
        self.skip_op(":");
        self.block_end()?;
        self.body(ends)
    }

    fn block_end(&mut self) -> R<()> {
        if *self.now() != Token::BlockEnd {
            return self.unexpected("'%}'");
        }
        self.at += 1;
        Ok(())
    }

    /// Parses a block up to its end tag, which contains only its name.
    fn whole(&mut self, end: &str) -> R<Vec<Stmt>> {
        let (body, _) = self.block(&[end])?;
        self.block_end()?;
        Ok(body)
    }

    fn statement(&mut self, name: &str, out: &mut Vec<Stmt>) -> R<()> {
        let stmt = match name {
            "if" => return self.parse_if(out),
            "for" => self.parse_for()?,
            "set" => return self.parse_set(out),
            "macro" => self.parse_macro()?,
            "call" => self.parse_call_block()?,
            "filter" => {
                let filter = self.filter(Expr::Body)?;
                let filter = self.filters(filter)?;
                Stmt::FilterBlock(filter, self.whole("endfilter")?)
            }
            "with" => return self.parse_with(out),
            "print" => {
                let line = self.line();
                while *self.now() != Token::BlockEnd {
                    out.push(Stmt::Out(self.expression()?, line));
                    if *self.now() != Token::BlockEnd {
                        self.op(",")?;
                    }
                }
                return self.block_end();
            }
            "generation" => Stmt::Scope(self.outside_of_loops(|p| p.whole("endgeneration"))?),
            "autoescape" => match self.expression()? {
                Expr::Const(Const::Bool(false) | Const::None) => Stmt::Scope(self.whole("endautoescape")?),
                _ => return self.fail("autoescape is not supported, because chat templates are not HTML"),
            },
            "block" => {
                let named = self.word()?;
                let scoped = self.skip_name("scoped");
                if self.skip_name("required") {
                    return self.fail(format!(
                        "Required block '{named}' not found; a chat template must be one file"
                    ));
                }
                let (body, _) = self.outside_of_loops(|p| p.block(&["endblock"]))?;
                self.skip_name(&named);
                self.block_end()?;
                Stmt::Block(body, scoped)
            }
            "break" | "continue" if self.in_loop => {
                self.block_end()?;
                out.push(if name == "break" { Stmt::Break } else { Stmt::Continue });
                return Ok(());
            }
            "break" | "continue" => return self.fail(format!("'{name}' outside of a loop")),
            "include" | "import" | "from" | "extends" => {
                return self.fail(format!("'{name}' is not supported, because a chat template is one file"))
            }
            other => return self.fail(format!("Encountered unknown tag '{other}'")),
        };
        out.push(stmt);
        Ok(())
    }

    fn outside_of_loops<T>(&mut self, f: impl FnOnce(&mut Parser) -> R<T>) -> R<T> {
        let was = std::mem::replace(&mut self.in_loop, false);
        let out = f(self);
        self.in_loop = was;
        out
    }

    fn parse_if(&mut self, out: &mut Vec<Stmt>) -> R<()> {
        let (mut arms, line) = (Vec::new(), self.line());
        let mut other = vec![];
        loop {
            let test = self.tuple(false, None)?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            arms.push((test, body));
            if end == "elif" {
                continue;
            }
            if end == "else" {
                other = self.block(&["endif"])?.0;
            }
            break;
        }
        out.push(Stmt::If(arms, other, line));
        self.block_end()
    }

    fn parse_for(&mut self) -> R<Stmt> {
        let line = self.line();
        let from = self.seen.len();
        let target = self.target(Some("in"))?;
        if self.uses(from, "loop") {
            return self.fail("Can't assign to special loop variable in for-loop target");
        }
        if !self.skip_name("in") {
            return self.unexpected("'in'");
        }
        let over = self.tuple(false, Some("recursive"))?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        let from = self.seen.len();
        let was = std::mem::replace(&mut self.in_loop, true);
        let body = self.block(&["endfor", "else"]);
        self.in_loop = was;
        let (body, end) = body?;
        let uses_loop = self.uses(from, "loop");
        let other = if end == "else" { self.block(&["endfor"])?.0 } else { vec![] };
        self.block_end()?;
        Ok(Stmt::For(Arc::new(For { target, over, test, recursive, body, other, uses_loop }), line))
    }

    fn parse_set(&mut self, out: &mut Vec<Stmt>) -> R<()> {
        let line = self.line();
        let target = self.target(None)?;
        if self.skip_op("=") {
            out.push(Stmt::Set(target, self.tuple(true, None)?, line));
            return self.block_end();
        }
        let filter = if is_op(self.now(), "|") { Some(self.filters(Expr::Body)?) } else { None };
        out.push(Stmt::SetBlock(target, filter, self.outside_of_loops(|p| p.whole("endset"))?));
        Ok(())
    }

    fn parse_with(&mut self, out: &mut Vec<Stmt>) -> R<()> {
        let mut pairs = Vec::new();
        while *self.now() != Token::BlockEnd {
            if !pairs.is_empty() {
                self.op(",")?;
            }
            let target = self.target(None)?;
            self.op("=")?;
            pairs.push((target, self.expression()?));
        }
        out.push(Stmt::With(pairs, self.whole("endwith")?));
        Ok(())
    }

    fn signature(&mut self) -> R<(Vec<Sym>, Vec<Expr>)> {
        let (mut params, mut defaults) = (vec![], vec![]);
        self.op("(")?;
        while !is_op(self.now(), ")") {
            if !params.is_empty() {
                self.op(",")?;
            }
            let name = self.word()?;
            params.push(self.sym(&name));
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fail("non-default argument follows default argument");
            }
        }
        self.op(")")?;
        Ok((params, defaults))
    }

    fn macro_body(
        &mut self,
        name: &str,
        (params, defaults): (Vec<Sym>, Vec<Expr>),
        end: &str,
    ) -> R<Arc<MacroDef>> {
        let from = self.seen.len();
        let body = self.outside_of_loops(|p| p.whole(end))?;
        Ok(Arc::new(MacroDef {
            name: name.to_owned(),
            params,
            defaults,
            uses_caller: self.uses(from, "caller"),
            uses_kwargs: self.uses(from, "kwargs"),
            uses_varargs: self.uses(from, "varargs"),
            body,
        }))
    }

    fn parse_macro(&mut self) -> R<Stmt> {
        let name = self.word()?;
        let sym = self.sym(&name);
        let signature = self.signature()?;
        Ok(Stmt::Macro(sym, self.macro_body(&name, signature, "endmacro")?))
    }

    fn parse_call_block(&mut self) -> R<Stmt> {
        let line = self.line();
        let signature = if is_op(self.now(), "(") { self.signature()? } else { (vec![], vec![]) };
        let call = self.expression()?;
        if !matches!(call, Expr::Call(..)) {
            return self.fail("expected call");
        }
        Ok(Stmt::CallBlock(self.macro_body("caller", signature, "endcall")?, call, line))
    }

    /// Parses the target of a `set`, a `for` or a `with`. The name `end` ends it.
    fn target(&mut self, end: Option<&str>) -> R<Target> {
        let mut items = vec![self.one_target(end)?];
        let mut is_tuple = false;
        while self.skip_op(",") {
            is_tuple = true;
            let at_end =
                matches!(self.now(), Token::BlockEnd) || is_op(self.now(), ")") || is_op(self.now(), "=");
            if at_end || end.is_some_and(|e| is_name(self.now(), e)) {
                break;
            }
            items.push(self.one_target(end)?);
        }
        Ok(if is_tuple { Target::Tuple(items) } else { items.remove(0) })
    }

    fn one_target(&mut self, end: Option<&str>) -> R<Target> {
        self.deeper(NESTED)?;
        let target = if self.skip_op("(") {
            let inner = self.target(end)?;
            self.op(")")?;
            inner
        } else {
            let name = self.word()?;
            if ["true", "false", "none", "True", "False", "None"].contains(&name.as_str()) {
                return self.fail(format!("can't assign to '{name}'"));
            }
            let sym = self.sym(&name);
            if self.skip_op(".") {
                Target::Attr(sym, self.word()?)
            } else {
                Target::Name(sym)
            }
        };
        self.depth -= NESTED;
        Ok(target)
    }
}
