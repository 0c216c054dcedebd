//! Objects whose bytes follow from their numbers: an origin that serves them, and a client that requests them.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

pub(crate) const OBJECT_COUNT: u64 = 200;

/// The bytes of all objects.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..OBJECT_COUNT).map(new_content).collect());

/// Returns the bytes of an object.
pub(crate) fn content(object: u64) -> &'static [u8] {
    &CONTENTS[object as usize]
}

/// Creates the bytes of an object: most are short, one in twenty has up to 3 MiB.
fn new_content(object: u64) -> Vec<u8> {
    let len = if object % 20 == 7 { (object * 16_001) % (3 << 20) + 40_000 } else { (object * 131) % 20_000 };
    let mut state = object.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = (0..=len / 8).flat_map(|_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        state.to_le_bytes()
    });
    words.take(len as usize + 1).collect()
}

/// Starts an origin. Returns its address and the number of its requests.
pub(crate) async fn origin(listen: &str) -> io::Result<(SocketAddr, Arc<AtomicU64>)> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            // A connection that fails is the proxy's to notice.
            tokio::spawn(async move { _ = answer(stream, &counted).await });
        }
    });
    Ok((address, count))
}

async fn answer(stream: TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        count.fetch_add(1, Relaxed);
        let object =
            head.split(' ').nth(1).and_then(|path| path[1..].parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let body = content(object);
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
    }
}

/// Chooses an object at random. The lower numbers are chosen more often.
pub(crate) fn choose(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    (*random >> 33) % OBJECT_COUNT * ((*random >> 17) % OBJECT_COUNT) / OBJECT_COUNT
}

/// Sends a GET with further fields. Returns the status, the result of the proxy's cache, and the body.
///
/// # Errors
/// The connection ended before the response was complete.
pub(crate) async fn get(proxy: SocketAddr, object: u64, fields: &str) -> io::Result<(u16, String, Vec<u8>)> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await?);
    let request = format!("GET /{object} HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = String::new();
    let mut body = Vec::new();
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await? > 0 {}
    stream.read_to_end(&mut body).await?;
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    if !head.ends_with("\r\n\r\n") || field("content-length").is_none_or(|len| len != body.len().to_string()) {
        return Err(io::Error::other("the response is not complete"));
    }
    Ok((status, field("x-cache").unwrap_or_default(), body))
}
