//! Whom `NO_PROXY` exempts from a proxy: names with all below them, addresses, ranges of addresses, `*`. As Go's `httpproxy` reads it, but
//! for ports, which are passed over.

use std::net::IpAddr;

/// Whether the list names the host.
pub fn holds(list: &str, host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let entries = list.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(str::to_ascii_lowercase).any(|entry| names(&entry, &host))
}

fn names(entry: &str, host: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return match entry.split_once('/') {
            Some((first, bits)) => is_within(address, first, bits),
            None => entry.parse::<IpAddr>() == Ok(address),
        };
    }
    let domain = entry.trim_start_matches("*.").trim_start_matches('.');
    let above = host.strip_suffix(domain);
    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

fn is_within(address: IpAddr, first: &str, bits: &str) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32_u32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let (Ok(first), Ok(bits)) = (first.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let ((first, width), (address, of)) = (number(first), number(address));
    let rest = width.checked_sub(bits);
    width == of && rest.is_some_and(|rest| first.checked_shr(rest) == address.checked_shr(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_ranges_are_exempt_as_go_has_it() {
        let list = "localhost, .svc,example.com,10.0.0.0/8,192.168.1.7,fd00::/8";
        for host in [
            "localhost",
            "kubernetes.default.svc",
            "api.Example.com",
            "example.com",
            "10.96.0.1",
            "192.168.1.7",
            "[fd12::1]",
        ] {
            assert!(holds(list, host), "{host}");
        }
        for host in ["badexample.com", "svc.org", "11.0.0.1", "192.168.1.70", "fe80::1"] {
            assert!(!holds(list, host), "{host}");
        }
        assert!(holds("*", "anything") && holds("0.0.0.0/0", "1.2.3.4") && !holds("", "a"));
        assert!(!holds("10.0.0.0/99,10.0.0.0/x", "10.0.0.1"));
    }
}
