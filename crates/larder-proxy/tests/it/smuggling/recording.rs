//! An origin that records every octet it receives, and parses it as strictly as possible.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// A request, complete.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// A listening origin that answers every request with 200.
pub(crate) struct Recording {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<Result<Recorded, String>>>>,
    stopped: Arc<AtomicBool>,
}

impl Recording {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::<Mutex<Vec<_>>>::default();
        let stopped = Arc::<AtomicBool>::default();
        let keeping = Arc::clone(&got);
        let ending = Arc::clone(&stopped);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    return;
                }
                let got = Arc::clone(&keeping);
                std::thread::spawn(move || serve(socket.unwrap(), &got));
            }
        });
        Self { address, got, stopped }
    }

    /// Returns what was received since the last call. Anything but a plain request is an error.
    pub(crate) fn take(&self) -> Vec<Result<Recorded, String>> {
        std::mem::take(&mut *self.got.lock().unwrap())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(mut socket: TcpStream, got: &Mutex<Vec<Result<Recorded, String>>>) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    loop {
        match read(&mut reader) {
            // A truncated request was not made.
            Ok(None) => return,
            Ok(Some(recorded)) => {
                let body = if recorded.method == "HEAD" { "" } else { "ok" };
                got.lock().unwrap().push(Ok(recorded));
                let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\n";
                if socket.write_all(format!("{head}{body}").as_bytes()).is_err() {
                    return;
                }
            }
            Err(why) => {
                got.lock().unwrap().push(Err(why));
                return;
            }
        }
    }
}

type Reader = BufReader<TcpStream>;

/// Reads the next request. Returns `None` if the connection ends before it is complete.
fn read(reader: &mut Reader) -> Result<Option<Recorded>, String> {
    let Some(first) = read_line(reader)? else { return Ok(None) };
    let first = String::from_utf8(first).map_err(|_| "a request line that is no text")?;
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { return Err(format!("a request line: {first:?}")) };
    let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
    loop {
        let Some(line) = read_line(reader)? else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|octet| *octet == b':').ok_or("a field without colon")?;
        let name = std::str::from_utf8(&line[..colon]).map_err(|_| "a name that is no text")?;
        let is_token = !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'"');
        let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
        if !is_token || value.iter().any(|octet| *octet < b' ' && *octet != b'\t') {
            return Err(format!("a field: {:?}", String::from_utf8_lossy(&line)));
        }
        fields.push((name.to_ascii_lowercase(), value.to_vec()));
    }
    let of = |name: &str| -> Vec<&[u8]> {
        fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &value[..]).collect()
    };
    if of("host").len() != 1 {
        return Err(format!("{} hosts", of("host").len()));
    }
    let body = match (&of("content-length")[..], &of("transfer-encoding")[..]) {
        ([], []) => Some(Vec::new()),
        ([length], []) => {
            let length = std::str::from_utf8(length).ok().and_then(|length| length.parse::<u64>().ok());
            let length = length.ok_or("a length that is no number")?;
            let mut body = Vec::new();
            let read = reader.take(length).read_to_end(&mut body);
            read.ok().filter(|count| *count as u64 == length).map(|_| body)
        }
        ([], [b"chunked"]) => read_chunks(reader)?,
        _ => return Err(format!("two framings: {fields:?}")),
    };
    Ok(body.map(|body| Recorded { method: method.to_owned(), target: target.to_owned(), fields, body }))
}

fn read_chunks(reader: &mut Reader) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some(line) = read_line(reader)? else { return Ok(None) };
        let size = std::str::from_utf8(&line).ok().filter(|line| line.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).ok_or("a chunk's size")?;
        let start = body.len();
        body.resize(start + size, 0);
        if size > 0 && reader.read_exact(&mut body[start..]).is_err() {
            return Ok(None);
        }
        match read_line(reader)? {
            None => return Ok(None),
            Some(line) if !line.is_empty() => {
                return Err(format!("behind a chunk: {:?}", String::from_utf8_lossy(&line)));
            }
            Some(_) if size == 0 => return Ok(Some(body)),
            Some(_) => {}
        }
    }
}

/// Reads a line that ends in CR and LF, and returns it without them, or `None` at the end of the connection.
fn read_line(reader: &mut Reader) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    match reader.read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => {}
        _ => return Ok(None),
    }
    match line.strip_suffix(b"\r\n") {
        Some(plain) if !plain.contains(&b'\r') => Ok(Some(plain.to_vec())),
        _ => Err(format!("a line: {:?}", String::from_utf8_lossy(&line))),
    }
}
