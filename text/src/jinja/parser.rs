//! Tokens to a tree, as jinja2's parser reads them, with the extensions that transformers adds:
//! loop controls and {% generation %}.

use super::ast::*;
use super::lexer::{lex, Token};
use super::value::{wrong, Fail, R};
use std::collections::HashMap;
use std::sync::Arc;

/// Of an expression's tree and of statements within statements, counted as below.
const MAX_DEPTH: usize = 400;
/// A bracket or a statement calls more functions within each other than a link of a chain.
const NESTED: usize = 4;

pub struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    depth: usize,
    names: Vec<String>,
    by_name: HashMap<String, Sym>,
    /// every variable that was read or set, in order: what a body uses is its part of them
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
            Token::End => "the template's end".to_owned(),
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

    /// Statements up to a tag of one of these names, which is given back with what follows unread;
    /// none: up to the end.
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

    /// The end of a tag, and the statements behind it up to one of these tags.
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

    /// A block whose end tag stands alone.
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
                _ => return self.fail("autoescape is not supported: chat templates are not HTML"),
            },
            "block" => {
                let named = self.word()?;
                while self.skip_name("scoped") || self.skip_name("required") {}
                let (body, _) = self.outside_of_loops(|p| p.block(&["endblock"]))?;
                self.skip_name(&named);
                self.block_end()?;
                Stmt::Block(body)
            }
            "break" | "continue" if self.in_loop => {
                self.block_end()?;
                out.push(if name == "break" { Stmt::Break } else { Stmt::Continue });
                return Ok(());
            }
            "break" | "continue" => return self.fail(format!("'{name}' outside of a loop")),
            "include" | "import" | "from" | "extends" => {
                return self.fail(format!("'{name}' is not supported: a chat template is one file"))
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

    /// What a `set`, a `for` or a `with` gives values to; a name ends it.
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

    // ---- expressions ----

    pub fn expression(&mut self) -> R<Expr> {
        self.deeper(NESTED)?;
        let from = self.depth;
        let mut e = self.or()?;
        while self.skip_name("if") {
            self.deeper(1)?;
            let test = self.or()?;
            let other = if self.skip_name("else") { Some(Box::new(self.expression()?)) } else { None };
            e = Expr::Cond(Box::new(test), Box::new(e), other);
        }
        self.depth = from - NESTED;
        Ok(e)
    }

    /// One expression or, with commas, a tuple; `end` is a name that ends it.
    fn tuple(&mut self, conditional: bool, end: Option<&str>) -> R<Expr> {
        let (mut items, mut is_tuple) = (vec![], false);
        loop {
            let at_end = matches!(self.now(), Token::VariableEnd | Token::BlockEnd) || is_op(self.now(), ")");
            if at_end || end.is_some_and(|e| is_name(self.now(), e)) {
                break;
            }
            items.push(if conditional { self.expression()? } else { self.or()? });
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
        }
        match items.len() {
            0 => self.unexpected("an expression"),
            1 if !is_tuple => Ok(items.remove(0)),
            _ => Ok(Expr::Tuple(items)),
        }
    }

    /// left OP right OP … by one level of precedence
    fn chain(
        &mut self,
        next: fn(&mut Parser) -> R<Expr>,
        make: fn(&Token) -> Option<fn(Box<Expr>, Box<Expr>) -> Expr>,
    ) -> R<Expr> {
        let from = self.depth;
        let mut left = next(self)?;
        while let Some(make) = make(self.now()) {
            self.deeper(1)?;
            self.at += 1;
            left = make(Box::new(left), Box::new(next(self)?));
        }
        self.depth = from;
        Ok(left)
    }

    fn or(&mut self) -> R<Expr> {
        self.chain(Parser::and, |t| is_name(t, "or").then_some(Expr::Or))
    }

    fn and(&mut self) -> R<Expr> {
        self.chain(Parser::not, |t| is_name(t, "and").then_some(Expr::And))
    }

    fn not(&mut self) -> R<Expr> {
        if !self.skip_name("not") {
            return self.compare();
        }
        self.deeper(1)?;
        let e = Expr::Not(Box::new(self.not()?));
        self.depth -= 1;
        Ok(e)
    }

    fn compare(&mut self) -> R<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let cmp = match self.now() {
                Token::Op("==") => Cmp::Eq,
                Token::Op("!=") => Cmp::Ne,
                Token::Op("<") => Cmp::Lt,
                Token::Op("<=") => Cmp::Le,
                Token::Op(">") => Cmp::Gt,
                Token::Op(">=") => Cmp::Ge,
                t if is_name(t, "in") => Cmp::In,
                t if is_name(t, "not") && is_name(self.ahead(), "in") => {
                    self.at += 1;
                    Cmp::NotIn
                }
                _ => break,
            };
            self.at += 1;
            rest.push((cmp, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn sum(&mut self) -> R<Expr> {
        self.chain(Parser::concat, |t| match t {
            Token::Op("+") => Some(|a, b| Expr::Bin(Op::Add, a, b)),
            Token::Op("-") => Some(|a, b| Expr::Bin(Op::Sub, a, b)),
            _ => None,
        })
    }

    fn concat(&mut self) -> R<Expr> {
        let mut items = vec![self.product()?];
        while self.skip_op("~") {
            items.push(self.product()?);
        }
        Ok(if items.len() == 1 { items.remove(0) } else { Expr::Concat(items) })
    }

    fn product(&mut self) -> R<Expr> {
        self.chain(Parser::power, |t| match t {
            Token::Op("*") => Some(|a, b| Expr::Bin(Op::Mul, a, b)),
            Token::Op("/") => Some(|a, b| Expr::Bin(Op::Div, a, b)),
            Token::Op("//") => Some(|a, b| Expr::Bin(Op::FloorDiv, a, b)),
            Token::Op("%") => Some(|a, b| Expr::Bin(Op::Mod, a, b)),
            _ => None,
        })
    }

    fn power(&mut self) -> R<Expr> {
        self.chain(Parser::filtered, |t| match t {
            Token::Op("**") => Some(|a, b| Expr::Bin(Op::Pow, a, b)),
            _ => None,
        })
    }

    fn filtered(&mut self) -> R<Expr> {
        let e = self.unary()?;
        self.filters(e)
    }

    fn unary(&mut self) -> R<Expr> {
        let make: fn(Box<Expr>) -> Expr = match self.now() {
            Token::Op("-") => Expr::Neg,
            Token::Op("+") => Expr::Pos,
            _ => {
                let e = self.primary()?;
                return self.postfix(e);
            }
        };
        self.at += 1;
        self.deeper(1)?;
        let e = make(Box::new(self.unary()?));
        self.depth -= 1;
        self.postfix(e)
    }

    fn primary(&mut self) -> R<Expr> {
        let token = self.now().clone();
        self.at += 1;
        Ok(match token {
            Token::Name(n) => match n.as_str() {
                "true" | "True" => Expr::Const(Const::Bool(true)),
                "false" | "False" => Expr::Const(Const::Bool(false)),
                "none" | "None" => Expr::Const(Const::None),
                name => Expr::Name(self.sym(name)),
            },
            Token::Str(mut s) => {
                while let Token::Str(more) = self.now() {
                    s.push_str(more);
                    self.at += 1;
                }
                Expr::Const(Const::Str(s))
            }
            Token::Int(n) => Expr::Const(Const::Int(n)),
            Token::Float(f) => Expr::Const(Const::Float(f)),
            Token::Op("(") => {
                if self.skip_op(")") {
                    return Ok(Expr::Tuple(vec![]));
                }
                let e = self.tuple(true, None)?;
                self.op(")")?;
                e
            }
            Token::Op("[") => Expr::List(self.items("]", Parser::expression)?),
            Token::Op("{") => Expr::Dict(self.items("}", |p| {
                let key = p.expression()?;
                p.op(":")?;
                Ok((key, p.expression()?))
            })?),
            _ => {
                self.at -= 1;
                return self.unexpected("an expression");
            }
        })
    }

    /// Items with commas between them, one of which may end them, up to a closing bracket.
    fn items<T>(&mut self, close: &str, one: fn(&mut Parser) -> R<T>) -> R<Vec<T>> {
        let mut out = Vec::new();
        while !self.skip_op(close) {
            if !out.is_empty() {
                self.op(",")?;
                if self.skip_op(close) {
                    break;
                }
            }
            out.push(one(self)?);
        }
        Ok(out)
    }

    fn postfix(&mut self, mut e: Expr) -> R<Expr> {
        let from = self.depth;
        loop {
            self.deeper(1)?;
            e = match self.now() {
                Token::Op(".") => {
                    self.at += 1;
                    match self.now().clone() {
                        Token::Name(n) => {
                            self.at += 1;
                            Expr::Attr(Box::new(e), n)
                        }
                        Token::Int(i) => {
                            self.at += 1;
                            Expr::Item(Box::new(e), Box::new(Expr::Const(Const::Int(i))))
                        }
                        _ => return self.fail("expected name or number"),
                    }
                }
                Token::Op("[") => {
                    self.at += 1;
                    let mut keys = self.items("]", Parser::subscript)?;
                    let key = if keys.len() == 1 { keys.remove(0) } else { Expr::Tuple(keys) };
                    Expr::Item(Box::new(e), Box::new(key))
                }
                Token::Op("(") => Expr::Call(Box::new(e), Box::new(self.call_args()?)),
                _ => break,
            };
        }
        self.depth = from;
        Ok(e)
    }

    fn subscript(&mut self) -> R<Expr> {
        let at_end = |p: &Parser| [":", "]", ","].iter().any(|op| is_op(p.now(), op));
        let part = |p: &mut Parser| if at_end(p) { Ok(None) } else { p.expression().map(Some) };
        let start = part(self)?;
        if !self.skip_op(":") {
            return start.map_or_else(|| self.unexpected("an expression"), Ok);
        }
        let stop = part(self)?;
        let step = if self.skip_op(":") { part(self)? } else { None };
        Ok(Expr::Slice(Box::new([start, stop, step])))
    }

    fn call_args(&mut self) -> R<CallArgs> {
        let mut args = CallArgs::default();
        self.op("(")?;
        let mut comma = false;
        while !is_op(self.now(), ")") {
            if comma {
                self.op(",")?;
                if is_op(self.now(), ")") {
                    break;
                }
            }
            comma = true;
            let is_kw = matches!(self.now(), Token::Name(_)) && is_op(self.ahead(), "=");
            let late = args.star_star.is_some() || args.star.is_some() && !is_kw && !is_op(self.now(), "**");
            if late || !args.kw.is_empty() && !is_kw && !is_op(self.now(), "*") && !is_op(self.now(), "**") {
                return self.fail("invalid syntax for function call expression");
            }
            if self.skip_op("*") {
                args.star = Some(self.expression()?);
            } else if self.skip_op("**") {
                args.star_star = Some(self.expression()?);
            } else if is_kw {
                let name = self.word()?;
                self.at += 1;
                args.kw.push((name, self.expression()?));
            } else {
                args.pos.push(self.expression()?);
            }
        }
        self.op(")")?;
        Ok(args)
    }

    /// Filters, tests and calls behind a value.
    fn filters(&mut self, mut e: Expr) -> R<Expr> {
        let from = self.depth;
        loop {
            self.deeper(1)?;
            e = if self.skip_op("|") {
                self.filter(e)?
            } else if self.skip_name("is") {
                self.test(e)?
            } else if is_op(self.now(), "(") {
                Expr::Call(Box::new(e), Box::new(self.call_args()?))
            } else {
                break;
            };
        }
        self.depth = from;
        Ok(e)
    }

    fn dotted(&mut self) -> R<String> {
        let mut name = self.word()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.word()?);
        }
        Ok(name)
    }

    fn filter(&mut self, e: Expr) -> R<Expr> {
        let name = self.dotted()?;
        let args = if is_op(self.now(), "(") { self.call_args()? } else { CallArgs::default() };
        Ok(Expr::Filter(Box::new(e), name, Box::new(args)))
    }

    fn test(&mut self, e: Expr) -> R<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted()?;
        let args = match self.now() {
            Token::Op("(") => self.call_args()?,
            Token::Name(n) if ["else", "or", "and"].contains(&n.as_str()) => CallArgs::default(),
            Token::Name(n) if n == "is" => return self.fail("You cannot chain multiple tests with is"),
            Token::Name(_) | Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{") => {
                let arg = self.primary()?;
                CallArgs { pos: vec![self.postfix(arg)?], ..Default::default() }
            }
            _ => CallArgs::default(),
        };
        let test = Expr::Test(Box::new(e), name, Box::new(args));
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }
}
