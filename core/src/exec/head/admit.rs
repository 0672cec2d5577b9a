//! Who may do what: the one judge of a request's head.

use core::fmt;

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{
    Allow, GUEST_PATH, Header, JSON_TYPE, Refusal, Repeated, SOCKET_VERSION, Why, host,
    is_media_type, is_sandbox_id, items, length, only, split_once,
};
use crate::exec::request::MAX_REQUEST_BODY;

/// A key's SHA-256: what a server keeps, and what is compared.
///
/// Comparison takes the same time wherever the keys differ; debug output shows nothing.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Digests a key.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }
}

impl ConstantTimeEq for KeyDigest {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.as_slice().ct_eq(other.0.as_slice())
    }
}

impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for KeyDigest {}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(redacted)")
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for KeyDigest {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "KeyDigest(redacted)");
    }
}

/// Who is admitted.
#[derive(Clone, Copy, Debug)]
pub enum Access<'p> {
    /// Everybody; for a loopback address only, and only when asked for.
    Open,
    /// Whoever sends one of these keys; nobody when there are none.
    Keys(&'p [KeyDigest]),
}

impl Access<'_> {
    /// Reports whether everybody is admitted.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Open)
    }

    /// Checks the only `Authorization` of a head.
    fn check(self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        // rule: EXEC-32
        let Self::Keys(keys) = self else { return Ok(()) };
        let key = authorization.and_then(bearer).ok_or(Why::KeyMissing)?;
        let key = KeyDigest::of(key);
        let known = keys.iter().fold(Choice::from(0), |known, ours| known | ours.ct_eq(&key));
        if bool::from(known) { Ok(()) } else { Err(Why::KeyWrong.into()) }
    }
}

/// What a server is to its clients: its address, its names and its keys.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'p, H = &'p str> {
    /// The port it listens on.
    pub port: u16,
    /// Whether its address is a loopback one.
    pub loopback: bool,
    /// Names beyond the loopback ones that it answers to, each with a port or, for every port,
    /// without. When there are none, a server on a loopback address answers to loopback names
    /// only, and one on another address to every name.
    pub hosts: &'p [H],
    /// Who is admitted.
    pub access: Access<'p>,
}

/// What an admitted request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'t> {
    /// `GET /healthz`: 200 with [`HEALTH_BODY`](super::HEALTH_BODY).
    Health,
    /// `POST /sandboxes/{id}/exec`.
    OneShot {
        /// The sandbox's id.
        sandbox: &'t str,
    },
    /// `POST /sandboxes/{id}/exec?stdin=1`.
    Hijack {
        /// The sandbox's id.
        sandbox: &'t str,
    },
    /// `GET /sandboxes/{id}/exec` with an upgrade that can be answered with 101.
    Socket {
        /// The sandbox's id.
        sandbox: &'t str,
        /// The value of `Sec-WebSocket-Key`.
        key: &'t str,
    },
    /// `POST /sandboxes/{id}/files`: an archive to unpack.
    Push {
        /// The sandbox's id.
        sandbox: &'t str,
        /// The query, for [`path_of`](crate::exec::files::path_of).
        query: &'t str,
    },
    /// `GET /sandboxes/{id}/files`: a file to send.
    Pull {
        /// The sandbox's id.
        sandbox: &'t str,
        /// The query, for [`path_of`](crate::exec::files::path_of).
        query: &'t str,
    },
}

/// Judges a request's head: the route, or the status to refuse it with.
///
/// The order: target, `Host`, key, `Origin`, route, shape of the id, sandbox, method, then the
/// upgrade of a GET, or the content type and the declared length of a POST. `GET /healthz` needs
/// neither `Host` nor key. `knows` tells whether there is a sandbox of that id.
///
/// ```
/// use triwire::exec::head::{Access, Header, Peer, Route, admit};
///
/// let peer: Peer<'_> = Peer { port: 7878, loopback: true, hosts: &[], access: Access::Keys(&[]) };
/// let headers = [Header { name: "Host", value: b"localhost:7878" }];
/// let judge = |target| admit("POST", target, headers.into_iter(), &peer, |_| true);
/// assert_eq!(judge("/sandboxes/local/exec").unwrap_err().status, 401); // no keys: nobody
/// ```
///
/// # Errors
/// The [`Refusal`] to answer with.
pub fn admit<'t, H: AsRef<str>>(
    method: &str,
    target: &'t str,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    peer: &Peer<'_, H>,
    knows: impl Fn(&str) -> bool,
) -> Result<Route<'t>, Refusal> {
    let (authority, path, query) = parts(target).ok_or(Why::Target)?;
    if method == "GET" && path == "/healthz" {
        return Ok(Route::Health);
    }
    gate(authority, headers.clone(), peer)?;
    let once = |name| once(headers.clone(), name);

    if path == "/healthz" {
        return Err(Why::Method { allow: Allow::Get }.into());
    }
    let (sandbox, route) = path
        .strip_prefix("/sandboxes/")
        .and_then(|rest| split_once(rest, b'/'))
        .filter(|(_, route)| matches!(*route, "exec" | "files"))
        .ok_or(Why::UnknownRoute)?;
    // rule: EXEC-34
    if !is_sandbox_id(sandbox) {
        return Err(Why::SandboxId.into());
    }
    if !knows(sandbox) {
        return Err(Why::UnknownSandbox.into());
    }
    match method {
        // rule: FILE-11
        "GET" if route == "files" => Ok(Route::Pull { sandbox, query }),
        "POST" if route == "files" => Ok(Route::Push { sandbox, query }),
        "GET" => Ok(Route::Socket { sandbox, key: upgrade_key(headers)? }),
        "POST" => {
            check_body(once("Content-Type")?, once("Content-Length")?)?;
            // rule: EXEC-21
            if wants_stdin(query) {
                Ok(Route::Hijack { sandbox })
            } else {
                Ok(Route::OneShot { sandbox })
            }
        }
        _ => Err(Why::Method { allow: Allow::GetPost }.into()),
    }
}

