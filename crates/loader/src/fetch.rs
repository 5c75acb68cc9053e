//! Artefacts fetched by HTTP: within a time and a length, whatever the server does.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use semver::Version;
use tokio::net::TcpStream;

use crate::artefact::ARTEFACT_BYTES_MAX;
use crate::index::{INDEX, INDEX_BYTES_MAX, Index};

/// How long a file may take, usually.
pub const WITHIN: Duration = Duration::from_secs(30);
/// The longest URL, bytes.
const URL_BYTES_MAX: usize = 2_048;

/// A code server: where its directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeServer {
    /// Host and port.
    host: String,
    /// The directory, which begins and ends with a slash.
    directory: String,
    within: Duration,
}

impl CodeServer {
    /// The server at `http://HOST[:PORT][/DIRECTORY]`, each of whose files may take so long.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn at(url: &str, within: Duration) -> Result<CodeServer> {
        let rest = url.strip_prefix("http://").filter(|_| url.len() <= URL_BYTES_MAX);
        let rest = rest.with_context(|| {
            format!("`{url}` is not a code server of the form http://HOST:PORT (authenticity comes from signatures, not TLS)")
        })?;
        let (host, directory) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\".contains(&byte);
        ensure!(
            !host.is_empty() && rest.bytes().all(is_plain),
            "`{url}` is not a URL of a directory"
        );
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        let directory = directory.trim_end_matches('/');
        let directory =
            if directory.is_empty() { "/".to_owned() } else { format!("/{directory}/") };
        Ok(CodeServer { host, directory, within })
    }

    /// What it has.
    ///
    /// # Errors
    /// When it does not say so in time.
    pub fn index(&self) -> Result<Index> {
        let text = self.get(INDEX, INDEX_BYTES_MAX as usize)?;
        Index::read(&text).with_context(|| format!("{self}{INDEX}"))
    }

    /// The artefact of a plugin, as it comes: nothing of it is to be trusted yet.
    ///
    /// # Errors
    /// When it is not there or does not come whole in time.
    pub fn artefact(&self, name: &str, version: Option<&Version>) -> Result<Vec<u8>> {
        let index = self.index()?;
        let entry = index.find(name, version)?;
        let bytes = self.get(&entry.file, ARTEFACT_BYTES_MAX)?;
        let (found, listed) = (bytes.len() as u64, entry.bytes);
        ensure!(
            found == listed,
            "{self}{}: {found} bytes came, and the index says {listed}",
            entry.file
        );
        Ok(bytes)
    }

    /// A file of its directory.
    fn get(&self, file: &str, bytes_max: usize) -> Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a client")?;
        let within = self.within;
        let got = runtime.block_on(async {
            let get = self.transfer(file, bytes_max);
            let late = |_| anyhow!("it did not come within {} s", within.as_secs_f64());
            tokio::time::timeout(within, get).await.map_err(late)?
        });
        got.with_context(|| format!("{self}{file}"))
    }

    async fn transfer(&self, file: &str, bytes_max: usize) -> Result<Vec<u8>> {
        let stream = TcpStream::connect(&self.host).await.context("no code server answers")?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.context("the server does not speak HTTP")?;
        tokio::spawn(connection);
        let request = Request::get(format!("{}{file}", self.directory));
        let request = request.header(header::HOST, &self.host).body(Empty::<Bytes>::new())?;
        let mut response =
            sender.send_request(request).await.context("the server did not answer")?;
        match response.status() {
            StatusCode::OK => {}
            status => bail!("the server answers {status}"),
        }
        let mut bytes = Vec::new();
        while let Some(frame) = response.frame().await {
            let frame = frame.context("the answer breaks off")?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            ensure!(bytes.len() <= bytes_max, "more than {bytes_max} bytes come");
        }
        Ok(bytes)
    }
}

impl std::fmt::Display for CodeServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.host, self.directory)
    }
}
