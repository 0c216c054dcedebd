//! A connection to a program that keeps streams: lines and blocks of bytes.
//!
//! Owns: the limits of their lengths. Invariant: whatever the program sends, memory is bounded.

use std::io;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::stream::ENTRY_BYTES_MAX;
use crate::fleet::connecting::connect;

/// The connection.
pub(super) struct LineSocket(BufReader<TcpStream>);

impl LineSocket {
    pub(super) async fn connect(host: &str, port: u16) -> Result<Self, String> {
        Ok(Self(BufReader::new(connect(host, port).await.map_err(|error| error.to_string())?)))
    }

    pub(super) async fn send(&mut self, octets: &[u8]) -> Result<(), String> {
        self.0.write_all(octets).await.map_err(|error| error.to_string())
    }

    /// Waits until something can be read, or the connection is closed.
    pub(super) async fn until_readable(&mut self) -> Result<(), String> {
        self.0.fill_buf().await.map(drop).map_err(|error| error.to_string())
    }

    /// Reads a line without its end, CR LF.
    pub(super) async fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let limit = LINE_BYTES_MAX as u64;
        (&mut self.0).take(limit).read_until(b'\n', &mut line).await.map_err(|error| error.to_string())?;
        if line.len() == LINE_BYTES_MAX {
            return Err(format!("it sends a line of more than {LINE_BYTES_MAX} bytes"));
        }
        let text = line.strip_suffix(b"\r\n").ok_or_else(|| closed().to_string())?;
        String::from_utf8(text.to_vec()).map_err(|_| "it sends a line that is no text".to_owned())
    }

    /// Reads a block of `len` bytes, and the line end after it. A block that is too long is skipped and gives `None`,
    /// because an error would end each further attempt at the same block.
    pub(super) async fn block(&mut self, len: usize) -> Result<Option<Vec<u8>>, String> {
        if len > BLOCK_BYTES_MAX {
            return self.skip(len).await.map(|()| None);
        }
        let mut octets = vec![0; len + 2];
        self.0.read_exact(&mut octets).await.map_err(|error| error.to_string())?;
        if !octets.ends_with(b"\r\n") {
            return Err("it sends a block without an end".to_owned());
        }
        octets.truncate(len);
        Ok(Some(octets))
    }

    /// Skips a block of `len` bytes, and the line end after it.
    async fn skip(&mut self, len: usize) -> Result<(), String> {
        if len > SKIPPED_BYTES_MAX {
            return Err(format!("it sends {len} bytes at once, which is more than {SKIPPED_BYTES_MAX}"));
        }
        let mut left = len;
        while left > 0 {
            let arrived = self.0.fill_buf().await.map_err(|error| error.to_string())?.len().min(left);
            if arrived == 0 {
                return Err(closed().to_string());
            }
            self.0.consume(arrived);
            left -= arrived;
        }
        let mut end = [0; 2];
        self.0.read_exact(&mut end).await.map_err(|error| error.to_string())?;
        if end == *b"\r\n" { Ok(()) } else { Err("it sends a block without an end".to_owned()) }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")
}

const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest block. An entry has at most [`ENTRY_BYTES_MAX`], and NATS sends it in base64.
const BLOCK_BYTES_MAX: usize = 4 * ENTRY_BYTES_MAX;
/// Longest block that is skipped. Redis takes no longer one by default.
const SKIPPED_BYTES_MAX: usize = 512 << 20;
