// A hub of canvas-js over a log in memory: started by sync.mjs, to which it sends its root when it listens.
//
//     hub.mjs PORT MESSAGES
import { GossipLog } from "@canvas-js/gossiplog/sqlite"

const [port, messages] = process.argv.slice(2).map(Number)
const log = new GossipLog({ topic: "org.gossiplog.bench", apply() {} })
for (let number = 0; number < messages; number++) {
  await log.append({ number, text: `message ${number} of a benchmark, of about the usual length` })
}
await log.listen(port)
const root = await log.tree.read((tree) => tree.getRoot())
process.send(Buffer.from(root.hash).toString("hex"))
