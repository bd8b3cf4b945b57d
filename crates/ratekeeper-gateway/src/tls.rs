//! Verification of an https upstream's certificate.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The trusted root certificates: from this file, otherwise from the system.
///
/// # Errors
///
/// When there are none.
pub(crate) fn roots(file: Option<&Path>) -> Result<RootCertStore, Box<dyn Error>> {
    match file {
        Some(file) => from_file(file).map_err(|error| {
            format!("the certificates in {} cannot be used: {error}", file.display()).into()
        }),
        None => from_system(),
    }
}

/// For an upstream without a certificate.
pub(crate) fn no_roots() -> RootCertStore {
    RootCertStore::empty()
}

pub(crate) fn config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn from_file(file: &Path) -> Result<RootCertStore, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        roots.add(certificate?)?;
    }
    if roots.is_empty() { Err("there is none in it".into()) } else { Ok(roots) }
}

fn from_system() -> Result<RootCertStore, Box<dyn Error>> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems have unreadable certificates. The others will do.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(
            "this system has no certificates to check the upstream's by; name some with --upstream-ca".into(),
        );
    }
    Ok(roots)
}
