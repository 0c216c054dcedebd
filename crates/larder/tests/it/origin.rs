//! A small origin. It answers every GET with its path as the body, repeated up to the length that `bytes=` at the
//! path's end gives. Responses are storable for an hour, and counted. Paths below `/vary/` vary by Accept-Language,
//! those below `/tagged/x/` have the tag `x`, those below `/bare/` state no lifetime, as on static servers, and those
//! below `/gone/` get a 404.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, RwLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// A running origin. Its threads end with the test's process.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    count: Arc<AtomicUsize>,
}

impl Origin {
    /// Answers at once.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Starts an origin that sends the head and the beginning of a response, and never the rest.
    pub(crate) fn start_halting() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let begin = |connection: std::io::Result<TcpStream>| {
                let mut connection = connection.unwrap();
                // A response before its request would be invalid.
                let lines = BufReader::new(connection.try_clone().unwrap()).lines();
                lines.map(Result::unwrap).take_while(|line| !line.is_empty()).for_each(drop);
                connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx").unwrap();
                connection
            };
            let kept: Vec<_> = listener.incoming().map(begin).collect();
            drop(kept);
        });
        Self { address, count: Arc::default() }
    }

    /// Starts an origin that reports each request to `asked` and never responds.
    pub(crate) fn start_silent(asked: mpsc::Sender<()>) -> Self {
        Self::start_with(move |_| {
            // The test may have ended before the last request arrives.
            let _ = asked.send(());
            loop {
                thread::park();
            }
        })
    }

    /// Starts an origin that reports each request to `asked`, and responds once no thread holds the write lock of
    /// `gate`.
    pub(crate) fn start_gated(asked: mpsc::Sender<()>, gate: Arc<RwLock<()>>) -> Self {
        Self::start_with(move |_| {
            let _ = asked.send(());
            drop(gate.read());
        })
    }

    fn start_with(before: impl Fn(&str) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let before = before.clone();
                let counted = Arc::clone(&counted);
                thread::spawn(move || serve(connection.unwrap(), &counted, &before));
            }
        });
        Self { address, count }
    }

    /// Requests so far.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// Returns the body of the response for a path.
pub(crate) fn body_of(path: &str) -> String {
    let wanted = path.rsplit_once("bytes=").and_then(|(_, digits)| digits.parse().ok()).unwrap_or(path.len());
    path.chars().cycle().take(wanted).collect()
}

fn serve(connection: TcpStream, count: &AtomicUsize, before: &impl Fn(&str)) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if reader.read_line(&mut request).unwrap_or(0) == 0 {
                return;
            }
        }
        count.fetch_add(1, Ordering::SeqCst);
        let path = request.split(' ').nth(1).unwrap();
        before(path);
        let body = body_of(path);
        let length = body.len();
        let vary = if path.starts_with("/vary/") { "Vary: Accept-Language\r\n" } else { "" };
        let tag = path.strip_prefix("/tagged/").and_then(|path| path.split('/').next());
        let tags = tag.map_or(String::new(), |tag| format!("Surrogate-Key: all {tag}\r\n"));
        let fresh = match (path.starts_with("/bare/"), path.ends_with('/')) {
            (false, _) => "Cache-Control: max-age=3600\r\n",
            (true, false) => "Content-Type: application/octet-stream\r\nETag: \"a\"\r\n",
            (true, true) => "Content-Type: text/html\r\nETag: \"a\"\r\n",
        };
        let status = if path.starts_with("/gone/") { "404 Not Found" } else { "200 OK" };
        let head = format!("HTTP/1.1 {status}\r\n{fresh}{vary}{tags}Content-Length: {length}\r\n\r\n");
        if writer.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}
