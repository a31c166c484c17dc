use std::{fmt, net::SocketAddr, sync::Arc};

use deadpool_redis::redis::{
    AsyncConnectionConfig, ConnectionAddr, RedisFuture, io::AsyncDNSResolver,
};
use futures::FutureExt;
use tokio::net::lookup_host;

use super::url::UrlError;

/// How TLS connections check the server, and show who they are. Needs the feature `tls-rustls`.
///
/// Without options, the server's certificate must be for the host of the URL, and signed by a root
/// certificate of the system. The client shows no certificate.
///
/// ```
/// # use redlock_tokio::{Redlock, TlsOptions};
/// # fn read(_: &str) -> Result<&'static str, std::io::Error> { Ok("") }
/// # fn nodes() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = TlsOptions::new()
///     .ca_certificates(read("ca.pem")?)
///     .client_certificate(read("client.pem")?, read("client.key")?);
/// let builder = Redlock::builder().nodes("rediss://a,rediss://b,rediss://c").tls(tls);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "options do nothing until they are given to a builder"]
pub struct TlsOptions {
    ca_certificates: Option<Arc<[u8]>>,
    client_certificate: Option<ClientCertificate>,
    server_name: Option<Arc<str>>,
    is_insecure: bool,
}

/// A certificate chain and its private key, as PEM.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "tls-rustls"),
    expect(dead_code, reason = "nothing reads a certificate without TLS")
)]
struct ClientCertificate {
    chain: Arc<[u8]>,
    key: Arc<[u8]>,
}

impl TlsOptions {
    /// Creates options that check the server against the root certificates of the system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the certificates of the CAs that may sign the server's certificate, as PEM, one or several. They replace
    /// the root certificates of the system.
    pub fn ca_certificates(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca_certificates = Some(pem.as_ref().into());
        self
    }

    /// Sets the certificate that the client shows to the server (mutual TLS), and its private key, both as PEM. The
    /// client's own certificate comes first, and then those of the CAs between it and the root.
    pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.client_certificate = Some(ClientCertificate {
            chain: chain.as_ref().into(),
            key: key.as_ref().into(),
        });
        self
    }

    /// Sets the name that the server's certificate must have, and that the client asks for (SNI), if that is not the
    /// host of the URL: behind a tunnel, or where the URL has an IP address.
    pub fn server_name(mut self, name: impl AsRef<str>) -> Self {
        self.server_name = Some(name.as_ref().into());
        self
    }

    /// Accepts every certificate, for every name, from everyone. *For tests only*.
    ///
    /// Anyone on the network can then pose as the server, read the password, and grant one lock to several clients. Each
    /// URL logs a warning when the client is built. The client asks for no server name (SNI), and ignores
    /// [`ca_certificates`](Self::ca_certificates) and [`server_name`](Self::server_name).
    pub fn insecure(mut self) -> Self {
        self.is_insecure = true;
        self
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca_certificates", &self.ca_certificates.is_some())
            .field("client_certificate", &self.client_certificate.is_some())
            .field("server_name", &self.server_name)
            .field("insecure", &self.is_insecure)
            .finish()
    }
}

/// TLS options that were checked.
#[derive(Clone)]
pub(super) struct Tls {
    /// An address with the certificates. The redis crate has no public name for their type.
    template: ConnectionAddr,
    server_name: Option<Arc<str>>,
    is_insecure: bool,
}

impl Tls {
    /// Checks options. Warns of those that accept every server.
    #[cfg(feature = "tls-rustls")]
    pub(super) fn new(options: &TlsOptions) -> Result<Self, UrlError> {
        install_crypto_provider();
        if let Some(name) = &options.server_name
            && rustls::pki_types::ServerName::try_from(&**name).is_err()
        {
            return Err(UrlError::of_options(format!(
                "`{name}` is not a server name: expected a host name or an IP address"
            )));
        }
        let template = certificates::template(options)?;
        if options.is_insecure {
            crate::log::warn!(
                "TLS is insecure: no server's certificate is checked, so anyone on the network can pose as the server"
            );
        }
        Ok(Self {
            template,
            server_name: options.server_name.clone(),
            is_insecure: options.is_insecure,
        })
    }

