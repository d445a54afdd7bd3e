//! URLs without their secrets.

/// Return a URL for messages and logs, without what may be a secret: the query, where hubs take tokens, and all but the
/// scheme where a user's name and password may stand in it.
pub fn redacted_url(url: &str) -> String {
    if url.contains('@') {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| !scheme.contains('@'));
        return scheme.map_or_else(|| "…".to_owned(), |scheme| format!("{scheme}://…"));
    }
    url.find(['?', '#']).map_or_else(|| url.to_owned(), |end| format!("{}?…", &url[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted() {
        for (url, expected) in [
            ("ws://localhost:8000/hub", "ws://localhost:8000/hub"),
            ("localhost", "localhost"),
            ("ws://localhost/?token=secret", "ws://localhost/?…"),
            ("ws://localhost#secret", "ws://localhost?…"),
            ("wss://user:secret@localhost/hub", "wss://…"),
            ("wss://user:sec?ret@localhost", "wss://…"),
            ("wss://user:sec/ret@localhost", "wss://…"),
            ("ws://localhost/?token=sec@ret", "ws://…"),
            ("user:secret@ws://localhost", "…"),
            ("user:secret@localhost", "…"),
        ] {
            assert_eq!(redacted_url(url), expected);
        }
    }
}
