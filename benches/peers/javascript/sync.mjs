// How long canvas-js takes to fill an empty log on disk from a hub in another process.
//
//     node --import ./polyfill.mjs sync.mjs MESSAGES [PORT]
import { fork } from "node:child_process"
import { once } from "node:events"
import fs from "node:fs"
import os from "node:os"
import path from "node:path"
import { GossipLog } from "@canvas-js/gossiplog/sqlite"

const [messages, port = 28000] = process.argv.slice(2).map(Number)
const hub = fork(path.join(import.meta.dirname, "hub.mjs"), [port, messages])
const [expected] = await once(hub, "message")
const directory = fs.mkdtempSync(path.join(os.tmpdir(), "peers-sync-"))
const log = new GossipLog({ topic: "org.gossiplog.bench", apply() {}, directory })
const { promise: complete, resolve } = Promise.withResolvers()
let received = 0
log.addEventListener("message", () => {
  if (++received === messages) resolve()
})
const start = performance.now()
await log.connect(`ws://127.0.0.1:${port}`)
await complete
const seconds = (performance.now() - start) / 1000
// The root follows the last message's event.
let root = ""
for (let tries = 0; tries < 50 && root !== expected; tries++) {
  root = Buffer.from((await log.tree.read((tree) => tree.getRoot())).hash).toString("hex")
  await new Promise((wake) => setTimeout(wake, 20))
}
if (root !== expected) throw new Error(`the roots differ: ${root}, expected ${expected}`)
console.log(`sync into an empty log on disk: ${messages} messages, ${(messages / seconds).toFixed(0)} a second`)
hub.kill()
fs.rmSync(directory, { recursive: true })
process.exit(0)
