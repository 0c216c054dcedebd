//! A relay between nodes, which changes their requests and breaks off their responses.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use larder_proxy::ProxyConfig;
use socket2::SockRef;

use super::{
    Received, Reply,
    gate::PATIENCE,
    nodes::{NAMES, Nodes},
};

/// How a node ends a response in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    Close,
    Reset,
    Silence,
}

/// Where and how a response breaks off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Octets after the head that are passed on.
    pub(crate) sent: usize,
    pub(crate) ending: Break,
}

/// Changes the octets of a request, and says how its response breaks off.
type Change = dyn Fn(&mut Vec<u8>) -> Option<Cut> + Send + Sync;

/// Passes the connections of nodes on to one node.
#[derive(Clone)]
pub(crate) struct Relay {
    address: SocketAddr,
    node: Arc<Mutex<Option<SocketAddr>>>,
    change: Arc<Change>,
    /// Responses that were broken off.
    pub(crate) cut_count: Arc<AtomicUsize>,
}

/// Starts nodes that reach each other through relays with this change.
pub(crate) fn relayed_nodes(
    handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
    change_request: impl Fn(&mut Vec<u8>) -> Option<Cut> + Send + Sync + 'static,
    change_config: impl Fn(&mut ProxyConfig) + 'static,
) -> (Nodes, [Relay; 3]) {
    let change = Arc::new(change_request);
    let relays = NAMES.map(|_| Relay::start(Arc::clone(&change) as Arc<Change>));
    let known = relays.clone();
    let nodes = Nodes::with(handle, move |config| {
        let place = NAMES.iter().position(|name| config.fleet.node.as_deref() == Some(name)).unwrap();
        *known[place].node.lock().unwrap() = Some(config.listeners[0].address);
        let listed = NAMES.iter().zip(&known).map(|(name, relay)| format!("{name}={}", relay.address).parse().unwrap());
        config.fleet.nodes = listed.collect();
        change_config(config);
    });
    (nodes, relays)
}

impl Relay {
    /// Starts a relay, whose threads end with the process.
    fn start(change: Arc<Change>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let relay = Self { address, node: Arc::default(), change, cut_count: Arc::default() };
        let serving = relay.clone();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let relay = serving.clone();
                // Either side may end the connection at any time.
                thread::spawn(move || drop(relay.serve(socket.unwrap())));
            }
        });
        relay
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let node = self.node.lock().unwrap().ok_or(io::ErrorKind::NotConnected)?;
        let node = TcpStream::connect(node)?;
        for socket in [&client, &node] {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let next = Arc::<Mutex<Option<Cut>>>::default();
        let mut from_client = client.try_clone()?;
        let mut to_node = node.try_clone()?;
        let change = Arc::clone(&self.change);
        let set = Arc::clone(&next);
        let requests = thread::spawn(move || -> io::Result<()> {
            let mut octets = [0; 16 << 10];
            loop {
                let len = from_client.read(&mut octets)?;
                if len == 0 {
                    return to_node.shutdown(Shutdown::Write);
                }
                // Nodes send the head of a request at once.
                let mut request = octets[..len].to_vec();
                *set.lock().unwrap() = change(&mut request);
                to_node.write_all(&request)?;
            }
        });
        let ended = self.pass_responses(node, &client, &next);
        // Ends the other thread, too.
        let _ = client.shutdown(Shutdown::Both);
        drop(requests.join());
        ended
    }

    fn pass_responses(&self, mut node: TcpStream, mut client: &TcpStream, next: &Mutex<Option<Cut>>) -> io::Result<()> {
        let mut seen = Vec::new();
        let mut octets = vec![0; 64 << 10];
        loop {
            let len = node.read(&mut octets)?;
            if len == 0 {
                return Ok(());
            }
            let Some(cut) = *next.lock().unwrap() else {
                seen.clear();
                client.write_all(&octets[..len])?;
                continue;
            };
            let before = seen.len();
            seen.extend_from_slice(&octets[..len]);
            let end = head_end(&seen).map_or(usize::MAX, |head| head + cut.sent);
            client.write_all(&octets[..end.min(seen.len()).saturating_sub(before)])?;
            if seen.len() < end {
                continue;
            }
            self.cut_count.fetch_add(1, SeqCst);
            match cut.ending {
                Break::Close => {}
                Break::Reset => SockRef::from(client).set_linger(Some(Duration::ZERO))?,
                // Until the other side gives up.
                Break::Silence => while client.read(&mut octets)? > 0 {},
            }
            return Ok(());
        }
    }
}

/// Returns the end of the head of the final response, after interim ones.
fn head_end(octets: &[u8]) -> Option<usize> {
    let start = octets.windows(13).position(|window| window == b"HTTP/1.1 200 ")?;
    let end = octets[start..].windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(start + end + 4)
}
