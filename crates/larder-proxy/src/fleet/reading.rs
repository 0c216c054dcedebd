//! Reads a log of purges, that of another node or the shared one, and applies its purges.
//!
//! Owns: the order of steps, and the pauses after failures. `node_log` and `shared_log` read the purges and check them.
//! Invariant: the position advances only when the purges before it are recorded here.

use std::{sync::Arc, time::Duration};

use super::{link::FleetLink, node_log::NodeLog, shared_log::SharedLogClient};
use crate::ground::{
    cache::purges::{LogPosition, LogSlice, Purges},
    clock,
};

/// The log of another node, or the shared log of the fleet.
pub(super) enum LogSource {
    Node(NodeLog),
    Shared(SharedLogClient),
}

/// Reads a log and applies its purges, as long as the worker runs. `name` is the log's name in the record of purges.
pub(super) async fn follow(source: LogSource, name: Box<str>, link: Arc<FleetLink>, purges: Arc<Purges>) {
    let mut reader = LogReader { source, name, link, purges, has_read: false };
    let mut pause = PAUSE_MIN;
    loop {
        match reader.step().await {
            Ok(()) => pause = PAUSE_MIN,
            Err(fault) => {
                reader.disconnect();
                reader.link.peers.note_failed(&reader.name, &fault);
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }
}

struct LogReader {
    source: LogSource,
    name: Box<str>,
    link: Arc<FleetLink>,
    purges: Arc<Purges>,
    /// Whether the log was read since the connection was opened.
    ///
    /// The first read does not wait for a new purge, because this node is ready to serve only after that read.
    has_read: bool,
}

impl LogReader {
    /// Reads one part of the log and applies it.
    async fn step(&mut self) -> Result<(), String> {
        // Purges whose recording failed are in effect, but a crash would lose them. So they are recorded before the
        // position advances.
        self.apply(|purges, _| purges.save()).await?;
        let position = self.purges.position(&self.name);
        let wait = if self.has_read { WAIT_MAX.min(self.link.timeout / 3) } else { Duration::ZERO };
        let slice = self.slice(position, wait).await?;
        let position = slice.position;
        let end = slice.end;
        self.apply(move |purges, log| purges.follow(log, slice, clock::now().as_millis())).await?;
        self.has_read = true;
        self.link.peers.note_read(&self.name, position, end);
        Ok(())
    }

    async fn slice(&mut self, position: Option<LogPosition>, wait: Duration) -> Result<LogSlice, String> {
        match &mut self.source {
            LogSource::Node(node) => node.slice(&self.link, &self.purges, position, wait).await,
            LogSource::Shared(shared) => shared.slice(&self.link, &self.purges, position, wait).await,
        }
    }

    fn disconnect(&mut self) {
        self.has_read = false;
        match &mut self.source {
            LogSource::Node(node) => node.disconnect(),
            LogSource::Shared(shared) => shared.disconnect(),
        }
    }

    /// Runs `change` on the purges, on a thread that may block.
    async fn apply(
        &self,
        change: impl FnOnce(&Purges, &str) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let purges = Arc::clone(&self.purges);
        let name = self.name.clone();
        let changing = tokio::task::spawn_blocking(move || change(&purges, &name));
        let changed = changing.await.map_err(|error| error.to_string()).flatten();
        changed.map_err(|why| format!("its purges cannot be recorded here: {why}"))
    }
}

/// Maximum time that a read waits for a purge. It limits how long a log that does not respond goes unnoticed.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause after the first failure. The pause doubles with each further failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        fleet::{message, node_log::BODY_BYTES_MAX, peers::FleetPeers, secret::FleetSecret, serving::response_parts},
        ground::{
            cache::purges::{Purge, PurgeLimits, PurgeMode, PurgeScope},
            config::FleetNode,
        },
    };

    const SECRET: &str = "0123456789abcdef";

    fn slice(numbers: &[u64], position: u64, end: u64) -> LogSlice {
        let scope = || PurgeScope::Tag("t".into());
        let purge = |number: &u64| Purge { number: *number, mode: PurgeMode::Hard, at_ms: 7, scope: scope() };
        LogSlice { log: 7, is_reset: false, purges: numbers.iter().map(purge).collect(), position, end, sent: 0 }
    }

    /// Reads once from a node. `answer` makes the node's response from the nonce of the request. Returns the outcome
    /// and the position afterwards.
    async fn read(
        purges: &Arc<Purges>,
        answer: impl FnOnce(&str) -> Vec<u8> + Send + 'static,
    ) -> (Result<(), String>, Option<LogPosition>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let nonce = head.split(' ').skip_while(|word| !word.ends_with("Larder-Fleet")).nth(3).unwrap();
            // The reader may disconnect before the end.
            let _ = socket.write_all(&answer(nonce)).await;
        });
        let peers = Arc::new(FleetPeers::default());
        peers.set(&["b".into()]);
        let link = FleetLink {
            own_name: "a".into(),
            secret: Arc::new(FleetSecret::new(SECRET)),
            peers,
            timeout: Duration::from_mins(1),
            tls: None,
            shared: None,
        };
        let node = FleetNode { name: "b".to_owned(), host: "127.0.0.1".to_owned(), port };
        let purges = Arc::clone(purges);
        let source = LogSource::Node(NodeLog::new(node));
        let link = Arc::new(link);
        let mut reader = LogReader { source, name: "b".into(), link, purges, has_read: false };
        let outcome = reader.step().await;
        reader.disconnect();
        serving.await.unwrap();
        (outcome, reader.purges.position("b"))
    }

    fn response(status: &str, code: &str, body: &str) -> Vec<u8> {
        let len = body.len();
        format!("HTTP/1.1 {status}\r\nLarder-Code: {code}\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
    }

    fn signed(nonce: &str, secret: &str, body: &str) -> Vec<u8> {
        response("200 OK", &FleetSecret::new(secret).sign(&response_parts(nonce, body)), body)
    }

    /// Guards against a node that purges or skips purges because of a message from a stranger or a faulty node.
    #[tokio::test]
    async fn only_parts_of_a_log_from_nodes_with_the_secret_are_applied() {
        let purges = Arc::new(Purges::open(None, None, &["b".into()], PurgeLimits::RESPONSES));
        let right = |body: String| move |nonce: &str| signed(nonce, SECRET, &body);
        let reset = LogSlice { is_reset: true, ..slice(&[], 3, 3) };
        let at = |number| Some(LogPosition { peer: "b".into(), log: 7, number, sent: 0 });
        assert_eq!(read(&purges, right(message::encode(&reset))).await, (Ok(()), at(3)));
        assert_eq!(read(&purges, right(message::encode(&slice(&[4, 5], 5, 9)))).await, (Ok(()), at(5)));
        let latest = purges.latest();
        let good = message::encode(&slice(&[6], 6, 9));
        let body = good.clone();
        let other = good.clone();
        let old = good.clone();
        type Answer = Box<dyn FnOnce(&str) -> Vec<u8> + Send>;
        let strange: Vec<(&str, Answer)> = vec![
            ("does not prove", Box::new(move |nonce| signed(nonce, "another secret!!", &body))),
            ("does not prove", Box::new(move |_| response("200 OK", "", &other))),
            ("does not prove", Box::new(move |_| signed("00112233445566778899aabbccddeeff", SECRET, &old))),
            ("403 go away", Box::new(|_| response("403 Forbidden", "", "go\u{1b} away"))),
            ("404", Box::new(|_| response("404 Not Found", "", ""))),
            ("not in order", Box::new(right(message::encode(&slice(&[7, 6], 6, 9))))),
            ("not in order", Box::new(right(message::encode(&slice(&[5], 5, 9))))),
            ("end at 6", Box::new(right(message::encode(&slice(&[6], 8, 9))))),
            ("no position", Box::new(right(message::encode(&slice(&[6], 6, 5))))),
            ("another identity", Box::new(right(message::encode(&LogSlice { log: 8, ..slice(&[6], 6, 6) })))),
            ("this node itself", Box::new(right(message::encode(&LogSlice { log: purges.log_id(), ..reset.clone() })))),
            ("more than", Box::new(right("x".repeat(BODY_BYTES_MAX + 1)))),
            ("no text", Box::new(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff".to_vec())),
            ("", Box::new(|_| b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec())),
            ("", Box::new(|_| Vec::new())),
        ];
        for (why, answer) in strange {
            let (outcome, position) = read(&purges, answer).await;
            let told = outcome.expect_err(why);
            assert!(told.contains(why) && !told.contains('\u{1b}'), "{why}: {told}");
            assert_eq!((position, purges.latest()), (at(5), latest), "{why}");
        }
        assert_eq!(read(&purges, right(good)).await, (Ok(()), at(6)));
    }
}