/// Judges a request's head for a page that a server has beside the routes of [`admit`], such as
/// metrics; `None` when that is not what is asked for.
///
/// The page is for GET. The order: path, then `Host`, key and `Origin` as everywhere, then the
/// method. A page that everybody may read is asked for with [`Access::Open`].
///
/// ```
/// use triwire::exec::head::{Access, Header, Peer, admit_page};
///
/// let peer: Peer<'_> = Peer { port: 80, loopback: true, hosts: &[], access: Access::Open };
/// let headers = [Header { name: "Host", value: b"localhost:80" }];
/// let judge = |target| admit_page("/metrics", "GET", target, headers.into_iter(), &peer);
/// assert_eq!(judge("/metrics?a=1"), Some(Ok(())));
/// assert_eq!(judge("/healthz"), None);
/// ```
// rule: EXEC-75
pub fn admit_page<'t, H: AsRef<str>>(
    page: &str,
    method: &str,
    target: &str,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    peer: &Peer<'_, H>,
) -> Option<Result<(), Refusal>> {
    let (authority, path, _) = parts(target)?;
    if path != page {
        return None;
    }
    let admitted = gate(authority, headers, peer);
    Some(admitted.and_then(|()| match method {
        "GET" => Ok(()),
        _ => Err(Why::Method { allow: Allow::Get }.into()),
    }))
}

/// Judges who may ask, whatever for.
fn gate<'t, H: AsRef<str>>(
    authority: Option<&str>,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    peer: &Peer<'_, H>,
) -> Result<(), Refusal> {
    let host = host_of(authority, headers.clone(), peer)?;
    check_caller(host, headers, peer)
}

/// Returns the `Host` of a request, one that the server answers to.
pub(crate) fn host_of<'t, H: AsRef<str>>(
    authority: Option<&str>,
    headers: impl Iterator<Item = Header<'t>>,
    peer: &Peer<'_, H>,
) -> Result<&'t str, Refusal> {
    // rule: EXEC-33
    let host = named_host(authority, once(headers, "Host")?)?;
    if host::is_allowed(host, peer.port, peer.loopback, peer.hosts) {
        Ok(host)
    } else {
        Err(Why::HostRefused.into())
    }
}

/// Checks the key of a request, and that no page of another origin sends it.
pub(crate) fn check_caller<'t, H: AsRef<str>>(
    host: &str,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    peer: &Peer<'_, H>,
) -> Result<(), Refusal> {
    peer.access.check(once(headers.clone(), "Authorization")?)?;
    same_origin(host, headers)
}

/// Checks that a request comes from no page, or from one of `host` itself.
pub(crate) fn same_origin<'t>(
    host: &str,
    headers: impl Iterator<Item = Header<'t>>,
) -> Result<(), Refusal> {
    // rule: EXEC-33
    if once(headers, "Origin")?.is_some_and(|origin| !host::is_same_origin(origin, host)) {
        return Err(Why::OriginRefused.into());
    }
    Ok(())
}

