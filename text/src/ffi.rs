//! Defines the extern functions of text.h. Each function checks its pointers, catches panics, and converts an error to a
//! code and a text. No other file of the crate uses C types.

use crate::base::error::{fail, invalid, Code, Result};
use crate::grammar::{Cost, Grammar, Matcher, Vocabulary};
use crate::template::Template;
use crate::tokenizer::{Decoder, Tokenizer};
use crate::vocab::table::NONE;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::ptr;

const ERR_MAX: usize = 512;
const OK: c_int = 0;

/// text.h promises that several threads may use these types at once.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<Template>();
    shared::<Vocabulary>();
    shared::<Grammar>();
};

/// Runs `f`, catches its panics, and writes the error's text to `err`.
fn guard(err: *mut c_char, f: impl FnOnce() -> Result<()>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "panic".to_owned());
        fail(Code::Internal, text)
    });
    match result {
        Ok(()) => OK,
        Err(e) => {
            write_err(err, &e.message);
            e.code as c_int
        }
    }
}

/// Runs `f` and returns its value; returns `default` when `f` panics.
fn guard_value<T>(default: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(default)
}

fn write_err(err: *mut c_char, message: &str) {
    if err.is_null() {
        return;
    }
    let mut n = message.len().min(ERR_MAX - 1);
    while !message.is_char_boundary(n) {
        n -= 1;
    }
    // SAFETY: err has ERR_MAX bytes (text.h).
    unsafe {
        ptr::copy_nonoverlapping(message.as_ptr().cast::<c_char>(), err, n);
        *err.add(n) = 0;
    }
}

/// # Safety
/// `p` is NULL or points to n readable elements that live as long as the result.
unsafe fn slice<'a, T>(p: *const T, n: usize) -> &'a [T] {
    if p.is_null() || n == 0 {
        return &[];
    }
    std::slice::from_raw_parts(p, n)
}

/// # Safety
/// The caller must meet the conditions of `slice`.
unsafe fn text<'a>(p: *const c_char, n: usize, what: &str) -> Result<&'a str> {
    std::str::from_utf8(slice(p.cast::<u8>(), n))
        .map_err(|e| invalid(format!("{what} is not UTF-8 at byte {}", e.valid_up_to())))
}

/// # Safety
/// `p` is NULL or a NUL-terminated string.
unsafe fn path<'a>(p: *const c_char) -> Result<Option<&'a str>> {
    if p.is_null() {
        return Ok(None);
    }
    CStr::from_ptr(p).to_str().map(Some).map_err(|_| invalid("a path is not UTF-8"))
}

/// Copies `values` to malloc'ed memory, which the C caller frees. The function adds one zero byte behind the data.
fn give<T: Copy>(values: &[T], out: *mut *mut T, n_out: *mut usize) -> Result<()> {
    let bytes = std::mem::size_of_val(values);
    // SAFETY: the block is large enough, and out and n_out point to the caller's variables.
    unsafe {
        let block = libc::malloc(bytes + 1).cast::<u8>();
        if block.is_null() {
            return fail(Code::Limit, format!("not enough memory for {bytes} bytes"));
        }
        ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), block, bytes);
        *block.add(bytes) = 0;
        *out = block.cast::<T>();
        *n_out = values.len();
    }
    Ok(())
}

