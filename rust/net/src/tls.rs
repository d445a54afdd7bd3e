//! TLS for clients: the platform's roots, and a file of others on request.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use tokio_rustls::TlsConnector;

/// A connector that trusts the platform's certificate authorities, and those in a PEM file. Reads files.
pub fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = ca_file.map_or_else(|| Ok(Vec::new()), certificates)?;
    let failure = |error: rustls::Error| format!("TLS cannot be set up: {error}");
    let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider)).map_err(failure)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failure)?
        .dangerous() // The name of every verifier but rustls's own.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// Why a connection could not be secured, for people.
pub fn explain(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => format!(
            "its certificate is not trusted ({wrong}); a file with the certificate authority that signed it can be given"
        ),
        _ => format!("TLS: {error}"),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failure = |error| format!("the file of certificate authorities {} cannot be read: {error}", path.display());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(failure)?.collect::<Result<_, _>>().map_err(failure)?;
    if found.is_empty() {
        return Err(format!("the file of certificate authorities {} holds no certificate in PEM", path.display()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_named() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = connector(Some(&here.join("Cargo.toml"))).err().unwrap();
        assert!(error.contains("Cargo.toml") && error.contains("no certificate"), "{error}");
        let error = connector(Some(&here.join("missing.pem"))).err().unwrap();
        assert!(error.contains("missing.pem"), "{error}");
    }
}
