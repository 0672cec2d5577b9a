//! Which names a server answers to, and which pages may call it.

/// Names under which a machine reaches itself.
const LOOPBACK_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Splits `name[:port]`; the port is digits of a `u16`. `None` when it is neither.
fn split(host: &str) -> Option<(&str, Option<u16>)> {
    let name_len = match host.strip_prefix('[') {
        Some(literal) => literal.bytes().position(|byte| byte == b']')?.saturating_add(2),
        None => host.bytes().position(|byte| byte == b':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(name_len)?;
    let clean = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).map_or_else(
        || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)),
        |literal| {
            literal.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.')
        },
    );
    if name.is_empty() || !clean {
        return None;
    }
    if port.is_empty() {
        return Some((name, None));
    }
    let digits = port.strip_prefix(':')?;
    if digits.is_empty() {
        return None;
    }
    let port = digits.bytes().try_fold(0_u16, |port, digit| {
        let digit = char::from(digit).to_digit(10)?;
        port.checked_mul(10)?.checked_add(digit as u16)
    })?;
    Some((name, Some(port)))
}

/// Reports whether `host` is a host name, an IPv4 address or an IPv6 one in brackets, with a port
/// or without.
pub(super) fn is_host(host: &str) -> bool {
    split(host).is_some()
}

/// Reports whether a server on `port` answers to `host`.
pub(super) fn is_allowed<H: AsRef<str>>(
    host: &str,
    port: u16,
    loopback: bool,
    hosts: &[H],
) -> bool {
    let Some((name, given)) = split(host) else { return false };
    if !loopback && hosts.is_empty() {
        return true;
    }
    // A client leaves out the port that its scheme implies.
    let ours = given.map_or(port == 80 || port == 443, |given| given == port);
    let is_loopback = LOOPBACK_NAMES.iter().any(|loopback| loopback.eq_ignore_ascii_case(name));
    is_loopback && ours || hosts.iter().any(|allowed| matches(allowed.as_ref(), name, given))
}

/// An allowed host without a port stands for every port.
fn matches(allowed: &str, name: &str, given: Option<u16>) -> bool {
    split(allowed).is_some_and(|(allowed, port)| {
        allowed.eq_ignore_ascii_case(name) && (port.is_none() || port == given)
    })
}

/// Reports whether `origin` is a page of `host` itself, over http or https.
pub(super) fn is_same_origin(origin: &[u8], host: &str) -> bool {
    let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    rest == Some(host.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn loopback_names_need_our_port() {
        // rule: EXEC-33, EXEC-54
        for host in ["127.0.0.1:7878", "localhost:7878", "LocalHost:7878", "[::1]:7878"] {
            assert!(is_allowed(host, 7878, true, &NONE), "{host}");
        }
        for host in [
            "localhost",
            "localhost:80",
            "localhost:",
            "localhost:+7878",
            "localhost:90000",
            "localhost.:7878",
            "127.0.0.1.evil.example:7878",
            "evil-localhost:7878",
            "::1:7878",
            "[::1:7878",
            "u@localhost:7878",
            "localhost:7878/x",
            "",
            ":7878",
        ] {
            assert!(!is_allowed(host, 7878, true, &NONE), "{host}");
        }
        assert!(is_allowed("localhost", 80, true, &NONE));
    }

    #[test]
    fn configured_hosts_open_names_and_nothing_else() {
        // rule: EXEC-33, EXEC-54
        let hosts = ["box.example", "other.example:81"];
        for loopback in [true, false] {
            assert!(is_allowed("BOX.example:9", 7878, loopback, &hosts));
            assert!(is_allowed("box.example", 7878, loopback, &hosts));
            assert!(is_allowed("other.example:81", 7878, loopback, &hosts));
            assert!(is_allowed("localhost:7878", 7878, loopback, &hosts));
            assert!(!is_allowed("other.example", 7878, loopback, &hosts));
            assert!(!is_allowed("xbox.example", 7878, loopback, &hosts));
        }
        assert!(is_allowed("any.example", 7878, false, &NONE));
        assert!(!is_allowed("a b", 7878, false, &NONE));
    }

    #[test]
    fn origin_is_exactly_the_host() {
        // rule: EXEC-33
        assert!(is_same_origin(b"http://localhost:7878", "localhost:7878"));
        assert!(is_same_origin(b"https://box.example", "box.example"));
        for origin in ["null", "", "http://localhost", "http://localhost:7878/", "ftp://h"] {
            assert!(!is_same_origin(origin.as_bytes(), "localhost:7878"), "{origin}");
        }
        assert!(!is_same_origin(b"http://127.0.0.1:7878", "localhost:7878"));
    }
}
