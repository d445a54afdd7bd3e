// How soon messages of canvas-js reach every peer of a mesh: all peers in one process, each of which verifies and
// inserts every message. A latency is from the writer's own "message" event to another peer's.
//
//     node --import ./polyfill.mjs gossip.mjs PEERS MESSAGES RATE
import { GossipLog } from "@canvas-js/gossiplog/sqlite"
import { Registry } from "prom-client"

const topic = "org.gossiplog.bench"
const [peers, messages, rate] = process.argv.slice(2).map(Number)
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, Math.max(0, milliseconds)))

const begun = new Map()
const latencies = []
const members = []
let last = 0
for (let number = 0; number < peers; number++) {
  const log = new GossipLog({ topic, apply() {}, directory: null })
  log.addEventListener("message", ({ detail: { id, source } }) => {
    const now = performance.now()
    if (source === undefined) {
      begun.set(id, now)
    } else {
      latencies.push(now - begun.get(id))
      last = now
    }
  })
  const known = [1, 2, 5].filter((step) => step <= number).map((step) => members[number - step].address)
  const listen = ["/ip4/127.0.0.1/tcp/0/ws"]
  const libp2p = await log.startLibp2p({ listen, announce: [], bootstrapList: known, registry: new Registry() })
  members.push({ log, libp2p, address: libp2p.getMultiaddrs()[0].toString() })
}
const meshed = ({ libp2p }) => libp2p.services.pubsub.getMeshPeers(topic).length >= Math.min(2, peers - 1)
while (!members.every(meshed)) await sleep(200)
await sleep(2000)

const start = performance.now()
for (let number = 0; number < messages; number++) {
  await sleep(start + (1000 * number) / rate - performance.now())
  await members[number % peers].log.append({ number, text: "x".repeat(100) })
}
const expected = messages * (peers - 1)
while (latencies.length < expected && performance.now() - Math.max(last, start) < 10_000) await sleep(50)
latencies.sort((one, other) => one - other)
const at = (share) => latencies[Math.floor(share * latencies.length)]?.toFixed(1)
console.log(
  `${peers} peers, ${messages} messages, ${rate} a second: ${latencies.length} of ${expected} deliveries,` +
    ` p50 ${at(0.5)} ms, p95 ${at(0.95)} ms`,
)
process.exit()
