//! Describes the texts of numbers between bounds of any size, digit by digit, as one expression. llguidance's own
//! expressions count in doubles, omit numbers that are the first digits of a bound, and accept no multiple with a sign.

use crate::base::error::{fail, Code, Result};
use llguidance::derivre::{RegexAst, RegexBuilder};

/// Most digits on one side of the point; doubles have no more.
pub const MOST_DIGITS: i64 = 340;
/// Largest multipleOf, without its trailing zeros. A multipleOf becomes an automaton with at least that many states.
const MOST_MULTIPLE: u32 = 2_000;
/// Most digits of a multipleOf behind the point, because llguidance's automaton counts in 32 bits.
const MOST_SCALE: i64 = 8;

/// Holds a number as written, without leading and trailing zeros; 0 has no digits at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    pub negative: bool,
    whole: Vec<u8>,
    fraction: Vec<u8>,
}

impl Decimal {
    /// Reads a number in JSON's spelling. Returns None when the text is not a number.
    pub fn read(text: &str) -> Option<Decimal> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if !all.iter().all(u8::is_ascii_digit) {
            return None;
        }
        // An exponent with more digits than this is beyond every bound.
        let short: String = exponent.chars().take(8).collect();
        let point = whole.len() as i64 + short.parse::<i64>().ok()?;
        let from = all.iter().position(|d| *d != b'0');
        let Some(from) = from else {
            return Some(Decimal { negative: false, whole: Vec::new(), fraction: Vec::new() });
        };
        let to = all.iter().rposition(|d| *d != b'0').map_or(0, |i| i + 1);
        let (digits, point) = (&all[from..to], point - from as i64);
        if point > MOST_DIGITS {
            return Some(Self::largest(negative));
        }
        let n = digits.len() as i64;
        let zeros = |n: i64| std::iter::repeat_n(b'0', n.clamp(0, MOST_DIGITS) as usize);
        let split = point.clamp(0, n) as usize;
        let whole = digits[..split].iter().copied().chain(zeros(point - n)).collect();
        let fraction: Vec<u8> = zeros(-point).chain(digits[split..].iter().copied()).collect();
        Some(Decimal { negative, whole: if point > 0 { whole } else { Vec::new() }, fraction })
    }

    /// Returns 10^340, which stands for every larger number.
    fn largest(negative: bool) -> Decimal {
        let whole = std::iter::once(b'1').chain(std::iter::repeat_n(b'0', MOST_DIGITS as usize)).collect();
        Decimal { negative, whole, fraction: Vec::new() }
    }

    pub fn is_largest(&self) -> bool {
        self.whole.len() > MOST_DIGITS as usize
    }

    pub fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    pub fn is_whole(&self) -> bool {
        self.fraction.is_empty()
    }

    pub fn digits(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    /// Compares the values of two numbers.
    pub fn order(&self, other: &Decimal) -> std::cmp::Ordering {
        let size = |d: &Decimal| (d.whole.len(), d.whole.clone(), d.fraction.clone());
        match (self.negative, other.negative) {
            (true, false) => std::cmp::Ordering::Less,
            (false, true) => std::cmp::Ordering::Greater,
            (false, false) => size(self).cmp(&size(other)),
            (true, true) => size(other).cmp(&size(self)),
        }
    }
}

/// A bound, and whether the bound itself is excluded.
pub type Bound = (Decimal, bool);

/// Holds the keywords of a schema that apply to a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    pub low: Option<Bound>,
    pub high: Option<Bound>,
    pub integer: bool,
    /// multipleOf: its digits without trailing zeros, and the power of ten.
    pub multiple: Option<(u32, i64)>,
}

