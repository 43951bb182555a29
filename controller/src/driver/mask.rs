//! What is secret, in the words of somebody who was given it: a driver quotes what it was sent in its language's way, and its words go
//! into logs, events and statuses.
//!
//! Decides what of a text is not shown. Masked are whole lines of what is secret, and its long words, which stay as they are however a text
//! quotes them; the same percent-encoded or in base64, whole or in part, as HTTP clients print addresses and bodies; and bootstrap tokens.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use memchr::memmem;
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

/// Shorter lines are words that any text may hold.
const LEAST_LINE: usize = 6;
/// Shorter words may stand in any text; a key or a password of a program is longer.
const LEAST_WORD: usize = 12;
/// The base64 of so many bytes is not met by chance.
const LEAST_ENCODED: usize = 12;
/// The letters of base64 may be a path before the secret begins; so many parts of it are tried.
const MOST_PARTS: usize = 32;
/// What stands in place of a secret.
const MASK: &str = "***";
/// Lengths of the two parts of a bootstrap token, `abcdef.0123456789abcdef`.
const TOKEN_PARTS: (usize, usize) = (6, 16);

/// Base64 that may have been cut.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The text without the values of Secrets and what else was sent, as user data is: its words are those of any program, so only its lines
/// are secret.
pub(super) fn masked(text: &str, secrets: &[&[u8]], sent: &[&[u8]]) -> String {
    let (lines, values) = (lines(secrets, sent), [secrets, sent].concat());
    let mut text = without_encoded(text, |run| {
        is_percent_encoded(run, &lines) || is_base64(run, &values, &lines)
    });
    for line in &lines {
        if text.contains(line) {
            text = text.replace(line, MASK);
        }
    }
    without_tokens(&text)
}

/// The lines of all, and the long words of Secrets; longer ones first: a longer one may hold a shorter one, of which the rest would stay.
fn lines<'v>(secrets: &[&'v [u8]], sent: &[&'v [u8]]) -> Vec<&'v str> {
    let texts = |values: &[&'v [u8]]| -> Vec<&'v str> {
        let texts = values.iter().filter_map(|value| std::str::from_utf8(value).ok());
        texts.collect()
    };
    let (secrets, sent) = (texts(secrets), texts(sent));
    let lines = secrets.iter().chain(&sent).flat_map(|text| text.lines()).map(str::trim);
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let words = secrets.iter().flat_map(|text| text.split(|letter| !is_inner(letter)));
    let words = words.filter(|word| word.len() >= LEAST_WORD);
    let mut all: Vec<&str> = lines.filter(|line| line.len() >= LEAST_LINE).chain(words).collect();
    all.sort_by_key(|line| std::cmp::Reverse(line.len()));
    all.dedup();
    all
}

/// The text with a mask in place of the runs of letters, such as encodings have, that hide something.
fn without_encoded(text: &str, hides: impl Fn(&str) -> bool) -> String {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || "+/-_%.~".contains(letter);
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(|letter| !is_inner(letter)) {
        let run = piece.trim_end_matches(|letter| !is_inner(letter));
        match run.len() > LEAST_LINE && hides(run) {
            true => shown.push_str(MASK),
            false => shown.push_str(run),
        }
        shown.push_str(piece.get(run.len()..).unwrap_or_default());
    }
    shown
}

fn is_percent_encoded(run: &str, lines: &[&str]) -> bool {
    if !run.contains('%') {
        return false;
    }
    let decoded = Zeroizing::new(percent_decode_str(run).decode_utf8_lossy().into_owned());
    lines.iter().any(|line| decoded.contains(line))
}

/// Whether a run, or what is behind one of its slashes, is base64 of a secret, of a part of one, or of something with one in it.
fn is_base64(run: &str, values: &[&[u8]], lines: &[&str]) -> bool {
    let hides = |decoded: Zeroizing<Vec<u8>>| {
        let is_part = |value: &&[u8]| memmem::find(value, &decoded).is_some();
        let holds = |line: &&str| memmem::find(&decoded, line.as_bytes()).is_some();
        values.iter().any(is_part) || lines.iter().any(holds)
    };
    run.split(['.', '~', '%']).any(|letters| {
        let behind = letters.match_indices('/').map(|(at, _)| at + 1);
        let mut starts = std::iter::once(0).chain(behind).take(MOST_PARTS);
        starts.any(|start| letters.get(start..).and_then(decoded).is_some_and(hides))
    })
}

/// The bytes of a run of base64 of either alphabet.
fn decoded(run: &str) -> Option<Zeroizing<Vec<u8>>> {
    let letters = run.bytes().map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    });
    let mut letters = Zeroizing::new(letters.collect::<Vec<u8>>());
    // One letter more than whole bytes have: the rest was cut.
    if letters.len() % 4 == 1 {
        letters.pop();
    }
    let decoded = BASE64.decode(letters.as_slice()).ok().map(Zeroizing::new)?;
    (decoded.len() >= LEAST_ENCODED).then_some(decoded)
}

/// The text without bootstrap tokens, which stand in the boot configuration.
pub(super) fn without_tokens(text: &str) -> String {
    let (before, after) = TOKEN_PARTS;
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let is_token = |dot: &usize| {
        let parts = dot
            .checked_sub(before)
            .and_then(|start| Some((bytes.get(start..*dot)?, bytes.get(dot + 1..dot + 1 + after)?)));
        // The name of a host goes on at either end.
        let ends = dot.checked_sub(before + 1).and_then(|at| bytes.get(at)).into_iter();
        let mut ends = ends.chain(bytes.get(dot + 1 + after));
        parts.is_some_and(|(id, secret)| id.iter().chain(secret).all(is_inner))
            && !ends.any(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    };
    let mut masked = String::with_capacity(text.len());
    let mut rest = 0;
    for (dot, _) in text.match_indices('.').filter(|(dot, _)| is_token(dot)) {
        if dot < rest {
            continue;
        }
        masked.push_str(text.get(rest..=dot).unwrap_or_default());
        masked.push_str(MASK);
        rest = dot + 1 + after;
    }
    masked.push_str(text.get(rest..).unwrap_or_default());
    masked
}
