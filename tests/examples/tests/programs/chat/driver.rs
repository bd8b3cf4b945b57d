//! Chromium, driven by its `chromedriver`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, WebDriver};

/// How long closing a browser may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `chromedriver` and the profile of its browser. Both are removed when this is dropped.
pub(crate) struct Driver {
    process: Child,
    address: SocketAddr,
    profile: PathBuf,
}

impl Driver {
    /// Starts the `chromedriver` that the environment variable `CHROMEDRIVER` names, by default the one on
    /// the `PATH`.
    pub(crate) fn start() -> Self {
        let path = std::env::var_os("CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into());
        let mut command = Command::new(&path);
        command.arg("--port=0").stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let port = line.strip_prefix("ChromeDriver was started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let port: u16 = port.expect("it says where it listens");
        let profile = format!("profile-{}", process.id());
        Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            profile: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(profile),
        }
    }

    /// Opens a window. It is closed when dropped, which has to be before the driver is.
    pub(crate) async fn open(&self) -> WebDriver {
        let mut capabilities = DesiredCapabilities::chrome();
        let profile = format!("--user-data-dir={}", self.profile.display());
        for argument in [
            &*profile,
            "--headless",
            // Tests in a container often run as root, for whom there is no sandbox.
            "--no-sandbox",
            // And containers often have little shared memory.
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--window-size=800,800",
            // Nothing but the page should be loaded.
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-quic",
            "--disable-sync",
            "--no-first-run",
        ] {
            capabilities.add_arg(argument).unwrap();
        }
        WebDriver::new(format!("http://{}", self.address), capabilities).await.unwrap()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A browser outlives a killed driver, so the driver is asked to close what a test left open. It
        // answers when it has.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.write_all(b"GET /shutdown HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let _ = stream.read(&mut [0]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
