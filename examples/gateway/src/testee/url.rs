//! The parts of a URL that are signed.

use url::Url;

/// Host and path, as lines of the signed text have them.
pub(super) struct Parts {
    pub(super) host: String,
    pub(super) path: String,
}

pub(super) fn parts(url: &str) -> Result<Parts, &'static str> {
    let url = Url::parse(url).map_err(|_| "not_absolute")?;
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
        return Err("not_absolute");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("user_info");
    }
    let name = url.host_str().ok_or("not_absolute")?;
    let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
    let path = match url.query() {
        None | Some("") => url.path().to_owned(),
        Some(query) => format!("{}?{query}", url.path()),
    };
    Ok(Parts { host, path })
}
