// What canvas-js would make of stored values, for the fuzzer: the bytes that it verifies signatures over.

import * as cbor from "@ipld/dag-cbor";
import * as json from "@ipld/dag-json";
import { prepareMessage } from "@canvas-js/utils";
import { CID } from "multiformats/cid";

const codecs = { "dag-cbor": cbor, "dag-json": json };

// Bytes that maps may pass for, and elements that a list may be joined of: with more, canvas-js works for seconds to for
// ever, or its process ends; see docs/wire-format.md.
const MAX_PASSING = 2 ** 22;
const MAX_JOINED = 2 ** 20;

class Untried extends Error {}

const passes = (value) => value instanceof Uint8Array && !ArrayBuffer.isView(value);

const lengthOf = (value) => {
  try {
    return Number(value.length);
  } catch {
    return 0;
  }
};

const inheritsFromList = (value) => {
  for (let at = Object.getPrototypeOf(value); at !== null; at = Object.getPrototypeOf(at)) {
    if (Array.isArray(at) && at !== Array.prototype) return true;
  }
  return false;
};

// Whether the encoders write a value as a link, and nothing that is in it.
const isLink = (value) => (value.asCID === value || value["/"] === value.bytes) && CID.asCID(value) !== null;

// How many bytes maps pass for, as far as they are encoded, and whether any do. Throws where canvas-js must not be asked.
const weigh = (top) => {
  const pending = [[top, true]];
  const passing = [];
  const lists = [];
  let found = false;
  while (pending.length > 0) {
    const [value, kept] = pending.pop();
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) continue;
    if (!Array.isArray(value) && inheritsFromList(value)) lists.push(value);
    if (value instanceof CID && passes(value.bytes)) lists.push({ length: Infinity });
    found ||= passes(value);
    if (passes(value) && kept) passing.push(value);
    const entriesKept = kept && !passes(value) && !isLink(value);
    for (const key of Object.keys(value)) pending.push([value[key], entriesKept]);
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== null && prototype.constructor?.prototype !== prototype) pending.push([prototype, false]);
  }
  if (found && lists.some(({ length }) => typeof length !== "object" && length > MAX_JOINED)) throw new Untried();
  return { found, total: passing.reduce((sum, value) => sum + (Math.max(0, lengthOf(value)) || 0), 0) };
};

// Only such an entry makes an object inherit from something, and without it nothing passes for anything.
const PROTO = Buffer.from("__proto__");
const NOTHING = { found: false, total: 0 };

// Encodings that differ have bytes in them that were in memory by chance: here they are first these, then those.
const { allocUnsafe } = Buffer;
const encodeOver = (byte, codec, message) => {
  // Has the encoder let go of the chunk that it keeps.
  cbor.encode(["a".repeat(60), "b".repeat(60), "c".repeat(60)]);
  Buffer.allocUnsafe = (size) => allocUnsafe(size).fill(byte);
  try {
    return codec.encode(prepareMessage(message));
  } finally {
    Buffer.allocUnsafe = allocUnsafe;
  }
};

// As multiformats reads it, and where it ends.
const readVarint = (bytes, start) => {
  let [at, sum, shift] = [start, 0, 0];
  for (;;) {
    if (at >= bytes.length) return [NaN, at];
    const byte = bytes[at++];
    sum += shift < 28 ? (byte & 0x7f) << shift : (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return [sum, at];
    shift += 7;
  }
};

const TAG = Buffer.from([0xd8, 42]);
// How many bytes of a byte string's length follow its first byte.
const LENGTHS = { 0x58: 1, 0x59: 2, 0x5a: 4, 0x5b: 8 };

// Whether bytes have a link whose codec adds up to Infinity: multiformats divides that by 128 for ever as it reads it.
const hasEndlessLink = (value) => {
  const bytes = Buffer.from(value.buffer, value.byteOffset, value.length);
  for (let at = bytes.indexOf(TAG); at !== -1; at = bytes.indexOf(TAG, at + 1)) {
    const [version, end] = readVarint(bytes, at + 4 + (LENGTHS[bytes[at + 2]] ?? 0));
    if (version === 1 && readVarint(bytes, end)[0] === Infinity) return true;
  }
  return false;
};

// The bytes that a value is signed over, or why it is refused.
const judge = (log, value) => {
  if (hasEndlessLink(value)) throw new Untried();
  const { signature, message } = log.decode(value);
  const codec = codecs[signature.codec];
  if (codec === undefined) throw new Error("unknown codec");
  const inherits = Buffer.from(value.buffer, value.byteOffset, value.length).includes(PROTO);
  // A parent, too, may be a map that passes for bytes; the message has its id in place of it.
  const ofWhole = ({ payload }) => weigh([payload, cbor.decode(value)[3]]);
  const raw = inherits ? ofWhole(message) : NOTHING;
  const copied = inherits ? ofWhole(prepareMessage(message)) : NOTHING;
  if (raw.total > MAX_PASSING || copied.total > MAX_PASSING) throw new Error("a map that passes for too much");
  let signed;
  if (raw.found || copied.found) {
    signed = encodeOver(0xaa, codec, message);
    if (Buffer.compare(signed, encodeOver(0x55, codec, message)) !== 0) throw new Error("bytes from memory");
  } else {
    signed = codec.encode(prepareMessage(message));
  }
  // What it stores.
  json.encode({ message, signature });
  return signed;
};

// Values in a row, each after its length in four bytes: an object for each would take longer to pass on than to judge.
const split = (data) => {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const values = [];
  for (let at = 0; at < data.length; ) {
    const end = at + 4 + view.getUint32(at);
    values.push(data.slice(at + 4, end));
    at = end;
  }
  return values;
};

const join = (values) =>
  Buffer.concat(
    values.flatMap((value) => {
      const head = Buffer.alloc(4);
      head.writeUInt32BE(value.length);
      return [head, value];
    }),
  );

const oneLine = (text) => text.slice(0, 200).replaceAll("\n", " ");

// For each value the bytes, and the reason why there are none, a line each: "untried" where canvas-js might never end.
export const judgeAll = (log, values) => {
  const reasons = [];
  const signed = split(values).map((value) => {
    try {
      const bytes = judge(log, value);
      reasons.push("");
      return bytes;
    } catch (error) {
      reasons.push(error instanceof Untried ? "untried" : oneLine(String(error)));
      return Buffer.alloc(0);
    }
  });
  return { signed: join(signed), reasons: reasons.join("\n") };
};

// Inserts values without parents, each as if the log had no heads: they would take longer with each. Returns for each why it
// was refused, a line each, empty where it was not.
export const insertAll = async (log, values) => {
  const reasons = [];
  for (const value of split(values)) {
    try {
      const { id } = await log.insert(log.decode(value));
      await log.db.apply([{ model: "$heads", operation: "delete", key: id }]);
      reasons.push("");
    } catch (error) {
      reasons.push(oneLine(String(error)) || "refused");
    }
  }
  return reasons.join("\n");
};