/// Splits a multipleOf into digits and a power of ten.
pub fn multiple(text: &str) -> Result<Option<(u32, i64)>> {
    let Some(d) = Decimal::read(text).filter(|d| !d.is_zero()) else { return Ok(None) };
    let scale = d.fraction.len() as i64;
    let all: String = d.whole.iter().chain(&d.fraction).map(|b| *b as char).collect();
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    let zeros = if scale > 0 { 0 } else { d.whole.len() - digits.len() };
    match digits.parse::<u32>() {
        Ok(n) if n <= MOST_MULTIPLE && scale <= MOST_SCALE => Ok(Some((n, zeros as i64 - scale))),
        _ => fail(
            Code::Limit,
            format!(
                "multipleOf {text} in the schema is not supported: without its zeros it can be at most \
                 {MOST_MULTIPLE}, with at most {MOST_SCALE} digits after the decimal point"
            ),
        ),
    }
}

fn rx(text: impl Into<String>) -> RegexAst {
    RegexAst::Regex(text.into())
}

fn literal(digits: &[u8]) -> RegexAst {
    RegexAst::Literal(digits.iter().map(|b| *b as char).collect())
}

/// Returns an expression for the digits above (or below) the given digits. Such digits are equal to the given ones up to
/// some digit, and that digit is larger (or smaller). With `as_many`, the result has as many digits as the given ones;
/// otherwise any number of digits may follow.
fn beyond(digits: &[u8], above: bool, as_many: bool, last: RegexAst, least_first: u8) -> RegexAst {
    let mut answer = last;
    for (i, d) in digits.iter().enumerate().rev() {
        let rest = match as_many {
            true => format!("[0-9]{{{}}}", digits.len() - 1 - i),
            false => "[0-9]*".to_owned(),
        };
        let least = if i == 0 { least_first } else { b'0' };
        let (from, to) = if above { (d + 1, b'9') } else { (least, d - 1) };
        let mut options = vec![RegexAst::Concat(vec![literal(&[*d]), answer])];
        if from <= to {
            options.push(rx(format!("[{}-{}]{rest}", from as char, to as char)));
        }
        // a fraction is smaller than a longer fraction that begins with its digits
        if !above && !as_many && i > 0 {
            options.push(RegexAst::EmptyString);
        }
        answer = RegexAst::Or(options);
    }
    answer
}

/// Returns an expression for the numbers without a sign on one side of the bound.
fn side(bound: &Bound, above: bool) -> RegexAst {
    let (d, excluded) = bound;
    let any = || rx("(\\.[0-9]+)?");
    let zero = vec![b'0'];
    let whole = if d.whole.is_empty() { &zero } else { &d.whole };
    let n = whole.len();
    let least_first = if n == 1 { b'0' } else { b'1' };
    let other = beyond(whole, above, true, RegexAst::NoMatch, least_first);
    let mut options = vec![RegexAst::Concat(vec![other, any()])];
    options.push(match (above, n) {
        (true, _) => rx(format!("[1-9][0-9]{{{n},}}(\\.[0-9]+)?")),
        (false, 1) => RegexAst::NoMatch,
        (false, _) => rx(format!("(0|[1-9][0-9]{{0,{}}})(\\.[0-9]+)?", n - 2)),
    });
    let equal = match (above, *excluded, d.fraction.is_empty()) {
        (true, false, true) => any(),
        (true, true, true) => rx("\\.[0-9]*[1-9][0-9]*"),
        (false, false, true) => rx("(\\.0+)?"),
        (false, true, true) => RegexAst::NoMatch,
        (_, _, false) => {
            let last = match (above, *excluded) {
                (true, false) => rx("[0-9]*"),
                (true, true) => rx("[0-9]*[1-9][0-9]*"),
                (false, false) => rx("0*"),
                (false, true) => RegexAst::NoMatch,
            };
            let fraction = beyond(&d.fraction, above, false, last, b'0');
            let with_point = RegexAst::Concat(vec![literal(b"."), fraction]);
            match above {
                true => with_point,
                false => RegexAst::Or(vec![RegexAst::EmptyString, with_point]),
            }
        }
    };
    options.push(RegexAst::Concat(vec![literal(whole), equal]));
    RegexAst::Or(options)
}

