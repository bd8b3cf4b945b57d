//! Certificates for a server and its clients, made when the server is started.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::{Result, scratch::Scratch};

/// An authority that no client knows, and what it has signed. All are in PEM format.
#[derive(Clone, Debug)]
pub struct Certificates {
    authority: String,
    client: String,
    client_key: String,
    authority_file: PathBuf,
    server_file: PathBuf,
    server_key_file: PathBuf,
}

impl Certificates {
    pub(super) fn new(scratch: &Scratch) -> Result<Self> {
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "Ratekeeper test authority");
        let key = KeyPair::generate()?;
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);

        let (server, server_key) = signed(&issuer, "server", ExtendedKeyUsagePurpose::ServerAuth)?;
        let (client, client_key) = signed(&issuer, "client", ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Self {
            authority_file: written(scratch, "authority.pem", &authority)?,
            server_file: written(scratch, "server.pem", &server)?,
            server_key_file: written(scratch, "server-key.pem", &server_key)?,
            authority,
            client,
            client_key,
        })
    }

    /// The authority's certificate, which a client has to trust.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The file with the [`authority`](Self::authority).
    #[must_use]
    pub fn authority_file(&self) -> &Path {
        &self.authority_file
    }

    /// A certificate for a client that is asked for one.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The key of the [`client`](Self::client).
    #[must_use]
    pub fn client_key(&self) -> &str {
        &self.client_key
    }

    pub(super) fn server_file(&self) -> &Path {
        &self.server_file
    }

    pub(super) fn server_key_file(&self) -> &Path {
        &self.server_key_file
    }
}

/// A certificate and its key.
fn signed(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String)> {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn written(scratch: &Scratch, name: &str, pem: &str) -> io::Result<PathBuf> {
    let path = scratch.file(name);
    fs::write(&path, pem)?;
    Ok(path)
}
