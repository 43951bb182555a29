//! Values of Kubernetes' own in rules: quantities, addresses, networks, versions, URLs, named formats. Decides how they are read,
//! compared and asked.

use std::{cmp::Ordering, net::IpAddr, sync::Arc};

use cel::{
    ExecutionError, Value as Cel,
    objects::{Opaque, OptionalValue},
};

use super::url::Url;
use crate::schema::formats;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Thing {
    /// In billionths, the finest that a quantity can be.
    Quantity(i128),
    Address(IpAddr),
    Network(IpAddr, u8),
    Version(Version),
    Url(Url),
    /// The name of a format that texts are held against.
    Format(&'static str),
}

/// A semantic version. What comes before the release is compared as one text, part by part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    before: Option<String>,
}

/// A function that reads a text, and the one that asks whether it could be read.
pub(super) struct Reader {
    pub(super) is: &'static str,
    pub(super) name: &'static str,
    pub(super) read: fn(&str) -> Option<Thing>,
}

pub(super) static READERS: [Reader; 5] = [
    Reader {
        is: "isQuantity",
        name: "quantity",
        read: quantity,
    },
    Reader {
        is: "isIP",
        name: "ip",
        read: address,
    },
    Reader {
        is: "isCIDR",
        name: "cidr",
        read: network,
    },
    Reader {
        is: "isSemver",
        name: "semver",
        read: version,
    },
    Reader {
        is: "isURL",
        name: "url",
        read: |text| Url::read(text).map(Thing::Url),
    },
];

/// Functions of a thing alone.
#[rustfmt::skip]
pub(super) const QUESTIONS: [&str; 20] = [
    "family", "isLoopback", "isUnspecified", "prefixLength", "masked", "isInteger", "asInteger", "asApproximateFloat", "sign",
    "major", "minor", "patch", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery", "isGlobalUnicast",
    "isLinkLocalUnicast",
];

/// Functions of a thing and one argument.
pub(super) const COMPARISONS: [&str; 8] = [
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "containsIP",
    "containsCIDR",
    "validate",
];

impl Opaque for Thing {
    fn runtime_type_name(&self) -> &str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Address(_) => "net.IP",
            Self::Network(..) => "net.CIDR",
            Self::Version(_) => "kubernetes.Semver",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }
}

impl Thing {
    /// As text, where it has one.
    pub(super) fn spelled(&self) -> Option<String> {
        match self {
            Self::Address(address) => Some(address.to_string()),
            Self::Network(address, bits) => Some(format!("{address}/{bits}")),
            Self::Quantity(_) | Self::Version(_) | Self::Url(_) | Self::Format(_) => None,
        }
    }

    pub(super) fn into_cel(self) -> Cel {
        Cel::Opaque(Arc::new(self))
    }

    pub(super) fn of<'c>(value: &'c Cel, function: &str) -> Result<&'c Self, ExecutionError> {
        let thing = match value {
            Cel::Opaque(opaque) => opaque.downcast_ref::<Self>(),
            _ => None,
        };
        thing.ok_or_else(|| no_overload(function))
    }
}

fn no_overload(function: &str) -> ExecutionError {
    ExecutionError::function_error(function, "no such overload")
}

/// One billion: how many of the smallest part make a one.
const ONE: i128 = 1_000_000_000;

fn quantity(text: &str) -> Option<Thing> {
    let bare = text.trim_start_matches(['+', '-']);
    let digits_end = bare
        .find(|char: char| !char.is_ascii_digit() && char != '.')
        .unwrap_or(bare.len());
    let (number, suffix) = bare.split_at_checked(digits_end)?;
    let factor = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => ONE,
        "k" => ONE * 1_000,
        "M" => ONE * 1_000_000,
        "G" => ONE * 1_000_000_000,
        "T" => ONE * 1_000_000_000_000,
        "P" => ONE * 1_000_000_000_000_000,
        "E" => ONE * 1_000_000_000_000_000_000,
        "Ki" => ONE << 10,
        "Mi" => ONE << 20,
        "Gi" => ONE << 30,
        "Ti" => ONE << 40,
        "Pi" => ONE << 50,
        "Ei" => ONE << 60,
        exponent => power(exponent)?,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') || bare.len() + 1 < text.len() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(factor)?;
    let mut unit = factor;
    for digit in part.bytes() {
        unit /= 10;
        total = total.checked_add(unit * i128::from(digit - b'0'))?;
    }
    Some(Thing::Quantity(if text.starts_with('-') { -total } else { total }))
}

