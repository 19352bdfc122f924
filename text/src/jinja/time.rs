//! Implements strftime_now: the time in the server's time zone (TZ), in the C locale.

use super::budget;
use super::fail::{wrong, R};

const MAX_FORMAT: usize = 1024;

/// Implements Python's datetime.now().strftime(format). That time has no zone, so %z and %Z are empty.
pub fn strftime(format: &str, unix: i64) -> R<String> {
    if format.len() > MAX_FORMAT {
        return wrong(format!("strftime_now: the format is longer than {MAX_FORMAT} bytes"));
    }
    // The steps cover libc's look-up of the time zone, and the memory for the longest possible text.
    budget::spend(100 + 3 * format.len())?;
    let (mut own, mut rest) = (String::new(), format);
    while let Some(at) = rest.find('%') {
        own.push_str(&rest[..at]);
        let c = rest[at + 1..].chars().next();
        match c {
            Some('z' | 'Z') => {}
            Some('f') => own.push_str("000000"),
            Some(c) => own.extend(['%', c]),
            None => own.push('%'),
        }
        rest = &rest[at + 1 + c.map_or(0, char::len_utf8)..];
    }
    own.push_str(rest);
    if own.is_empty() {
        return Ok(own);
    }
    // A mark character is put in front of the format, because strftime returns 0 both for an empty text and for a buffer
    // that is too small.
    let Ok(marked) = std::ffi::CString::new(format!("x{own}")) else {
        return wrong("embedded null character");
    };
    let mut out = vec![0u8; 64 * MAX_FORMAT];
    // SAFETY: localtime_r fills tm or returns null; strftime writes at most out.len() bytes.
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&unix, &mut tm).is_null() {
            return wrong("strftime_now: the time is outside the range of the calendar");
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), marked.as_ptr(), &tm)
    };
    match std::str::from_utf8(&out[..n]) {
        Ok(text) if n > 0 => Ok(text[1..].to_owned()),
        _ => wrong("strftime_now: the result of the format is too long"),
    }
}
