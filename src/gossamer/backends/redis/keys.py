"""The keyspace: every key that Gossamer uses on a Redis or Valkey server, in one place.

`P` is the project's name, `S` the number of a shard, `J` the number of a job. The braces mark the hash tag: all keys
of one shard are on one node, so that a script may touch them together; shards may be on different nodes.

    gossamer:{P}:book           hash    format, shards, version of fingerprints, number of the newest job, mark of a
                                        move, how often schedules were changed, whether all jobs are in `named`, and
                                        in `listed`
    gossamer:{P}:jobs           hash    job id -> JSON: name, state, terms, times, whether it is paused
    gossamer:{P}:running        hash    job name -> id of its unfinished job; #id -> id of an older one, running again
    gossamer:{P}:dropping       set     ids of replaced and cancelled jobs whose open URLs are not dropped yet
    gossamer:{P}:named          zset    jobs in order of name and number: name, a zero byte, number, id (scores 0)
    gossamer:{P}:listed         zset    jobs in order of owner and number: the key that started it over HTTP or "", a
                                        zero byte, number, id; and each again for the owner * (scores 0)
    gossamer:{P}:forgetting     set     numbers of deleted jobs whose keys are not deleted yet
    gossamer:{P}:schedules      hash    name of a schedule -> its version, its last job, and JSON: its progress
    gossamer:{P}:leader         hash    the scheduler that leads: its name, its token, until when
    gossamer:{P}:seed_leases    hash    id of a job -> until when, for how long, and which worker reads its source;
                                        @site -> the same for a request for a source that has the site to itself
    gossamer:{P}:sown:I         set     sites found in the source of the job with the id I
    gossamer:{P}:troubles       hash    id of a job -> what was wrong with its source
    gossamer:{P}:workers        hash    worker -> JSON: its last heartbeat
    gossamer:{P}:drains         hash    worker -> what an operator wants: drain, restart
    gossamer:{P}:shelf:K        hash    shelf (model/shelf.py), kind K: key -> packed row: stamp, end, time, value
    gossamer:{P}:shelf:K:at     zset    keys of kind K, by the time by which they are listed
    gossamer:{P}:shelf:K:until  zset    keys of kind K, by the time they expire
    gossamer:{P}:learned_routes hash    site that blocks -> JSON: the route at which its pages start, and why
    gossamer:{P}:budgets        hash    budget -> credits spent, in billionths, as decimal digits
    gossamer:{P}:pools          set     names of proxy pools whose proxies were used
    gossamer:{P}:proxies:N        hash    pool N: proxy -> packed: its health, until when it rests
    gossamer:{P}:proxies-changed:N     zset    pool N: proxies, by the time of their last report
    gossamer:{P}:proxy-sites:N   hash    pool N: proxy, a zero byte, site that refused it -> packed: how it fares there
    gossamer:{P}:proxy-sites-changed:N  zset  pool N: those, by the time of their last report
    gossamer:{P}:sessions:N     hash    pool N: lasting session of a gateway -> how often it was banned
    gossamer:{P}:sessions-changed:N  zset    pool N: those sessions, by the time of their last ban
    gossamer:{P}:used:F         zset    proxies that page F has tried in vain, by the time they expire; expires
    gossamer:{P}:lock:J         string  held briefly, when a page limit applies across shards

    gossamer:{P.S}:shard        hash    counters: sites (last number given), freed (last sequence); the run of the
                                        server that wrote last, and when tasks may be handed out after its restart
    gossamer:{P.S}:sites        hash    site number -> packed: bucket, rest, crawl-delay, slots in use, holder, name,
                                        the turns of jobs there, how many leases owe no turn any more
    gossamer:{P.S}:numbers      hash    site name -> site number
    gossamer:{P.S}:parked       set     sites with a queue that waits for a slot
    gossamer:{P.S}:freed        zset    sites with a freed slot for which a queue waited, by sequence
    gossamer:{P.S}:robots:O     string  robots.txt of the origin O, expires
    gossamer:{P.S}:address:A    string  when the next request to the network address A may leave; expires then

    gossamer:{P.S}:J:meta       hash    state of the job (replaced, cancelled: nothing enters any more), whether it is
                                        paused or sealed, sequence of this shard, how far `freed` was read
    gossamer:{P.S}:J:counts     hash    how many URLs are in each state; =name -> the spider's own counter of that name;
                                        !reason -> how many were dropped for that reason
    gossamer:{P.S}:J:urls       hash    fingerprint -> packed row: the URL, its state, its task
    gossamer:{P.S}:J:lanes      hash    lane -> number of the lane, from 1; the lane "" is not here, its number is 0
    gossamer:{P.S}:J:queue      zset    queued tasks, in order of lane, site, priority, sequence (all scores are 0)
    gossamer:{P.S}:J:queues     hash    queue number -> packed: whether it has work, may be served, and when
    gossamer:{P.S}:J:ready      zset    queues that may give a task, in order of lane, priority and turn (scores 0)
    gossamer:{P.S}:J:sleeping   zset    queues that wait for their site's bucket, by the time they wake
    gossamer:{P.S}:J:held       zset    queues whose site another worker paces, by that worker (scores 0)
    gossamer:{P.S}:J:waiting    zset    fingerprints of tasks that are not due yet, by their due time
    gossamer:{P.S}:J:leased     zset    fingerprints of leased tasks, by the end of their lease
    gossamer:{P.S}:J:dead       zset    fingerprints of dead letters, by the time they died
    gossamer:{P.S}:J:shapes     hash    site number and path shape -> URLs taken (trap budget)
    gossamer:{P.S}:J:incidents  hash    fingerprint -> MessagePack list of rare events in its story
    gossamer:{P.S}:J:filter     string  Bloom filter of the URLs seen, when the job deduplicates that way
    gossamer:{P.S}:J:holders    hash    worker -> how many leases it holds

There is a queue for each site and lane, with the number lane * 2**32 + site: for the lane "" it is the site's own.
A site is in one shard (`shard_of`). The rows are packed by lua/prelude.lua and read by rows.py. Scripts get all
keys of a job's shard in KEYS, always in the order of `JOB_KEYS`.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

SEED_KEYS = ("seed_leases", "troubles")  # of the book, by job: the lease to read its source, and what was wrong with it
STATS = b"="  # before a name in `counts`
DROPS = b"!"  # before a reason in `counts`
SHARD_KEYS = ("shard", "sites", "numbers", "parked", "freed")
JOB_KEYS = (
    "meta", "counts", "urls", "queue", "queues", "ready", "sleeping", "held", "waiting", "leased", "dead", "shapes",
    "incidents", "filter", "holders", "lanes",
)  # fmt: skip


class Keyspace:
    """Key names of one project spread over `shards` shards."""

    def __init__(self, project: str, shards: int) -> None:
        self.project = project
        self.shards = shards
        self.of_job = lru_cache(maxsize=1024)(self._of_job)
        self.shard_of = lru_cache(maxsize=50_000)(self._shard_of)

    def book(self, name: str) -> str:
        return f"gossamer:{{{self.project}}}:{name}"

    def in_shard(self, shard: int, name: str) -> str:
        return f"gossamer:{{{self.project}.{shard}}}:{name}"

    def _shard_of(self, site: str) -> int:
        """The shard of a site; the same on every machine."""
        digest = blake2b(site.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.shards

    def of_shard(self, shard: int) -> tuple[str, ...]:
        return tuple(self.in_shard(shard, name) for name in SHARD_KEYS)

    def _of_job(self, shard: int, job: int) -> tuple[str, ...]:
        """All keys that a script about a job in a shard may touch, in the order that the scripts expect."""
        return self.of_shard(shard) + tuple(self.in_shard(shard, f"{job}:{name}") for name in JOB_KEYS)