/// "e3" or "E-3".
fn power(exponent: &str) -> Option<i128> {
    let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = u32::try_from(power + 9).ok()?;
    10_i128.checked_pow(power)
}

/// An address. One of IPv4 in the clothes of IPv6 is none.
fn address(text: &str) -> Option<Thing> {
    let address: IpAddr = text.parse().ok()?;
    let is_mapped = matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some());
    (!is_mapped).then_some(Thing::Address(address))
}

fn network(text: &str) -> Option<Thing> {
    let (address, bits) = text.split_once('/').filter(|_| formats::fits("cidr", text))?;
    Some(Thing::Network(address.parse().ok()?, bits.parse().ok()?))
}

fn version(text: &str) -> Option<Thing> {
    let bare = text.split_once('+').map_or(text, |(bare, _)| bare);
    let (core, before) = match bare.split_once('-') {
        Some((core, before)) => (
            core,
            Some(before.to_owned()).filter(|before| !before.is_empty()).map(Some)?,
        ),
        None => (bare, None),
    };
    let is_number =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    let numbers: Vec<u64> = core
        .split('.')
        .map(|part| is_number(part).then(|| part.parse().ok())?)
        .collect::<Option<_>>()?;
    Some(Thing::Version(Version {
        numbers: numbers.try_into().ok()?,
        before,
    }))
}

impl Version {
    fn against(&self, other: &Self) -> Ordering {
        let before = match (&self.before, &other.before) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(one), Some(other)) => parts(one).cmp(parts(other)),
        };
        self.numbers.cmp(&other.numbers).then(before)
    }
}

/// The parts of what comes before a release, such that numbers come before words and are ordered by size.
fn parts(before: &str) -> impl Iterator<Item = (bool, u64, &str)> {
    before.split('.').map(|part| match part.parse() {
        Ok(number) => (false, number, ""),
        Err(_) => (true, 0, part),
    })
}

/// The leading bits of an address, the rest zero.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or_default();
            IpAddr::V4((four.to_bits() & mask).into())
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or_default();
            IpAddr::V6((six.to_bits() & mask).into())
        }
    }
}

fn text(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_owned()))
}

/// Answers one of [`QUESTIONS`].
pub(super) fn answer(question: &str, thing: &Thing) -> Result<Cel, ExecutionError> {
    let answer = match thing {
        Thing::Quantity(amount) => of_quantity(question, *amount),
        Thing::Address(address) => of_address(question, *address),
        Thing::Network(address, bits) => match question {
            "prefixLength" => Some(Cel::Int(i64::from(*bits))),
            "masked" => Some(Thing::Network(masked(*address, *bits), *bits).into_cel()),
            "ip" => Some(Thing::Address(*address).into_cel()),
            _ => None,
        },
        Thing::Version(Version {
            numbers: [major, minor, patch],
            ..
        }) => match question {
            "major" => i64::try_from(*major).ok().map(Cel::Int),
            "minor" => i64::try_from(*minor).ok().map(Cel::Int),
            "patch" => i64::try_from(*patch).ok().map(Cel::Int),
            _ => None,
        },
        Thing::Url(url) => match question {
            "getScheme" => Some(text(&url.scheme)),
            "getHost" => Some(text(&url.host)),
            "getHostname" => Some(text(url.hostname())),
            "getPort" => Some(text(url.port())),
            "getEscapedPath" => Some(text(&url.path)),
            "getQuery" => Some(url.query_map()),
            _ => None,
        },
        Thing::Format(_) => None,
    };
    answer.ok_or_else(|| no_overload(question))
}

