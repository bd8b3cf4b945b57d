//! Addresses for clients.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{RedisServer, builder::User};

impl RedisServer {
    /// The address for connections without TLS.
    ///
    /// Like the others it carries the client's credentials: the name and the password of the
    /// [`user`](super::Builder::user) if there is one, or else the [`password`](super::Builder::password).
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with_port(self.port())
    }

    /// The same for another port, which leads to this server.
    #[must_use]
    pub fn url_with_port(&self, port: u16) -> String {
        format!("redis://{}127.0.0.1:{port}/", self.userinfo())
    }

    /// The address for connections with TLS, if [`Builder::tls`](super::Builder::tls) asked for them.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        Some(format!("rediss://{}127.0.0.1:{}/", self.userinfo(), self.tls_port()?))
    }

    /// The address of the Unix socket, if [`Builder::unix_socket`](super::Builder::unix_socket) asked for
    /// one.
    #[must_use]
    pub fn unix_url(&self) -> Option<String> {
        let path = self.socket()?;
        let query = match self.credentials() {
            (None, None) => String::new(),
            (None, Some(password)) => format!("?pass={}", encoded(password)),
            (Some(name), password) => {
                format!("?user={}&pass={}", encoded(name), encoded(password.unwrap_or_default()))
            }
        };
        Some(format!("redis+unix://{}{query}", path.display()))
    }

    fn userinfo(&self) -> String {
        match self.credentials() {
            (None, None) => String::new(),
            (name, password) => {
                format!("{}:{}@", encoded(name.unwrap_or_default()), encoded(password.unwrap_or_default()))
            }
        }
    }

    /// Name and password of the user that the URLs are for.
    fn credentials(&self) -> (Option<&str>, Option<&str>) {
        match self.options.client_user() {
            Some(User { name, password }) => (Some(name), Some(password)),
            None => (None, self.options.default_password()),
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
