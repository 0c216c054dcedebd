//! Encodes the state of the other nodes of the fleet.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::{fleet::peers::PeerState, shared::ProxyState, siblings::PeerDifference};

/// Encodes the metrics. A proxy without a fleet has none of them.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, shared: &ProxyState) -> fmt::Result {
    let Some(link) = &shared.fleet else { return Ok(()) };
    let purges = &shared.cache.purges;
    let help = "1 while stored responses are validated before use because purges of other nodes may be unknown";
    super::encode_gauge(encoder, "fleet_doubt", help, u64::from(purges.is_in_doubt()))?;
    let help = "Position in the log of this node's purges after its last purge";
    super::encode_gauge(encoder, "fleet_log_end", help, *purges.log_end().borrow())?;
    let help = "Position in the log of this node's purges up to which the shared log has them, 0 without one";
    super::encode_gauge(encoder, "fleet_log_sent", help, *purges.log_sent().borrow())?;
    let help = "Entries of the shared log that were skipped: no node's, or appended again";
    super::encode_counter(encoder, "fleet_log_skipped", help, link.peers.skipped_count())?;
    if let Some(siblings) = &shared.siblings {
        let help = "Requests between nodes refused because their clocks differ, or because somebody repeated them";
        let count = siblings.differences.count(PeerDifference::Clock);
        super::encode_counter(encoder, "sibling_clock_differences", help, count)?;
        let help = "Requests between nodes refused because their lists of nodes or rules for keys differ";
        let count = siblings.differences.count(PeerDifference::Rules);
        super::encode_counter(encoder, "sibling_rule_differences", help, count)?;
    }
    let peers = link.peers.states();
    let figures: [PeerFigure; 5] = [
        ("fleet_node_up", "1 while the purges of a node of the fleet can be read", |peer| {
            Some(u64::from(peer.fault.is_none() && peer.contact.is_some()))
        }),
        ("fleet_node_silence_seconds", "Time since all purges of a node were last known here", |peer| {
            peer.contact.map(|at| at.elapsed().as_secs())
        }),
        ("fleet_node_log_end", "Position after the last purge of a node, when it last responded", |peer| {
            peer.contact.map(|_| peer.end)
        }),
        ("fleet_node_position", "Position in the log of a node up to which its purges are applied here", |peer| {
            peer.contact.map(|_| peer.position)
        }),
        ("fleet_node_applied", "Position in this node's log up to which a node has applied its purges", |peer| {
            peer.applied
        }),
    ];
    for (name, help, figure) in figures {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for peer in &peers {
            let Some(value) = figure(peer) else { continue };
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("node", &*peer.name)])?)?;
        }
    }
    Ok(())
}

/// A metric of every other node, with its help.
type PeerFigure = (&'static str, &'static str, fn(&PeerState) -> Option<u64>);