fn of_quantity(question: &str, amount: i128) -> Option<Cel> {
    let whole = i64::try_from(amount / ONE).ok().filter(|_| amount % ONE == 0);
    match question {
        "isInteger" => Some(Cel::Bool(whole.is_some())),
        "asInteger" => whole.map(Cel::Int),
        #[expect(clippy::cast_precision_loss, reason = "approximate, as its name says")]
        "asApproximateFloat" => Some(Cel::Float(amount as f64 / ONE as f64)),
        "sign" => Some(Cel::Int(i64::try_from(amount.signum()).unwrap_or_default())),
        _ => None,
    }
}

fn of_address(question: &str, address: IpAddr) -> Option<Cel> {
    let is_link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let is_broadcast = address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local;
    match question {
        "family" => Some(Cel::Int(if address.is_ipv4() { 4 } else { 6 })),
        "isLoopback" => Some(Cel::Bool(address.is_loopback())),
        "isUnspecified" => Some(Cel::Bool(address.is_unspecified())),
        "isLinkLocalUnicast" => Some(Cel::Bool(is_link_local)),
        "isGlobalUnicast" => Some(Cel::Bool(!is_special && !is_broadcast)),
        _ => None,
    }
}

/// Answers one of [`COMPARISONS`].
pub(super) fn compare(function: &str, thing: &Thing, other: &Cel) -> Result<Cel, ExecutionError> {
    let answer = match (thing, function) {
        (Thing::Format(format), "validate") => match other {
            Cel::String(text) => Some(complaints(format, text)),
            _ => None,
        },
        (Thing::Network(address, bits), "containsIP" | "containsCIDR") => contains(*address, *bits, other),
        (Thing::Quantity(one), _) => match (as_quantity(other), function) {
            (Some(other), "add") => one.checked_add(other).map(|sum| Thing::Quantity(sum).into_cel()),
            (Some(other), "sub") => one.checked_sub(other).map(|rest| Thing::Quantity(rest).into_cel()),
            (Some(other), _) => ordered(function, one.cmp(&other)),
            (None, _) => None,
        },
        (Thing::Version(one), _) => match Thing::of(other, function)? {
            Thing::Version(other) => ordered(function, one.against(other)),
            _ => None,
        },
        (Thing::Address(_) | Thing::Network(..) | Thing::Url(_) | Thing::Format(_), _) => None,
    };
    answer.ok_or_else(|| no_overload(function))
}

fn as_quantity(value: &Cel) -> Option<i128> {
    match value {
        Cel::Int(whole) => i128::from(*whole).checked_mul(ONE),
        other => match Thing::of(other, "quantity").ok()? {
            Thing::Quantity(amount) => Some(*amount),
            _ => None,
        },
    }
}

fn ordered(function: &str, order: Ordering) -> Option<Cel> {
    match function {
        "isGreaterThan" => Some(Cel::Bool(order.is_gt())),
        "isLessThan" => Some(Cel::Bool(order.is_lt())),
        "compareTo" => Some(Cel::Int(order as i64)),
        _ => None,
    }
}

/// Whether a network holds an address or a smaller network, given as such or as text.
fn contains(address: IpAddr, bits: u8, other: &Cel) -> Option<Cel> {
    let read = match other {
        Cel::String(text) => text.parse().ok().map(Thing::Address).or_else(|| network(text)),
        _ => None,
    };
    let inner = match &read {
        Some(thing) => thing,
        None => Thing::of(other, "containsIP").ok()?,
    };
    let (inner, is_narrower) = match inner {
        Thing::Address(inner) => (*inner, true),
        Thing::Network(inner, inner_bits) => (*inner, *inner_bits >= bits),
        _ => return None,
    };
    let is_same_family = inner.is_ipv4() == address.is_ipv4();
    Some(Cel::Bool(
        is_same_family && is_narrower && masked(inner, bits) == masked(address, bits),
    ))
}

/// What is wrong with a text: an optional list, empty where nothing is.
fn complaints(format: &str, text: &str) -> Cel {
    let optional = if formats::fits(format, text) {
        OptionalValue::none()
    } else {
        OptionalValue::of(Cel::List(Arc::new(vec![Cel::String(Arc::new(format!(
            "{text:?} is no {format}"
        )))])))
    };
    Cel::Opaque(Arc::new(optional))
}
