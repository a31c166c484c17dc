//! Certificates of authorities of the test's own, and servers that show them.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redlock_kit::RedisServers;
use tempfile::TempDir;

/// A certificate authority.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        // OpenSSL finds a CA by its name.
        let name = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a host name or an IP address.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Issued {
    /// Writes the certificate, its key, and what its owner trusts, into files of this folder. Returns their paths.
    pub(crate) fn write(&self, folder: &TempDir, trusted: &str) -> [String; 3] {
        [
            ("cert.pem", &*self.certificate),
            ("key.pem", &*self.key),
            ("ca.pem", trusted),
        ]
        .map(|(file, text)| {
            let path = folder.path().join(file);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        })
    }
}

/// A server that speaks nothing but TLS.
pub(crate) struct TlsServer {
    pub(crate) servers: RedisServers,
    _folder: TempDir,
}

impl TlsServer {
    /// Starts a server with a certificate for `name`. It asks clients for a certificate of `clients`, if there
    /// is one.
    pub(crate) fn spawn(ca: &Ca, name: &str, clients: Option<&Ca>) -> Self {
        let folder = TempDir::new().unwrap();
        let trusted = clients.map(Ca::pem).unwrap_or_default();
        let [certificate, key, trusted] = ca.issue(name).write(&folder, &trusted);
        let mut arguments = vec!["--port", "0", "--tls-port", "{port}"];
        arguments.extend(["--tls-cert-file", &certificate, "--tls-key-file", &key]);
        match clients {
            Some(_) => arguments.extend(["--tls-ca-cert-file", &trusted]),
            None => arguments.extend(["--tls-auth-clients", "no"]),
        }
        Self {
            servers: RedisServers::spawn_with(1, &arguments).unwrap(),
            _folder: folder,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.servers.get(0).port())
    }
}
