#!/usr/bin/env python3
"""What an ideal cache of the same bytes would have hit in the harness' `mixed` scenario.

  bench/peers/lru_ratio.py                     the scenario's defaults: 1,536 MiB, 350,000 + 150,000 requests, seed 11
  bench/peers/lru_ratio.py --results FILE      and what the servers in a results.json reached, as shares of the LRU
  bench/peers/lru_ratio.py --minimum 0.95      with --results: fails if larder's share is less

Replays the very sequence of requests that the harness' load generator makes (its generator of random numbers, its Zipf
sampler, its sizes), in the order they are sent, through a least-recently-used and a first-in-first-out list of bodies
and nothing else: no heads, no rounding, no index, nothing in flight. "infinite" has to agree with what the load
generator prints as its ideal. Nothing here runs a server; it needs Python alone and takes some ten seconds.
"""
import argparse
import json
import math
import sys
from collections import OrderedDict

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(z):
    z = (z + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def unit(h):
    return ((h >> 11) + 0.5) / (1 << 53)


def size_of(number):
    """PolyMix's mix of sizes, as the harness' origin serves them under /o/NUMBER."""
    h = mix64(number ^ 0x706F6C796D697831)
    kind, u1, u2 = unit(h), unit(mix64(h ^ 1)), unit(mix64(h ^ 2))

    def lognormal(mean, deviation):
        s2 = math.log(1 + (deviation / mean) ** 2)
        normal = math.sqrt(-2 * math.log(u1)) * math.cos(2 * math.pi * u2)
        return math.exp(math.log(mean) - s2 / 2 + math.sqrt(s2) * normal)

    if kind < 0.65:
        kilobytes = -4.5 * math.log(u1)
    elif kind < 0.80:
        kilobytes = -8.5 * math.log(u1)
    elif kind < 0.805:
        kilobytes = lognormal(300, 300)
    else:
        kilobytes = lognormal(25, 10)
    return min(max(int(kilobytes * 1024), 128), 64 << 20)


class Zipf:
    """Rejection-inversion (Hoermann & Derflinger), as the load generator has it."""

    def __init__(self, count, alpha, seed):
        self.n, self.a, self.state = float(count), alpha, seed
        self.hx1 = self.h(1.5) - 1
        self.hn = self.h(self.n + 0.5)
        self.s = 2 - self.h_inverse(self.h(2.5) - 2.0**-alpha)

    def h(self, x):
        return math.expm1((1 - self.a) * math.log(x)) / (1 - self.a)

    def h_inverse(self, x):
        return math.exp(math.log1p(x * (1 - self.a)) / (1 - self.a))

    def sample(self):
        while True:
            self.state = (self.state + GOLDEN) & MASK
            u = self.hn + unit(mix64(self.state)) * (self.hx1 - self.hn)
            x = self.h_inverse(u)
            k = min(max(math.floor(x + 0.5), 1.0), self.n)
            if k - x <= self.s or u >= self.h(k + 0.5) - k**-self.a:
                return int(k)


def replay(requests, capacity_bytes, measured_from, moves):
    """Share of hits among the measured requests; `moves`: whether a hit makes an object the newest."""
    held, used, hits = OrderedDict(), 0, 0
    for index, (number, size) in enumerate(requests):
        if number in held:
            hits += index >= measured_from
            if moves:
                held.move_to_end(number)
            continue
        held[number] = size
        used += size
        while used > capacity_bytes:
            used -= held.popitem(last=False)[1]
    return hits / (len(requests) - measured_from)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--disk-mb", type=int, default=1536)
    parser.add_argument("--warm", type=int, default=350_000)
    parser.add_argument("--count", type=int, default=150_000)
    parser.add_argument("--objects", type=int, default=2_000_000)
    parser.add_argument("--alpha", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--results")
    parser.add_argument("--minimum", type=float)
    options = parser.parse_args()
    if options.alpha == 1:
        parser.error("alpha 1 is not what the scenario uses")
    zipf, sizes, requests = Zipf(options.objects, options.alpha, options.seed), {}, []
    for _ in range(options.warm + options.count):
        number = zipf.sample() - 1
        size = sizes.get(number)
        if size is None:
            size = sizes[number] = size_of(number)
        requests.append((number, size))
    capacity = options.disk_mb << 20
    infinite = replay(requests, 1 << 62, options.warm, False)
    lru = replay(requests, capacity, options.warm, True)
    fifo = replay(requests, capacity, options.warm, False)
    print(f"{len(sizes)} objects of {sum(sizes.values()) / 2**20:,.0f} MiB, store of {options.disk_mb:,} MiB")
    print(f"infinite {infinite:.2%}   LRU {lru:.2%}   FIFO {fifo:.2%}   0.95 x LRU {0.95 * lru:.2%}")
    if not options.results:
        return 0
    with open(options.results) as file:
        mixed = json.load(file)["results"].get("mixed", {})
    shares = {name: row["hit_ratio"] / lru for name, row in mixed.items() if "hit_ratio" in row}
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        used = f"{mixed[name].get('du_mb', 0):,} MB on disk"
        print(f"{name:12} {mixed[name]['hit_ratio']:.2%}  {share:.3f} x LRU  {used}")
    return int(options.minimum is not None and not shares.get("larder", 0) >= options.minimum)


if __name__ == "__main__":
    sys.exit(main())