    #[cfg(not(feature = "tls-rustls"))]
    pub(super) fn new(_: &TlsOptions) -> Result<Self, UrlError> {
        let text = "TLS needs the feature `tls-rustls` of redlock-tokio";
        Err(UrlError::of_options(text))
    }

    /// Returns the address of a server. The redis crate checks the certificate against the host of the address, so
    /// this is the name of the server. [`Self::reach`] then finds the server.
    pub(super) fn addr(&self, host: &str, port: u16) -> ConnectionAddr {
        let host = match &self.server_name {
            Some(name) if !self.is_insecure => name,
            _ => host,
        };
        let tls_params = match &self.template {
            ConnectionAddr::TcpTls { tls_params, .. } => tls_params.clone(),
            _ => None,
        };
        ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: self.is_insecure,
            tls_params,
        }
    }

    /// Makes connections to [`Self::addr`] go to this host.
    pub(super) fn reach(
        &self,
        host: &Arc<str>,
        config: AsyncConnectionConfig,
    ) -> AsyncConnectionConfig {
        match self.server_name {
            Some(_) => config.set_dns_resolver(OneHost(Arc::clone(host))),
            None => config,
        }
    }
}

/// Finds the addresses of one host, whichever host it is asked for.
struct OneHost(Arc<str>);

impl AsyncDNSResolver for OneHost {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        async move {
            let found = lookup_host((&*self.0, port)).await?;
            let found: Vec<_> = found.collect();
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = _> + Send>)
        }
        .boxed()
    }
}

/// Chooses the cryptography of rustls for the process, if the application has chosen none. Rustls would
/// panic at the first connection without a choice, or if features of several crates disagree.
#[cfg(feature = "tls-rustls")]
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has chosen meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(feature = "tls-rustls")]
mod certificates {
    use std::error::Error;

    use deadpool_redis::redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };

    use super::{ClientCertificate, TlsOptions, UrlError};

    type Checked<T> = Result<T, Box<dyn Error>>;

    /// Returns an address with the certificates. The redis crate parses them, but accepts a text without a certificate,
    /// and a key that belongs to another certificate.
    pub(super) fn template(options: &TlsOptions) -> Result<ConnectionAddr, UrlError> {
        let (ca, client) = (&options.ca_certificates, &options.client_certificate);
        let defect = |of| move |error| UrlError::of_options(format!("{of}: {error}"));
        let chain_of_ca = ca.as_ref().map(|pem| chain(pem)).transpose();
        chain_of_ca.map_err(defect("CA certificates"))?;
        let pair = client.as_ref().map(check_pair).transpose();
        pair.map_err(defect("client certificate"))?;
        let certificates = TlsCertificates {
            client_tls: client.as_ref().map(|it| ClientTlsConfig {
                client_cert: it.chain.to_vec(),
                client_key: it.key.to_vec(),
            }),
            root_cert: ca.as_ref().map(|pem| pem.to_vec()),
        };
        let client = Client::build_with_tls("rediss://localhost", certificates);
        let client = client.map_err(|error| UrlError::of_options(error.to_string()))?;
        Ok(client.get_connection_info().addr().clone())
    }

    fn check_pair(certificate: &ClientCertificate) -> Checked<()> {
        let chain = chain(&certificate.chain)?;
        let key = PrivateKeyDer::from_pem_slice(&certificate.key);
        let key = key.map_err(|_| "the key is not a private key in PEM")?;
        let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        builder.with_client_auth_cert(chain, key)?;
        Ok(())
    }

    fn chain(pem: &[u8]) -> Checked<Vec<CertificateDer<'static>>> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
        if certificates.is_empty() {
            return Err("there is no certificate in PEM".into());
        }
        Ok(certificates)
    }
}
