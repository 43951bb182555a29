//! Protobuf as it lies in bytes: fields, each with a number and what stands for its value.
//!
//! Decides where a field ends; knows no messages. The words of what is wrong are those of Go's generated decoders.

/// What stands for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    /// Of as many bytes. No field of the kinds that are served is of these.
    Fixed(usize),
}

impl Raw<'_> {
    /// The number by which a field says how its value lies.
    pub(super) fn form(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed(8) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed(_) => 5,
        }
    }
}

const TOO_SHORT: &str = "unexpected EOF";

/// The fields of a message, in the order in which they were sent. The last is an error if the message ends badly.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<(u64, Raw<'_>), String>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'b>(rest: &mut &'b [u8]) -> Result<(u64, Raw<'b>), String> {
    let key = varint(rest)?;
    let (number, form) = (key >> 3, key & 7);
    if number == 0 {
        return Err(format!("proto: illegal tag {number} (wire type {key})"));
    }
    let raw = match form {
        0 => Raw::Varint(varint(rest)?),
        1 => fixed(rest, 8)?,
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| TOO_SHORT)?;
            Raw::Bytes(take(rest, length)?)
        }
        5 => fixed(rest, 4)?,
        _ => return Err(format!("proto: illegal wireType {form}")),
    };
    Ok((number, raw))
}

fn fixed<'b>(rest: &mut &'b [u8], width: usize) -> Result<Raw<'b>, String> {
    take(rest, width)?;
    Ok(Raw::Fixed(width))
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Result<&'b [u8], String> {
    let (taken, after) = rest.split_at_checked(length).ok_or(TOO_SHORT)?;
    *rest = after;
    Ok(taken)
}

/// Seven bits a byte, the least first; the eighth says that more follow.
fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(TOO_SHORT)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err("proto: integer overflow".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_one_by_one() {
        let read: Vec<_> = fields(b"\x08\xac\x02\x12\x02ab\x1d1234\x21\x31\x32\x33\x34\x35\x36\x37\x38").collect();
        let expected = [
            (1, Raw::Varint(300)),
            (2, Raw::Bytes(b"ab")),
            (3, Raw::Fixed(4)),
            (4, Raw::Fixed(8)),
        ];
        assert_eq!(read, expected.map(Ok));
    }

    #[test]
    fn a_message_that_ends_too_early_or_says_nonsense_is_refused_where_it_does() {
        for (message, why) in [
            (b"\x08".as_slice(), "unexpected EOF"),
            (b"\x12\x05ab", "unexpected EOF"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7fab", "unexpected EOF"),
            (b"\x0b", "proto: illegal wireType 3"),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                "proto: integer overflow",
            ),
        ] {
            let read: Vec<_> = fields(message).collect();
            assert_eq!(read, [Err(why.to_owned())]);
        }
    }
}
