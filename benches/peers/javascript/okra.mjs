// canvas-js's merkle tree alone, in memory: building it, inserts with a root after each, a difference of 1,000.
//
//     node --import ./polyfill.mjs okra.mjs ENTRIES
import crypto from "node:crypto"
import { Mode, sync } from "@canvas-js/okra"
import { Tree } from "@canvas-js/okra-memory"

const INSERTS = 300
const DIFFERENCES = 1000
const size = Number(process.argv[2])

function entries(seed, count) {
  return Array.from({ length: count }, (_, number) => {
    const digest = crypto.createHash("sha512").update(`${seed} ${number}`).digest()
    return [new Uint8Array(digest.subarray(0, 20)), new Uint8Array(digest.subarray(20, 52))]
  })
}

async function build(unsorted) {
  const sorted = unsorted.toSorted(([left], [right]) => Buffer.compare(left, right))
  const start = performance.now()
  const tree = await Tree.fromEntries({ mode: Mode.Store }, (async function* () { yield* sorted })())
  return [tree, (performance.now() - start) / 1000]
}

const shared = entries("shared", size)
const [tree, seconds] = await build(shared)
console.log(`tree of ${size} entries from scratch: ${(size / seconds).toFixed(0)} entries a second`)

const [larger] = await build([...shared, ...entries("more", DIFFERENCES)])
await larger.read((source) => tree.read(async (target) => {
  let requests = 0
  const counted = {
    getRoot: () => (requests++, source.getRoot()),
    getNode: (...place) => (requests++, source.getNode(...place)),
    getChildren: (...place) => (requests++, source.getChildren(...place)),
  }
  const start = performance.now()
  let found = 0
  for await (const delta of sync(counted, target)) found += delta.source !== null && delta.target === null
  const elapsed = (performance.now() - start) / 1000
  console.log(`difference of ${found} scattered in ${size}: ${elapsed.toFixed(3)} s, ${requests} requests`)
}))

const start = performance.now()
for (const [key, value] of entries("single", INSERTS)) {
  await tree.write((transaction) => {
    transaction.set(key, value)
    transaction.getRoot()
  })
}
console.log(`inserts with a root after each: ${(INSERTS / (performance.now() - start) * 1000).toFixed(0)} a second`)
