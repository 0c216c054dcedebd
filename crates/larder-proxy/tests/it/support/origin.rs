//! A scripted origin that records the requests it receives.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use super::{Gate, gate::PATIENCE};

/// A request as it arrived at the origin.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The steps of the origin's reply.
#[derive(Clone, Default)]
pub(crate) struct Reply(Vec<Step>);

#[derive(Clone)]
enum Step {
    Send(Vec<u8>),
    Wait(Gate),
    Echo,
    Close,
}

impl Reply {
    /// Returns a 200 with these field lines and this body, and its length.
    pub(crate) fn ok(fields: &[&str], body: impl AsRef<[u8]>) -> Self {
        Self::status("200 OK", fields, body)
    }

    /// Returns a response with this status, these field lines and this body, and its length.
    pub(crate) fn status(status: &str, fields: &[&str], body: impl AsRef<[u8]>) -> Self {
        let length = format!("Content-Length: {}", body.as_ref().len());
        let mut lines = fields.to_vec();
        if !status.starts_with("304") && !status.starts_with("204") {
            lines.push(&length);
        }
        Self::head(status, &lines).send(body)
    }

    /// Returns a head without a body.
    pub(crate) fn head(status: &str, fields: &[&str]) -> Self {
        let mut text = format!("HTTP/1.1 {status}\r\n");
        for field in fields {
            text.push_str(field);
            text.push_str("\r\n");
        }
        Self::default().send(text + "\r\n")
    }

    pub(crate) fn send(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.push(Step::Send(bytes.as_ref().to_vec()));
        self
    }

    pub(crate) fn wait(mut self, gate: &Gate) -> Self {
        self.0.push(Step::Wait(gate.clone()));
        self
    }

    /// Returns this reply, sent once the gate is open.
    pub(crate) fn after(mut self, gate: &Gate) -> Self {
        self.0.insert(0, Step::Wait(gate.clone()));
        self
    }

    /// Echoes all bytes received from now on.
    pub(crate) fn echo(mut self) -> Self {
        self.0.push(Step::Echo);
        self
    }

    pub(crate) fn close(mut self) -> Self {
        self.0.push(Step::Close);
        self
    }
}

/// A listening origin.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

type Handle = dyn Fn(&Received, usize) -> Reply + Send + Sync;

struct Shared {
    handle: Box<Handle>,
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

impl Origin {
    /// Starts an origin; `handle` gets each request and its number, from 0.
    pub(crate) fn start(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            handle: Box::new(handle),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if accepting.stopped.load(Ordering::SeqCst) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                let serving = Arc::clone(&accepting);
                // Many tests are about connections that break.
                std::thread::spawn(move || drop(serving.serve(socket.unwrap())));
            }
        });
        Self { address, shared }
    }

    /// Starts an origin that fails the health check at `path`, and responds to everything else with the target.
    pub(crate) fn failing_checks(path: &'static str) -> Self {
        Self::start(move |received, _| match received.target.as_str() {
            target if target == path => Reply::status("503 Service Unavailable", &[], ""),
            target => Reply::ok(&["Cache-Control: no-store"], target),
        })
    }

    /// Returns how many requests were for this target.
    pub(crate) fn count_of(&self, target: &str) -> usize {
        self.received().iter().filter(|received| received.target == target).count()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.received.lock().unwrap().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. If it has already ended, there is nothing to wake.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut writer = socket.try_clone()?;
        let mut reader = BufReader::new(socket);
        while let Some(received) = read_request(&mut reader)? {
            let number = {
                let mut all = self.received.lock().unwrap();
                all.push(received.clone());
                all.len() - 1
            };
            for step in (self.handle)(&received, number).0 {
                match step {
                    Step::Send(bytes) => writer.write_all(&bytes)?,
                    Step::Wait(gate) => gate.wait(),
                    Step::Echo => return std::io::copy(&mut reader, &mut writer).map(drop),
                    Step::Close => return writer.shutdown(std::net::Shutdown::Both),
                }
            }
        }
        Ok(())
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Received>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut parts = line.split_whitespace().map(str::to_owned);
    let method = parts.next().unwrap_or_default();
    let target = parts.next().unwrap_or_default();
    let mut fields = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut received = Received { method, target, fields, body: Vec::new() };
    if received.field("transfer-encoding").is_some() {
        received.body = super::client::read_chunked(reader)?;
    } else if let Some(length) = received.field("content-length") {
        received.body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut received.body)?;
    }
    Ok(Some(received))
}