/// Returns an expression for the multiples of n·10^-scale with exactly `digits` significant digits behind the point,
/// followed by zeros. llguidance's automaton alone accepts 0.50 as a multiple of 0.25, but not 0.5 as a multiple of 0.25.
fn fractions(n: u32, scale: u32, digits: u32) -> RegexAst {
    let (mut n, mut left) = (n, 10u32.pow(scale - digits));
    for prime in [2, 5] {
        while n % prime == 0 && left % prime == 0 {
            (n, left) = (n / prime, left / prime);
        }
    }
    let (form, zeros) = match digits {
        0 => ("[0-9]+".to_owned(), "(\\.0+)?"),
        _ => (format!("[0-9]+\\.[0-9]{{{digits}}}"), "0*"),
    };
    RegexAst::Concat(vec![RegexAst::And(vec![RegexAst::MultipleOf(n, digits), rx(form)]), rx(zeros)])
}

impl Span {
    /// Returns true when a keyword limits the number.
    pub fn is_bounded(&self) -> bool {
        self.low.is_some() || self.high.is_some() || self.multiple.is_some()
    }

    pub fn digits(&self) -> usize {
        [&self.low, &self.high].into_iter().flatten().map(|(d, _)| d.digits() + 1).sum::<usize>() + 1
    }

    /// Returns an expression for the numbers without a sign, between the parts of the bounds on this side of 0.
    fn unsigned(&self, low: Option<&Bound>, high: Option<&Bound>) -> RegexAst {
        let syntax = if self.integer { "0|[1-9][0-9]*" } else { "(0|[1-9][0-9]*)(\\.[0-9]+)?" };
        let mut all = vec![rx(syntax)];
        all.extend(low.map(|b| side(b, true)));
        all.extend(high.map(|b| side(b, false)));
        match self.multiple {
            Some((n, zeros)) if zeros >= 0 => {
                let some = RegexAst::Concat(vec![RegexAst::MultipleOf(n, 0), rx(format!("0{{{zeros}}}"))]);
                let whole = RegexAst::Or(vec![some, rx("0")]);
                all.push(RegexAst::Concat(vec![whole, rx("(\\.0+)?")]));
            }
            Some((n, zeros)) => {
                all.push(RegexAst::Or((0..=-zeros as u32).map(|i| fractions(n, -zeros as u32, i)).collect()));
            }
            None => {}
        }
        RegexAst::And(all)
    }

    pub fn text(&self) -> RegexAst {
        let mut options = Vec::new();
        let is_below = |b: &Bound| b.0.negative;
        if !self.high.as_ref().is_some_and(|(d, excluded)| d.negative || d.is_zero() && *excluded) {
            let low = self.low.as_ref().filter(|(d, excluded)| !d.negative && (!d.is_zero() || *excluded));
            options.push(self.unsigned(low, self.high.as_ref()));
        }
        if self.low.as_ref().map_or(true, is_below) {
            let high = self.low.as_ref();
            let low = self.high.as_ref().filter(|b| is_below(b) || b.0.is_zero() && b.1);
            let size = self.unsigned(low, high);
            options.push(RegexAst::Concat(vec![literal(b"-"), size]));
        }
        RegexAst::Or(options)
    }

    /// Returns true when no number satisfies the keywords. The check is made here, because a mask would detect the
    /// problem too late. All checks of a request share the fuel.
    pub fn is_empty(&self, fuel: &mut u64) -> Result<bool> {
        if self.low.is_none() || self.high.is_none() {
            return Ok(false); // there is no largest multiple
        }
        let mut builder = RegexBuilder::new();
        match builder.mk(&self.text()).and_then(|e| builder.to_regex_limited(e, *fuel)) {
            Ok(mut rx) => {
                *fuel = fuel.saturating_sub(rx.cost());
                Ok(rx.always_empty())
            }
            Err(_) => fail(
                Code::Limit,
                "it costs too much to check whether any number satisfies the bounds and multipleOf of the schema. \
                 Remove some of the bounds",
            ),
        }
    }
}