#[no_mangle]
pub unsafe extern "C" fn text_tokenizer_open(
    file: *const c_char,
    cache_dir: *const c_char,
    out: *mut *mut Tokenizer,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let name = path(file)?.ok_or_else(|| invalid("the path of the tokenizer is missing"))?;
        let t = Tokenizer::open(name, path(cache_dir)?.map(Path::new))?;
        *out = Box::into_raw(Box::new(t));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_tokenizer_free(t: *mut Tokenizer) {
    if !t.is_null() {
        guard_value((), || drop(Box::from_raw(t)));
        crate::base::heap::trim();
    }
}

#[no_mangle]
pub unsafe extern "C" fn text_vocab_size(t: *const Tokenizer) -> u32 {
    (*t).vocab_size()
}

#[no_mangle]
pub unsafe extern "C" fn text_bos_id(t: *const Tokenizer) -> u32 {
    (*t).bos
}

#[no_mangle]
pub unsafe extern "C" fn text_eos_id(t: *const Tokenizer) -> u32 {
    (*t).eos
}

#[no_mangle]
pub unsafe extern "C" fn text_token_id(t: *const Tokenizer, p: *const c_char, n: usize) -> u32 {
    guard_value(NONE, || text(p, n, "the token").map_or(NONE, |s| (*t).token_id(s)))
}

#[no_mangle]
pub unsafe extern "C" fn text_token_bytes(t: *const Tokenizer, id: u32, len: *mut usize) -> *const u8 {
    let bytes = guard_value(None, || (*t).token_bytes(id));
    *len = bytes.map_or(0, <[u8]>::len);
    bytes.map_or(ptr::null(), <[u8]>::as_ptr)
}

#[no_mangle]
pub unsafe extern "C" fn text_token_is_special(t: *const Tokenizer, id: u32) -> bool {
    guard_value(false, || (*t).is_special(id))
}

#[no_mangle]
pub unsafe extern "C" fn text_encode(
    t: *const Tokenizer,
    p: *const c_char,
    n: usize,
    add_special: bool,
    max_ids: usize,
    out: *mut *mut u32,
    n_out: *mut usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let ids = (*t).encode(text(p, n, "the text")?, add_special, max_ids)?;
        give(&ids, out, n_out)
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_encode_by_pipeline(
    t: *const Tokenizer,
    p: *const c_char,
    n: usize,
    add_special: bool,
    max_ids: usize,
    out: *mut *mut u32,
    n_out: *mut usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let ids = (*t).encode_by(text(p, n, "the text")?, add_special, max_ids, false)?;
        give(&ids, out, n_out)
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_decode(
    t: *const Tokenizer,
    ids: *const u32,
    n: usize,
    skip_special: bool,
    out: *mut *mut c_char,
    len: *mut usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let decoded = (*t).decode(slice(ids, n), skip_special)?;
        give(decoded.as_bytes(), out.cast::<*mut u8>(), len)
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_free(owned: *mut c_void) {
    libc::free(owned);
}

#[no_mangle]
pub unsafe extern "C" fn text_decoder_new(
    t: *const Tokenizer,
    skip_special: bool,
    prompt: *const u32,
    n_prompt: usize,
) -> *mut Decoder<'static> {
    guard_value(ptr::null_mut(), || {
        let tokenizer: &'static Tokenizer = &*t; // the tokenizer outlives its decoders (text.h)
        Box::into_raw(Box::new(Decoder::new(tokenizer, skip_special, slice(prompt, n_prompt))))
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_decoder_free(d: *mut Decoder<'static>) {
    if !d.is_null() {
        guard_value((), || drop(Box::from_raw(d)));
    }
}

unsafe fn lend(text: &str, delta: *mut *const c_char, len: *mut usize) {
    *delta = text.as_ptr().cast::<c_char>();
    *len = text.len();
}

#[no_mangle]
pub unsafe extern "C" fn text_decoder_push(
    d: *mut Decoder<'static>,
    id: u32,
    delta: *mut *const c_char,
    len: *mut usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        lend((*d).push(id)?, delta, len);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_decoder_flush(
    d: *mut Decoder<'static>,
    delta: *mut *const c_char,
    len: *mut usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        lend((*d).flush()?, delta, len);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_template_new(
    source: *const c_char,
    n: usize,
    out: *mut *mut Template,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let t = Template::new(text(source, n, "the template")?)?;
        *out = Box::into_raw(Box::new(t));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_template_open(
    model_path: *const c_char,
    chosen: *const c_char,
    family: *const c_char,
    out: *mut *mut Template,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let model = Path::new(path(model_path)?.unwrap_or(""));
        let t = Template::open(model, path(chosen)?, path(family)?)?;
        *out = Box::into_raw(Box::new(t));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_template_pick(
    t: *const Template,
    name: *const c_char,
    n: usize,
    out: *mut *mut Template,
    err: *mut c_char,
) -> c_int {
    guard(err, || match (*t).pick(text(name, n, "the name")?)? {
        Some(t) => {
            *out = Box::into_raw(Box::new(t));
            Ok(())
        }
        None => fail(Code::Unsupported, "the model has no template of this name"),
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_template_free(t: *mut Template) {
    if !t.is_null() {
        guard_value((), || drop(Box::from_raw(t)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn text_template_render(
    t: *const Template,
    context: *const c_char,
    n: usize,
    now_unix: i64,
    fuel: u64,
    out: *mut *mut c_char,
    len: *mut usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let rendered = (*t).render(text(context, n, "the context")?, now_unix, fuel)?;
        give(rendered.as_bytes(), out.cast::<*mut u8>(), len)
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_vocabulary_new(
    t: *const Tokenizer,
    out: *mut *mut Vocabulary,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        *out = Box::into_raw(Box::new(Vocabulary::new(&*t)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_vocabulary_free(v: *mut Vocabulary) {
    if !v.is_null() {
        guard_value((), || drop(Box::from_raw(v)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn text_grammar_compile(
    v: *const Vocabulary,
    kind: c_int,
    source: *const c_char,
    n: usize,
    out: *mut *mut Grammar,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        let g = Grammar::compile(&*v, kind, text(source, n, "the grammar")?)?;
        *out = Box::into_raw(Box::new(g));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_grammar_free(g: *mut Grammar) {
    if !g.is_null() {
        guard_value((), || drop(Box::from_raw(g)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_new(
    g: *const Grammar,
    eos: *const u32,
    n_eos: usize,
    out: *mut *mut Matcher,
    err: *mut c_char,
) -> c_int {
    guard(err, || {
        *out = Box::into_raw(Box::new(Matcher::new(&*g, slice(eos, n_eos))));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_copy(m: *const Matcher) -> *mut Matcher {
    guard_value(ptr::null_mut(), || Box::into_raw(Box::new((*m).copy())))
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_free(m: *mut Matcher) {
    if !m.is_null() {
        guard_value((), || Box::from_raw(m).free());
    }
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_mask(
    m: *mut Matcher,
    words: *mut u32,
    n_words: usize,
    err: *mut c_char,
) -> c_int {
    guard(err, || (*m).mask(std::slice::from_raw_parts_mut(words, n_words)))
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_accept(m: *mut Matcher, id: u32, err: *mut c_char) -> c_int {
    guard(err, || match (*m).accept(id)? {
        true => Ok(()),
        false => Err(invalid(format!("the grammar does not allow token {id} here"))),
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_is_done(m: *const Matcher) -> bool {
    guard_value(true, || (*m).is_done())
}

#[no_mangle]
pub unsafe extern "C" fn text_grammar_cost(g: *const Grammar, out: *mut Cost) {
    *out = (*g).cost();
}

#[no_mangle]
pub extern "C" fn text_compile_may_end_process(exit_code: c_int) {
    crate::base::heap::may_end_process(exit_code);
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_cost(m: *const Matcher) -> u64 {
    (*m).cost()
}

#[no_mangle]
pub unsafe extern "C" fn text_matcher_bytes(m: *const Matcher) -> u64 {
    (*m).bytes()
}
