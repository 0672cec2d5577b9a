//! The parts of a URL that are signed.

use std::fmt;

use url::Url;

/// The host and the path of a URL, as lines of the signed text have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The host in lower case and ASCII, IPv6 in brackets, with a port that is not the scheme's
    /// own.
    pub host: String,
    /// The path as the WHATWG parser writes it, and the query with its `?` unless it is empty.
    pub path: String,
}

/// Takes the signed parts out of an absolute `http`, `https`, `ws` or `wss` URL, by the WHATWG
/// rules. The scheme and the fragment are not signed.
///
/// ```
/// use triwire_std::signed::url;
///
/// let parts = url::parts("https://Shop.Example:443/a/../tools?q=%2f#top")?;
/// assert_eq!((&*parts.host, &*parts.path), ("shop.example", "/tools?q=%2f"));
/// assert_eq!(url::parts("https://[::1]:8443")?.host, "[::1]:8443");
/// assert_eq!(url::parts("https://me@shop.example/"), Err(url::UrlError::UserInfo));
/// # Ok::<(), url::UrlError>(())
/// ```
///
/// # Errors
/// The URL is not absolute, of another scheme, or has user info.
pub fn parts(url: &str) -> Result<Parts, UrlError> {
    let url = Url::parse(url).map_err(|_| UrlError::NotAbsolute)?;
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
        return Err(UrlError::NotAbsolute);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::UserInfo);
    }
    let name = url.host_str().ok_or(UrlError::NotAbsolute)?;
    let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
    let path = match url.query() {
        None | Some("") => url.path().to_owned(),
        Some(query) => format!("{}?{query}", url.path()),
    };
    Ok(Parts { host, path })
}

/// Writes a URL as the WHATWG parser does, where nobody can listen in: of `https` or `wss`, or of
/// this machine by its name `localhost`.
///
/// # Errors
/// As [`parts`]; [`UrlError::Plain`].
// rule: SIGN-54
#[cfg(feature = "client")]
pub(crate) fn private(text: &str) -> Result<String, UrlError> {
    parts(text)?;
    let url = Url::parse(text).map_err(|_| UrlError::NotAbsolute)?;
    match (url.scheme(), url.host_str()) {
        ("https" | "wss", _) if cfg!(not(feature = "tls")) => Err(UrlError::NoTls),
        ("https" | "wss", _) | (_, Some("localhost")) => Ok(url.into()),
        _ => Err(UrlError::Plain),
    }
}

/// Writes a site's origin as the WHATWG parser does.
#[cfg(feature = "server")]
pub(super) fn origin(text: &str) -> Result<String, UrlError> {
    let Parts { host, path } = parts(text)?;
    match text.trim().split_once(':') {
        Some((scheme, _)) if path == "/" && !text.contains(['?', '#']) => {
            Ok(format!("{}://{host}", scheme.to_ascii_lowercase()))
        }
        _ => Err(UrlError::NotOrigin),
    }
}

/// Why a URL cannot be signed: the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UrlError {
    /// It is not an absolute http or https URL.
    NotAbsolute,
    /// It has a user name or a password.
    UserInfo,
    /// It is more than an origin, where one is wanted.
    NotOrigin,
    /// It is plain `http` or `ws` to another machine than `localhost`.
    Plain,
    /// It is of TLS, which is not built in: that needs the feature `tls`.
    NoTls,
}

impl UrlError {
    /// Returns the stable word for the error, the same in every version.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAbsolute => "not_absolute",
            Self::UserInfo => "user_info",
            Self::NotOrigin => "not_origin",
            Self::Plain => "plain",
            Self::NoTls => "no_tls",
        }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => {
                "expected an absolute URL with a host, such as https://shop.example/tools"
            }
            Self::UserInfo => "the URL has user info, which is not signed; leave it out",
            Self::NotOrigin => "expected an origin, such as https://shop.example, and no path",
            Self::Plain => {
                "expected https: signed requests go over plain http only to localhost; nothing was \
                 sent"
            }
            Self::NoTls => "this build has no TLS; build triwire-std with the feature tls",
        })
    }
}

impl std::error::Error for UrlError {}
