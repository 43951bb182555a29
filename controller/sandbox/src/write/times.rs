//! What is wrong with a text that should be a time, in the words of Go's reader.
//!
//! Decides nothing about times that are well formed.

use crate::golang;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// What Go's reader says of a text that is no time.
pub(super) fn complaint(text: &str) -> Option<String> {
    let why = Reader { rest: text }.read().err()?;
    let quoted = golang::quoted(text);
    Some(match why {
        Fault::Unlike { rest, wanted } => {
            let rest = golang::quoted(rest);
            format!("parsing time {quoted} as \"{LAYOUT}\": cannot parse {rest} as \"{wanted}\"")
        }
        Fault::Range(what) => format!("parsing time {quoted}: {what} out of range"),
        Fault::Extra(rest) => format!("parsing time {quoted}: extra text: {}", golang::quoted(rest)),
    })
}

enum Fault<'t> {
    Unlike { rest: &'t str, wanted: &'static str },
    Range(&'static str),
    Extra(&'t str),
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn read(mut self) -> Result<(), Fault<'t>> {
        let year = self.number("2006", 4)?;
        self.letter("-")?;
        let month = self.within("month", "01", 1..=12)?;
        self.letter("-")?;
        let day = self.number("02", 2)?;
        self.letter("T")?;
        self.within("hour", "15", 0..=23)?;
        self.letter(":")?;
        self.within("minute", "04", 0..=59)?;
        self.letter(":")?;
        self.within("second", "05", 0..=59)?;
        self.fraction();
        self.zone()?;
        if !self.rest.is_empty() {
            return Err(Fault::Extra(self.rest));
        }
        // The day is looked at last, when the month is known.
        match is_day(year, month, day) {
            true => Ok(()),
            false => Err(Fault::Range("day")),
        }
    }

    fn unlike(&self, wanted: &'static str) -> Fault<'t> {
        Fault::Unlike {
            rest: self.rest,
            wanted,
        }
    }

    fn letter(&mut self, wanted: &'static str) -> Result<(), Fault<'t>> {
        self.rest = self.rest.strip_prefix(wanted).ok_or_else(|| self.unlike(wanted))?;
        Ok(())
    }

    fn number(&mut self, wanted: &'static str, digits: usize) -> Result<u32, Fault<'t>> {
        let (number, rest) = self.rest.split_at_checked(digits).ok_or_else(|| self.unlike(wanted))?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.unlike(wanted));
        }
        let number = number.parse().map_err(|_| self.unlike(wanted))?;
        self.rest = rest;
        Ok(number)
    }

    fn within(
        &mut self,
        what: &'static str,
        wanted: &'static str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, Fault<'t>> {
        // Hours alone may have one digit.
        let is_short = wanted == "15" && self.rest.as_bytes().get(1).is_some_and(|byte| !byte.is_ascii_digit());
        let number = self.number(wanted, if is_short { 1 } else { 2 })?;
        match range.contains(&number) {
            true => Ok(number),
            false => Err(Fault::Range(what)),
        }
    }

    /// Parts of a second, which the layout does not name and every reader takes.
    fn fraction(&mut self) {
        let Some(digits) = self.rest.strip_prefix(['.', ',']) else {
            return;
        };
        let rest = digits.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if rest.len() < digits.len() {
            self.rest = rest;
        }
    }

    fn zone(&mut self) -> Result<(), Fault<'t>> {
        let wanted = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(());
        }
        let begin = self.unlike(wanted);
        let Some(rest) = self.rest.strip_prefix(['+', '-']) else {
            return Err(begin);
        };
        let mut zone = Reader { rest };
        let read = zone.number(wanted, 2).and_then(|hour| {
            zone.letter(":")?;
            Ok((hour, zone.number(wanted, 2)?))
        });
        let Ok((hour, minute)) = read else { return Err(begin) };
        match (hour, minute) {
            (25.., _) => return Err(Fault::Range("time zone offset hour")),
            (_, 61..) => return Err(Fault::Range("time zone offset minute")),
            (_, _) => {}
        }
        self.rest = zone.rest;
        Ok(())
    }
}

fn is_day(year: u32, month: u32, day: u32) -> bool {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=days).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kube-apiserver 1.36.3 answered.
    #[test]
    fn a_text_that_is_no_time_is_told_where_it_ceases_to_be_one() {
        let unlike = |text: &str, rest: &str, wanted: &str| {
            let told = format!("parsing time \"{text}\" as \"{LAYOUT}\": cannot parse \"{rest}\" as \"{wanted}\"");
            assert_eq!(complaint(text), Some(told));
        };
        unlike("x", "x", "2006");
        unlike("", "", "2006");
        unlike("2026-11-22", "", "T");
        unlike("2026-11-22 00:00:00Z", " 00:00:00Z", "T");
        unlike("2026-11-22T00:00:00", "", "Z07:00");
        unlike("2026-1-22T00:00:00Z", "1-22T00:00:00Z", "01");
        for (text, why) in [
            ("2026-13-22T00:00:00Z", "month out of range"),
            ("2026-11-31T00:00:00Z", "day out of range"),
            ("2026-11-22T24:00:00Z", "hour out of range"),
            ("2026-11-22T00:00:00Zulu", "extra text: \"ulu\""),
        ] {
            assert_eq!(complaint(text), Some(format!("parsing time \"{text}\": {why}")));
        }
    }

    #[test]
    fn a_time_is_one_with_parts_of_seconds_and_any_zone() {
        for text in [
            "2026-11-22T00:00:00Z",
            "2026-11-22T00:00:00.5+01:00",
            "2024-02-29T23:59:59-11:30",
        ] {
            assert_eq!(complaint(text), None, "{text}");
        }
    }
}
