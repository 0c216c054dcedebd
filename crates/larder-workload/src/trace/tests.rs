//! Guards against a trace that is misread, and so gives plausible but wrong figures.

use super::{Format, Trace, write_compact};
use crate::Request;
use proptest::prelude::*;
use std::{io::Write, path::Path};

fn read(path: &Path, format: Option<Format>) -> (Vec<Request>, super::Progress) {
    let mut trace = Trace::open(path, format).unwrap();
    let requests = trace.by_ref().map(|request| request.unwrap()).collect();
    (requests, trace.progress())
}

fn read_bytes(bytes: &[u8], format: Option<Format>) -> (Vec<Request>, super::Progress) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path(), format)
}

const SQUID: &str = "\
1066036250.603    310 192.0.2.1 TCP_MISS/200 1234 GET http://example.com/a - DIRECT/10.0.0.1 text/html
1066036251.700     12 192.0.2.1 TCP_HIT/200 1234 GET http://example.com/a - NONE/- text/html

1066036252.000      5 192.0.2.2 TCP_MISS/200 99 POST http://example.com/b - DIRECT/10.0.0.1 -
1066036252.100      5 192.0.2.2 TCP_DENIED/403 99 GET http://example.com/b - NONE/- -
1066036252.200      5 192.0.2.2 TCP_MISS/200 ninety GET http://example.com/b - DIRECT/10.0.0.1 -
";

#[test]
fn squid_logs_give_the_gets_and_count_the_rest() {
    let (requests, progress) = read_bytes(SQUID.as_bytes(), None);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[0].time_ms, requests[0].size_bytes), (1_066_036_250_603, 1234));
    assert_eq!((requests[0].key, requests[0].site), (requests[1].key, requests[1].site));
    assert_eq!((progress.left_out, progress.damaged), (2, 1));
    assert_eq!(progress.first_damage, Some((6, "the size is no number")));
    assert_eq!(progress.read_bytes, progress.file_bytes);
}

#[test]
fn combined_logs_give_time_url_and_bytes() {
    let text = "83.149.9.216 - - [17/May/2015:10:05:03 +0200] \"GET /a.png HTTP/1.1\" 200 203023 \"-\" \"Mozilla/5.0\"\n\
                83.149.9.217 - - [29/Feb/2016:00:00:00 +0000] \"GET /b HTTP/1.1\" 304 - \"-\" \"-\"\n\
                83.149.9.217 - - [29/Feb/2016:00:00:00 +0000] \"HEAD /b HTTP/1.1\" 200 7\n\
                nonsense\n";
    let (requests, progress) = read_bytes(text.as_bytes(), None);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[0].time_ms, requests[0].size_bytes), (1_431_849_903_000, 203_023));
    assert_eq!((requests[1].time_ms, requests[1].size_bytes), (1_456_704_000_000, 0));
    assert_ne!(requests[0].client, requests[1].client);
    assert_eq!((progress.left_out, progress.damaged), (1, 1));
}

#[test]
fn columns_are_found_by_name_or_by_order() {
    let by_name = read_bytes(b"obj_size,time,obj_id\n10,1.5,7\n20,2,x\n", None).0;
    assert_eq!((by_name[0].time_ms, by_name[0].key, by_name[0].size_bytes), (1500, 7, 10));
    assert_eq!((by_name[1].time_ms, by_name[1].size_bytes), (2000, 20));
    let by_order = read_bytes(b"# a remark\n3 42 500\n4 43\n", None);
    assert_eq!((by_order.0[0].time_ms, by_order.0[0].key, by_order.0[0].size_bytes), (3000, 42, 500));
    assert_eq!(by_order.1.damaged, 1);
    let quoted = b"\"Time\",\"URL\",\"Bytes\"\n\"1\",\"http://a/x,y;z\",\"500\"\n\"2\",\"http://a/x,y;z\",\"500\"\n";
    for text in [&quoted[..], b"ts; size; url\n1; 500; http://a/x,y\n2; 500; http://a/x,y", b"1  /x,y 500\n2 /x,y  500"]
    {
        let (requests, progress) = read_bytes(text, None);
        assert_eq!((requests.len(), progress.damaged, progress.left_out), (2, 0, 0));
        assert!(requests[0].key == requests[1].key && requests[1].size_bytes == 500 && requests[1].time_ms == 2000);
    }
    let wide = read_bytes(b"1,2,3,4\n5,6,7,8\n", None);
    assert_eq!((wide.0.len(), wide.1.damaged), (0, 2));
    assert_eq!(wide.1.first_damage, Some((1, "there are more than three columns, and no first line names them")));
    let strange = read_bytes(b"when,what,how_much\n1,2,3\n", None);
    assert_eq!(strange.1.first_damage, Some((1, "the first line names no column of keys")));
    assert_eq!(strange.0[0].key, 2);
}

