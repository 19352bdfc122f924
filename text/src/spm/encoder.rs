//! Encodes texts with SentencePiece. `Spm` encodes the text between two added tokens. `Frame` adds bos, eos and spaces
//! around a whole text.

use super::model::Model;
use crate::base::error::Result;
use std::borrow::Cow;
use std::collections::HashMap;

/// Encodes the text between two added tokens.
pub struct Spm {
    model: Model,
    legacy: bool,
    unk: String,
    n_unk: usize,
    /// texts of added tokens; they have priority over pieces
    extra: HashMap<String, u32>,
    by_id: HashMap<u32, String>,
}

impl Spm {
    pub(super) fn new(model: Model, legacy: bool, unk: &str, extra: HashMap<String, u32>) -> Result<Spm> {
        let mut by_id: HashMap<u32, String> = model.texts().map(|(t, id)| (id, t.to_owned())).collect();
        by_id.extend(extra.iter().map(|(t, &id)| (id, t.clone())));
        let mut spm = Spm { model, legacy, unk: unk.to_owned(), n_unk: 0, extra, by_id };
        let mut ids = vec![];
        spm.model.encode(unk, false, &mut ids)?;
        spm.n_unk = ids.len();
        Ok(spm)
    }

    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        if self.legacy {
            self.model.encode(text, self.model.normalizer.add_dummy_prefix, &mut ids)?;
            return Ok(ids);
        }
        if !text.starts_with(['▁', ' ']) {
            self.model.encode(text, false, &mut ids)?;
            return Ok(ids);
        }
        // The model would drop spaces at the beginning, so transformers puts the unknown token's text in front of them.
        self.model.encode(&format!("{}{text}", self.unk), false, &mut ids)?;
        if ids.len() >= self.n_unk {
            ids.drain(..self.n_unk);
        }
        Ok(ids)
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.extra.get(text).copied().or_else(|| self.model.id(text))
    }

    pub fn text(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    pub fn texts(&self) -> impl Iterator<Item = (&str, u32)> {
        self.by_id.iter().map(|(&id, text)| (text.as_str(), id))
    }

    /// Returns the ids of the model's control pieces. Encoding never returns a control piece that no file names, and
    /// decoding hides control pieces.
    pub fn controls(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.model.n_pieces()).filter(|&id| self.model.is_control(id))
    }

    /// Returns true when the normalizer changes only spaces.
    pub fn keeps_characters(&self) -> bool {
        self.model.normalizer.is_identity()
    }

    /// Returns true when the normalizer keeps all characters and all spaces, and an unknown character becomes as many ids
    /// as it has bytes.
    pub fn keeps_length(&self) -> bool {
        self.keeps_characters() && !self.model.normalizer.remove_extra_whitespaces && self.model.has_bytes()
    }

    pub fn n_ids(&self) -> usize {
        self.by_id.len()
    }
}

/// Changes a whole text before its parts are encoded, and completes its ids afterwards.
pub struct Frame {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) legacy: bool,
    /// true: a space is put before the text, unless the text begins with a named special token
    pub(super) prefix_space: bool,
    pub(super) blank: Option<u32>,
    pub(super) named: Vec<(u32, String)>,
}

impl Frame {
    pub fn before<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.legacy || text.is_empty() {
            return Cow::Borrowed(text);
        }
        let prefix = if self.prefix_space { "▁" } else { "" };
        Cow::Owned(format!("{prefix}{}", text.replace('▁', " ")))
    }

    /// Completes the ids of `text`: removes the space before a special token, and adds bos and eos.
    pub fn after(&self, text: &str, mut ids: Vec<u32>, add_special: bool) -> Vec<u32> {
        if let ([blank, special, ..], false) = (ids.as_slice(), self.legacy) {
            // An unknown character has the id of a special token too, so the text is compared as well.
            let begun = text.trim_start_matches(|c: char| c == '▁' || c.is_whitespace());
            let begins = |named: &(u32, String)| named.0 == *special && begun.starts_with(&named.1);
            if Some(*blank) == self.blank && self.named.iter().any(begins) {
                ids.remove(0);
            }
        }
        if add_special {
            ids.splice(..0, self.bos);
            ids.extend(self.eos);
        }
        ids
    }
}