/// Judges the head of a request to a guest at the end of a link: a device at a serial port, an
/// agent behind a socket. It has one route, `POST` [`GUEST_PATH`]; what follows an admitted head is
/// the request's body, and once that is answered with [`Answer::Hijack`](super::Answer::Hijack),
/// frames both ways.
///
/// The order: target, `Host`, key, `Origin`, route, method, `stdin=1`, then the content type and
/// the declared length. `Host` may be any name: who has a link knows no name for its other end. A
/// page of any origin is refused, for no page has business with a guest.
///
/// ```
/// use triwire::exec::head::{Access, GUEST_PATH, Header, admit_guest};
///
/// let headers = [Header { name: "Host", value: b"localhost" }];
/// let judge = |target| admit_guest("POST", target, headers.into_iter(), Access::Open);
/// assert_eq!(judge(GUEST_PATH), Ok(()));
/// assert_eq!(judge("/sandboxes/local/exec?stdin=1").unwrap_err().status, 404);
/// ```
///
/// # Errors
/// The [`Refusal`] to answer with.
// rule: EXEC-64
pub fn admit_guest<'t>(
    method: &str,
    target: &str,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    access: Access<'_>,
) -> Result<(), Refusal> {
    let (authority, path, query) = parts(target).ok_or(Why::Target)?;
    let once = |name| once(headers.clone(), name);
    named_host(authority, once("Host")?)?;
    access.check(once("Authorization")?)?;
    if once("Origin")?.is_some() {
        return Err(Why::OriginRefused.into());
    }
    let (guest_path, _) = split_once(GUEST_PATH, b'?').unwrap_or((GUEST_PATH, ""));
    if path != guest_path {
        return Err(Why::NotGuestPath.into());
    }
    if method != "POST" {
        return Err(Why::Method { allow: Allow::Post }.into());
    }
    if !wants_stdin(query) {
        return Err(Why::NotHijack.into());
    }
    check_body(once("Content-Type")?, once("Content-Length")?)
}

/// Finds the only header of a name.
pub(crate) fn once<'t>(
    headers: impl Iterator<Item = Header<'t>>,
    name: &'static str,
) -> Result<Option<&'t [u8]>, Refusal> {
    only(headers, name).map_err(|Repeated| Why::Repeated(name).into())
}

/// Checks that `Host` is a host, and the one of a target that is a URL.
fn named_host<'t>(authority: Option<&str>, host: Option<&'t [u8]>) -> Result<&'t str, Refusal> {
    let host = host.and_then(|host| core::str::from_utf8(host).ok());
    let host = host.filter(|host| host::is_host(host)).ok_or(Why::HostMissing)?;
    if authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(host)) {
        return Err(Why::Target.into());
    }
    Ok(host)
}

/// Checks what a request declares of its body.
fn check_body(content_type: Option<&[u8]>, declared: Option<&[u8]>) -> Result<(), Refusal> {
    // rule: EXEC-36
    let content_type = content_type.filter(|value| !value.is_empty());
    if content_type.is_some_and(|value| !is_media_type(value, JSON_TYPE)) {
        return Err(Why::ContentType.into());
    }
    if let Some(value) = declared {
        // rule: EXEC-18
        let limit = MAX_REQUEST_BODY as u64;
        if length(value).ok_or(Why::Length)? > limit {
            return Err(Why::TooLarge { limit }.into());
        }
    }
    Ok(())
}

/// Splits a target into its authority, when it is a URL, its path and its query.
pub(crate) fn parts(target: &str) -> Option<(Option<&str>, &str, &str)> {
    let url = split_once(target, b':').and_then(|(scheme, rest)| {
        let is_http = ["http", "https"].iter().any(|http| scheme.eq_ignore_ascii_case(http));
        rest.strip_prefix("//").filter(|_| is_http)
    });
    let (authority, rest) = match url {
        Some(url) => {
            let path = url.bytes().position(|byte| byte == b'/')?;
            let (authority, rest) = url.split_at_checked(path)?;
            (Some(authority), rest)
        }
        None => (None, target),
    };
    if !rest.starts_with('/') || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let (path, query) = split_once(rest, b'?').unwrap_or((rest, ""));
    Some((authority, path, query))
}

/// Nothing is decoded, and the first `stdin` decides, as in servers already in the field.
pub(super) fn wants_stdin(query: &str) -> bool {
    let mut pairs = query.as_bytes().split(|byte| *byte == b'&');
    pairs.find_map(|pair| pair.strip_prefix(b"stdin=")) == Some(b"1")
}

/// The key in an `Authorization` of the scheme `Bearer`, exactly as it stands there.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.split_at_checked(6)?;
    let key = key.strip_prefix(b" ")?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(key)
}

/// Checks an upgrade's head and returns its key.
pub(crate) fn upgrade_key<'t>(
    headers: impl Iterator<Item = Header<'t>> + Clone,
) -> Result<&'t str, Refusal> {
    let once = |name| once(headers.clone(), name);
    // rule: EXEC-23
    let has = |name, token: &[u8]| {
        items(headers.clone(), name).any(|item| item.eq_ignore_ascii_case(token))
    };
    if !has("connection", b"upgrade") || !has("upgrade", b"websocket") {
        return Err(Why::UpgradeMissing.into());
    }
    if once("Sec-WebSocket-Version")? != Some(SOCKET_VERSION.as_bytes()) {
        return Err(Why::SocketVersion.into());
    }
    let key = once("Sec-WebSocket-Key")?.filter(|key| is_socket_key(key)).ok_or(Why::SocketKey)?;
    core::str::from_utf8(key).map_err(|_| Why::SocketKey.into())
}

/// Reports whether `key` is the base64 of 16 bytes.
pub(super) fn is_socket_key(key: &[u8]) -> bool {
    let mut bytes = [0; 18];
    Base64::decode(key, &mut bytes).is_ok_and(|bytes| bytes.len() == 16)
}
