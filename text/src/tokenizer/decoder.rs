//! Decodes a stream of tokens. The bytes of tokens are joined, and every complete character is returned at once. An
//! incomplete tail that may become valid is kept for the next call. Bytes that cannot become valid are replaced by one
//! U+FFFD for each maximal subpart (as in `String::from_utf8_lossy`). Decoders that depend on neighbouring tokens
//! (WordPiece, CTC) use the stream of the tokenizers crate instead.

use super::tokenizer::Tokenizer;
use crate::base::error::{Code, Result, TextError};
use crate::vocab::pieces::Start;

pub struct Decoder<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    /// rule for the next token with bytes: how many of its first bytes are dropped
    start: Start,
    held: Vec<u8>,
    delta: String,
    whole: Option<Whole>,
}

/// Holds the state of the tokenizers crate's step_decode_stream.
#[derive(Default)]
struct Whole {
    ids: Vec<u32>,
    prefix: String,
    prefix_index: usize,
}

/// Number of ids at the end of a prompt that are passed to the tokenizers crate's stream.
const LOOK_BACK: usize = 16;

impl<'t> Decoder<'t> {
    pub fn new(tokenizer: &'t Tokenizer, skip_special: bool, prompt: &[u32]) -> Decoder<'t> {
        let mut d = Decoder {
            tokenizer,
            skip_special,
            start: tokenizer.start(),
            held: Vec::new(),
            delta: String::new(),
            whole: (!tokenizer.streams_by_bytes()).then(Whole::default),
        };
        let from = match d.whole {
            Some(_) => prompt.len().saturating_sub(LOOK_BACK),
            None => 0,
        };
        for &id in &prompt[from..] {
            let _ = d.push(id);
        }
        d
    }

    pub fn push(&mut self, id: u32) -> Result<&str> {
        self.delta.clear();
        if self.whole.is_some() {
            return self.push_whole(id);
        }
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(&self.delta);
        }
        let bytes = self.tokenizer.token_bytes(id).unwrap_or_default();
        match self.start {
            Start::Keep => self.held.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            Start::Strip(n) => {
                let drop = bytes.iter().take(n).take_while(|&&b| b == b' ').count();
                self.held.extend_from_slice(&bytes[drop..]);
                // When a token has only spaces, the rest of the rule applies to the next token.
                self.start = match bytes.len() == drop && drop < n {
                    true => Start::Strip(n - drop),
                    false => Start::Keep,
                };
            }
            Start::DropAll => {
                self.held.extend(bytes.iter().filter(|&&b| b != b' '));
                self.start = Start::Keep;
            }
        }
        self.give_out();
        Ok(&self.delta)
    }

    pub fn flush(&mut self) -> Result<&str> {
        self.delta.clear();
        if let Some(w) = &mut self.whole {
            let pipeline = self.tokenizer.pipeline.as_ref().expect("only pipelines look back");
            let all = pipeline.decode(&w.ids, self.skip_special).map_err(wrap)?;
            self.delta.push_str(all.get(w.prefix.len()..).unwrap_or(""));
            *w = Whole::default();
            return Ok(&self.delta);
        }
        self.delta.push_str(&String::from_utf8_lossy(&self.held));
        self.held.clear();
        Ok(&self.delta)
    }

    fn give_out(&mut self) {
        let mut from = 0;
        for chunk in self.held.utf8_chunks() {
            self.delta.push_str(chunk.valid());
            from += chunk.valid().len();
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                break;
            }
            if from + invalid.len() == self.held.len() && is_incomplete(invalid) {
                break;
            }
            self.delta.push('\u{FFFD}');
            from += invalid.len();
        }
        self.held.drain(..from);
    }

    fn push_whole(&mut self, id: u32) -> Result<&str> {
        let w = self.whole.as_mut().expect("checked by the caller");
        let pipeline = self.tokenizer.pipeline.as_ref().expect("only pipelines look back");
        let step = tokenizers::step_decode_stream(
            pipeline,
            vec![id],
            self.skip_special,
            &mut w.ids,
            &mut w.prefix,
            &mut w.prefix_index,
        );
        if let Some(text) = step.map_err(wrap)? {
            self.delta = text;
        }
        Ok(&self.delta)
    }
}

/// Returns true when more bytes can make a character of `bytes`. `bytes` is a maximal subpart at the end of the text.
fn is_incomplete(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(e) if e.error_len().is_none())
}

fn wrap(e: tokenizers::Error) -> TextError {
    TextError { code: Code::Internal, message: e.to_string() }
}
