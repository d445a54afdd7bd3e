//! TLS for clients: the platform's roots, and a file of others on request.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{CertificateError, ClientConfig};
use rustls_platform_verifier::Verifier;
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// Names of a certificate that are shown.
const MOST_NAMES: usize = 5;

/// Why there is no TLS: a clause.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The platform's certificate authorities cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Refused(#[from] rustls::Error),
    /// A file cannot be read.
    #[error("the file of certificate authorities {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What reading it failed with.
        source: pem::Error,
    },
    /// A file has nothing to trust.
    #[error("the file of certificate authorities {} holds no certificate in PEM", .0.display())]
    Empty(PathBuf),
}

/// Return a connector that trusts the platform's certificate authorities, and those in a PEM file. Reads files.
pub fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, SetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = ca_file.map_or_else(|| Ok(Vec::new()), certificates)?;
    let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // The name of every verifier but rustls's own.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// Return why a connection could not be secured: a clause about the hub.
pub fn explain(error: &io::Error, ca_file: Option<&Path>) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => {
            format!("is not trusted: its certificate {}", doubt(wrong, ca_file))
        }
        Some(rustls::Error::InvalidMessage(_)) => "speaks no TLS; a hub without it is reached by ws://".to_owned(),
        Some(rustls::Error::AlertReceived(alert)) => format!("does not agree on TLS: it answered with {alert:?}"),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            "closed the connection before TLS was agreed on; a hub without it is reached by ws://".to_owned()
        }
        _ => format!("cannot be reached: TLS failed: {error}"),
    }
}

/// Return what is wrong with a certificate, and what to do.
fn doubt(wrong: &CertificateError, ca_file: Option<&Path>) -> String {
    match wrong {
        // The last one: an authority by the issuer's name is trusted, but has a key of another kind.
        CertificateError::UnknownIssuer
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => match ca_file {
            Some(path) => format!("was signed by no authority in {}, nor by one that this machine trusts", path.display()),
            None => "was signed by an authority that this machine does not trust; a file with that authority's certificate can \
                be given (ca_file)"
                .to_owned(),
        },
        CertificateError::NotValidForNameContext { expected, presented } => {
            // A stranger may have written any number of them.
            // As `DnsName("localhost")` and `IpAddress(127.0.0.1)`.
            let marks = ['"', '(', ')'];
            let name = |name: &'_ String| name.split(marks).filter(|part| !part.is_empty()).nth(1).unwrap_or(name).to_owned();
            let names = presented.iter().take(MOST_NAMES).map(name).collect::<Vec<_>>().join(", ");
            let more = if presented.len() > MOST_NAMES { ", and others" } else { "" };
            format!("is not for {}, but for {names}{more}", expected.to_str())
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; is this machine's clock right?".to_owned()
        }
        // Of webpki, behind a type of the verifier's. An authority's certificate stands for no server, also if it is
        // trusted.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is an authority's (CA:TRUE), which no server may show; make one for the server, with CA:FALSE, and give that to the \
             clients (docs/hub.md, \"TLS\")"
                .to_owned()
        }
        other => format!("cannot be accepted: {other}"),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let failure = |source| SetupError::Unreadable { path: path.to_owned(), source };
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(failure)?.collect::<Result<_, _>>().map_err(failure)?;
    if found.is_empty() { Err(SetupError::Empty(path.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let told = |error: rustls::Error, ca_file| explain(&io::Error::new(io::ErrorKind::InvalidData, error), ca_file);
        let unknown = || CertificateError::UnknownIssuer.into();
        assert!(told(unknown(), None).contains("(ca_file)"));
        let expected = rustls::pki_types::ServerName::try_from("a").unwrap();
        let presented =
            (0..6).map(|number| format!("DnsName(\"b{number}\")")).chain(["IpAddress(::1)".to_owned()]).rev().collect();
        let other = CertificateError::NotValidForNameContext { expected, presented };
        assert!(told(other.into(), None).ends_with("is not for a, but for ::1, b5, b4, b3, b2, and others"));
        let another_key = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![6],
            public_key_algorithm_id: vec![6],
        };
        assert_eq!(told(another_key.into(), None), told(unknown(), None));
        assert!(told(unknown(), Some(Path::new("a.pem"))).contains("by no authority in a.pem, nor by"));
        assert_eq!(told(CertificateError::Expired.into(), None), "is not trusted: its certificate has expired");
        let content = rustls::InvalidMessage::InvalidContentType;
        assert_eq!(told(content.into(), None), "speaks no TLS; a hub without it is reached by ws://");
        let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(explain(&gone, None).starts_with("closed the connection before TLS"));
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = connector(Some(&here.join("Cargo.toml"))).err().unwrap().to_string();
        assert!(error.contains("Cargo.toml") && error.contains("no certificate"), "{error}");
        let error = connector(Some(&here.join("missing.pem"))).err().unwrap().to_string();
        assert!(error.contains("missing.pem"), "{error}");
    }
}
