#!/usr/bin/env python3
"""Holds the laboratory's reference evictions against libCacheSim: the same misses, to the last request, and the speed.

Needs the Python package (pip install libcachesim).

    bench/libcachesim_check.py REPLAY TRACE.xz...    misses; REPLAY is larder-sim's example `replay`. Traces: columns time,
                                                     key, size, in xz, or ids of 32 bits, big-endian, in xz (cache2k)
    bench/libcachesim_check.py --speed LARDER        requests per second, both on the same trace of 10 million Zipf
                                                     requests in oracleGeneral's format; LARDER is the program
    bench/libcachesim_check.py --learned LARDER      hits of 3L-Cache (FAST 2025) and LRU on the workloads, sizes and
                                                     requests of `larder sim evictions`
"""
import json, lzma, os, random, struct, subprocess, sys, tempfile, time
import libcachesim as lcs

EVICTIONS = [("lru", lcs.LRU), ("fifo", lcs.FIFO), ("sieve", lcs.Sieve), ("s3-fifo", lcs.S3FIFO), ("gdsf", lcs.GDSF)]
SHARES = [0.01, 0.1, 0.3]
SPEED_REQUESTS, SPEED_OBJECTS, SPEED_BYTES = 10_000_000, 1_000_000, 1_000_000_000
# Those of `larder sim evictions`.
WORKLOADS, REQUESTS, PERCENTAGES = ["zipf-0.8", "zipf", "zipf-1.0"], 1_500_000, [1, 5, 10]
WORKLOAD_FLAGS = ["--requests", str(REQUESTS), "--memory-cache", "1MiB", "--working-set", "512MiB"]
LONGEST = 1 << 20


def requests_of(path):
    data = lzma.open(path).read()
    if "cache2k" in path:
        ids = struct.unpack(f">{len(data) // 4}I", data[: len(data) // 4 * 4])
        return [(at, key, 1000) for at, key in enumerate(ids)]
    rows = (line.split() for line in data.decode().splitlines())
    return [(int(float(row[0])), int(row[1]), int(row[2])) for row in rows if len(row) >= 3]


def check(replay, paths):
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
            # Its GDSF breaks ties in another way.
            for name, eviction in EVICTIONS[:4]:
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


def speed(larder):
    draw = random.Random(1)
    sizes = [max(80, min(8_000_000, int(draw.lognormvariate(8.7, 1.05)))) for _ in range(SPEED_OBJECTS)]
    weights, total = [], 0.0
    for rank in range(SPEED_OBJECTS):
        total += (rank + 1) ** -0.9
        weights.append(total)
    with tempfile.NamedTemporaryFile("wb", suffix=".oracleGeneral", delete=False) as file:
        for at in range(SPEED_REQUESTS // 100_000):
            ranks = draw.choices(range(SPEED_OBJECTS), cum_weights=weights, k=100_000)
            file.write(b"".join(struct.pack("<IQIq", at, rank + 1, sizes[rank], -1) for rank in ranks))
    flags = ["sim", "speed", "--policy", "none", "--trace", file.name, "--size", str(SPEED_BYTES), "--output", "json"]
    report = json.loads(subprocess.run([larder, *flags], check=True, capture_output=True, text=True).stdout)
    streamed, kept = report["tables"][0]["rows"], report["tables"][1]["rows"]
    print(f"{'':10}{'libCacheSim':>14}{'larder, read':>14}{'in memory':>14}   requests/s; misses of each")
    for name, eviction in EVICTIONS:
        reader, cache = lcs.TraceReader(file.name, lcs.TraceType.ORACLE_GENERAL_TRACE), eviction(SPEED_BYTES)
        begun = time.process_time()
        misses, _ = cache.process_trace(reader)
        theirs = SPEED_REQUESTS / (time.process_time() - begun)
        row = next(row for row in kept if row["eviction, in memory"] == name)
        read = f"{streamed[0]['requests/s']:14,.0f}" if name == "lru" else " " * 14
        print(f"{name:10}{theirs:14,.0f}{read}{row['requests/s']:14,.0f}   {misses:.4%} {1 - row['hits, %'] / 100:.4%}")
    os.unlink(file.name)


def own_trace(path):
    """Keys and sizes of a trace in Larder's own format."""
    data, at = open(path, "rb").read(), 8

    def leb128():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        flags = data[at]
        at += 1
        leb128()
        key = int.from_bytes(data[at : at + 8], "little")
        at += 8
        yield key, leb128()
        at += 8 * ((flags & 1) + (flags >> 1))


def learned(larder):
    print("| requests | % of footprint | lru | 3l-cache |\n|---|--:|--:|--:|")
    for workload in WORKLOADS:
        with tempfile.TemporaryDirectory() as folder:
            own, oracle = os.path.join(folder, "own"), os.path.join(folder, "requests.oracleGeneral")
            flags = ["sim", "convert", "--workload", workload, *WORKLOAD_FLAGS, own]
            subprocess.run([larder, *flags], check=True, capture_output=True)
            sizes = {}
            with open(oracle, "wb") as file:
                for at, (key, size) in enumerate(own_trace(own)):
                    size = sizes.setdefault(key, min(max(size, 1), LONGEST))
                    file.write(struct.pack("<IQIq", at // 1000, key, size, -1))
            for percentage in PERCENTAGES:
                size = sum(sizes.values()) * percentage // 100
                hits = []
                for cache in [lcs.LRU(size), lcs.ThreeLCache(size, objective="object-miss-ratio")]:
                    # The first half is a warm-up.
                    for half in range(2):
                        reader = lcs.TraceReader(oracle, lcs.TraceType.ORACLE_GENERAL_TRACE)
                        misses, _ = cache.process_trace(reader, half * (REQUESTS // 2), REQUESTS // 2)
                    hits.append(100 * (1 - misses))
                print(f"| {workload} | {percentage} | {hits[0]:.2f} | {hits[1]:.2f} |", flush=True)


if sys.argv[1] == "--speed":
    speed(sys.argv[2])
elif sys.argv[1] == "--learned":
    learned(sys.argv[2])
else:
    check(sys.argv[1], sys.argv[2:])
