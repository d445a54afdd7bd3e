// How many messages a second canvas-js appends to a log on disk.
//
//     node --import ./polyfill.mjs append.mjs MESSAGES
import fs from "node:fs"
import os from "node:os"
import path from "node:path"
import { GossipLog } from "@canvas-js/gossiplog/sqlite"

const messages = Number(process.argv[2])
const directory = fs.mkdtempSync(path.join(os.tmpdir(), "peers-append-"))
const log = new GossipLog({ topic: "org.gossiplog.bench", apply() {}, directory })
const start = performance.now()
for (let number = 0; number < messages; number++) {
  await log.append({ number, text: `message ${number} of a benchmark, of about the usual length` })
}
const seconds = (performance.now() - start) / 1000
await log.close()
fs.rmSync(directory, { recursive: true })
console.log(`append on disk: ${messages} messages, ${(messages / seconds).toFixed(0)} a second`)
