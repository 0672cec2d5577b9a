//! The page: one document of three files, and the policy that lets it run these and nothing else.

use base64ct::{Base64, Encoding as _};
use sha2::{Digest as _, Sha256};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A document and its `Content-Security-Policy`.
pub(super) struct Page {
    pub(super) html: String,
    pub(super) policy: String,
}

impl Page {
    pub(super) fn new() -> Self {
        let html = HTML.replace("/* style */", STYLE).replace("/* script */", SCRIPT);
        let hash = |text: &str| Base64::encode_string(&Sha256::digest(text.as_bytes()));
        // rule: CHAN-92
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            hash(SCRIPT),
            hash(STYLE)
        );
        Self { html, policy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: CHAN-92
    #[test]
    fn nothing_comes_from_elsewhere_and_nothing_is_markup() {
        let Page { html, policy } = Page::new();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"));
        for word in ["http://", "https://", "src=", "href=", "innerHTML", "style=", "onclick="] {
            assert!(!html.contains(word), "{word}");
        }
        assert_eq!((html.matches("<script>").count(), html.matches("</script>").count()), (1, 1));
        assert_eq!((html.matches("<style>").count(), html.matches("</style>").count()), (1, 1));
    }
}