/// Guards against a key's size, an operation or a disk's number in the place of the size or of the key. Two files of
/// each published collection, made from its description.
#[test]
fn published_collections_are_read_by_their_columns() {
    let twitter: [&[u8]; 2] = [
        b"0,nz:u:eeW511W3dcH3de3d15ec,22,304,8,get,0\n1,nz:u:eeW511W3dcH3de3d15ec,22,304,9,gets,0\n2,nz:k,4,5,8,set,60\n",
        b"7,a,1,9,1,set,0\n8,nz:x,26,300,8,get,0\n9,nz:x,26,300,8,gets,0\n",
    ];
    let ibm: [&[u8]; 2] = [
        b"1 REST.GET.OBJECT 8d4fcda3d675bac9 326 0 325\n1001 REST.GET.OBJECT 8d4fcda3d675bac9 326 0 99\n1002 REST.PUT.OBJECT 8d4fcda3d675bac9 1056\n",
        b"0 REST.HEAD.OBJECT 39d177fb735ac5df\n7 REST.GET.OBJECT 39d177fb735ac5df 326\n1007 REST.GET.OBJECT 39d177fb735ac5df 326\n",
    ];
    let wikimedia: [&[u8]; 3] = [
        b"relative_unix\thashed_path_query\timage_type\tresponse_size\ttime_firstbyte\n0\t-81\tjpeg\t326\t0.0001\n1\t-81\tjpeg\t326\t0.0001\n",
        b"0\t-81\tjpeg\t326\t0.0001\n1\t-81\tjpeg\t326\t0.0001\n",
        b"0\t81\t326\t0.0001\n1\t81\t326\t0.0001\n",
    ];
    let cambridge: [&[u8]; 2] = [
        b"128166372003061629,hm,1,Read,383496192,326,413\n128166372013061629,hm,1,Read,383496192,326,41\n128166372016382155,hm,1,Write,2822144,4096,8327\n",
        b"128166372003061629,src2,0,Write,0,512,413\n128166372003061700,src2,0,Read,512,326,9\n128166372013061700,src2,0,Read,512,326,9\n",
    ];
    let files = twitter.iter().map(|file| (*file, 1)).chain(ibm.iter().map(|file| (*file, 1)));
    let files = files.chain(wikimedia.iter().map(|file| (*file, 0))).chain(cambridge.iter().map(|file| (*file, 1)));
    for (file, left_out) in files {
        let (requests, progress) = read_bytes(file, None);
        let text = String::from_utf8_lossy(file);
        assert_eq!((requests.len(), progress.left_out, progress.damaged), (2, left_out, 0), "{text}: {progress:?}");
        assert_eq!((requests[0].key, requests[0].size_bytes), (requests[1].key, 326), "{text}");
        assert_eq!(requests[1].time_ms - requests[0].time_ms, 1000, "{text}");
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let noise: Vec<u8> = (0..5000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (bytes, told) in [
        (&noise[..], "no trace of a known format"),
        (b"\xfd7zXZ\0\0\x04", "this is xz"),
        (b"BZh91AY&SY", "this is bzip2"),
        (b"PK\x03\x04\x14", "this is zip"),
        (&[0; 10], "no trace of a known format"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let error = Trace::open(file.path(), None).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(told), "{told}: {error}");
    }
}

/// Results for a file that is no trace would look like any others.
#[test]
fn text_that_is_no_trace_is_refused_once_it_was_read() {
    let readme = include_str!("../../../../README.md");
    for (text, is_trace) in [
        (readme, false),
        ("word\nSome words follow\nand some more\nand these\n", false),
        ("1 a 5\n2 b 5\nx b 5\ny b 5\nz b 5\n", false),
        ("1 a 5\n2 b 5\nx b 5\n", true),
        ("a\nb\nc\n", true),
        (SQUID, true),
    ] {
        let (_, progress) = read_bytes(text.as_bytes(), None);
        let outcome = progress.check("a.log").map_err(|error| error.to_string());
        assert_eq!(outcome.is_ok(), is_trace, "{text}: {outcome:?}");
        if let Err(error) = outcome {
            assert!(error.contains("squid, common, csv, oracle, larder") && error.contains("(line "), "{error}");
            assert!(error.ends_with(" a.log"), "{error}");
        }
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all("some words\n".repeat(5000).as_bytes()).unwrap();
    let mut trace = Trace::open(file.path(), None).unwrap();
    assert!(trace.next().unwrap().unwrap_err().to_string().contains("1000 of 1000 lines are damaged (line 1: "));
    assert!(trace.next().is_none(), "the remainder is not read");
}

#[test]
fn a_packed_trace_that_was_cut_counts_up_to_there() {
    let text: String = (0..20_000_u32).map(|at| format!("{at} {} 500\n", at.wrapping_mul(2_654_435_761))).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    for packed in [gzip.finish().unwrap(), zstd::encode_all(text.as_bytes(), 1).unwrap()] {
        let (requests, progress) = read_bytes(&packed[..packed.len() * 2 / 3], None);
        assert!((1000..20_000).contains(&requests.len()), "{}", requests.len());
        assert_eq!(progress.damaged, 1);
        assert_eq!(progress.first_damage.map(|(_, why)| why), Some("the file ends within its compressed data"));
    }
}

#[test]
fn sizes_no_cache_has_are_damage() {
    let (requests, progress) = read_bytes(b"1 1 281474976710656\n2 1 281474976710657\n3 1 -5\n", None);
    assert_eq!((requests.len(), progress.damaged), (1, 2));
    assert_eq!(progress.first_damage, Some((2, "the size is over 256 TiB")));
}

#[test]
fn oracle_records_are_read_and_a_cut_one_is_told() {
    let mut bytes = Vec::new();
    for (time, key, size) in [(5_u32, 0x0102_0304_0506_0708_u64, 900_u32), (6, 9, 10)] {
        bytes.extend(time.to_le_bytes());
        bytes.extend(key.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    bytes.extend([1, 2, 3]);
    let (requests, progress) = read_bytes(&bytes, None);
    assert_eq!((requests[0].time_ms, requests[0].key, requests[0].size_bytes), (5000, 0x0102_0304_0506_0708, 900));
    assert_eq!((requests.len(), progress.damaged), (2, 1));
}

#[test]
fn compressed_traces_are_the_same_traces() {
    let plain = read_bytes(SQUID.as_bytes(), None).0;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(SQUID.as_bytes()).unwrap();
    assert_eq!(read_bytes(&gzip.finish().unwrap(), None).0, plain);
    assert_eq!(read_bytes(&zstd::encode_all(SQUID.as_bytes(), 1).unwrap(), None).0, plain);
}

#[test]
fn a_line_without_end_is_damage_and_not_memory() {
    let mut bytes = vec![b'x'; 1 << 20];
    bytes.extend(b"\n1 2 3\n");
    let (requests, progress) = read_bytes(&bytes, Some(Format::Csv));
    assert_eq!((requests.len(), progress.damaged), (1, 1));
}

fn request() -> impl Strategy<Value = (u32, u64, u64, bool, bool)> {
    (any::<u32>(), any::<u64>(), any::<u64>(), any::<bool>(), any::<bool>())
}

proptest! {
    #[test]
    fn the_compact_format_gives_back_what_was_written(parts in prop::collection::vec(request(), 0..50)) {
        let mut time_ms = 0;
        let requests: Vec<_> = parts.into_iter().map(|(passed, key, size_bytes, site, client)| {
            time_ms += u64::from(passed);
            Request { time_ms, key, size_bytes: size_bytes >> 16, site: u64::from(site) * 77, client: u64::from(client) * 88 }
        }).collect();
        let mut bytes = Vec::new();
        write_compact(requests.iter().copied(), &mut bytes).unwrap();
        let (read, progress) = read_bytes(&bytes, None);
        prop_assert_eq!(read, requests);
        prop_assert_eq!(progress.damaged, 0);
        // If the trace is cut off, everything before the cut stays valid.
        let (cut, _) = read_bytes(&bytes[..bytes.len().saturating_sub(1).max(8)], Some(Format::Compact));
        prop_assert!(cut.len() <= progress.requests as usize);
    }

    #[test]
    fn any_bytes_are_read_to_the_end(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        for (_, format) in Format::ALL {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            if let Ok(trace) = Trace::open(file.path(), Some(format)) {
                prop_assert!(trace.take(10_000).count() <= bytes.len() + 1);
            }
        }
    }
}
