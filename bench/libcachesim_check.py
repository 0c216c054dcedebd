#!/usr/bin/env python3
"""Holds the laboratory's reference evictions against libCacheSim: the same trace, the same misses, to the last request.

Needs the Python package (pip install libcachesim) and the example `replay` of larder-sim. Traces: columns time, key, size, in xz, or ids of
32 bits, big-endian, in xz (cache2k). Usage: bench/libcachesim_check.py REPLAY TRACE.xz...
"""
import lzma, os, struct, subprocess, sys, tempfile
import libcachesim as lcs

EVICTIONS = [("lru", lcs.LRU), ("fifo", lcs.FIFO), ("sieve", lcs.Sieve), ("s3-fifo", lcs.S3FIFO)]
SHARES = [0.01, 0.1, 0.3]


def requests_of(path):
    data = lzma.open(path).read()
    if "cache2k" in path:
        ids = struct.unpack(f">{len(data) // 4}I", data[: len(data) // 4 * 4])
        return [(at, key, 1000) for at, key in enumerate(ids)]
    rows = (line.split() for line in data.decode().splitlines())
    return [(int(float(row[0])), int(row[1]), int(row[2])) for row in rows if len(row) >= 3]


def main():
    replay, paths = sys.argv[1], sys.argv[2:]
    wrong = 0
    for path in paths:
        requests = requests_of(path)
        unique = sum({key: size for _, key, size in requests}.values())
        with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as file:
            file.write("time,key,size\n")
            file.writelines(f"{at},{key},{size}\n" for at, key, size in requests)
        for share in SHARES:
            size = int(unique * share)
            lines = subprocess.run([replay, file.name, str(size)], check=True, capture_output=True, text=True).stdout
            ours = {line.split()[0]: int(line.split()[2]) for line in lines.splitlines() if " misses " in line}
            for name, eviction in EVICTIONS:
                cache, misses, request = eviction(size), 0, lcs.Request()
                for at, key, length in requests:
                    request.clock_time, request.obj_id, request.obj_size = at, key, length
                    misses += not cache.get(request)
                same = misses == ours[name]
                wrong += not same
                verdict = "the same" if same else "DIFFERENT"
                print(f"{os.path.basename(path)} {share:4} {name:8} libCacheSim {misses:7} larder {ours[name]:7} {verdict}")
        os.unlink(file.name)
    sys.exit(1 if wrong else 0)


main()
