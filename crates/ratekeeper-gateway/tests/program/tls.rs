//! Upstreams that speak https.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

use crate::support::gateway::{Files, Gateway, OPEN};
use crate::support::upstream::HELLO;

/// An https server on this machine, and the certificate of its issuer.
async fn start() -> (String, String) {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);

    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust the certificate disconnects.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = [0; 4096];
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    stream.write_all(HELLO.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (format!("https://localhost:{port}"), pem)
}

#[tokio::test]
async fn an_upstream_is_believed_whom_somebody_vouches_for() {
    let (url, pem) = start().await;
    let files = Files::new();
    let authority = files.write("ca.pem", &pem);
    let gateway = Gateway::start(OPEN, &url, &["--upstream-ca", authority.to_str().unwrap()]);
    assert_eq!(gateway.get("/").await.1, "hello\n");
}

#[tokio::test]
async fn another_is_not() {
    let (url, _) = start().await;
    let (_, stranger) = start().await;
    let files = Files::new();
    let authority = files.write("ca.pem", &stranger);
    let gateway = Gateway::start(OPEN, &url, &["--upstream-ca", authority.to_str().unwrap()]);
    assert_eq!(gateway.get("/").await.0.status(), 502);
    gateway.logs("invalid peer certificate").await;
}
