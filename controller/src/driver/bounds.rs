//! How much of a driver's answer is kept. A driver that lies or floods costs its own machines, and not the manager's memory, the API
//! server's limit for an object, or somebody's log.
//!
//! The contract's limits (`driver.proto`, "Sizes") are narrower; what is beyond these here is no answer, or is cut.

use millwright_core::status::is_unseen;

use super::status::cut;

/// Longest id of a VM. A cut one would name another VM.
const ID: usize = 512;
/// Longest word: a zone, a class, a field.
const WORD: usize = 256;
/// Longest token of a page or a stream.
const TOKEN: usize = 4096;
/// Most addresses of a VM.
pub(super) const ADDRESSES: usize = 64;
/// Most violations of a class.
pub(super) const VIOLATIONS: usize = 64;
/// Most places that a listing names as unreachable.
pub const UNREACHABLE: usize = 64;
/// Most VMs of one listing, or of one stream before it has told of all.
pub const VMS: usize = 100_000;
/// Most bytes of one listing, or of one stream before it has told of all: about 50,000 VMs as drivers tell of them.
pub const LISTING: usize = 16 << 20;
/// Most bytes of an answer about one VM, which the contract's limits keep below a tenth of that.
pub(super) const ANSWER: usize = 1 << 20;
/// So far a repeated field is read: each item takes far more memory than the two bytes that one takes on the wire. The contract's pages have
/// a tenth of that.
pub(super) const ITEMS: usize = 10_000;

/// The id, if a VM may have it.
pub(super) fn id(text: &str) -> Result<&str, String> {
    uncut("a provider_id", text, ID)
}

/// The key of an inventory, which is stored and compared.
pub(super) fn inventory_key(text: &str) -> Result<&str, String> {
    uncut("an inventory_key", text, TOKEN)
}

/// A text that means something else once it is cut, if it need not be.
fn uncut<'a>(what: &str, text: &'a str, longest: usize) -> Result<&'a str, String> {
    if text.len() > longest {
        let len = text.len();
        let shown = cut(text, 80);
        return Err(format!(
            "{what} of {len} bytes, beginning with {shown:?}: at most {longest}"
        ));
    }
    match text.chars().any(is_unseen) {
        true => Err(format!(
            "{what} with control characters or others that nobody sees, {:?}",
            cut(text, 80)
        )),
        false => Ok(text),
    }
}

/// A word, cut.
pub(super) fn word(text: &str) -> String {
    cut(text, WORD)
}

/// A token, which is sent back as it came.
pub(super) fn token(text: String) -> Result<String, String> {
    match text.len() {
        ..=TOKEN => Ok(text),
        len => Err(format!("a token of {len} bytes: at most {TOKEN}")),
    }
}
